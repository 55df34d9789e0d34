"""Runs to be shown: digits by proof and by sampling, plain vectors, and one with hostile names."""

from __future__ import annotations

from functools import cache

import torch

import provable_circuits as pc
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network

HOSTILE = "<script>window.hacked=1</script>\"'&<b>"
"""A name that is a program, and quotes."""


@cache
def digits(method: str = "proof", algorithm: str = "exhaustive") -> pc.Run:
    """Three sevens, and what is enough of the network to read them."""
    graph, data = mnist_network(), load_digits()
    right = (data.labels == 7) & (graph.run(data.images).argmax(1) == 7)
    images = data.images[right][:3]
    claim = pc.Claim(
        [pc.Ball(image, 0.01, clip=(0, 1)) for image in images],
        pc.Zero(),
        pc.LogitDifference(2.0),
    )
    result = pc.discover(graph, claim, algorithm=algorithm, method=method)
    return result.record({"model": "digits.onnx"}, labels=data.labels[right][:3])


def network(layers: tuple[str, str], inputs: int = 4) -> pc.Graph:
    """A network of six hidden units and three outputs, with layers of these names."""
    generator = torch.Generator().manual_seed(5)
    builder = GraphBuilder()
    tensor = builder.input("x", (inputs,))
    for name, (before, after) in zip(layers, [(inputs, 6), (6, 3)], strict=True):
        weight = torch.randn(after, before, generator=generator, dtype=torch.float64)
        tensor = builder.add(name, Linear(weight / 2), tensor, layer=name)
        if after == 6:
            tensor = builder.add("relu", ReLU(), tensor)
    return builder.build([tensor])


def search(graph: pc.Graph, tolerance: float = 0.02, algorithm: str = "exhaustive") -> pc.Result:
    """A circuit of such a network, at one input."""
    x = torch.linspace(0.1, 0.9, graph.input_shape[0])
    metric = pc.LogitDifference(tolerance, 1)
    return pc.discover(graph, pc.Claim(pc.Ball(x, 0.02), pc.Zero(), metric), algorithm=algorithm)


@cache
def hostile() -> pc.Run:
    """A run whose layers, settings and file names try to become part of the page."""
    result = search(network((f"first {HOSTILE}", f"last {HOSTILE}")))
    return result.record({"model": f"{HOSTILE}.onnx", HOSTILE: [HOSTILE]})
