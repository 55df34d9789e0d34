"""What is printed about a plain property, in the words and the form of VNN-COMP.

sat
((X_0 0.5)
 (X_1 -1.0)
 (Y_0 2.25))
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from provable_circuits.verify.property import PropertyVerdict

WORDS = {"holds": "unsat", "violated": "sat", "unknown": "unknown", "timeout": "timeout"}


def property_lines(verdict: PropertyVerdict) -> list[str]:
    """The answer, and the counterexample behind ``sat``; each number reads back as it was."""
    lines = [WORDS[verdict.status]]
    if verdict.counterexample is not None:
        pairs = [
            f"({kind}_{i} {value!r})"
            for kind, values in zip("XY", verdict.counterexample, strict=True)
            for i, value in enumerate(values.flatten().tolist())
        ]
        lines += [f"{' ' if i else '('}{pair}" for i, pair in enumerate(pairs)]
        lines[-1] += ")"
    return lines


def property_document(
    verdict: PropertyVerdict, settings: Mapping[str, object], version: str
) -> str:
    """The same as one JSON document."""
    found = None
    if verdict.counterexample is not None:
        x, y = verdict.counterexample
        found = {"x": x.flatten().tolist(), "y": y.flatten().tolist()}
    document = {
        "result": WORDS[verdict.status],
        "status": verdict.status,
        "reason": verdict.reason,
        "counterexample": found,
        "seconds": verdict.seconds,
        "settings": dict(settings),
        "version": version,
    }
    return json.dumps(document, indent=2)
