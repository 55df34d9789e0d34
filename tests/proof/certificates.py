"""Real certificates about small random networks, for claims whose truth is known.

The random cases of the oracle have dense, convolutional, residual and leaky networks, all domains,
patchings and metrics, and a mixed-integer program says where each claim becomes false: claims are
made to hold by little. Curved activations, concatenation, clipping and a ball of the 2-norm are
added by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from tests.oracle.cases import draw
from tests.proof.judge import Judge

import provable_circuits as pc
from provable_circuits.errors import ProvableCircuitsError
from provable_circuits.network import ops
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.proof.certify import certify
from provable_circuits.proof.writing import Writer
from provable_circuits.verify.deadline import Deadline, OutOfTime

Files = Mapping[str, bytes]

SEEDS = (0, 1, 5, 6, 7, 8, 11, 13, 19, 20, 21, 24, 26, 31, 33, 35, 39, 59)
"""Cases of the oracle that are proved quickly, with splits in some."""

BY_HAND = ("tanh", "sigmoid", "concat", "clip", "round")


SMALLEST = ("smallest hull", "smallest reachable", "smallest hull 2")
"""Circuits of the least size, with lower bounds."""


@dataclass(frozen=True)
class Made:
    """A certificate that the checker has accepted."""

    name: str
    files: Files


def names() -> list[str]:
    """What ``make`` knows: certificates of faithfulness, and of witnesses."""
    return [*map(str, SEEDS), *BY_HAND, *SMALLEST, *(f"refuted {seed}" for seed in SEEDS[:10])]


@cache
def make(name: str) -> Made:
    """A certificate by name."""
    if name in SMALLEST:
        return Made(name, _smallest(SMALLEST.index(name)))
    if name.startswith("refuted"):
        return Made(name, _refuted(int(name.split()[1])))
    return Made(name, _by_hand(name) if name in BY_HAND else _drawn(int(name)))


def _drawn(seed: int) -> Files:
    """A claim that holds with about 3 % to spare."""
    case = draw(seed)
    truth = case.truth(nodes=2000)
    if truth is None:
        raise ValueError(f"nobody knows the truth about case {seed}")
    tolerance = truth.high * 1.03 + 1e-3
    if case.metric.startswith("winner"):
        tolerance = min(truth.low - 0.03 * abs(truth.low) - 1e-3, 1.0)
    return certify(case.claim(tolerance), case.circuit, Deadline(max_nodes=60)).files


def _refuted(seed: int) -> Files:
    """Witnesses: against the circuit, and against others that lack one more component."""
    case = draw(seed)
    truth = case.truth(nodes=2000)
    if truth is None:
        raise ValueError(f"nobody knows the truth about case {seed}")
    tolerance = truth.low * 0.9
    if case.metric.startswith("winner"):
        tolerance = min(truth.high * 1.1 + 1e-3, 1.0)
    claim = case.claim(tolerance)
    verdict = pc.verify(case.graph, case.circuit, claim, max_nodes=200)
    necessary = {}
    for component in case.circuit.names[:3]:
        other = pc.verify(case.graph, case.circuit.remove(component), claim, max_nodes=200)
        if isinstance(other, pc.Refuted):
            necessary[component] = other.witness
    witness = verdict.witness if isinstance(verdict, pc.Refuted) else None
    return certify(
        claim, case.circuit, Deadline(), faithful=False, witness=witness, necessary=necessary
    ).files


def _smallest(number: int) -> Files:
    """A smallest circuit, by blocking sets and a covering with a branch."""
    dice = torch.Generator().manual_seed(number)
    builder = GraphBuilder()
    value = builder.input("x", (3,))
    for layer, (before, after) in enumerate([(3, 6), (6, 4)]):
        weight = torch.randn(after, before, generator=dice, dtype=torch.float64)
        value = builder.add(f"fc{layer}", ops.Linear(weight), value, layer=f"fc{layer}")
        if not layer:
            value = builder.add("act", ops.ReLU(), value)
    patching = pc.Reachable(0.3) if number == 1 else pc.IntervalHull(0.3)
    ball = pc.Ball(torch.rand(3, generator=dice, dtype=torch.float64), 0.05)
    claim = pc.Claim([ball], patching, pc.Norm(1.0, 1))
    result = pc.discover(builder.build([value]), claim, algorithm="hitting-set", max_nodes=200)
    if result.certificate is None or "cardinal" not in str(result.certificate.findings[-1]):
        raise ValueError(f"no smallest circuit is certified of {number}: {result.certification}")
    return result.certificate.files


def _by_hand(kind: str) -> Files:
    dice = torch.Generator().manual_seed(BY_HAND.index(kind) + 1)

    def linear(before: int, after: int) -> ops.Linear:
        weight = torch.randn(after, before, generator=dice, dtype=torch.float64)
        return ops.Linear(weight, torch.randn(after, generator=dice, dtype=torch.float64) * 0.3)

    builder = GraphBuilder()
    x = builder.input("x", (2,))
    first = builder.add("fc0", linear(2, 4), x, layer="fc0")
    bends: dict[str, ops.Op] = {
        "tanh": ops.Tanh(),
        "sigmoid": ops.Sigmoid(),
        "clip": ops.Clip(-0.2, 0.6),
    }
    value = builder.add("act0", bends.get(kind, ops.ReLU()), first)
    width = 4
    if kind == "concat":
        second = builder.add("side", linear(2, 3), x, layer="side")
        second = builder.add("side_act", ops.LeakyReLU(0.2), second)
        value, width = builder.add("both", ops.Concat(0), value, second), 7
    value = builder.add("fc1", linear(width, 3), value, layer="fc1")
    value = builder.add("act1", bends.get(kind, ops.ReLU()), value)
    graph = builder.build([builder.add("out", linear(3, 3), value, layer="out")])
    p = 2.0 if kind == "round" else math.inf
    ball = pc.Ball(torch.rand(2, generator=dice, dtype=torch.float64), 0.3, p)
    patching = pc.Reachable(eps=0.1) if kind in ("concat", "tanh") else pc.Zero()
    parts = graph.components("neuron")
    circuit = parts.full().remove(parts.names[0], parts.names[-1])

    def claim(tolerance: float) -> pc.Claim:
        return pc.Claim([ball], patching, pc.MaxAbs(tolerance))

    statement = Writer(claim(0.0), circuit)
    statement.faithful([], {})
    judge = Judge(statement.files())
    most = judge.attack(0, set(circuit.names))
    for factor in (1.05, 1.2, 1.5, 2.0):
        try:
            return certify(claim(most * factor + 1e-3), circuit, Deadline(max_nodes=80)).files
        except (OutOfTime, ProvableCircuitsError):
            continue
    raise ValueError(f"the network {kind!r} is not proved")
