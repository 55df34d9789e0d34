from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.confirm import confirm, push
from provable_circuits.properties.vnnlib import Case, Property, parse_property


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def relu() -> Graph:
    builder = GraphBuilder()
    return builder.build([builder.add("relu", ReLU(), builder.input("x", (1,)))])


def two_layers() -> Graph:
    dice = torch.Generator().manual_seed(2)
    builder = GraphBuilder()
    value = builder.input("x", (3,))
    for i, (inputs, outputs) in enumerate(((3, 6), (6, 3))):
        layer = Linear(torch.randn(outputs, inputs, generator=dice))
        value = builder.add(f"fc{i}", layer, value)
        value = builder.add(f"relu{i}", ReLU(), value) if i == 0 else value
    return builder.build([value])


def asked(lower: str, upper: str, least: str) -> Property:
    return parse_property(
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        f"(assert (>= X_0 {lower}))(assert (<= X_0 {upper}))(assert (>= Y_0 {least}))"
    )


def test_a_candidate_is_confirmed_inside_the_box_or_not_at_all() -> None:
    found = confirm(relu(), asked("-1", "1", "0.5"), torch.tensor([1.0000001]))
    assert found is not None
    assert found[0].tolist() == [1.0]
    assert confirm(relu(), asked("-1", "0.4", "0.5"), torch.tensor([0.6])) is None


def test_the_box_is_that_of_the_decimals() -> None:
    """float64's 0.1 lies above 0.1, so it is not in the box that ends there."""
    found = confirm(relu(), asked("0", "0.1", "0.05"), f64([0.1]))
    assert found is not None
    assert float(found[0]) == math.nextafter(0.1, 0)
    assert confirm(relu(), asked("0", "0.1", "0.1"), f64([0.1])) is None


def test_a_candidate_at_the_edge_of_its_constraints_is_pushed_off_it() -> None:
    graph = two_layers()
    x = f64([0.1, -0.2, 0.3])
    rows = f64([[1.0, 0.3, 0.0], [0.0, 1.0, -0.4]])
    bounds = rows @ graph.run(x, torch.float64)[0] - 1e-9
    case = Case.exact(f64([-1.0] * 3), f64([1.0] * 3), rows, bounds)
    found = confirm(graph, Property(3, 3, (case,)), x)
    assert found is not None
    assert float((found[0] - x).abs().max()) < 1e-2
    assert bool((rows @ found[1] <= bounds).all())


def test_a_push_stays_near_and_inside() -> None:
    graph = two_layers()
    case = Case.exact(f64([-1.0] * 3), f64([1.0] * 3), f64([[1.0, 0.0, 0.0]]), f64([-100.0]))
    for x in (f64([0.1, -0.2, 0.3]), f64([1.0, -1.0, 1.0])):
        moved = push(graph, case, x)
        assert float((moved - x).abs().max()) <= 2e-3 * (1 + 1e-9)
        assert bool((moved.abs() <= 1).all())
        y, before = graph.run(moved, torch.float64), graph.run(x, torch.float64)
        assert float(y[0, 0]) <= float(before[0, 0])
