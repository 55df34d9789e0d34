"""Domains: where inputs range.

A domain is a set of real vectors around or at a centre. Its numbers (centre, radius, ends) are
float64 and taken as exact reals; what is computed from them is rounded. So every domain has two
faces: ``bounds`` is a box rounded *outward*, which contains the whole domain and serves proofs, and
``contains`` accepts a point only when it lies inside beyond any rounding doubt, which serves
witnesses.

    >>> ball = Ball([0.25, 0.9], eps=0.25, clip=(0, 1))
    >>> lower, upper = ball.bounds()
    >>> bool((lower <= 0.0).any()), float(upper[1])
    (True, 1.0)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provable_circuits.arguments import order_of_norm, parameter, refused
from provable_circuits.errors import ArgumentError
from provable_circuits.network.arrays import as_tensor, real_tensor, warn_of_scale
from provable_circuits.rounding import TINY, down, gamma, up


def _real(value: Any, owner: str, name: str) -> Tensor:
    """A finite float64 tensor from anything array-like."""
    return real_tensor(value, parameter(name, owner)).cpu().to(torch.float64).clone()


class Domain(ABC):
    """A set of inputs of one network, per sample (no batch dimension)."""

    @property
    @abstractmethod
    def center(self) -> Tensor:
        """The unperturbed input: targets and margins are taken there."""

    @abstractmethod
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lower and upper ends of a box that contains the whole domain."""

    @abstractmethod
    def contains(self, points: Tensor) -> Tensor:
        """For points [n, *shape]: true where a point is certainly inside."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """``count`` random points of the domain, [count, *shape]."""

    @abstractmethod
    def project(self, points: Tensor) -> Tensor:
        """Points [n, *shape] moved inside: a small step for points that rounding put outside."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The per-sample shape."""
        return tuple(self.center.shape)

    @property
    def is_point(self) -> bool:
        """Whether the domain is a single point."""
        lower, upper = self.bounds()
        return bool((lower == upper).all())


@dataclass(frozen=True, eq=False, repr=False)
class Point(Domain):
    """One input, exactly."""

    x: Tensor

    def __init__(self, x: Any) -> None:
        object.__setattr__(self, "x", _real(x, "Point", "x"))
        warn_of_scale(x, parameter("x", "Point"), 0.0)

    @property
    def center(self) -> Tensor:
        return self.x

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.x, self.x

    def contains(self, points: Tensor) -> Tensor:
        return (points == self.x).flatten(1).all(1)

    def project(self, points: Tensor) -> Tensor:
        return self.x.expand(points.shape)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.x.expand(count, *self.shape)

    def __repr__(self) -> str:
        return f"Point(shape {list(self.shape)})"


@dataclass(frozen=True, eq=False, repr=False)
class Box(Domain):
    """All inputs between two ends, elementwise; the centre is their middle unless it is given."""

    lower: Tensor
    upper: Tensor
    _center: Tensor

    def __init__(self, lower: Any, upper: Any, center: Any = None) -> None:
        low, high = _real(lower, "Box", "lower"), _real(upper, "Box", "upper")
        if low.shape != high.shape or bool((low > high).any()):
            raise ArgumentError(
                "The 'lower' parameter of Box must have the shape of 'upper' and lie at or below "
                f"it everywhere. Got shapes {list(low.shape)} and {list(high.shape)} instead"
                + (", and a lower end above its upper end." if low.shape == high.shape else ".")
            )
        if center is None:
            middle = torch.minimum(torch.maximum(low * 0.5 + high * 0.5, low), high)
        else:
            middle = _real(center, "Box", "center")
            if middle.shape != low.shape or bool(((middle < low) | (middle > high)).any()):
                raise ArgumentError(
                    f"The 'center' parameter of Box must be a point of it, of shape "
                    f"{list(low.shape)}. Got one outside, or of shape {list(middle.shape)}."
                )
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)
        object.__setattr__(self, "_center", middle)
        radius = float((high - low).max()) / 2
        warn_of_scale(upper, parameter("upper", "Box"), radius, f"half its width, {radius:g},")

    @property
    def center(self) -> Tensor:
        return self._center

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.lower, self.upper

    def contains(self, points: Tensor) -> Tensor:
        return ((points >= self.lower) & (points <= self.upper)).flatten(1).all(1)

    def project(self, points: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(points, self.lower), self.upper)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        share = torch.rand((count, *self.shape), generator=generator, dtype=torch.float64)
        return self.project(self.lower * (1 - share) + self.upper * share)

    def __repr__(self) -> str:
        return f"Box(shape {list(self.shape)}, widest {float((self.upper - self.lower).max()):g})"


def clip_ends(clip: Any, owner: str) -> tuple[Tensor, Tensor]:
    """The two ends of a clip."""
    if not isinstance(clip, tuple | list) or len(clip) != 2:
        raise refused(parameter("clip", owner), "a pair (low, high) such as (0, 1)", clip)
    low, high = (_real(end, owner, "clip") for end in clip)
    return low, high


def _mask(mask: Any) -> Tensor:
    """True where a mask of booleans, or of zeros and ones, is not zero."""
    try:
        given = as_tensor(mask).cpu()
    except (TypeError, ValueError, RuntimeError):
        given = None
    if given is None or not bool(((given == 0) | (given == 1)).all()):
        raise refused(parameter("mask", "Ball"), "an array of True and False", mask)
    return given != 0


@dataclass(frozen=True, eq=False, repr=False)
class Ball(Domain):
    """All inputs within distance ``eps`` of ``x`` in the p-norm.

    Attributes:
        x: the centre.
        eps: the radius. For p = inf it may differ by element (an array that broadcasts to ``x``).
        p: the norm: ``math.inf``, 2 or 1.
        clip: ends (low, high) that no input exceeds, such as (0, 1) for pixels; each a number or an
            array that broadcasts to ``x``. The centre must lie within.
        mask: true where elements may move; the others stay at the centre. All may by default.
    """

    x: Tensor
    eps: Tensor
    p: float
    clip: tuple[Tensor, Tensor] | None
    mask: Tensor | None

    def __init__(
        self,
        x: Any,
        eps: Any,
        p: float = math.inf,
        clip: tuple[Any, Any] | None = None,
        mask: Any = None,
    ) -> None:
        center = _real(x, "Ball", "x")
        radius = _real(eps, "Ball", "eps")
        if bool((radius < 0).any()):
            raise ArgumentError(
                f"The 'eps' parameter of Ball must be at least 0. Got {float(radius.min()):g} "
                "instead."
            )
        p = order_of_norm(p, "Ball")
        if radius.ndim and p != math.inf:
            raise ArgumentError(
                "The 'eps' parameter of Ball must be one number unless p is inf. Got an array of "
                f"shape {list(radius.shape)} instead."
            )
        self._fits(radius, center, "eps")
        ends = None
        if clip is not None:
            low, high = clip_ends(clip, "Ball")
            self._fits(low, center, "clip")
            self._fits(high, center, "clip")
            if bool((low > center).any()) or bool((high < center).any()):
                raise ArgumentError(
                    "The 'clip' parameter of Ball must enclose the centre: it ranges over "
                    f"[{float(center.min()):g}, {float(center.max()):g}], the clip over "
                    f"[{float(low.min()):g}, {float(high.max()):g}]. "
                    "Is the input in another scale than the clip?"
                )
            ends = (low, high)
        free = None
        if mask is not None:
            free = _mask(mask)
            self._fits(free, center, "mask")
        object.__setattr__(self, "x", center)
        object.__setattr__(self, "eps", radius)
        object.__setattr__(self, "p", float(p))
        object.__setattr__(self, "clip", ends)
        object.__setattr__(self, "mask", free)
        reach = float(radius.max())
        warn_of_scale(x, parameter("x", "Ball"), reach, f"eps {reach:g}")

    @staticmethod
    def _fits(value: Tensor, center: Tensor, parameter: str) -> None:
        try:
            fits = torch.broadcast_shapes(value.shape, center.shape) == center.shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ArgumentError(
                f"The '{parameter}' parameter of Ball must broadcast to the shape of 'x', "
                f"{list(center.shape)}. Got {list(value.shape)} instead."
            )

    @property
    def center(self) -> Tensor:
        return self.x

    def bounds(self) -> tuple[Tensor, Tensor]:
        lower, upper = self._trim(down(self.x - self.eps), up(self.x + self.eps))
        still = self.eps.expand(self.shape) == 0
        return torch.where(still, self.x, lower), torch.where(still, self.x, upper)

    def _trim(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the clip and the mask to the ends of a box around the centre."""
        if self.clip is not None:
            lower = torch.maximum(lower, self.clip[0])
            upper = torch.minimum(upper, self.clip[1])
        if self.mask is not None:
            lower = torch.where(self.mask, lower, self.x)
            upper = torch.where(self.mask, upper, self.x)
        return lower, upper

    def inner_box(self) -> tuple[Tensor, Tensor]:
        """A box rounded inward: each element within eps of the centre beyond doubt."""
        lower = torch.minimum(up(self.x - self.eps), self.x)
        upper = torch.maximum(down(self.x + self.eps), self.x)
        return self._trim(lower, upper)

    def contains(self, points: Tensor) -> Tensor:
        lower, upper = self.inner_box()
        inside = ((points >= lower) & (points <= upper)).flatten(1).all(1)
        if self.p == math.inf:
            return inside
        at_center = (points == self.x).flatten(1).all(1)
        return inside & (at_center | (self._norm_above(points) <= self.eps))

    def project(self, points: Tensor) -> Tensor:
        lower, upper = self.inner_box()
        inside = torch.minimum(torch.maximum(points, lower), upper)
        if self.p == math.inf:
            return inside
        # Drawing a point towards the centre keeps it inside the box, which is convex.
        share = (self.eps / self._norm_above(inside)).clamp_max(1.0)
        share = torch.where(share < 1, share * (1 - 1e-12), share)
        return self._drawn_in(self.x + (inside - self.x) * self._column(share))

    def _drawn_in(self, points: Tensor) -> Tensor:
        """Points of the ball or just outside, moved towards the centre until they are inside.

        The smaller the radius beside the centre, the further rounding puts a point from its place.
        """
        lower, upper = self.inner_box()
        found = torch.minimum(torch.maximum(points, lower), upper)
        for retreat in (1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 0.5):
            inside = self.contains(found)
            if bool(inside.all()):
                return found
            nearer = self.x + (points - self.x) * (1 - retreat)
            nearer = torch.minimum(torch.maximum(nearer, lower), upper)
            found = torch.where(self._column(inside), found, nearer)
        return torch.where(self._column(self.contains(found)), found, self.x)

    def _column(self, values: Tensor) -> Tensor:
        """One value for each point, against points."""
        return values.reshape(-1, *([1] * len(self.shape)))

    def _norm_above(self, points: Tensor) -> Tensor:
        """An upper bound of the p-norm of ``points - x``, rounding included.

        A sum of n products of rounded differences, in any order, is off by at most the relative
        gamma(n + 4), and n TINY where terms underflow.
        """
        moved = (points - self.x).flatten(1).abs()
        count = moved.shape[1] + 4
        growth = 1 + 2 * gamma(count)
        tiny = count * TINY
        if self.p == 1:
            return moved.sum(1) * growth + tiny
        return torch.sqrt((moved * moved).sum(1) * growth + tiny) * growth

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        lower, upper = self.inner_box()
        share = torch.rand((count, *self.shape), generator=generator, dtype=torch.float64)
        if self.p == math.inf:
            return self.project(lower * (1 - share) + upper * share)
        return self._drawn_in(self.x + self._in_unit_ball(share, generator) * self.eps)

    def _in_unit_ball(self, share: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform in the unit p-ball of the elements that may move: a direction times a radius."""
        noise = torch.empty_like(share)
        if self.p == 2:
            noise.normal_(generator=generator)
        else:
            noise.exponential_(generator=generator)
            noise *= torch.where(share < 0.5, -1.0, 1.0)
        if self.mask is not None:
            noise = noise * self.mask
        flat = noise.flatten(1)
        free = int(self.mask.expand(self.shape).sum()) if self.mask is not None else flat.shape[1]
        length: Tensor = torch.linalg.vector_norm(flat, self.p, dim=1).clamp_min(1e-300)
        draw = torch.rand(len(share), generator=generator, dtype=torch.float64)
        radius: Tensor = draw ** (1 / max(free, 1)) * (1 - 1e-12)
        return (flat * (radius / length)[:, None]).reshape(share.shape)

    def __repr__(self) -> str:
        norm = "inf" if self.p == math.inf else int(self.p)
        low, high = float(self.eps.min()), float(self.eps.max())
        eps = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        clip = "" if self.clip is None else ", clipped"
        mask = "" if self.mask is None else ", masked"
        return f"Ball(shape {list(self.shape)}, eps {eps}, p {norm}{clip}{mask})"
