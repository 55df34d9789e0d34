"""Lowered networks compute the same function, under the same names."""

from __future__ import annotations

import math

import pytest
import torch

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.lowering import lower
from provable_circuits.network.ops import Clip, Linear, MaxPool2d, Op, ReLU

OPERATIONS: dict[str, tuple[Op, tuple[int, ...]]] = {
    "clip": (Clip(-0.5, 0.75), (6,)),
    "clip below": (Clip(-0.5, math.inf), (6,)),
    "clip above": (Clip(-math.inf, 0.25), (6,)),
    "clip nothing": (Clip(-math.inf, math.inf), (6,)),
    "clip to a number": (Clip(0.5, 0.5), (6,)),
    "max": (MaxPool2d((2, 2), (2, 2)), (2, 5, 6)),
    "max of one": (MaxPool2d((1, 1), (2, 1)), (2, 5, 6)),
    "max of three": (MaxPool2d((3, 1), (1, 1)), (2, 5, 6)),
    "max, overlapping": (MaxPool2d((3, 3), (1, 2)), (2, 5, 6)),
    "max, padded": (MaxPool2d((3, 3), (2, 2), (1, 1, 1, 1)), (2, 5, 6)),
    "max, uneven padding": (MaxPool2d((3, 3), (1, 1), (0, 1, 2, 2)), (2, 5, 6)),
    "max, dilated": (MaxPool2d((2, 3), (2, 1), (1, 0, 1, 0), (2, 2)), (2, 5, 6)),
    "max, ceil": (MaxPool2d((2, 4), (2, 3), (1, 1, 1, 1), (1, 1), True), (2, 5, 6)),
}


def network(op: Op, shape: tuple[int, ...]) -> Graph:
    builder = GraphBuilder()
    middle = builder.add("middle", op, builder.input("x", shape))
    return builder.build([builder.add("end", ReLU(), middle)])


@pytest.mark.parametrize("name", OPERATIONS)
def test_lowering_keeps_the_function_and_the_names(name: str) -> None:
    op, shape = OPERATIONS[name]
    graph = network(op, shape)
    lowered = lower(graph)
    assert not any(isinstance(node.op, Clip | MaxPool2d) for node in lowered.nodes)
    assert lowered.inputs == graph.inputs
    assert lowered.outputs == graph.outputs
    # Numbers of few digits, so that differences and their sums are exact.
    x = torch.randint(-8, 9, (20, *shape), generator=torch.Generator().manual_seed(0)) / 8
    x = x.double()
    wanted, found = graph.activations(x), lowered.activations(x)
    for tensor in ("x", "middle", "end"):
        assert lowered[tensor].shape == graph[tensor].shape
        assert torch.equal(found[tensor], wanted[tensor])


def test_a_tensor_named_like_one_that_lowering_adds_keeps_its_name() -> None:
    builder = GraphBuilder()
    middle = builder.add("middle", Clip(-0.5, 0.75), builder.input("x", (3,)))
    again = builder.add("middle^low", Linear(torch.eye(3) * 2), middle)
    graph = builder.build([builder.add("middle^floor", ReLU(), again)])
    lowered = lower(graph)
    x = torch.tensor([[-2.0, 0.25, 3.0]], dtype=torch.float64)
    wanted, found = graph.activations(x), lowered.activations(x)
    assert lowered.outputs == graph.outputs
    for tensor in ("middle", "middle^low", "middle^floor"):
        assert torch.equal(found[tensor], wanted[tensor])


def test_a_network_of_other_operations_is_left_as_it_is() -> None:
    builder = GraphBuilder()
    graph = builder.build([builder.add("fc", Linear(torch.eye(2)), builder.input("x", (2,)))])
    assert lower(graph) is graph


def test_layers_keep_their_names() -> None:
    builder = GraphBuilder()
    fc = builder.add("fc", Linear(torch.eye(2)), builder.input("x", (2,)), layer="net.fc")
    graph = builder.build([builder.add("relu6", Clip(0.0, 6.0), fc)])
    assert lower(graph)["fc"].layer == "net.fc"
