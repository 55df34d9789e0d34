"""The graph and its builder."""

from __future__ import annotations

import math

import pytest
import torch

from provable_circuits.errors import ArgumentError, WeightsError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Affine, Clip, Constant, Linear, ReLU, ShapeError


def small(weight: torch.Tensor | None = None, name: str = "fc", layer: str | None = "fc") -> Graph:
    """x [3] -> fc [2] -> relu, and a sum with itself."""
    builder = GraphBuilder()
    x = builder.input("x", (3,))
    matrix = torch.arange(6.0).reshape(2, 3) if weight is None else weight
    hidden = builder.add(name, Linear(matrix), x, layer=layer)
    active = builder.add("relu", ReLU(), hidden)
    return builder.build([builder.add("sum", Add(), hidden, active)])


def test_nodes_come_after_what_they_read() -> None:
    graph = small()
    assert [node.name for node in graph.nodes] == ["x", "fc", "relu", "sum"]
    assert graph["sum"].inputs == ("fc", "relu")
    assert (graph.input_shape, graph.output_shape) == ((3,), (2,))
    assert "relu" in graph
    assert "tanh" not in graph
    assert len(graph) == 4


def test_consumers_name_each_reader_once() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    twice = builder.add("twice", Add(), x, x)
    graph = builder.build([twice])
    assert [node.name for node in graph.consumers["x"]] == ["twice"]
    assert graph.consumers["twice"] == ()


def test_the_same_operation_on_the_same_inputs_is_one_node() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    weight = torch.eye(2)
    first = builder.add("a", Linear(weight), x)
    assert builder.add("b", Linear(weight), x) == first
    assert builder.add("c", ReLU(), first) == builder.add("d", ReLU(), first)
    assert builder.shared_count == 2
    graph = builder.build([builder.add("e", ReLU(), first)])
    assert [node.name for node in graph.nodes] == ["x", "a", "c"]


def test_what_differs_is_not_shared() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    names = {
        builder.add("n", Linear(torch.eye(2)), x),
        builder.add("n", Linear(torch.eye(2)), x),
        builder.add("n", Clip(0.0, 1.0), x),
        builder.add("n", Clip(0.0, 2.0), x),
        builder.add("n", Affine(shift=torch.ones(2)), x),
        builder.add("n", Affine(scale=torch.ones(2)), x),
        builder.add("n", Add(), x, builder.add("r", ReLU(), x)),
        builder.add("n", Add(), builder.add("r", ReLU(), x), x),
    }
    assert len(names) == 8
    assert builder.shared_count == 1


def test_names_taken_are_numbered() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    assert builder.input("x", (3,)) == "x_1"
    assert builder.add("x", ReLU(), x) == "x_2"
    assert builder.add("x_1", ReLU(), "x_1") == "x_1_1"
    assert builder.constant("x", torch.ones(2)) == "x_3"


def test_what_no_output_depends_on_is_left_out() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    unused = builder.input("unused", (5,))
    dead = builder.add("dead", ReLU(), x)
    builder.add("deader", ReLU(), dead)
    graph = builder.build([builder.add("fc", Linear(torch.eye(2)), x)])
    assert [node.name for node in graph.nodes] == ["x", "unused", "fc"]
    assert graph.inputs == (x, unused)


def test_an_output_may_be_read_inside() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    hidden = builder.add("hidden", ReLU(), x)
    graph = builder.build([hidden, builder.add("end", Linear(torch.eye(2)), hidden)])
    assert graph.outputs == ("hidden", "end")
    with pytest.raises(ArgumentError, match="Got 2 outputs instead"):
        _ = graph.output_shape


def test_a_tensor_that_is_not_there_is_an_error() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    with pytest.raises(ArgumentError, match="ReLU 'r' reads 'y', which is not there yet"):
        builder.add("r", ReLU(), "y")
    with pytest.raises(ArgumentError, match="no tensor named 'y' to give out"):
        builder.build(["y"])
    with pytest.raises(ArgumentError, match="no tensor named 'y'"):
        builder.build([x])["y"]


def test_shapes_that_do_not_fit_are_an_error_and_leave_no_node() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    with pytest.raises(ShapeError, match="last dimension is 3"):
        builder.add("fc", Linear(torch.ones(2, 3)), x)
    assert builder.add("fc", Linear(torch.ones(3, 2)), x) == "fc"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    weight = torch.ones(2, 3)
    weight[1, 2] = bad
    with pytest.raises(WeightsError, match="weight of Linear 'fc' has NaN or infinite values"):
        small(weight)
    builder = GraphBuilder()
    with pytest.raises(WeightsError, match="value of Constant 'c'"):
        builder.constant("c", torch.tensor([bad]))


def test_digest_is_the_same_for_the_same_network() -> None:
    assert small().digest == small().digest
    # A number that must not change between machines, versions of Python or runs.
    assert small().digest == ("3f532967c033ada238d37809e46f0758ff19dd2d297065d335f2a961f5562a6d")


def test_digest_sees_every_difference() -> None:
    nudged = torch.arange(6.0).reshape(2, 3)
    nudged[0, 0] = 1e-45
    other_shape = GraphBuilder()
    x = other_shape.input("x", (3,))
    fc = other_shape.add("fc", Linear(torch.arange(6.0).reshape(2, 3)), x, layer="fc")
    relu = other_shape.add("relu", Clip(0.0, 6.0), fc)
    clipped = other_shape.build([other_shape.add("sum", Add(), fc, relu)])
    clipped_wider = GraphBuilder()
    x = clipped_wider.input("x", (3,))
    fc = clipped_wider.add("fc", Linear(torch.arange(6.0).reshape(2, 3)), x, layer="fc")
    relu = clipped_wider.add("relu", Clip(0.0, 7.0), fc)
    wider = clipped_wider.build([clipped_wider.add("sum", Add(), fc, relu)])
    digests = [
        small().digest,
        small(nudged).digest,
        small(torch.arange(6.0).double().reshape(2, 3)).digest,
        small(name="other").digest,
        small(layer=None).digest,
        clipped.digest,
        wider.digest,
    ]
    assert len(set(digests)) == len(digests)


def test_digest_does_not_depend_on_memory_layout() -> None:
    weight = torch.arange(6.0).reshape(3, 2).T
    assert not weight.is_contiguous()
    assert small(weight).digest == small(weight.contiguous()).digest


def test_what_a_person_sees() -> None:
    graph = small()
    assert repr(graph) == "Graph(x [3] -> sum [2]; 4 nodes, 6 parameters)"
    assert graph.summary().splitlines() == [
        "x = Input() [3]",
        "fc = Linear(x) [2]",
        "relu = ReLU(fc) [2]",
        "sum = Add(fc, relu) [2]",
    ]


def test_constants_are_shared_by_identity() -> None:
    builder = GraphBuilder()
    value = torch.ones(2)
    assert builder.constant("a", value) == builder.constant("b", value) == "a"
    assert builder.constant("c", value.clone()) == "c"
    assert isinstance(builder["a"].op, Constant)
