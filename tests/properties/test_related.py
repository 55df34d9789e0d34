"""Relations between inputs, strict comparisons and equalities: judged by hand-made answers."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.confirm import confirm
from provable_circuits.properties.related import own_outputs, with_inputs
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import parse_property, property_text

NAMES = ("X_0", "X_1", "Y_0", "Y_1")
HEAD = "".join(f"(declare-const {name} Real)" for name in NAMES)
BOX = "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))


def sum_and_difference() -> Graph:
    """y = relu(x0 + x1), relu(x0 - x1)."""
    builder = GraphBuilder()
    weight = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    mixed = builder.add("mixed", Linear(weight), builder.input("x", (2,)))
    return builder.build([builder.add("relu", ReLU(), mixed)])


def text_of(*formulas: str) -> str:
    return HEAD + BOX + "".join(f"(assert {formula})" for formula in formulas)


@pytest.mark.parametrize(
    ("formulas", "status"),
    [
        (("(<= X_0 X_1)", "(>= Y_1 0.1)"), "holds"),
        (("(<= X_0 (+ X_1 0.2))", "(>= Y_1 0.1)"), "violated"),
        (("(<= (+ X_0 X_1) 1)", "(>= Y_0 1.1)"), "holds"),
        (("(< X_0 X_1)", "(>= Y_0 1.9)"), "violated"),
        (("(<= Y_0 X_0)", "(>= X_1 0.1)"), "holds"),
        (("(<= Y_1 X_0)", "(>= Y_0 1)"), "violated"),
        (("(>= Y_0 2)",), "violated"),
        (("(> Y_0 2)",), "holds"),
        (("(= Y_0 2)",), "violated"),
        (("(= Y_0 2.5)",), "holds"),
        (("(= (+ X_0 X_1) 1)", "(>= Y_0 1)"), "violated"),
        (("(< X_0 0)",), "holds"),
        (("(< X_0 1)", "(>= Y_0 1.9)"), "violated"),
        (("(or (and (< X_0 X_1) (>= Y_1 0.1)) (and (> X_0 X_1) (>= Y_1 1.5)))",), "holds"),
    ],
)
def test_relations_are_decided(formulas: tuple[str, ...], status: str) -> None:
    graph, question = sum_and_difference(), parse_property(text_of(*formulas))
    verdict = decide(graph, question, max_nodes=2000)
    assert verdict.status == status
    again = parse_property(property_text(question))
    assert decide(graph, again, max_nodes=2000).status == status
    if verdict.counterexample is not None:
        x, y = verdict.counterexample
        assert (x.shape, y.shape) == (graph.input_shape, graph.output_shape)
        assert verdict.reason == "exact" or confirm(graph, question, x) is not None


@pytest.mark.parametrize(
    "formulas",
    [
        ("(< X_0 1)", "(>= Y_0 2)"),
        ("(<= X_0 X_1)", "(> Y_1 0)"),
        ("(= (+ X_0 X_1) 1)", "(> Y_0 1)"),
        ("(> X_0 1)",),
    ],
)
def test_what_only_touches_a_strict_end_is_never_a_counterexample(formulas: tuple[str]) -> None:
    graph, question = sum_and_difference(), parse_property(text_of(*formulas))
    assert decide(graph, question, max_nodes=300).status != "violated"
    for x in ([1.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]):
        assert confirm(graph, question, torch.tensor(x).double()) is None


def test_a_strict_end_between_two_floats() -> None:
    """No float64 lies between the ends: the decimal that is printed does, strictly."""
    text = text_of("(> X_0 0.1)", "(< X_0 0.1000000000000000001)")
    verdict = decide(sum_and_difference(), parse_property(text), max_nodes=2000)
    assert verdict.status == "violated"
    assert verdict.decimals is not None
    assert Fraction("0.1") < Fraction(verdict.decimals[0]) < Fraction("0.1000000000000000001")


def test_rows_of_relations() -> None:
    found = parse_property(text_of("(< (+ X_0 Y_1) 3)", "(= X_1 0.5)", "(<= Y_0 1)"))
    (case,) = found.cases
    assert found.related
    assert case.rows.tolist() == [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    assert (case.bounds.tolist(), case.strict) == ([3.0, 1.0], frozenset({0}))
    assert (case.lower[1].item(), case.upper[1].item()) == (0.5, 0.5)
    (plain,) = parse_property(text_of("(<= Y_0 1)")).cases
    assert plain.rows.tolist() == [[1.0, 0.0]]


def test_a_network_tells_its_inputs() -> None:
    graph = sum_and_difference()
    x = torch.tensor([0.25, 0.5])
    told = with_inputs(graph).run(x)[0]
    assert told.tolist() == [0.75, 0.0, 0.25, 0.5]
    assert own_outputs(graph, told).tolist() == [0.75, 0.0]
