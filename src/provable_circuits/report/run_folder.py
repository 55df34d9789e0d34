"""The folder of a run: the result as JSON, the circuit, and the witnesses as arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from provable_circuits.discover.result import Result
from provable_circuits.errors import DataError
from provable_circuits.verify.verdict import Refuted


def prepare_folder(folder: Path) -> None:
    """Make a folder, or say that it cannot be written, before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be written: {error.strerror}.") from None


def write_run(folder: Path, result: Result, document: dict[str, object]) -> None:
    """Write ``result.json``, ``circuit.json`` and ``witnesses.npz`` into a prepared folder.

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
        (folder / "result.json").write_text(json.dumps(document, indent=2) + "\n")
        (folder / "circuit.json").write_text(result.circuit.to_json() + "\n")
        with (folder / "witnesses.npz").open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be written: {error.strerror}.") from None
