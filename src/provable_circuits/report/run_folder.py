"""The folder of a run: the result as JSON, the circuit, and the witnesses as arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from provable_circuits.discover.result import Result
from provable_circuits.errors import DataError
from provable_circuits.verify.verdict import Refuted


def write_run(folder: Path, result: Result, document: dict[str, object]) -> None:
    """Write ``result.json``, ``circuit.json`` and ``witnesses.npz`` into a folder, made if need be.

    In ``witnesses.npz`` the arrays of a component are named after it: ``<component>:z`` is the
    input, and ``<component>:patch_input`` or ``<component>:patch:<tensor>`` what was patched with.
    """
    arrays = {}
    for name, kept in result.kept.items():
        if not isinstance(kept.verdict, Refuted):
            continue
        witness = kept.verdict.witness
        arrays[f"{name}:z"] = witness.z.numpy()
        if witness.patch_input is not None:
            arrays[f"{name}:patch_input"] = witness.patch_input.numpy()
        for tensor, value in (witness.patch_values or {}).items():
            arrays[f"{name}:patch:{tensor}"] = value.numpy()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps(document, indent=2) + "\n")
        (folder / "circuit.json").write_text(result.circuit.to_json() + "\n")
        with (folder / "witnesses.npz").open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **_safe(arrays))
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be written: {error.strerror}.") from None


def _safe(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Array names that a zip file takes: no slashes."""
    return {name.replace("/", "."): value for name, value in arrays.items()}
