"""Counterexamples of plain properties: the point, its outputs, and how it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.properties.confirm import replay_at
from provable_circuits.properties.decimals import decimals, fraction_text, is_float, unheld
from provable_circuits.properties.exact import Met, meets
from provable_circuits.properties.vnnlib import Case
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.domains import nearest_float

SEVERAL = 8
"""Inputs that a note names, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """An input and its output, per sample, float64; the input in decimals; and a note about them.

    Where float64 does not hold the input, ``x`` is what is nearest, and ``note`` says so.
    """

    x: Tensor
    y: Tensor
    decimals: tuple[str, ...]
    note: str


def replayed_counterexample(graph: Graph, case: Case, x: Tensor, y: Tensor) -> Counterexample:
    """What interval arithmetic has found to be one."""
    text = decimals(case, x.flatten().tolist(), lambda point: replay_at(graph, case, point))
    return Counterexample(x, y, text, _fixed(unheld(case)))


def exact_counterexample(graph: Graph, network: Graph, case: Case, met: Met) -> Counterexample:
    """What rational arithmetic has found to be one.

    Args:
        graph: the network as given.
        network: the same, lowered.
        case: the case that is met.
        met: where.
    """
    given = case.numbers.lower
    fixed = {i for i in unheld(case) if met.x[i] == Fraction(given[i])}
    floats = [nearest_float(value) for value in met.x]
    other = [i for i, v in enumerate(met.x) if i not in fixed and not is_float(v)]
    x = torch.tensor(floats, dtype=torch.float64).reshape(graph.input_shape)
    outputs = [nearest_float(value) for value in met.y]
    y = torch.tensor(outputs, dtype=torch.float64).reshape(graph.output_shape)
    if other:
        return Counterexample(x, y, tuple(map(fraction_text, met.x)), _exact(other))

    def again(point: Sequence[Fraction]) -> bool:
        return meets(network, case, point, Deadline()) is not None

    return Counterexample(x, y, decimals(case, floats, again), _fixed(sorted(fixed)))


def _fixed(inputs: Sequence[int]) -> str:
    if not inputs:
        return ""
    return (
        f"float64 holds no number between the bounds of {_named(inputs)}: the counterexample has "
        "the bound as it is written."
    )


def _exact(inputs: Sequence[int]) -> str:
    return (
        f"no counterexample that float64 holds was found: {_named(inputs)} must be exactly what is "
        "written."
    )


def _named(inputs: Sequence[int]) -> str:
    names = [f"X_{i}" for i in inputs[:SEVERAL]]
    if len(inputs) > SEVERAL:
        names.append(f"{len(inputs) - SEVERAL} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
