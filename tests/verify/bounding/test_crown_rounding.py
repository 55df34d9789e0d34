"""The account that backward bounds keep of their rounding: every rounding is entered.

What rounding can do is listed node by node, from the theorem in ``rounding.py``, and must be in the
account that the pass kept.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from tests.verify.bounding.reference import (
    CPU,
    GRAPHS,
    PROBLEMS,
    ROWS,
    bounds_of,
    dense,
    dice,
    references,
    start_rows,
)
from torch import Tensor

from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Affine, Concat, Constant, Input, Linear, LinearOp
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, gamma
from provable_circuits.verify.bounding import crown as module
from provable_circuits.verify.bounding.crown import (
    TINY_SINGLE,
    Sizes,
    View,
    backward,
    measured_norm,
)
from provable_circuits.verify.bounding.crown import _Error as Ledger


class Account(Ledger):
    """Writes down what is entered at which tensor."""

    entries: dict[str, dict[str, list[tuple[Any, ...]]]]

    def __init__(self, view: View, start: str, rows: Tensor) -> None:
        super().__init__(view, start, rows)
        Account.entries = {}

    def _enter(self, kind: str, *what: Any) -> None:
        Account.entries[self.place].setdefault(kind, []).append(what)

    def at(self, name: str, rows: Tensor) -> Tensor | float:
        self.place = name
        Account.entries[name] = {}
        norm = super().at(name, rows)
        self._enter("norm", norm)
        return norm

    def add(self, norm: Tensor | float, terms: int, size: float, unit: float | None = None) -> None:
        super().add(norm, terms, size, unit)
        self._enter("add", norm, terms, size, unit or self.unit)

    def underflow(self, entries: int, terms: int, size: float) -> float:
        lost = super().underflow(entries, terms, size)
        self._enter("underflow", entries, terms, size)
        return lost

    def weights(self, norm: Tensor | float, op: LinearOp, size: float) -> None:
        super().weights(norm, op, size)
        self._enter("weights", norm, size)


def entered(place: str, kind: str, *least: Any) -> bool:
    """Whether something was entered that is at least this, and not absurdly more."""

    def covers(entry: tuple[Any, ...]) -> bool:
        pairs = list(zip(entry, least, strict=True))
        enough = all(bool((torch.as_tensor(have) >= need).all()) for have, need in pairs)
        return enough and all(
            bool((torch.as_tensor(have) <= 1.5 * torch.as_tensor(need) + 50).all())
            for have, need in pairs
            if isinstance(need, int)
        )

    if kind == "underflow":
        return least in Account.entries[place].get(kind, [])
    return any(covers(entry) for entry in Account.entries[place].get(kind, []))


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_rounding_is_entered(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_Error", Account)
    graph = GRAPHS[kind]()
    bounds = bounds_of(graph)
    view = bounds.view(dtype)
    rows = start_rows(graph, "y").to(dtype)
    activations = {n.name for n in graph.nodes if n.inputs and not isinstance(n.op, LinearOp)}
    multipliers = {
        n: 5 * dice(3)(PROBLEMS, 1, *graph[n].shape).to(dtype) for n in activations - {"relu"}
    }
    backward(view, "y", rows, multipliers=multipliers)
    _, norms = references(view, "y", rows, multipliers)
    unit = UNIT_ROUNDOFF if dtype == torch.float64 else 2.0**-24
    for node in graph.nodes:
        name, op, count = node.name, view.ops[node.name], math.prod(node.shape)
        norm, inputs = norms[name] * (1 - 1e-5), list(node.inputs)
        lower, upper = (end.abs().amax() for end in bounds.ends[name])
        size = float(max(lower, upper))
        (held,) = Account.entries[name]["norm"][0]
        assert bool((torch.as_tensor(held) >= norm).all()), "no norm is larger than held"
        assert bool((torch.as_tensor(held) <= 400 * norm.amax() + 1e-3).all()), name
        if sum(name in other.inputs for other in graph.nodes) > 1 or inputs.count(name) > 1:
            assert entered(name, "add", norm, 2, size, unit), "where paths meet is an addition"
        if isinstance(op, Input):
            assert entered(name, "add", norm, 8 * count + 32, 2 * size, UNIT_ROUNDOFF)
            assert entered(name, "underflow", count, 8, 0.0)
        elif isinstance(op, Constant):
            assert entered(name, "add", norm, count, size, unit)
            assert entered(name, "underflow", count, 2, 0.0)
        elif isinstance(op, LinearOp):
            sizes = [torch.maximum(*(end.abs() for end in bounds.ends[n])) for n in inputs]
            largest = max(view.sizes[n] for n in inputs)
            reach = op.to(torch.float64, CPU).spread(*sizes)
            offset = op.offset()
            if offset is not None:
                reach = reach + offset.abs()
            if op.exact:
                assert set(Account.entries[name]) <= {"norm", "add"}
                assert len(Account.entries[name].get("add", ())) <= 1
                continue
            far = float(reach.amax()) * (1 - 1e-5)
            assert entered(name, "add", norm, op.back_terms, far, unit)
            entries = sum(math.prod(graph[n].shape) for n in inputs)
            assert entered(name, "underflow", entries, op.back_terms, largest)
            assert entered(name, "weights", norm, largest)
            if offset is not None:
                assert entered(name, "add", norm, count, float(offset.abs().max()), unit)
                assert entered(name, "underflow", count, 2, 0.0)
        else:
            line, (source,) = view.lines[name], inputs
            before = view.sizes[source]
            assert entered(name, "add", norm, count, line.highest, unit)
            extra = multipliers[name].flatten(2).abs().sum(2) if name in multipliers else 0.0
            carried = norm * line.steepest + extra * (1 - 1e-5)
            assert entered(name, "add", carried, 4, before, unit)
            assert entered(name, "underflow", count, 4, before)


def test_norms_of_paths_that_meet_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three paths of the same rows to one input, and one to another."""
    monkeypatch.setattr(module, "_Error", Account)
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    moved = builder.add("moved", Affine(torch.ones(2).double()), x)
    graph = builder.build([builder.add("cat", Concat(0), moved, x, moved, x, x)])
    rows = torch.full((PROBLEMS, ROWS, 10), 2.0, dtype=torch.float64)
    backward(bounds_of(graph).view(torch.float64), "cat", rows)
    norms = {name: entry["norm"][0][0] for name, entry in Account.entries.items()}
    assert norms["cat"] >= 20.0
    assert norms["moved"] >= 8.0
    assert norms["x"] >= 20.0
    met = {
        n for n, entry in Account.entries.items() if any(a[1] == 2 for a in entry.get("add", []))
    }
    assert met == {"moved", "x"}


@pytest.mark.parametrize("kind", GRAPHS)
def test_norms_cover_what_underflowed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of zeros may have been one whose products were lost."""
    monkeypatch.setattr(module, "_Error", Account)
    graph = GRAPHS[kind]()
    backward(bounds_of(graph).view(torch.float64), "y", 0 * start_rows(graph, "y"))
    seen: dict[str, float] = {"y": 0.0}
    for node in reversed(graph.nodes):
        ((held,),) = Account.entries[node.name]["norm"]
        assert held >= seen[node.name]
        if isinstance(node.op, LinearOp) and node.inputs:
            terms = 0 if node.op.exact else node.op.back_terms
        else:
            terms = 4
        entries = sum(math.prod(graph[name].shape) for name in node.inputs)
        for name in node.inputs:
            seen[name] = max(seen.get(name, 0.0), entries * terms * TINY)


def test_narrow_rows_that_meet_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 norms are those of each row, not the largest of all."""
    monkeypatch.setattr(module, "_Error", Account)
    graph = dense()
    rows = start_rows(graph, "y").float() * torch.tensor([1.0, 1e-3, 1e3])[:, None]
    view = bounds_of(graph).view(torch.float32)
    found = backward(view, "y", rows)
    _, norms = references(view, "y", rows)
    for name, entry in Account.entries.items():
        (norm,) = entry["norm"][0]
        torch.testing.assert_close(norm, norms[name], rtol=2e-2, atol=1e-6)
    assert bool((found.error[:, 2] > 100 * found.error[:, 0]).all())


def test_sums_that_lose_the_most_are_below_the_norm() -> None:
    row = torch.tensor([1.0, *[2.0**-54] * 3000])
    for dtype, width in ((torch.float64, 1e-5), (torch.float32, 2e-2)):
        values = row.to(dtype) if dtype == torch.float64 else torch.tensor([1.0] + [2**-25] * 3000)
        rows = torch.stack([values, -values.flip(0)])[None]
        exact = sum(abs(Fraction(float(v))) for v in values)
        norms = measured_norm(rows)
        assert norms.shape == (1, 2)
        assert norms.dtype == torch.float64
        assert all(exact <= Fraction(float(n)) <= exact * Fraction(1 + width) for n in norms[0])


def test_sizes_are_the_largest_of_either_end() -> None:
    one = torch.tensor([[1.0, -7.0], [2.0, 3.0]])
    other = torch.tensor([[4.0, -1.0], [2.5, 6.0]])
    ends = {"a": (one, other), "b": (-other, -one)}
    sizes = Sizes(ends)
    assert (sizes["a"], sizes["b"]) == (7.0, 7.0)
    assert Sizes({"c": (one[1:], other[1:])})["c"] == 6.0
    assert Sizes({"d": (one - 9.0, other - 9.0)})["d"] == 16.0
    assert Sizes({"e": (one + 9.0, other + 9.0)})["e"] == 15.0
    ends["a"] = (one * 2, other)
    assert sizes["a"] == 7.0, "it is looked up once"


class Still:
    """All that an account asks of a view."""

    norm_growth = 1e4

    sizes = {"t": 8.0}  # noqa: RUF012


def account(*values: float, dtype: torch.dtype = torch.float64) -> Ledger:
    rows = torch.tensor([[values, [-2 * v for v in values]]], dtype=dtype)
    return Ledger(Still(), "t", rows)  # type: ignore[arg-type]


def near(found: Any, exact: float, slack: float = 0.04) -> bool:
    """At or above what is needed, and by little."""
    return bool(((exact <= torch.as_tensor(found)) & (found <= exact * (1 + slack))).all())


def test_entries_are_those_of_the_theorem() -> None:
    error = account(1.0, -2.0)
    assert (error.total, error.reach) == (0.0, 0.0)
    error.add(3.0, 1000, 5.0)
    assert near(error.total, 15000 * UNIT_ROUNDOFF)
    assert error.reach == 15.0
    error.add(3.0, 1000, 5.0, 2.0**-40)
    assert near(error.total, 15000 * (UNIT_ROUNDOFF + 2.0**-40))
    assert error.reach == 30.0
    single = account(1.0, -2.0, dtype=torch.float32)
    single.add(torch.tensor([1.0, 2.0]).double(), 10, 5.0)
    assert near(single.total / torch.tensor([1.0, 2.0]), 50 * 2.0**-24)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_that_underflow_are_entered(dtype: torch.dtype) -> None:
    tiny = TINY if dtype == torch.float64 else TINY_SINGLE
    assert tiny == 4 * torch.finfo(dtype).tiny or tiny == 2 * torch.finfo(dtype).tiny
    error = account(1.0, dtype=dtype)
    lost = error.underflow(7, 30, 1e3)
    assert lost == 210 * tiny
    assert near(error.total, 210 * tiny * 1e3)
    error = account(1.0, dtype=dtype)
    error.underflow(7, 30, 0.0)
    assert near(error.total, 210 * tiny), "the products themselves, where nothing follows"


def test_weights_that_a_narrower_type_cannot_hold_are_entered() -> None:
    op = Linear(torch.ones(2, 10))
    error = account(1.0, dtype=torch.float32)
    error.weights(3.0, op, 100.0)
    assert near(error.total, 3 * TINY_SINGLE * (op.terms * 100 + 1))
    plain = account(1.0)
    plain.weights(3.0, op, 100.0)
    assert plain.total == 0


def test_norms_are_carried_and_added_up_where_paths_meet() -> None:
    error = account(1.0, -2.0)
    rows = torch.tensor([[[1.0, -2.0]]]).double()
    assert near(error.at("t", rows), 6.0, 1e-5)
    error.carry("t", 7.0, False)
    assert error.at("t", rows) == 7.0
    assert error.total == 0
    error.carry("t", torch.tensor([1.0, 3.0]).double(), True)
    assert error.at("t", rows) == 10.0
    assert near(error.total, 2 * UNIT_ROUNDOFF * 10 * 8)
    single = account(1.0, -2.0, dtype=torch.float32)
    single.carry("t", 7.0, False)
    assert near(single.at("t", rows.float()), 3.0)
    assert single.total == 0
    single.carry("t", 7.0, True)
    assert near(single.at("t", rows.float()), 3.0)
    assert near(single.total, 2 * 2.0**-24 * 3 * 8, 0.05)


def test_norms_that_grew_far_are_measured() -> None:
    error = account(1.0, -2.0)
    rows = torch.tensor([[[1.0, -2.0], [4.0, 0.5]]]).double()
    error.carry("t", 6 * Still.norm_growth * 0.99, False)
    assert near(error.at("t", rows), 6 * Still.norm_growth * 0.99, 1e-9)
    error.carry("t", error.limit, False)
    assert error.at("t", rows) == error.limit
    error.carry("t", 6 * Still.norm_growth * 1.01, False)
    assert near(error.at("t", rows), 4.5, 1e-5)
    assert near(error.norms["t"], 4.5, 1e-5), "and carried on from there"
    error.carry("t", 6 * Still.norm_growth * 1.01, False)
    assert error.at("t", rows * 1e9) == 6 * Still.norm_growth * 1.01, "the smaller of two bounds"
    for size in (1e-60, 1e60, 1 + 2.0**-50):
        error.carry("t", size, False)
        assert error.norms["t"] == size, "in double precision"
    nothing = account(0.0)
    nothing.carry("t", 1.0, False)
    assert nothing.at("t", rows * 0) == 0.0


def test_the_whole_account() -> None:
    error = account(1.0)
    error.total, error.reach = 1e-20, 0.0
    assert near(error.result(10), 1e-20, 1e-4)
    error.total, error.reach = 0.0, 1e6
    exact = Fraction(UNIT_ROUNDOFF) * (4 * 10 + 16) * 10**6
    assert near(error.result(10), float(exact))
    assert near(error.result(1000), 4016 * UNIT_ROUNDOFF * 1e6)
    error.reach = 0.0
    assert TINY <= error.result(10) <= 2 * TINY
    assert gamma(56) * 1e6 > 0
