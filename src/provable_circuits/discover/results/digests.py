"""Digests of a saved run: what was changed after it was written is noticed when it is read.

They are no seal: who changes a file can change its digest. What they cannot do is make a false
statement pass the check of the run's certificate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provable_circuits.errors import DataError

DOCUMENT = "result.json"
BESIDE = ("circuit.json", "diagram.json", "inputs.npz", "witnesses.npz")
"""The files beside the document, whose digests it holds."""


def with_digests(document: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """A document with its own digest, and those of the files beside it."""
    plain = {key: value for key, value in document.items() if key != "digests"}
    digests = {name: hashlib.sha256(files[name]).hexdigest() for name in BESIDE}
    return {**plain, "digests": {DOCUMENT: _digest(plain), **digests}}


def check_digests(document: Mapping[str, Any], places: Mapping[str, Path]) -> None:
    """Refuse a run that was changed after it was written; those of earlier versions have none.

    Args:
        document: what its ``result.json`` holds.
        places: where its files are.
    """
    if "digests" not in document:
        return
    expected = with_digests(document, {n: places[n].read_bytes() for n in BESIDE})["digests"]
    for name in (DOCUMENT, *BESIDE):
        if document["digests"].get(name) != expected[name]:
            raise DataError(
                f"The file '{places[name]}' was changed after the run was saved: run discover "
                "again."
            )


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
