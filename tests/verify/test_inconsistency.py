"""Bounds that contradict each other: empty below a split, else a reason to conclude nothing."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from tests.verify.networks import hard, pools

import provable_circuits as pc
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.rounding import InconsistentBoundsError, Interval, met, midpoint
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.differential import DifferentialBounds, Known
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.outcome import Reason


def number(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


def test_a_negative_radius_is_refused() -> None:
    with pytest.raises(InconsistentBoundsError):
        midpoint(number(1.0), number(1.0 - 2**-50))
    middle, radius = midpoint(number(1.0), number(1.0))
    assert float(middle) == 1.0
    assert float(radius) >= 0


def test_two_enclosures_of_one_number_meet() -> None:
    lower, upper = met((number(0.0), number(2.0)), (number(1.0), number(3.0)))
    assert (float(lower), float(upper)) == (1.0, 2.0)
    with pytest.raises(InconsistentBoundsError):
        met((number(0.0), number(1.0)), (number(2.0), number(3.0)))


def two_layers() -> Graph:
    """Two units, each a multiple of the one input, and a third that reads both."""
    builder = GraphBuilder()
    x = builder.input("x", (1,))
    first = builder.add("first", Linear(torch.tensor([[1.0], [1.0]]).double()), x)
    hidden = builder.add("hidden", ReLU(), first)
    second = builder.add("second", Linear(torch.tensor([[1.0, 1.0]]).double()), hidden)
    return builder.build([builder.add("y", ReLU(), second)])


def bounds_with(prior: dict[str, Interval], splits: dict[str, list[bool]]) -> Bounds:
    box = InputRange(number(-1.0).expand(2, 1), number(1.0).expand(2, 1))
    masks = {name: torch.tensor(mask) for name, mask in splits.items()}
    structure = Structure(two_layers(), torch.device("cpu"))
    bounds = Bounds(structure, Region({"x": box}), 2, prior=prior, splits=masks)
    bounds.compute()
    return bounds


def beyond() -> Interval:
    """Bounds of the second layer, of two problems, of which the first cannot be met."""
    return (torch.tensor([[5.0], [0.5]]).double(), torch.tensor([[6.0], [1.0]]).double())


def test_a_split_may_leave_nothing() -> None:
    bounds = bounds_with({"second": beyond()}, {"first": [True, False]})
    assert bounds.empty.tolist() == [True, False]
    for lower, upper in bounds.ends.values():
        assert bool((lower <= upper).all()), "nothing with a negative radius is carried on"


@pytest.mark.parametrize(
    "splits",
    [{}, {"first": [False, True]}, {"y": [True, True]}],
    ids=["none", "of another problem", "behind it"],
)
def test_what_no_split_explains_is_inconsistent(splits: dict[str, list[bool]]) -> None:
    with pytest.raises(InconsistentBoundsError, match="'second'"):
        bounds_with({"second": beyond()}, splits)


def test_inconsistent_bounds_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Derived bounds that are wrong and contradict others: no proof, and a clean slate."""
    large = DEFAULT.changed(bounding={"small_units": 0})
    graph = pools()
    circuit, claim = hard(graph)
    plain = DifferentialBounds.enclosures

    def wrong(self: DifferentialBounds, known: Known, query: object) -> dict[str, Interval]:
        derived = plain(self, known, query)  # type: ignore[arg-type]
        return {name: (low + 1e3, high + 1e3) for name, (low, high) in derived.items()}

    verifier = pc.Verifier(circuit.components, claim, configuration=large)
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(DifferentialBounds, "enclosures", wrong)
        verdict = verifier.ask(circuit, max_nodes=4)
    assert isinstance(verdict, pc.Undecided)
    assert verdict.reason == Reason.INCONSISTENT
    assert verdict.bound == math.inf
    assert "contradict each other" in caplog.text
    again = verifier.ask(circuit, max_nodes=4)
    other = pc.Verifier(circuit.components, claim, configuration=large)
    fresh = other.ask(circuit, max_nodes=4)
    assert isinstance(again, pc.Undecided)
    assert isinstance(fresh, pc.Undecided)
    assert (again.reason, again.bound) == (fresh.reason, fresh.bound)
