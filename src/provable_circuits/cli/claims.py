"""A claim from the options of a command."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

import provable_circuits as pc
from provable_circuits.cli.inputs import Scale, numbers
from provable_circuits.errors import ArgumentError

NORMS = {"inf": math.inf, "2": 2.0, "1": 1.0}
METRICS = ("logit-difference", "winner-margin", "max-abs", "norm-1", "norm-2")
PATCHINGS = ("zero", "mean", "reachable", "interval")


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

    def claim(self, x: Tensor, labels: Tensor | None, samples: Tensor, scale: Scale) -> pc.Claim:
        """The claim about inputs ``x`` (pixels), with means taken over ``samples`` (pixels)."""
        return pc.Claim(
            [self._ball(pixels, self.eps, scale) for pixels in x],
            self._patching(x, samples, scale),
            self._metric(labels),
        )

    def _ball(self, pixels: Tensor, eps: float, scale: Scale) -> pc.Ball:
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

    def _clip(self, pixels: Tensor, scale: Scale) -> tuple[Tensor, Tensor] | None:
        if self.clip is None:
            return None
        ends = numbers("clip", self.clip)
        if len(ends) != 2 or not bool(ends[0] <= ends[1]):
            raise ArgumentError(
                f"The '--clip' option must be two numbers such as 0,1. Got {self.clip!r} instead."
            )
        low, high = (scale.inputs(end.expand(pixels.shape)) for end in ends)
        return low, high

    def _patching(self, x: Tensor, samples: Tensor, scale: Scale) -> pc.Patching:
        if self.patching == "zero":
            return pc.Zero()
        if self.patching == "mean":
            return pc.Mean(scale.inputs(samples))
        eps = self.eps if self.patch_eps is None else self.patch_eps
        domains = [self._ball(pixels, eps, scale) for pixels in x]
        kind = pc.Reachable if self.patching == "reachable" else pc.IntervalHull
        return kind(domains=domains)

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

    def scale_line(self, scale: Scale) -> str:
        """In which scale epsilon was taken."""
        if scale.std is None:
            return f"epsilon {self.eps:g} in the scale of the network's inputs"
        if self.eps_scale == "pixel":
            return f"epsilon {self.eps:g} in pixel scale, before normalisation"
        return f"epsilon {self.eps:g} in the normalised scale of the network's inputs"
