"""Stages: what answers a question, or was at work when it was given up.

A verdict carries its stage. Reports show the description. A verdict of an outside verifier carries
that tool's name instead.

>>> described("linear")
'linear bounds'
>>> described("hull")  # as earlier versions called it
'neuron hulls over the inputs'
>>> described("Marabou")
'the outside verifier Marabou'
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


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

    ALPHA = "alpha", "linear bounds with optimised alpha"
    ATTACK = "attack", "a gradient attack (PGD)"
    BOUNDS = "bounds", "bounds that contradict each other, an internal inconsistency"
    BRANCHING = "branching", "branch and bound on ReLUs"
    CARRIED = "carried", "the witness of a larger circuit"
    CONFIRMATION = "confirmation", "the proof that reuses nothing, which was interrupted"
    CORNER = "corner", "the worst corner of a region"
    DIFFERENTIAL = "differential", "differential bounds"
    EXACT = "exact", "exact rational arithmetic"
    FINITE = "finite", "enclosures of every input of a finite domain"
    GROWTH = "growth", "gradients of many circuits at once"
    IDENTICAL = "identical", "equality with the network"
    INPUT_SPLIT = "input-split", "linear bounds after input splits"
    LINEAR = "linear", "linear bounds"
    NEURON_HULL = "neuron-hull", "neuron hulls over the inputs"
    POOL = "pool", "the witness of an earlier question"
    REDUNDANT = "redundant", "a redundant removal"
    SAMPLING = "sampling", "evaluation at points"
    SPLITTING = "splitting", "a few ReLU splits, many circuits at once"
    TIGHTENING = "tightening", "linear bounds, intermediate bounds of the costliest units tightened"
    WORKER = "worker", "a worker process, which ended before it answered"


EARLIER = MappingProxyType(
    {
        "difference": Stage.DIFFERENTIAL,
        "halving": Stage.INPUT_SPLIT,
        "hull": Stage.NEURON_HULL,
        "inert": Stage.REDUNDANT,
        "refining": Stage.TIGHTENING,
        "slopes": Stage.ALPHA,
    }
)
"""Names of stages in runs and rows that earlier versions saved."""


def stage_named(name: str) -> Stage | str:
    """The stage of a name; the name itself where it is that of an outside verifier."""
    return {**EARLIER, **{stage.value: stage for stage in Stage}}.get(name, name)


def described(stage: str) -> str:
    """A stage in a few words."""
    known = stage_named(stage)
    return known.description if isinstance(known, Stage) else f"the outside verifier {stage}"
