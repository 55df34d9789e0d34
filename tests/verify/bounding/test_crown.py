"""Backward bounds against a plain reference, and the account that is kept of their rounding.

The reference walks back with matrices and loops, one row at a time. What rounding can do is listed
node by node, from the theorem in ``rounding.py``, and must be in the account that the pass kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Affine,
    Concat,
    Constant,
    Conv2d,
    Input,
    LeakyReLU,
    Linear,
    LinearOp,
    ReLU,
    Reshape,
    Sigmoid,
    Square,
)
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, gamma
from provable_circuits.verify.bounding import crown as module
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.crown import (
    GROWTH,
    TINY_SINGLE,
    Fixed,
    Sizes,
    View,
    _dot,
    backward,
    measured_norm,
)
from provable_circuits.verify.bounding.crown import _Error as Ledger
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.encoding.encoder import InputRange

PROBLEMS, ROWS = 2, 3
CPU = torch.device("cpu")


def dice(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator).double()


def dense() -> Graph:
    """A sum of two paths, a path that is joined with itself and a constant, and a curved unit."""
    w, builder = dice(0), GraphBuilder()
    x = builder.input("x", (4,))
    relu = builder.add("relu", ReLU(), builder.add("fc1", Linear(w(5, 4), w(5)), x))
    second = builder.add("fc2", Linear(w(5, 5)), relu)
    total = builder.add("add", Add(), builder.add("moved", Affine(w(5), w(5)), second), relu)
    leaky = builder.add("leaky", LeakyReLU(0.25), total)
    joined = builder.add("cat", Concat(0), builder.constant("c", w(2)), leaky, x, leaky)
    curved = builder.add("sigmoid", Sigmoid(), builder.add("fc3", Linear(w(3, 16), w(3)), joined))
    return builder.build([builder.add("y", Linear(w(2, 3), w(2)), curved)])


def convolutional() -> Graph:
    """Offsets for each channel, for each column, and for each unit."""
    w, builder = dice(1), GraphBuilder()
    x = builder.input("x", (2, 4, 3))
    conv = builder.add("conv", Conv2d(w(3, 2, 3, 3), w(3), padding=(1, 1)), x)
    columns = builder.add("columns", Affine(w(3, 1, 1), w(1, 1, 3)), conv)
    relu = builder.add("relu", ReLU(), columns)
    other = builder.add("conv2", Conv2d(w(2, 3, 2, 2), w(2)), relu)
    units = builder.add("units", Affine(shift=w(2, 3, 2)), other)
    flat = builder.add("flat", Reshape((12,)), builder.add("relu2", ReLU(), units))
    return builder.build([builder.add("y", Linear(w(2, 12), w(2)), flat)])


def squared() -> Graph:
    """An activation that is steeper than one."""
    w, builder = dice(2), GraphBuilder()
    x = builder.input("x", (3,))
    square = builder.add("square", Square(), builder.add("fc", Linear(5 * w(4, 3), w(4)), x))
    return builder.build([builder.add("y", Linear(w(2, 4), w(2)), square)])


GRAPHS = {"dense": dense, "convolutional": convolutional, "squared": squared}


def bounds_of(graph: Graph, width: float = 1.0) -> Bounds:
    """Bounds over two boxes of which neither is around zero."""
    middle = dice(7)(PROBLEMS, *graph.input_shape)
    size = width * torch.rand(middle.shape, generator=torch.Generator().manual_seed(8)).double()
    region = Region({"x": InputRange(middle - size, middle + size)})
    bounds = Bounds(Structure(graph, CPU), region, PROBLEMS)
    bounds.compute(refine=False)
    return bounds


def start_rows(graph: Graph, name: str) -> Tensor:
    rows: Tensor = dice(9)(PROBLEMS, ROWS, *graph[name].shape)
    return rows


def matrix(op: LinearOp, position: int, shapes: list[tuple[int, ...]]) -> Tensor:
    """L for one of the inputs, column by column, from the operation itself."""
    zeros = [torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes]
    at_zero = op.forward(*zeros).flatten()
    columns = []
    for i in range(math.prod(shapes[position])):
        inputs = [zero.clone() for zero in zeros]
        inputs[position].view(-1)[i] = 1.0
        columns.append(op.forward(*inputs).flatten() - at_zero)
    return torch.stack(columns, 1)


Held = dict[str, Tensor]


def reference(
    view: View,
    start: str,
    row: Tensor,
    problem: int,
    multipliers: Mapping[str, Tensor],
    alpha: Mapping[str, Mapping[int, float]],
) -> tuple[float, Held]:
    """The bound of one flat row of one problem, and the row that arrives at each tensor."""
    graph, value, held, seen = view.graph, 0.0, {start: row}, {}
    for node in reversed(graph.nodes):
        a = held.pop(node.name, None)
        if a is None:
            continue
        seen[node.name] = a
        op = view.ops[node.name].to(torch.float64, CPU)
        arriving: dict[str, Tensor] = {}
        if isinstance(op, Input):
            lower, upper = (end[problem].flatten() for end in view.region.ends(node.name))
            value += sum(min(c * low, c * up) for c, low, up in zip(a, lower, upper, strict=True))
        elif isinstance(op, Constant):
            value += float(a @ op.value.flatten().double())
        elif isinstance(op, LinearOp):
            shapes = [graph[name].shape for name in node.inputs]
            zero = op.forward(*(torch.zeros(1, *s, dtype=torch.float64) for s in shapes))
            value += float(a @ zero.flatten())
            for i, name in enumerate(node.inputs):
                piece = a @ matrix(op, i, shapes)
                arriving[name] = arriving[name] + piece if name in arriving else piece
        else:
            line, new = view.lines[node.name], a.clone()
            fixed = alpha.get(node.name, {})
            for i, c in enumerate(a.tolist()):
                side = "below" if c >= 0 else "above"
                slope = getattr(line, f"{side}_slope").double()[problem].flatten()[i]
                offset = getattr(line, f"{side}_offset")
                if offset is not None and offset.ndim > 1 and i not in fixed:
                    value += c * float(offset.double()[problem].flatten()[i])
                new[i] = c * fixed.get(i, slope)
            if node.name in multipliers:
                new = new - multipliers[node.name][problem].flatten()
            arriving[node.inputs[0]] = new
        for name, piece in arriving.items():
            held[name] = held[name] + piece if name in held else piece
    return float(value), seen


def references(
    view: View,
    start: str,
    rows: Tensor,
    multipliers: Mapping[str, Tensor] | None = None,
    fixed: Mapping[str, Fixed] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The bounds [problems, rows], and the 1-norms of what arrives at each tensor."""
    values = torch.zeros(rows.shape[:2], dtype=torch.float64)
    norms: dict[str, Tensor] = {}
    for p in range(rows.shape[0]):
        for r in range(rows.shape[1]):
            alpha: dict[str, dict[int, float]] = {}
            for name, known in (fixed or {}).items():
                for i in range(len(known.units)):
                    if (int(known.problems[i]), int(known.rows[i])) == (p, r):
                        alpha.setdefault(name, {})[int(known.units[i])] = float(known.alpha[i])
            row = rows[p, r].flatten().double()
            values[p, r], seen = reference(view, start, row, p, multipliers or {}, alpha)
            for name, a in seen.items():
                norms.setdefault(name, torch.zeros_like(values))[p, r] = a.abs().sum()
    return values, norms


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("width", [1.0, 1e-6])
def test_a_pass_is_that_of_the_definition(kind: str, width: float) -> None:
    graph = GRAPHS[kind]()
    bounds = bounds_of(graph, width)
    view = bounds.view(torch.float64)
    assert all(line.settled for line in view.lines.values()) == (
        kind == "convolutional" and width < 1
    )
    for name in (node.name for node in graph.nodes):
        rows = start_rows(graph, name)
        wanted, _ = references(view, name, rows)
        found = backward(view, name, rows)
        plain = backward(view, name, rows, rigorous=False)
        assert bool((found.value < wanted).all()), "what rounding may have done is taken off"
        torch.testing.assert_close(found.value, wanted, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(plain.value, wanted, rtol=1e-12, atol=1e-12)
        assert bool((found.error > 0).all())
        assert torch.equal(found.value, plain.value - found.error)
        assert not bool(plain.error.any())
        single = backward(bounds.view(torch.float32), name, rows.float())
        assert single.value.dtype == torch.float64
        wanted, _ = references(bounds.view(torch.float32), name, rows.float())
        torch.testing.assert_close(single.value, wanted, rtol=1e-3, atol=1e-3)
        assert bool((single.value < wanted).all())


def test_rows_are_kept_where_they_are_wanted() -> None:
    graph = dense()
    view = bounds_of(graph).view(torch.float64)
    rows = start_rows(graph, "y")
    found = backward(view, "y", rows, keep_rows=True)
    assert set(found.activations) == {"relu", "leaky", "sigmoid"}
    assert torch.equal(found.activations["sigmoid"], rows @ view.ops["y"].parameters()["weight"])
    assert backward(view, "y", rows).activations == {}
    assert found.inputs["x"].shape == (PROBLEMS, ROWS, 4)
    _, norms = references(view, "y", rows)
    torch.testing.assert_close(found.inputs["x"].abs().sum(2), norms["x"])


def test_multipliers_are_taken_off() -> None:
    graph = dense()
    view = bounds_of(graph).view(torch.float64)
    rows = start_rows(graph, "fc3")
    multipliers = {"leaky": dice(4)(PROBLEMS, 1, 5), "relu": dice(5)(PROBLEMS, 1, 5)}
    wanted, _ = references(view, "fc3", rows, multipliers)
    found = backward(view, "fc3", rows, multipliers=multipliers)
    torch.testing.assert_close(found.value, wanted, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(
        backward(view, "fc3", rows, multipliers=multipliers, rigorous=False).value,
        wanted,
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", ["relu", "leaky", "sigmoid"])
def test_units_of_one_slope_pay_no_offset(name: str) -> None:
    """As if in these rows the lines of these units were the slope itself."""
    graph = dense()
    view = bounds_of(graph, 0.1 if name == "sigmoid" else 3.0).view(torch.float64)
    start = "y" if name == "sigmoid" else "fc3"
    rows = start_rows(graph, start)
    count = math.prod(graph[name].shape)
    places = [(p, r, u) for p, r in ((0, 0), (0, 2), (1, 1)) for u in range(count) if u != r]
    problems, numbers, units = (torch.tensor(place) for place in zip(*places, strict=True))
    alpha = torch.linspace(0.0, 1.0, len(places)).double()
    fixed = {name: Fixed(problems, numbers, units, alpha)}
    wanted, _ = references(view, start, rows, fixed=fixed)
    found = backward(view, start, rows, fixed=fixed)
    torch.testing.assert_close(found.value, wanted, rtol=1e-7, atol=1e-7)
    assert not torch.allclose(found.value, references(view, start, rows)[0])
    for sign in (1, -1):
        wanted, _ = references(view, start, sign * rows.abs(), fixed=fixed)
        found = backward(view, start, sign * rows.abs(), fixed=fixed, rigorous=False)
        torch.testing.assert_close(found.value, wanted, rtol=1e-12, atol=1e-12)
    # Settled lines have no offsets that could be paid.
    ones, line = rows.new_ones(PROBLEMS, ROWS, count), replace(view.lines[name], settled=True)
    piece, part = fixed[name].put(ones, line, 0 * ones, None)
    assert part is None
    assert piece[0, 0].tolist() == pytest.approx([0.0, *fixed[name].alpha[: count - 1].tolist()])


@pytest.mark.parametrize("weight", [1.0, 1e-60, 1e-160])
@pytest.mark.parametrize("size", [1.0, 1e-40, 1e-120, 1e60, 1e160])
def test_what_only_double_precision_holds_is_bounded(weight: float, size: float) -> None:
    """Sums of a hundred products, judged by fractions: rows, values and errors of every size."""
    missed = 0
    for seed in range(8):
        w, builder = dice(seed), GraphBuilder()
        x = builder.input("x", (100,))
        first = builder.add("fc", Linear(w(100, 100) * weight), x)
        graph = builder.build([builder.add("y", Linear(w(1, 100)), first)])
        point = w(1, 100) * size
        region = Region({"x": InputRange(point, point)})
        bounds = Bounds(Structure(graph, CPU), region, 1)
        bounds.compute(refine=False)
        rows = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
        value = backward(bounds.view(torch.float64), "y", rows).value[0]
        inner, outer = (graph[name].op.parameters()["weight"].tolist() for name in ("fc", "y"))
        given = [Fraction(v) for v in point[0].tolist()]
        hidden = [sum(Fraction(a) * b for a, b in zip(row, given, strict=True)) for row in inner]
        exact = sum(Fraction(a) * b for a, b in zip(outer[0], hidden, strict=True))
        assert Fraction(float(value[0])) <= exact, seed
        assert Fraction(float(value[1])) <= -exact, seed
        missed += float(value[0]) == -math.inf
    assert not missed


def test_nothing_that_overflows_is_a_bound() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    graph = builder.build(
        [builder.add("y", Linear(torch.full((1, 2), 1e200, dtype=torch.float64)), x)]
    )
    view = bounds_of(graph).view(torch.float64)
    rows = torch.tensor([[[1e200], [-1e200]]], dtype=torch.float64).expand(PROBLEMS, 2, 1)
    assert bool((backward(view, "y", rows).value == -math.inf).all())


@pytest.mark.parametrize("least", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_no_bound(least: float) -> None:
    class Broken:
        def least(self, name: str, rows: Tensor) -> Tensor:
            return torch.full(rows.shape[:2], least, dtype=torch.float64)

    graph = dense()
    view = replace(bounds_of(graph).view(torch.float64), region=Broken())  # type: ignore[arg-type]
    found = backward(view, "fc1", start_rows(graph, "fc1"))
    assert bool(found.error.isfinite().all())
    assert bool((found.value == -math.inf).all())


def test_offsets_of_channels_are_added_up_by_channels() -> None:
    """As the sums of channels first, to the last bit; any other offset entry by entry."""
    rows, offset = dice(1)(2, 3, 4, 5, 6), dice(2)(4, 1, 1)
    wanted = (rows * offset).flatten(2).sum(2)
    found = _dot(rows, offset)
    torch.testing.assert_close(found, wanted)
    assert torch.equal(found, rows.sum((3, 4)) @ offset.flatten())
    plain = rows.flatten(2) @ offset.expand(4, 5, 6).flatten()
    assert not torch.equal(found, plain), "or this would show nothing"
    for shape, other in (((4, 5, 6), (1, 5, 1)), ((4, 4, 5, 6), (4, 1, 1)), ((7,), (7,))):
        rows, offset = dice(3)(2, 3, *shape), dice(4)(*other)
        torch.testing.assert_close(_dot(rows, offset), (rows * offset).flatten(2).sum(2))


def test_rows_at_nothing_that_is_read_are_zero() -> None:
    """A graph whose output is no node that the rows start at."""
    graph = dense()
    view = bounds_of(graph).view(torch.float64)
    found = backward(view, "elsewhere", torch.ones(PROBLEMS, ROWS, 2).double())
    assert found.value.shape == (PROBLEMS, ROWS)
    assert found.value.dtype == torch.float64
    assert bool((found.value <= 0).all())
    assert bool((found.value > -1e-9).all())


# --- the account of rounding ---------------------------------------------------------------------


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
    error.carry("t", 6 * GROWTH * 0.99, False)
    assert near(error.at("t", rows), 6 * GROWTH * 0.99, 1e-9)
    error.carry("t", error.limit, False)
    assert error.at("t", rows) == error.limit
    error.carry("t", 6 * GROWTH * 1.01, False)
    assert near(error.at("t", rows), 4.5, 1e-5)
    assert near(error.norms["t"], 4.5, 1e-5), "and carried on from there"
    error.carry("t", 6 * GROWTH * 1.01, False)
    assert error.at("t", rows * 1e9) == 6 * GROWTH * 1.01, "the smaller of two bounds"
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
