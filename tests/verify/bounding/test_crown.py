"""Backward bounds against a plain reference."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

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
from provable_circuits.network.ops import Linear
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.crown import Fixed, _dot, backward
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.encoding.problem import InputRange


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
