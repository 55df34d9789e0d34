"""Inputs that were normalised for the network, told in the scale of their pixels.

>>> scale = Normalisation.of(mean=[0.5, 0.4, 0.3], std=[0.25, 0.2, 0.25])
>>> eps = torch.full((3, 2, 2), 0.04, dtype=torch.float64)
>>> spread(scale.widths(eps))
'0.008 to 0.01'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provable_circuits.arguments import parameter, refused
from provable_circuits.claims.domains import Ball, Box, Domain
from provable_circuits.claims.patching import Patching
from provable_circuits.network.arrays import real_tensor


@dataclass(frozen=True, slots=True, eq=False)
class Normalisation:
    """The network takes ``(pixel - mean) / std``.

    Attributes:
        mean, std: float64, one for each channel, or one for all.
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, mean: Any, std: Any) -> Normalisation | None:
        """From numbers or arrays; None if the network takes pixels as they are.

        Where only one of the two is given, the mean is 0, or the standard deviation 1.
        """
        if mean is None and std is None:
            return None
        means = real_tensor(0.0 if mean is None else mean, parameter("mean")).double().flatten()
        stds = real_tensor(1.0 if std is None else std, parameter("std")).double().flatten()
        if not bool((stds > 0).all()):
            raise refused(parameter("std"), "positive", float(stds.min()))
        return cls(means.cpu(), stds.cpu())

    def widths(self, values: Tensor) -> Tensor:
        """Widths of inputs, [*shape], as widths of pixels."""
        return values * _by_channel(self.std, values)

    def pixels(self, values: Tensor) -> Tensor:
        """Inputs, [*shape], as pixels."""
        return self.widths(values) + _by_channel(self.mean, values)

    def radius(self, eps: Tensor, p: float) -> Tensor | None:
        """A radius of a p-norm in pixels; None if no ball is one there, channels scaled apart."""
        if p != math.inf and bool((self.std != self.std[0]).any()):
            return None
        return self.widths(eps)

    def radius_words(self, ball: Ball) -> str:
        """The radius of a ball: in pixel scale, and the normalised one beside it."""
        told = f"{spread(ball.eps)} after normalisation"
        pixels = self.radius(ball.eps.expand(ball.shape), ball.p)
        return told if pixels is None else f"{spread(pixels)} in pixel scale ({told})"

    def eps_words(self, eps: float, p: float) -> str:
        """The same of one number for all channels."""
        told = f"{eps:.4g} after normalisation"
        pixels = self.radius(torch.full((len(self.std), 1, 1), float(eps), dtype=torch.float64), p)
        return told if pixels is None else f"{spread(pixels)} in pixel scale ({told})"


def _by_channel(values: Tensor, like: Tensor) -> Tensor:
    return values if len(values) == 1 else values.reshape(-1, 1, 1).to(like.device)


def spread(values: Tensor) -> str:
    """One number, or the least and the greatest, as far as four digits tell them apart."""
    low, high = f"{float(values.min()):.4g}", f"{float(values.max()):.4g}"
    return low if low == high else f"{low} to {high}"


def domain_text(domain: Domain, scale: Normalisation | None) -> str:
    """A domain in Python's words, its size in pixel scale first where inputs were normalised."""
    text = repr(domain)
    if scale is None:
        return text
    if isinstance(domain, Ball):
        low, high = float(domain.eps.min()), float(domain.eps.max())
        told = f"eps {low:g}" if low == high else f"eps {low:g} to {high:g}"
        return text.replace(told, f"eps {scale.radius_words(domain)}", 1)
    if isinstance(domain, Box):
        width = domain.upper - domain.lower
        widest, pixels = float(width.max()), float(scale.widths(width).max())
        new = f"widest {pixels:.4g} in pixel scale ({widest:.4g} after normalisation)"
        return text.replace(f"widest {widest:g}", new, 1)
    return text


def patching_text(patching: Patching, scale: Normalisation | None) -> str:
    """The same of a patching."""
    text = repr(patching)
    if scale is None or patching.radius is None:
        return text
    eps, p = patching.radius
    return text.replace(f"eps={eps:g}", f"eps={scale.eps_words(eps, p)}", 1)
