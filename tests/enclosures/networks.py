"""Random networks of every supported operation in every order, small or of the size of real ones.

A network is drawn as a body over feature maps (convolutions plain, grouped, depthwise, dilated and
strided; normalisation, activations, pooling before and after them, scales, shifts, padding,
residual sums, concatenations), a way to a vector, and a head of linear layers. Weights come in
kinds, of which some make tensors large and nearly constant: there enclosures that are carried over
from question to question differ most from those that intervals give.
"""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Blocks, Granularity, Groups, Patches
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.layers import layers_of
from provable_circuits.network.ops import (
    AdaptiveAvgPool2d,
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Conv2d,
    Divide,
    Gather,
    LeakyReLU,
    Linear,
    MaxPool2d,
    Mean,
    Op,
    Pad,
    Permute,
    ReLU,
    Reshape,
    Shape,
    Sigmoid,
    Subtract,
    Tanh,
)

STEADY = ("plain", "steady", "steady", "positive", "large")
WILD = ("plain", "plain", "plain", "large", "even")
"""Kinds of weights: of networks whose tensors are large and move little, and of others."""


class Dice:
    """Choices and numbers of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=torch.float64)


class Draft:
    """A network while it is drawn."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.builder = GraphBuilder()
        self.count = 0
        self.kinds = STEADY if dice.chance(0.55) else WILD
        self.curved = dice.chance(0.35)
        """Whether activations other than piecewise linear ones are drawn."""
        self.pooled = dice.chance(0.3)
        """Whether maxima over windows are drawn, which make many more ReLUs."""

    def add(self, op: Op, *inputs: str) -> str:
        self.count += 1
        return self.builder.add(f"n{self.count}", op, *inputs)

    def shape(self, name: str) -> Shape:
        return self.builder[name].shape

    def weights(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        """Weights and offsets of a layer, [out, ...] and [out]."""
        dice, out = self.dice, shape[0]
        size = 1 / math.sqrt(math.prod(shape[1:]))
        kind = dice.random.choice(self.kinds)
        weight = dice.normal(*shape) * size
        bias: Tensor | None = dice.normal(out) * 0.3 if dice.chance(0.7) else None
        if kind == "large":
            weight = weight * dice.random.choice([2.0, 4.0, 8.0])
        elif kind == "steady":
            weight = weight * dice.random.choice([0.01, 0.1, 0.3])
            bias = torch.full((out,), dice.random.choice([1.0, 3.0]), dtype=torch.float64)
        elif kind == "positive":
            weight = (0.5 + 0.1 * dice.uniform(*shape)) * size
            bias = torch.full((out,), dice.random.choice([-0.5, 0.1, 1.5]), dtype=torch.float64)
        elif kind == "even":
            bias = None
        if dice.chance(0.2):
            weight[dice.between(0, out - 1)] *= 0.02
        return weight, bias

    def conv(self, x: str, channels: int | None = None, *, like: bool = False) -> str:
        """A convolution; ``like`` keeps the size of the maps."""
        dice = self.dice
        inputs, height, width = self.shape(x)
        out = channels or dice.between(2, 4)
        groups = 1
        if dice.chance(0.4) and inputs > 1:
            groups = inputs if dice.chance(0.6) else 2 if inputs % 2 == 0 else 1
            if channels is None:
                out = groups * dice.between(1, 2)
            elif out % groups:
                groups = 1
        kernel = dice.random.choice([1, 3, 3])
        dilation = 2 if kernel == 3 and min(height, width) >= 5 and dice.chance(0.2) else 1
        padding = dilation * (kernel // 2)
        stride = 1
        if not like:
            stride = 2 if min(height, width) >= 6 and dice.chance(0.15) else 1
            fits = min(height, width) >= dilation * (kernel - 1) + 1
            padding = dice.random.choice([0, padding]) if fits else padding
        weight, bias = self.weights((out, inputs // groups, kernel, kernel))
        return self.add(
            Conv2d(weight, bias, (stride, stride), (padding,) * 2, (dilation,) * 2, groups),
            x,
        )

    def linear(self, x: str, out: int) -> str:
        weight, bias = self.weights((out, self.shape(x)[-1]))
        return self.add(Linear(weight, bias), x)

    def activation(self, x: str) -> str:
        dice = self.dice
        kinds: list[Op] = [ReLU(), ReLU(), ReLU(), LeakyReLU(dice.random.choice([0.01, 0.3]))]
        if self.curved:
            kinds += [Tanh(), Sigmoid(), Tanh()]
        if dice.chance(0.05):
            kinds = [Clip(-0.5, 1.0), Clip(0.0, math.inf), Clip(0.0, 6.0)]
        return self.add(dice.random.choice(kinds), x)

    def scaled(self, x: str) -> str:
        """A scale without shift, a shift without scale, both, or a division; by channel or not."""
        dice, shape = self.dice, self.shape(x)
        size = (shape[0], *([1] * (len(shape) - 1))) if dice.chance(0.7) else (1,) * len(shape)
        scale, shift = dice.normal(*size) + 0.5, dice.normal(*size)
        kind = dice.between(0, 4)
        if kind <= 1:
            return self.add(Affine(scale=scale), x)
        if kind == 2:
            return self.add(Affine(shift=shift), x)
        if kind == 3:
            return self.add(Affine(scale, shift), x)
        return self.add(Divide(scale.abs() + 0.5), x)

    def norm(self, x: str) -> str:
        dice, shape = self.dice, self.shape(x)
        statistics = BatchNorm.from_statistics(
            shape[0],
            len(shape),
            dice.normal(shape[0]) + 1 if dice.chance(0.8) else None,
            dice.normal(shape[0]) if dice.chance(0.8) else None,
            dice.normal(shape[0]) * 0.3,
            dice.uniform(shape[0]) + 0.2,
            1e-5,
        )
        return self.add(statistics, x)

    def pool(self, x: str) -> str:
        dice = self.dice
        _, height, width = self.shape(x)
        if min(height, width) < 2:
            return x
        kind = dice.between(0, 9)
        if kind <= 4:
            return self.add(AvgPool2d((2, 2), (2, 2)), x)
        if kind == 5:
            return self.add(AvgPool2d((2, 2), (1, 1), (1, 1), False, dice.chance(0.5)), x)
        if kind == 6:
            return self.add(AdaptiveAvgPool2d((height, width), (2, 2)), x)
        if kind == 7 or not self.pooled:
            return self.add(Mean((2,), width, True), x)
        return self.add(MaxPool2d((2, 2), (2, 2)), x)

    def residual(self, x: str) -> str:
        """A block beside the tensor itself, or beside a projection of it."""
        dice = self.dice
        inside = x
        for _ in range(dice.between(1, 2)):
            inside = self.conv(inside, self.shape(x)[0], like=True)
            if dice.chance(0.3):
                inside = self.norm(inside)
            if dice.chance(0.6):
                inside = self.activation(inside)
        beside = self.conv(x, self.shape(x)[0], like=True) if dice.chance(0.3) else x
        op: Op = Add() if dice.chance(0.85) else Subtract()
        return self.add(op, inside, beside)

    def joined(self, x: str) -> str:
        dice = self.dice
        left = self.conv(x, 2, like=True)
        if dice.chance(0.5):
            left = self.activation(left)
        right = x if dice.chance(0.3) else self.activation(self.conv(x, 2, like=True))
        return self.add(Concat(0), left, right)

    def body(self, x: str, steps: int) -> str:
        dice = self.dice
        x = self.conv(x)
        for _ in range(steps):
            kind = dice.between(0, 19)
            if kind <= 4:
                x = self.activation(x)
            elif kind <= 8:
                x = self.conv(x)
            elif kind <= 11:
                x = self.pool(x)
            elif kind <= 13:
                x = self.scaled(x)
            elif kind == 14:
                x = self.norm(x)
            elif kind <= 16:
                x = self.residual(x)
            elif kind == 17:
                x = self.joined(x)
            elif kind == 18 and math.prod(self.shape(x)) < 80:
                x = self.add(Pad((1, 0, 0, 1)), x)
            elif kind == 19 and dice.chance(0.3):
                x = self.add(Permute((0, 2, 1)), x)
        return x

    def flat(self, x: str) -> str:
        dice = self.dice
        shape = self.shape(x)
        if dice.chance(0.2):
            return self.add(Mean((1, 2), shape[1] * shape[2]), x)
        size = math.prod(shape)
        if dice.chance(0.05):
            return self.add(Gather(torch.randperm(size, generator=dice.generator)), x)
        return self.add(Reshape((size,)), x)

    def head(self, x: str) -> str:
        dice = self.dice
        for _ in range(dice.between(0, 2)):
            x = self.linear(x, dice.between(2, 5))
            if dice.chance(0.2):
                x = self.norm(x)
            if dice.chance(0.85):
                x = self.activation(x)
            if dice.chance(0.2):
                x = self.scaled(x)
        return self.linear(x, dice.between(2, 3))


def network(dice: Dice, large: bool = False) -> Graph:
    """A random network; ``large`` ones have more than a thousand units in a tensor."""
    draft = Draft(dice)
    draft.pooled &= not large
    if not large and dice.chance(0.2):
        x = draft.builder.input("x", (dice.between(2, 5),))
        x = draft.activation(draft.linear(x, dice.between(3, 6)))
        return draft.builder.build([draft.head(x)])
    if not large and dice.chance(0.05):
        x = draft.builder.input("x", (2, 3))
        x = draft.activation(draft.linear(x, 2))
        return draft.builder.build([draft.head(draft.add(Reshape((4,)), x))])
    if large:
        x = draft.builder.input("x", (1, 16, 16))
        x = draft.add(_wide(draft), x)
        x = draft.activation(x) if dice.chance(0.6) else draft.pool(x)
        x = draft.body(x, dice.between(1, 3))
    else:
        side = dice.between(3, 6)
        x = draft.builder.input("x", (dice.between(1, 2), side, side))
        x = draft.body(x, dice.between(2, 6))
    return draft.builder.build([draft.head(draft.flat(x))])


def _wide(draft: Draft) -> Conv2d:
    """A first layer of more than 1024 units over 16 x 16 inputs."""
    channels = draft.dice.between(5, 6)
    weight, bias = draft.weights((channels, 1, 3, 3))
    return Conv2d(weight, bias, (1, 1), (1, 1))


def components(dice: Dice, graph: Graph) -> Components:
    """What circuits of the network are made of: mostly channels and units, sometimes groups."""
    layers = layers_of(graph)
    convolutional = any(layer.kind == "conv" for layer in layers)
    outputs, shortcuts = dice.chance(0.5) or len(layers) == 1, dice.chance(0.8)
    chosen: Granularity = Blocks(1)
    if dice.chance(0.1):
        chosen = Blocks(2)
    elif dice.chance(0.08) and convolutional:
        chosen, outputs, shortcuts = Patches(2, 2), True, True
    elif dice.chance(0.2):
        chosen, outputs, shortcuts = _groups(dice, graph), True, True
    elif dice.chance(0.2) and convolutional:
        return graph.components("filter", outputs=True, shortcuts=True)
    return graph.components(chosen, outputs=outputs, shortcuts=shortcuts)


def _groups(dice: Dice, graph: Graph) -> Groups:
    """Single channels of some layers, and odd halves of the units of others."""
    groups: dict[str, dict[str, object]] = {}
    for layer in layers_of(graph):
        count = layer.shape[layer.channel_dim]
        if dice.chance(0.7) or math.prod(layer.shape) == 1:
            groups[layer.name] = {str(i): [i] for i in range(count) if i == 0 or dice.chance(0.9)}
        elif dice.chance(0.8):
            half = dice.uniform(*layer.shape) < 0.5
            half.view(-1)[0], half.view(-1)[-1] = True, False
            groups[layer.name] = {"some": half, "others": ~half}
    first = layers_of(graph)[0].name
    return Groups(groups or {first: {"0": [0]}})
