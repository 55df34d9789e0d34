"""The stages that answer questions, in words: one description for each that a verdict can carry.

Reports show these descriptions. A verdict whose stage is not listed here comes from an outside
verifier, and its stage is the name of that tool.

>>> stage_words("linear")
'linear bounds'
>>> stage_words("Marabou")
'the outside verifier Marabou'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STAGES: Mapping[str, str] = MappingProxyType(
    {
        "attack": "a search along gradients",
        "bisection": "bounds after the input box was split",
        "bounds": "bounds that contradict each other, an internal inconsistency",
        "branching": "bounds after the question was split",
        "carried": "the witness of a larger circuit",
        "confirmation": "the proof that reuses nothing, which was interrupted",
        "corner": "the worst corner of a region",
        "difference": "bounds on the difference alone",
        "exact": "exact rational arithmetic",
        "growth": "gradients of many circuits at once",
        "halving": "bounds after the regions were split",
        "hull": "hulls of unstable units over the inputs",
        "identical": "equality with the network",
        "inert": "the removal changing nothing",
        "linear": "linear bounds",
        "pool": "the witness of an earlier question",
        "refining": "linear bounds, those of the most important units computed anew",
        "sampling": "evaluation at points",
        "slopes": "linear bounds with optimised slopes",
        "splitting": "bounds after the question was split",
        "worker": "a worker process, which ended before it answered",
    }
)
"""What answers questions, or was at work when a question was given up."""


def stage_words(stage: str) -> str:
    """What a stage is, in a few words."""
    return STAGES.get(stage, f"the outside verifier {stage}")
