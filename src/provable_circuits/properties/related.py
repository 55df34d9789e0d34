"""Constraints on inputs: a network that tells its inputs as well.

A property may relate inputs to each other or to outputs, or bound them strictly. Over the network
whose output is (y, x), such a constraint is a row like any other: whatever bounds, attacks or
replays outputs does the same for it.

    >>> from provable_circuits.network.graph import GraphBuilder
    >>> from provable_circuits.network.ops import ReLU
    >>> builder = GraphBuilder()
    >>> graph = builder.build([builder.add("relu", ReLU(), builder.input("x", (2,)))])
    >>> with_inputs(graph).run(torch.tensor([-1.0, 2.0])).tolist()
    [[0.0, 2.0, -1.0, 2.0]]
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Concat, Reshape
from provable_circuits.properties.vnnlib import Property
from provable_circuits.verify.encoding.problem import copied


def constrained(graph: Graph, question: Property) -> Graph:
    """The network whose outputs are the columns of a property's rows."""
    return with_inputs(graph) if question.related else graph


def with_inputs(graph: Graph) -> Graph:
    """The network with one vector of outputs: its own, and its inputs behind them."""
    builder, output = copied(graph)
    x = builder.add("inputs", Reshape((math.prod(graph.input_shape),)), graph.inputs[0])
    y = builder.add("outputs", Reshape((math.prod(graph.output_shape),)), output)
    return builder.build([builder.add("related", Concat(0), y, x)])


def own_outputs(graph: Graph, y: Tensor) -> Tensor:
    """The network's own outputs among those of ``constrained``."""
    shape = torch.Size(graph.output_shape)
    return y.flatten()[: shape.numel()].reshape(shape)
