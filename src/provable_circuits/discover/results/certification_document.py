"""What was certified of a result, as plain data and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provable_circuits.verify.certification import Certification

STATEMENT = {"statement": str, "reason": str}
CERTIFICATION = {
    "reason": str,
    "seconds": float,
    "prove_seconds": (float, None),
    "check_seconds": (float, None),
    "bytes": (int, None),
    "digest": (str, None),
    "checked_at": (str, None),
    "version": (str, None),
    "statements": [STATEMENT],
    "left_out": [STATEMENT],
}
"""The shape of a certification in the document of a result."""


def certification_document(certification: Certification | None) -> dict[str, Any] | None:
    """An attempt to certify as plain data, ready for JSON; None where there was none."""
    from provable_circuits import __version__

    if certification is None:
        return None
    found = certification.certificate
    told: dict[str, Any] = {
        **dict.fromkeys(CERTIFICATION),
        "reason": certification.reason,
        "seconds": certification.seconds,
        "statements": [],
        "left_out": [],
    }
    if found is None:
        return told
    return told | {
        "prove_seconds": found.prove_seconds,
        "check_seconds": found.check_seconds,
        "bytes": found.size,
        "digest": found.digest,
        "checked_at": found.checked_at,
        "version": __version__,
        "statements": [_statement(finding) for finding in found.findings],
        "left_out": [_statement(finding) for finding in found.left_out],
    }


def _statement(finding: Any) -> dict[str, str]:
    return {"statement": finding.statement, "reason": finding.reason}


def certification_lines(document: Mapping[str, Any]) -> list[str]:
    """How the certificate came about, or why there is none; nothing where none was asked for."""
    told = document.get("certification")
    if told is None:
        return []
    if not document["certified"]:
        return [f"  not certified: {told['reason']}"]
    count = len(told["statements"])
    lines = [
        f"  certificate of {count} statement{'s' * (count != 1)}, {told['bytes']:,} bytes: "
        f"proved in {told['prove_seconds']:.2f} s, checked in {told['check_seconds']:.2f} s"
    ]
    return lines + [
        f"  not in it: {left['statement']} ({left['reason']})" for left in told["left_out"]
    ]
