"""Random graphs of every operation, for what is written as ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
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
    Scatter,
    Shape,
    ShapeError,
    Sigmoid,
    Square,
    Subtract,
    Tanh,
)


class Sketch:
    """Random numbers, and the operations that one can draw with them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def pick(self, choices: Any) -> Any:
        return choices[self.number(0, len(choices) - 1)]

    def choose(self, *ops: Op) -> Op:
        return ops[self.number(0, len(ops) - 1)]

    def pair(self, low: int, high: int) -> tuple[int, int]:
        return self.number(low, high), self.number(low, high)

    def floats(self, *shape: int) -> Tensor:
        return torch.from_numpy(np.asarray(self.random.normal(size=shape), np.float32))

    def stretched(self, shape: Shape) -> Tensor:
        """A constant that broadcasts to a shape."""
        sizes = [n if self.chance(0.6) else 1 for n in shape][self.number(0, len(shape)) :]
        return self.floats(*sizes)

    def flat(self, shape: Shape) -> Op:
        """An operation on tensors of any shape."""
        size = math.prod(shape)
        kind = self.number(0, 11)
        if kind == 0:
            slope = self.pick([0.0, 0.1, 1.0])
            return self.choose(ReLU(), LeakyReLU(slope), Sigmoid(), Tanh())
        if kind == 1:
            ends = self.pick([(-0.5, 0.5), (-math.inf, 0.3), (0.1, math.inf)])
            return self.choose(Clip(*ends), Square())
        if kind == 2:
            scale, shift = (self.pick([None, self.stretched(shape)]) for _ in range(2))
            return Affine(scale, shift)
        if kind == 3:
            return Divide(self.stretched(shape).abs() + 0.5)
        if kind == 4:
            index = self.random.integers(0, size, size=self.pick([(), (3,), (2, 4)]))
            return Gather(torch.tensor(index))
        if kind == 5:
            places = self.random.permutation(size + 3)[:size]
            return Scatter(torch.from_numpy(places), (size + 3,))
        if kind == 6 and shape:
            return Permute(tuple(int(i) for i in self.random.permutation(len(shape))))
        if kind == 7 and shape:
            dims = sorted({self.number(0, len(shape) - 1) for _ in range(2)})
            return Mean(tuple(dims), math.prod(shape[d] for d in dims), self.chance(0.5))
        if kind == 8 and size % 2 == 0:
            return Reshape((size // 2, 2))
        if kind == 9:
            return Reshape((size,))
        if kind == 10 and shape:
            return Linear(self.floats(3, shape[-1]), self.pick([None, self.floats(3)]))
        bias = self.pick([None, self.floats(*shape[:1], *[1] * (len(shape) - 1))])
        return BatchNorm(self.floats(*shape[:1], *[1] * (len(shape) - 1)), bias)

    def map(self, shape: Shape) -> Op:
        """An operation on feature maps."""
        channels, *length = shape
        kind = self.number(0, 5)
        kernel, stride = self.pair(1, 3), self.pair(1, 3)
        if kind == 0:
            groups = channels if self.chance(0.3) else 1
            weight = self.floats(groups * self.number(1, 2), channels // groups, *kernel)
            bias = self.pick([None, self.floats(len(weight))])
            return Conv2d(weight, bias, stride, self.pair(0, 2), self.pair(1, 2), groups)
        if kind == 1:
            padding = self.number(0, kernel[0] // 2), self.number(0, kernel[1] // 2)
            ceil, counted = self.chance(0.4), self.chance(0.5)
            return AvgPool2d(kernel, stride, padding, ceil, counted)
        if kind == 2:
            pads = tuple(self.number(0, kernel[i % 2] - 1) for i in range(4))
            return MaxPool2d(kernel, stride, pads, self.pair(1, 2), self.chance(0.4))  # type: ignore[arg-type]
        if kind == 3:
            return AdaptiveAvgPool2d((length[0], length[1]), self.pair(1, 4))
        return Pad((*self.pair(0, 2), *self.pair(0, 2)))


def random_graph(seed: int) -> Graph:
    """A graph of a few operations, with sums, joins and constants between."""
    sketch = Sketch(seed)
    builder = GraphBuilder()
    shape = sketch.pick([(6,), (3, 4), (2, 6, 7), (3, 8, 5), (2, 7, 7), (1, 6, 6)])
    tensors = [builder.input("x", shape)]
    for i in range(sketch.number(2, 8)):
        source = tensors[-1] if sketch.chance(0.85) else sketch.pick(tensors)
        shape = builder[source].shape
        inputs = [source]
        if sketch.chance(0.2) and shape:
            same = [name for name in tensors if builder[name].shape == shape]
            other = sketch.pick(same)
            if sketch.chance(0.3):
                other = builder.constant(f"constant{i}", sketch.floats(*shape))
            op = sketch.pick([Add(), Subtract(), Concat(sketch.number(0, len(shape) - 1))])
            inputs = [source, other] if sketch.chance(0.5) else [other, source]
        elif len(shape) == 3 and sketch.chance(0.7):
            op = sketch.map(shape)
        else:
            op = sketch.flat(shape)
        try:
            made = builder.add(f"t{i}", op, *inputs)
        except ShapeError:
            continue
        if math.prod(builder[made].shape) <= 2000:
            tensors.append(made)
    outputs = [tensors[-1]] if sketch.chance(0.7) else list(dict.fromkeys(tensors[-2:]))
    return builder.build(outputs)
