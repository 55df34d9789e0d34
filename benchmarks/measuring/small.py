"""Random small networks of several kinds, each as this package's graph and as plain arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from measuring.optimum import Block, Floats, Mask, unstable
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Conv2d, LeakyReLU, Linear, Op, ReLU, Reshape

Dice = np.random.Generator

MOST_UNSTABLE = 40

KINDS = ("plain", "deep", "leaky", "residual", "convolution")


@dataclass(frozen=True, eq=False)
class Small:
    """A network, where its input ranges, and which components of it a circuit keeps.

    Attributes:
        kind: one of ``KINDS``.
        graph: the network.
        net: the same, written out.
        lower, upper: the box of inputs, flat.
        row: of which the maximum over outputs is asked.
        circuit: what is kept.
        keep: the units of each block that are kept.
        unstable: units that interval arithmetic leaves unstable.
    """

    kind: str
    graph: Graph
    net: list[Block]
    lower: Floats
    upper: Floats
    row: Floats
    circuit: Circuit
    keep: list[Mask]
    unstable: int


def draw(seed: int, number: int) -> Small:
    """The network of a number, with 1 to ``MOST_UNSTABLE`` unstable units."""
    kind = KINDS[number % len(KINDS)]
    for attempt in range(1000):
        dice = np.random.default_rng([seed, number, attempt])
        writer = _WRITERS[kind](dice)
        center = dice.uniform(-1, 1, writer.inputs)
        radius = float(dice.choice([0.3, 0.6, 1.0]))
        box = center - radius, center + radius
        count = unstable(writer.net, *box)
        if 0 < count <= MOST_UNSTABLE:
            return writer.small(kind, *box, count)
    raise RuntimeError("no network of few unstable units was drawn")


class _Writer:
    """Writes a network twice, layer by layer."""

    def __init__(self, dice: Dice, shape: tuple[int, ...]) -> None:
        self.dice = dice
        self.builder = GraphBuilder()
        self.value = self.builder.input("x", shape)
        self.inputs = math.prod(shape)
        self.net: list[Block] = []
        self.labels: list[list[str | None]] = []
        self.outputs: list[str] = []

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers that float32 holds."""
        drawn = self.dice.normal(0.0, scale, shape).astype(np.float32)
        return torch.from_numpy(drawn.astype(np.float64))

    def linear(
        self, width: int, slope: float | None, skip: int | None = None, cut: bool = True
    ) -> None:
        """A fully connected layer."""
        shape = self.builder[self.value].shape
        if len(shape) > 1:
            self.value = self.builder.add("flat", Reshape((math.prod(shape),)), self.value)
        before = math.prod(shape)
        weight = self.normal(width, before, scale=1 / math.sqrt(before))
        self._add(Linear(weight, self.normal(width, scale=0.3)), slope, skip, cut)

    def convolution(self, filters: int, kernel: int, slope: float) -> None:
        """A convolution without padding."""
        channels = self.builder[self.value].shape[0]
        scale = 1 / math.sqrt(channels * kernel**2)
        weight = self.normal(filters, channels, kernel, kernel, scale=scale)
        self._add(Conv2d(weight, self.normal(filters, scale=0.3)), slope, None, True)

    def _add(self, op: Linear | Conv2d, slope: float | None, skip: int | None, cut: bool) -> None:
        place, builder = len(self.net), self.builder
        shape = builder[self.value].shape
        basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
        bias = op.forward(torch.zeros(1, *shape, dtype=torch.float64))
        weight = (op.forward(basis) - bias).flatten(1).T
        name = f"layer{place}"
        self.value = builder.add(name, op, self.value)
        size = builder[self.value].shape
        if skip is not None:
            self.value = builder.add(f"sum{place}", Add(), self.value, self.outputs[skip])
        if slope is not None:
            bend: Op = LeakyReLU(slope) if slope else ReLU()
            self.value = builder.add(f"bend{place}", bend, self.value)
        self.outputs.append(self.value)
        self.net.append(Block(weight.numpy(), bias.flatten().numpy(), slope, skip))
        each = math.prod(size[1:])
        self.labels.append([f"{name}/{i // each}" if cut else None for i in range(math.prod(size))])

    def small(self, kind: str, lower: Floats, upper: Floats, count: int) -> Small:
        """What was written, with a circuit of it."""
        graph = self.builder.build([self.value])
        components = graph.components("filter" if kind == "convolution" else "neuron")
        share = float(self.dice.choice([0.5, 0.8, 0.9]))
        outputs = set(self.labels[-1])
        kept = [n for n in components.names if n in outputs or self.dice.random() < share]
        names = set(components.names)
        keep = [
            np.array([label not in names or label in kept for label in labels])
            for labels in self.labels
        ]
        row = np.zeros(len(self.net[-1].bias))
        row[0], row[1:2] = 1.0, -1.0
        circuit = components.circuit(kept)
        return Small(kind, graph, self.net, lower, upper, row, circuit, keep, count)


def _connected(dice: Dice, layers: int, slope: float) -> _Writer:
    writer = _Writer(dice, (int(dice.integers(2, 21)),))
    for _ in range(layers):
        writer.linear(int(dice.integers(4, max(5, 44 // layers))), slope)
    writer.linear(int(dice.integers(1, 4)), None)
    return writer


def _plain(dice: Dice) -> _Writer:
    return _connected(dice, int(dice.integers(1, 3)), 0.0)


def _deep(dice: Dice) -> _Writer:
    return _connected(dice, int(dice.integers(3, 5)), 0.0)


def _leaky(dice: Dice) -> _Writer:
    return _connected(dice, int(dice.integers(1, 4)), float(dice.choice([0.01, 0.125, 0.3])))


def _residual(dice: Dice) -> _Writer:
    writer = _Writer(dice, (int(dice.integers(2, 17)),))
    width = int(dice.integers(4, 15))
    writer.linear(width, 0.0)
    writer.linear(int(dice.integers(4, 13)), 0.0)
    writer.linear(width, 0.0, skip=0)
    writer.linear(int(dice.integers(1, 4)), None)
    return writer


def _convolution(dice: Dice) -> _Writer:
    channels, size = [(1, 4), (1, 5), (2, 3)][int(dice.integers(3))]
    writer = _Writer(dice, (channels, size, size))
    writer.convolution(int(dice.integers(2, 4)), 2, 0.0)
    if dice.random() < 0.5:
        writer.convolution(2, 2, 0.0)
    if dice.random() < 0.5:
        writer.linear(int(dice.integers(3, 7)), 0.0)
    writer.linear(int(dice.integers(1, 4)), None)
    return writer


_WRITERS = dict(zip(KINDS, (_plain, _deep, _leaky, _residual, _convolution), strict=True))
