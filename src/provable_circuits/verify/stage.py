"""Stages: what answers a question, or was at work when it was given up.

A verdict carries its stage. Reports show the description. A verdict of an outside verifier carries
that tool's name instead.

>>> described("linear")
'linear bounds'
>>> described("Marabou")
'the outside verifier Marabou'
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """A stage: its name, as in saved runs, and its description in a few words."""

    description: str

    def __new__(cls, name: str, description: str) -> Stage:
        """A member with both."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.description = description
        return made

    def __repr__(self) -> str:
        return repr(self.value)

    ATTACK = "attack", "a search along gradients"
    BISECTION = "bisection", "bounds after the input box was split"
    BOUNDS = "bounds", "bounds that contradict each other, an internal inconsistency"
    BRANCHING = "branching", "bounds after the question was split"
    CARRIED = "carried", "the witness of a larger circuit"
    CONFIRMATION = "confirmation", "the proof that reuses nothing, which was interrupted"
    CORNER = "corner", "the worst corner of a region"
    DIFFERENCE = "difference", "bounds on the difference alone"
    EXACT = "exact", "exact rational arithmetic"
    GROWTH = "growth", "gradients of many circuits at once"
    HALVING = "halving", "bounds after the regions were split"
    HULL = "hull", "hulls of unstable units over the inputs"
    IDENTICAL = "identical", "equality with the network"
    INERT = "inert", "the removal changing nothing"
    LINEAR = "linear", "linear bounds"
    POOL = "pool", "the witness of an earlier question"
    REFINING = "refining", "linear bounds, those of the most important units computed anew"
    SAMPLING = "sampling", "evaluation at points"
    SLOPES = "slopes", "linear bounds with optimised slopes"
    SPLITTING = "splitting", "bounds after the question was split"
    WORKER = "worker", "a worker process, which ended before it answered"


def stage_named(name: str) -> Stage | str:
    """The stage of a name; the name itself where it is that of an outside verifier."""
    return {stage.value: stage for stage in Stage}.get(name, name)


def described(stage: str) -> str:
    """A stage in a few words."""
    known = stage_named(stage)
    return known.description if isinstance(known, Stage) else f"the outside verifier {stage}"
