"""A claim from the options of a command, or from those that a run wrote down."""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import provable_circuits as pc
from provable_circuits.claims.normalisation import spread
from provable_circuits.cli.inputs import (
    InputScale,
    InputSource,
    chosen,
    numbers,
    open_source,
    scale_warning,
)
from provable_circuits.errors import ArgumentError, ScaleWarning

NORMS = {"inf": math.inf, "2": 2.0, "1": 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of a claim, in pixels.

    Attributes:
        pixels: the inputs chosen, float64 [n, *shape].
        labels: what they show, if that is known.
        places: which of the data they are.
        files: the file of each, where each has its own.
        samples: what means are taken over.
        divide: what numbers of the data were divided by.
        unscaled: it was not said what to divide by, and the data is an array.
        integers: the data is an array of integers.
        scale: how the network's inputs follow from pixels.
        notes: sentences that the user should see.
    """

    pixels: Tensor
    labels: Tensor | None
    places: list[int]
    files: tuple[str, ...] | None
    samples: Tensor
    divide: float
    unscaled: bool
    integers: bool
    scale: InputScale
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A hash of all numbers: equal for equal data, on any machine."""
        hasher = hashlib.sha256()
        for values in (self.pixels, self.labels, self.samples):
            if values is not None:
                array = values.numpy()
                hasher.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Which inputs a user asked for, as it was written."""

    data: Path
    patch_data: Path | None
    index: str | None
    scale: float | None
    mean: str | None
    std: str | None

    def read(self, graph: pc.Graph, means: bool) -> Inputs:
        """The inputs; ``means`` says whether means over data are wanted too."""
        normal = InputScale.of(self.mean, self.std)
        source = self._open(self.data, graph)
        places = chosen(self.index, source.count)
        pixels = source.pixels(places)
        samples, notes, integers = pixels, source.notes, source.integers
        if means:
            every = source if self.patch_data is None else self._open(self.patch_data, graph)
            samples = every.pixels(range(every.count))
            notes = tuple(dict.fromkeys((*notes, *every.notes)))
            integers = integers or every.integers
        return Inputs(
            pixels=pixels,
            labels=None if source.labels is None else source.labels[places],
            places=places,
            files=None if source.names is None else tuple(source.names[i] for i in places),
            samples=samples,
            divide=source.divide,
            unscaled=self.scale is None and source.divide == 1,
            integers=integers,
            scale=normal,
            notes=notes,
        )

    def network_inputs(self, graph: pc.Graph) -> Tensor:
        """All of the data that means are taken over, as the network takes it."""
        pixels, _ = self._samples(graph)
        return InputScale.of(self.mean, self.std).inputs(pixels)

    def warning(self, graph: pc.Graph) -> str | None:
        """What to say of the scale of the data that means are taken over."""
        pixels, integers = self._samples(graph)
        return scale_warning(pixels, integers) if self.scale is None else None

    def _samples(self, graph: pc.Graph) -> tuple[Tensor, bool]:
        source = self._open(self.patch_data or self.data, graph)
        return source.pixels(range(source.count)), source.integers

    def _open(self, path: Path, graph: pc.Graph) -> InputSource:
        if self.scale is not None and not self.scale > 0:
            raise ArgumentError(
                f"The '--scale' option must be positive. Got {self.scale:g} instead."
            )
        return open_source(path, graph, self.scale)


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """What a user asked for, as it was written."""

    eps: float
    norm: str
    clip: str | None
    eps_scale: str
    delta: float
    metric: str
    margin_fraction: float
    target: str
    patching: str
    patch_eps: float | None

    def claim(self, inputs: Inputs) -> pc.Claim:
        """The claim about these inputs; ``warning`` tells of their scale."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScaleWarning)
            return pc.Claim(
                [self._ball(pixels, self.eps, inputs.scale) for pixels in inputs.pixels],
                self.removed(inputs),
                self._metric(inputs.labels),
            )

    def warning(self, inputs: Inputs) -> str | None:
        """What to say of inputs that look like pixels in another scale than epsilon."""
        if not inputs.unscaled:
            return None
        values = torch.cat([inputs.pixels.flatten(), inputs.samples.flatten()])
        return scale_warning(values, inputs.integers, self.eps)

    def removed(self, inputs: Inputs) -> pc.Patching:
        """What removed components output."""
        if self.patching == "zero":
            return pc.Zero()
        if self.patching == "mean":
            return pc.Mean(inputs.scale.inputs(inputs.samples))
        eps = self.eps if self.patch_eps is None else self.patch_eps
        domains = [self._ball(pixels, eps, inputs.scale) for pixels in inputs.pixels]
        kind = pc.Reachable if self.patching == "reachable" else pc.IntervalHull
        return kind(domains=domains)

    def _ball(self, pixels: Tensor, eps: float, scale: InputScale) -> pc.Ball:
        p = NORMS[self.norm]
        center = scale.inputs(pixels)
        radius: Tensor | float = eps
        if self.eps_scale == "pixel" and scale.std is not None:
            if p != math.inf and len(scale.std) > 1:
                raise ArgumentError(
                    "A ball of the 1- or 2-norm in pixel scale is no ball after channels were "
                    "scaled differently: give --eps-scale input, or --norm inf."
                )
            widths = scale.widths(eps, center)
            radius = widths if p == math.inf else float(widths.flatten()[0])
        return pc.Ball(center, radius, p, self._clip(pixels, scale))

    def _clip(self, pixels: Tensor, scale: InputScale) -> tuple[Tensor, Tensor] | None:
        if self.clip is None:
            return None
        ends = numbers("clip", self.clip)
        if len(ends) != 2 or not bool(ends[0] <= ends[1]):
            raise ArgumentError(
                f"The '--clip' option must be two numbers such as 0,1. Got {self.clip!r} instead."
            )
        low, high = (scale.inputs(end.expand(pixels.shape)) for end in ends)
        return low, high

    def _metric(self, labels: Tensor | None) -> pc.Metric:
        if self.metric == "winner-margin":
            return pc.WinnerMargin(self.margin_fraction)
        if self.metric == "max-abs":
            return pc.MaxAbs(self.delta)
        if self.metric in ("norm-1", "norm-2"):
            return pc.Norm(self.delta, p=int(self.metric[-1]))
        return pc.LogitDifference(self.delta, self._target(labels))

    def _target(self, labels: Tensor | None) -> str | int | list[int]:
        if self.target == "predicted":
            return "predicted"
        if self.target == "label":
            if labels is None:
                raise ArgumentError("The data has no labels (an array 'y'), so no --target label.")
            return [int(label) for label in labels]
        try:
            return int(self.target)
        except ValueError:
            raise ArgumentError(
                "The '--target' option must be an output's number, 'label' or 'predicted'. "
                f"Got {self.target!r} instead."
            ) from None

    def scale_line(self, inputs: Inputs) -> str:
        """In which scale epsilon was taken."""
        divided = "" if inputs.divide == 1 else f", the data divided by {inputs.divide:g}"
        if inputs.scale.std is None:
            return f"epsilon {self.eps:g} in the scale of the network's inputs{divided}"
        pixel, normal = f"{self.eps:g}", spread(self.eps / inputs.scale.std)
        if self.eps_scale != "pixel":
            pixel, normal = spread(self.eps * inputs.scale.std), f"{self.eps:g}"
            if self.norm != "inf" and len(inputs.scale.std) > 1:
                return f"epsilon {normal} after normalisation{divided}"
        return f"epsilon {pixel} in pixel scale ({normal} after normalisation){divided}"
