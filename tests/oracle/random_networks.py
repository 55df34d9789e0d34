"""Small random networks of all kinds, and the same as graphs.

Of ``provable_circuits`` this file knows, beside its public face, the operations' names alone, to
write networks into graphs faster than torch exports them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tests.oracle.network import INPUT, Network, Writer
from torch import nn

import provable_circuits as pc
from provable_circuits.network import ops
from provable_circuits.network.graph import GraphBuilder

Dice = np.random.Generator


def _weights(module: nn.Module, dice: Dice) -> nn.Module:
    """Random weights that keep values near one in size."""
    with torch.no_grad():
        for parameter in module.parameters():
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            drawn = dice.normal(0, 1.4 / math.sqrt(fan), tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(drawn))
    return module


def fully_connected(
    dice: Dice, sizes: Sequence[int], slope: float = 0.0, curve: str | None = None
) -> Network:
    """Linear layers with activations between them: (leaky) ReLU, or the curve named."""
    writer, value = Writer((sizes[0],)), INPUT
    for i, (before, after) in enumerate(itertools.pairwise(sizes)):
        layer = _weights(nn.Linear(before, after, bias=bool(dice.random() < 0.9)), dice)
        value = writer.layer(f"fc{i}", layer, value)
        if i < len(sizes) - 2:
            value = writer.curved(value, curve) if curve else writer.relu(value, slope)
    return writer.net


def residual(dice: Dice, inputs: int, width: int, outputs: int, projection: bool) -> Network:
    """A block whose second layer has no activation of its own, and is cut at its output."""
    writer = Writer((inputs,))
    first = writer.layer("stem", _weights(nn.Linear(inputs, width), dice), INPUT)
    first = writer.relu(first)
    inner = writer.layer("inner", _weights(nn.Linear(width, width), dice), first)
    inner = writer.relu(inner)
    second = writer.layer("outer", _weights(nn.Linear(width, width), dice), inner)
    side = first
    if projection:
        side = writer.layer("side", _weights(nn.Linear(width, width), dice), first, filters=True)
    value = writer.relu(writer.add(second, side), cut=False)
    writer.layer("head", _weights(nn.Linear(width, outputs), dice), value)
    return writer.net


def convolutional(dice: Dice, filters: bool) -> Network:
    """One or two convolutions, perhaps normalised and pooled, then one or two linear layers."""
    while True:
        net = _convolutional(dice, filters)
        if kinks(net) <= 16:
            return net


def kinks(net: Network) -> int:
    """Units at which the network bends; a window of four bends three times."""
    return sum(s.size * (3 if s.kind == "max" else s.kind == "relu") for s in net.steps)


def _convolutional(dice: Dice, filters: bool) -> Network:
    channels, size = int(dice.integers(1, 3)), int(dice.integers(3, 6))
    writer = Writer((channels, size, size))
    value, depth = INPUT, int(dice.integers(1, 3))
    for i in range(depth):
        _, height, _ = writer.shapes[value]
        kernel = min(int(dice.integers(2, 4)), height)
        stride = int(dice.integers(1, 3)) if height > 3 else 1
        padding = int(dice.integers(0, 2)) if i else 0
        before, after = writer.shapes[value][0], int(dice.integers(2, 4))
        conv = nn.Conv2d(before, after, kernel, stride, padding)
        value = writer.layer(f"conv{i}", _weights(conv, dice), value, filters)
        if dice.random() < 0.25:
            value = writer.norm(f"norm{i}", _norm(after, dice), value)
        pool = dice.choice(["none", "average", "largest", "largest first"])
        if writer.shapes[value][1] < 2:
            pool = "none"
        if pool == "largest first" and filters:
            value = writer.largest(2, 1, value)
            value = writer.relu(value)
        else:
            value = writer.relu(value)
            if pool == "average":
                value = writer.average(nn.AvgPool2d(2, 1), value)
            elif pool.startswith("largest"):
                value = writer.largest(2, 1, value)
    value = writer.flatten(value)
    outputs = int(dice.integers(2, 4))
    if dice.random() < 0.4:
        width = writer.net.steps[value].size
        value = writer.layer("hidden", _weights(nn.Linear(width, 4), dice), value, filters)
        value = writer.relu(value)
    width = writer.net.steps[value].size
    writer.layer("head", _weights(nn.Linear(width, outputs), dice), value, filters)
    return writer.net


def _norm(channels: int, dice: Dice) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    with torch.no_grad():
        for tensor, low, high in [
            (norm.weight, 0.5, 1.5),
            (norm.bias, -0.5, 0.5),
            (norm.running_mean, -0.5, 0.5),
            (norm.running_var, 0.5, 2.0),
        ]:
            if tensor is not None:
                tensor.copy_(torch.from_numpy(dice.uniform(low, high, channels)))
    return norm


def graph_of(net: Network) -> pc.Graph:
    """The network written into the package's graph, call by call; ``from_torch`` is slower."""
    builder = GraphBuilder()
    values = {INPUT: builder.input("x", net.shape)}
    for place, (what, places) in enumerate(net.module.calls):
        module = getattr(net.module, what) if isinstance(what, str) else what
        layer = what if isinstance(what, str) else None
        sources = [values[i] for i in places]
        op = _operation(module, builder[sources[0]].shape)
        values[place] = builder.add(layer or f"step{place}", op, *sources, layer=layer)
    return builder.build([values[len(net.module.calls) - 1]])


def _operation(module: Any, shape: tuple[int, ...]) -> ops.Op:
    if isinstance(module, nn.Linear):
        return ops.Linear(module.weight.detach(), _detached(module.bias))
    if isinstance(module, nn.Conv2d):
        return ops.Conv2d(
            module.weight.detach(),
            _detached(module.bias),
            (module.stride[0], module.stride[1]),
            (int(module.padding[0]), int(module.padding[1])),
        )
    if isinstance(module, nn.BatchNorm2d):
        if module.running_mean is None or module.running_var is None:
            raise ValueError("batch normalisation without statistics")
        return ops.BatchNorm.from_statistics(
            module.num_features,
            3,
            module.weight.detach(),
            module.bias.detach(),
            module.running_mean,
            module.running_var,
            module.eps,
        )
    if isinstance(module, nn.ReLU):
        return ops.ReLU()
    if isinstance(module, nn.LeakyReLU):
        return ops.LeakyReLU(module.negative_slope)
    if isinstance(module, nn.Tanh):
        return ops.Tanh()
    if isinstance(module, nn.Sigmoid):
        return ops.Sigmoid()
    if isinstance(module, nn.AvgPool2d):
        return ops.AvgPool2d((2, 2), (1, 1))
    if isinstance(module, nn.MaxPool2d):
        return ops.MaxPool2d((2, 2), (1, 1))
    if isinstance(module, nn.Flatten):
        return ops.Reshape((math.prod(shape),))
    if module is torch.add:
        return ops.Add()
    raise ValueError(f"no operation for {module}")


def _detached(value: torch.Tensor | None) -> torch.Tensor | None:
    return None if value is None else value.detach()
