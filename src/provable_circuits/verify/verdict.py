"""Verdicts: what can be said of one circuit under one claim.

``Proved`` holds for every input and patch of the claim. ``Refuted`` carries a witness that was
replayed. ``Undecided`` says why. ``Held`` is the answer of sampling: no violation was found at the
points tried, which proves nothing. A verdict is not a boolean; say ``verdict.proved``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from provable_circuits.proof.certify import Certificate
from provable_circuits.verify.stage import Stage


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """A place where a circuit breaks its claim, replayed through the plain executor.

    Attributes:
        index: which of the claim's inputs it belongs to.
        z: the input, per sample, float64.
        excess: by how much the metric is exceeded there, at least.
        reference: the network's outputs there.
        output: the circuit's outputs there.
        constraint: which of the metric's constraints is broken.
        patch_input: the input that patches were taken at, for Reachable patching.
        patch_values: the patch values by site, for IntervalHull patching.
        position: the position of the outputs, where they have positions.
    """

    index: int
    z: Tensor
    excess: float
    reference: Tensor
    output: Tensor
    constraint: int = 0
    patch_input: Tensor | None = None
    patch_values: Mapping[str, Tensor] | None = None
    position: int | None = None

    def __repr__(self) -> str:
        return f"Witness(input {self.index}, constraint {self.constraint}, excess {self.excess:g})"


class Verdict:
    """The answer to one question."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    stage: str

    @property
    def proved(self) -> bool:
        """The claim holds everywhere, by a rigorous bound."""
        return isinstance(self, Proved)

    @property
    def refuted(self) -> bool:
        """The claim fails at a witness."""
        return isinstance(self, Refuted)

    @property
    def undecided(self) -> bool:
        """Neither was shown."""
        return isinstance(self, Undecided)

    @property
    def certified(self) -> bool:
        """The checker has accepted a certificate of it."""
        return getattr(self, "certificate", None) is not None

    @property
    def held(self) -> bool:
        """The claim held at every sampled point; nothing is proved."""
        return isinstance(self, Held)

    def __bool__(self) -> bool:
        raise TypeError("A verdict is not a boolean: say verdict.proved, .refuted or .undecided.")


@dataclass(frozen=True, slots=True, eq=False)
class Proved(Verdict):
    """The claim holds: ``bound`` is a rigorous upper bound of the excess, at or below zero.

    Attributes:
        bound: the bound.
        stage: the stage that found it.
        certificate: a proof that the checker has accepted, unless none was asked for or made.
        uncertified: why there is none although one was asked for; empty otherwise.
    """

    kind: ClassVar[str] = "proved"
    bound: float
    stage: str
    certificate: Certificate | None = field(default=None, repr=False)
    uncertified: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Refuted(Verdict):
    """The claim fails at ``witness``.

    Attributes:
        witness: where it fails.
        stage: the stage that found it.
        certificate: the witness for the checker, unless none was asked for.
        uncertified: why there is none although one was asked for; empty otherwise.
    """

    kind: ClassVar[str] = "refuted"
    witness: Witness
    stage: str
    certificate: Certificate | None = field(default=None, repr=False)
    uncertified: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Undecided(Verdict):
    """Neither was shown, for ``reason``.

    Attributes:
        reason: ``"time"``, ``"memory"``, ``"numerically too close to call"``, or what is not
            supported.
        stage: the stage at work.
        bound: a rigorous upper bound of the excess, as far as one was found: above zero, or the
            claim would be proved. Infinite where nothing was bounded yet.
    """

    kind: ClassVar[str] = "undecided"
    reason: str
    stage: str
    bound: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Held(Verdict):
    """No violation at ``points`` sampled points; the worst excess seen was ``worst``."""

    kind: ClassVar[str] = "held"
    points: int
    worst: float
    stage: str = Stage.SAMPLING
