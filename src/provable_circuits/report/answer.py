"""What is printed about a plain property, in the words and the form of VNN-COMP.

sat
((X_0 0.5)
 (X_1 -1.0)
 (Y_0 2.25))
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from provable_circuits.properties.status import PropertyStatus
from provable_circuits.properties.verify import PropertyVerdict

WORDS = {
    PropertyStatus.HOLDS: "unsat",
    PropertyStatus.VIOLATED: "sat",
    PropertyStatus.UNKNOWN: "unknown",
    PropertyStatus.TIMEOUT: "timeout",
}


def property_lines(verdict: PropertyVerdict) -> list[str]:
    """The answer, and the counterexample behind ``sat``.

    Inputs are decimals that satisfy the property's own bounds; outputs read back as they were.
    """
    lines = [WORDS[verdict.status]]
    if verdict.counterexample is not None:
        x, y = ([repr(v) for v in part.flatten().tolist()] for part in verdict.counterexample)
        pairs = [f"(X_{i} {text})" for i, text in enumerate(verdict.decimals or x)]
        pairs += [f"(Y_{i} {text})" for i, text in enumerate(y)]
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
        "decimals": None if verdict.decimals is None else list(verdict.decimals),
        "note": verdict.note,
        "seconds": verdict.seconds,
        "settings": dict(settings),
        "version": version,
    }
    return json.dumps(document, indent=2)
