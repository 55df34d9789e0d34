"""Small networks, twice: as a torch module, and as plain steps that the oracle computes with.

A step is an affine map written as a dense matrix (convolutions and average pooling are expanded by
pushing basis vectors through the torch layer), a ReLU, a leaky ReLU, tanh, sigmoid, a maximum over
windows, or a sum. Where a layer's components are cut is written down by whoever builds the
network, from the definition: behind the activation that the layer feeds, else at the layer's own
output.

Nothing here knows ``provable_circuits``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Vector = NDArray[Any]
"""A flat vector of float64, or of Fractions (dtype object)."""

INPUT = -1
"""The place of the network's input among the values of a run."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step: what it does, and to the values of which steps."""

    kind: str
    inputs: tuple[int, ...]
    size: int
    matrix: NDArray[np.float64] | None = None
    vector: NDArray[np.float64] | None = None
    slope: float = 0.0
    windows: tuple[NDArray[np.int64], ...] = ()

    def apply(self, *values: Vector) -> Vector:
        """The step's value, in the arithmetic of its operands."""
        if self.kind == "affine":
            if self.matrix is None or self.vector is None:
                raise ValueError("an affine step has a matrix and a vector")
            if values[0].dtype == object:
                return self._exactly(values[0])
            return self.matrix @ values[0] + self.vector
        if self.kind == "add":
            return values[0] + values[1]
        if self.kind == "max":
            return np.array([max(values[0][window]) for window in self.windows], values[0].dtype)
        if self.kind == "tanh":
            return np.tanh(values[0])
        if self.kind == "sigmoid":
            return 1 / (1 + np.exp(-values[0]))
        slope = Fraction(self.slope) if values[0].dtype == object else self.slope
        return np.where(values[0] > 0, values[0], values[0] * slope)

    def _exactly(self, value: Vector) -> Vector:
        """The affine map of Fractions, skipping the zeros of the matrix."""
        if self.matrix is None or self.vector is None:
            raise ValueError("an affine step has a matrix and a vector")
        total = [Fraction(v) for v in self.vector.tolist()]
        for i, j in zip(*self.matrix.nonzero(), strict=True):
            total[i] += Fraction(float(self.matrix[i, j])) * value[j]
        return np.array(total, dtype=object)

    def interval(self, *ends: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
        """Plain interval arithmetic; no care for rounding."""
        lower, upper = ends[0]
        if self.kind != "affine":
            return self.apply(*(e[0] for e in ends)), self.apply(*(e[1] for e in ends))
        if self.matrix is None:
            raise ValueError("an affine step has a matrix")
        up, down = self.matrix.clip(min=0), self.matrix.clip(max=0)
        return up @ lower + down @ upper + self.vector, up @ upper + down @ lower + self.vector


def _exact(array: NDArray[np.float64]) -> Vector:
    return np.vectorize(Fraction, otypes=[object])(array) if array.size else array.astype(object)


def exact(array: Any) -> Vector:
    """A float64 array as Fractions, flat."""
    return _exact(np.asarray(array, dtype=np.float64).ravel())


@dataclass(frozen=True, eq=False)
class Cut:
    """Where a layer's components are cut: after which step, and each unit's component."""

    layer: str
    step: int
    labels: NDArray[np.int64]


@dataclass(eq=False)
class Network:
    """Steps and cuts, and the torch module that computes the same."""

    shape: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    module: Runner = field(default_factory=lambda: Runner())

    @property
    def inputs(self) -> int:
        """How many numbers an input has."""
        return int(np.prod(self.shape))

    @property
    def outputs(self) -> int:
        """How many numbers an output has."""
        return self.steps[-1].size

    @property
    def names(self) -> list[str]:
        """The components, layer/index, in order."""
        return [f"{c.layer}/{i}" for c in self.cuts for i in range(int(c.labels.max()) + 1)]

    def removed(self, kept: Sequence[str]) -> dict[int, NDArray[np.bool_]]:
        """For each step at which something is removed, which units are."""
        keep = set(kept)
        masks = {}
        for cut in self.cuts:
            gone = np.array([f"{cut.layer}/{label}" not in keep for label in cut.labels])
            if gone.any():
                masks[cut.step] = gone
        return masks

    def run(
        self,
        x: Vector,
        removed: Mapping[int, NDArray[np.bool_]] | None = None,
        patch: Mapping[int, Vector] | None = None,
        until: int | None = None,
    ) -> list[Vector]:
        """The value of every step before ``until``; removed units take their patch."""
        values: list[Vector] = []
        for index, step in enumerate(self.steps[:until]):
            value = step.apply(*(x if i == INPUT else values[i] for i in step.inputs))
            if removed and patch is not None and index in removed:
                value = np.where(removed[index], patch[index], value)
            values.append(value)
        return values

    def intervals(
        self,
        lower: Vector,
        upper: Vector,
        removed: Mapping[int, NDArray[np.bool_]] | None = None,
        patch: Mapping[int, tuple[Vector, Vector]] | None = None,
    ) -> list[tuple[Vector, Vector]]:
        """Ends of the value of every step, step by step; removed units take their patch's ends."""
        values: list[tuple[Vector, Vector]] = []
        for index, step in enumerate(self.steps):
            given = [(lower, upper) if i == INPUT else values[i] for i in step.inputs]
            low, high = step.interval(*given)
            if removed and patch is not None and index in removed:
                low = np.where(removed[index], patch[index][0], low)
                high = np.where(removed[index], patch[index][1], high)
            values.append((low, high))
        return values


class Runner(nn.Module):
    """Calls layers in order; the same order in which the steps were written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str | Callable[..., Tensor], tuple[int, ...]]] = []

    def forward(self, x: Tensor) -> Tensor:
        values: list[Tensor] = []
        for what, places in self.calls:
            given = [x if place == INPUT else values[place] for place in places]
            function = getattr(self, what) if isinstance(what, str) else what
            values.append(function(*given))
        return values[-1]


class Writer:
    """Writes a network layer by layer, into steps and into the torch module at once.

    ``layer`` remembers where the last weighted layer is; whichever activation reads it directly
    (batch normalisation aside) moves its cut behind that activation.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.net = Network(shape)
        self.shapes: dict[int, tuple[int, ...]] = {INPUT: shape}
        self._loose: dict[int, int] = {}  # steps at which a layer is cut that may still move

    def layer(
        self,
        name: str,
        module: nn.Module,
        source: int,
        filters: bool | None = None,
        keep_double: bool = False,
    ) -> int:
        """A linear layer or a convolution. Its neurons, or filters, are components.

        With ``filters`` given, only convolutions (true) or linear layers (false) are cut. Weights
        are float32, unless ``keep_double``.
        """
        self.net.module.add_module(name, module)
        place = self._affine(name, module, source, keep_double)
        is_conv = isinstance(module, nn.Conv2d)
        if filters is None or filters == is_conv:
            shape = self.shapes[place]
            labels = np.repeat(np.arange(shape[0]), int(np.prod(shape[1:])))
            self._loose[place] = len(self.net.cuts)
            self.net.cuts.append(Cut(name, place, labels))
        return place

    def norm(self, name: str, module: nn.Module, source: int) -> int:
        """Batch normalisation, which belongs to the layer before it."""
        self.net.module.add_module(name, module)
        place = self._affine(name, module, source)
        self._move(source, place)
        return place

    def average(self, module: nn.Module, source: int) -> int:
        """Average pooling."""
        return self._affine(module, module, source)

    def flatten(self, source: int) -> int:
        """A flat vector; the steps are flat already, so this is the identity."""
        return self._affine(nn.Flatten(), nn.Flatten(), source)

    def relu(self, source: int, slope: float = 0.0, cut: bool = True) -> int:
        """ReLU, or leaky. Without ``cut`` another step reads the layer too, which stays cut."""
        call = nn.LeakyReLU(slope) if slope else nn.ReLU()
        step = Step("relu", (source,), self.net.steps[source].size, slope=slope)
        place = self._add(step, call, self.shapes[source])
        if cut:
            self._move(source, place)
            self._loose.pop(place, None)
        return place

    def curved(self, source: int, kind: str) -> int:
        """Tanh or sigmoid, by name."""
        step = Step(kind, (source,), self.net.steps[source].size)
        place = self._add(step, nn.Tanh() if kind == "tanh" else nn.Sigmoid(), self.shapes[source])
        self._move(source, place)
        self._loose.pop(place, None)
        return place

    def add(self, first: int, second: int) -> int:
        """The sum of two steps."""
        step = Step("add", (first, second), self.net.steps[first].size)
        return self._add(step, torch.add, self.shapes[first])

    def largest(self, kernel: int, stride: int, source: int) -> int:
        """Max pooling."""
        channels, height, width = self.shapes[source]
        rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        places = np.arange(channels * height * width).reshape(channels, height, width)
        windows = tuple(
            places[c, y * stride : y * stride + kernel, x * stride : x * stride + kernel].ravel()
            for c in range(channels)
            for y in range(rows)
            for x in range(columns)
        )
        step = Step("max", (source,), len(windows), windows=windows)
        return self._add(step, nn.MaxPool2d(kernel, stride), (channels, rows, columns))

    def _affine(
        self,
        call: str | Callable[..., Tensor],
        module: nn.Module,
        source: int,
        keep_double: bool = False,
    ) -> int:
        """A step from a torch layer: zero gives the vector, basis vectors the matrix."""
        shape = self.shapes[source]
        count = int(np.prod(shape))
        module = module.eval()
        double = module.double()
        with torch.no_grad():
            zero = double(torch.zeros(1, *shape, dtype=torch.float64))
            basis = torch.eye(count, dtype=torch.float64).reshape(count, *shape)
            columns = (_linear_part(double))(basis).reshape(count, -1)
            if isinstance(module, nn.Linear):  # as it is, whatever a product would make of it
                columns = module.weight.T.clone()
        matrix, vector = columns.T.numpy().copy(), zero.flatten().numpy().copy()
        if not keep_double:
            module.float()
        step = Step("affine", (source,), len(vector), matrix, vector)
        return self._add(step, call, tuple(zero.shape[1:]))

    def _add(self, step: Step, call: str | Callable[..., Tensor], shape: tuple[int, ...]) -> int:
        self.net.steps.append(step)
        self.net.module.calls.append((call, step.inputs))
        place = len(self.net.steps) - 1
        self.shapes[place] = shape
        return place

    def _move(self, source: int, place: int) -> None:
        index = self._loose.pop(source, None)
        if index is not None:
            cut = self.net.cuts[index]
            self.net.cuts[index] = Cut(cut.layer, place, cut.labels)
            self._loose[place] = index


def _linear_part(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The layer without its bias, so that columns are the weights exactly as they are."""
    if isinstance(module, nn.Linear):
        return lambda x: x @ module.weight.T
    if isinstance(module, nn.Conv2d):
        return lambda x: torch.nn.functional.conv2d(
            x, module.weight, None, module.stride, module.padding, module.dilation, module.groups
        )
    if isinstance(module, nn.BatchNorm2d):
        return lambda x: module(x) - module(torch.zeros_like(x))
    return module
