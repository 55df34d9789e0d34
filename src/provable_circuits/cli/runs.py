"""A circuit that an earlier run found, and how that run was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import provable_circuits as pc
from provable_circuits.cli.claims import ClaimOptions, DataOptions
from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.files import place_of


@dataclass(frozen=True, slots=True)
class Found:
    """A circuit on disk.

    Attributes:
        circuit: its JSON, see ``Circuit.to_json``.
        settings: those of the run that found it; None for a circuit by itself.
        patching: what removed components output in that run, in Python's words, if it tells.
    """

    circuit: str
    settings: Mapping[str, Any] | None
    patching: str | None = None

    def asked(self) -> ClaimOptions | None:
        """What was claimed, as it was asked for on the command line."""
        if self.settings is None or "data" not in self.settings:
            return None
        names = [field.name for field in fields(ClaimOptions)]
        missing = [name for name in names if name not in self.settings]
        if missing:
            raise DataError(
                f"The run's result.json does not tell '{missing[0]}': run discover again."
            )
        return ClaimOptions(**{name: self.settings[name] for name in names})

    def data_options(
        self,
        data: Path | None,
        patch_data: Path | None,
        scale: float | None,
        mean: str | None,
        std: str | None,
    ) -> DataOptions | None:
        """The run's data, where nothing else is given; None if neither names any."""
        told = self.settings or {}
        places = told.get("index")
        where = data or _path(told.get("data")) or patch_data
        if where is None:
            return None
        return DataOptions(
            data=where,
            patch_data=patch_data or _path(told.get("patch_data")),
            index=",".join(map(str, places)) if isinstance(places, list) else None,
            scale=told.get("scale") if scale is None else scale,
            mean=told.get("mean") if mean is None else mean,
            std=told.get("std") if std is None else std,
        )

    def claim(self, graph: pc.Graph, data: DataOptions | None) -> pc.Claim:
        """What was claimed, about the same inputs."""
        asked = self.asked()
        if asked is None or data is None:
            raise ArgumentError(
                "A question needs a claim, and a circuit alone has none: give the folder of a run "
                "that discover --out wrote."
            )
        try:
            inputs = data.read(graph, means=asked.patching == "mean")
            claim = asked.claim(inputs)
        except (AttributeError, KeyError, TypeError):
            raise DataError(
                "The settings in the run's result.json make no claim: run discover again."
            ) from None
        except DataError as error:
            raise DataError(
                f"The run's data cannot be read again; say with --data where it is. {error}"
            ) from None
        if inputs.digest != (self.settings or {}).get("data_digest"):
            raise DataError(
                f"The data '{data.data}' is not what the run was made with: name that with --data."
            )
        return claim


def _path(text: object) -> Path | None:
    return Path(text) if isinstance(text, str) else None


def read_found(path: Path) -> Found:
    """The folder of a run, its ``circuit.json``, or a circuit written by ``Circuit.to_json``."""
    if path.is_dir():
        circuit, result = place_of(path, "circuit.json"), place_of(path, "result.json")
        if not circuit.exists():
            raise DataError(
                f"The folder '{path}' has no circuit.json: give one that discover --out wrote."
            )
    else:
        circuit = path
        result = path.with_name("result.json")
    text = _text(circuit)
    alone = not path.is_dir() and path.name != "circuit.json"
    if alone or not result.exists():
        return Found(text, None)
    document = _document(result)
    claim = document.get("claim")
    patching = claim.get("patching") if isinstance(claim, dict) else None
    return Found(text, document["settings"], patching)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}'.") from None
    except OSError as error:
        raise DataError(f"The file '{path}' cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(
            f"The file '{path}' is not a circuit: give a run's folder or its circuit.json."
        ) from None


def _document(path: Path) -> dict[str, Any]:
    """The result of a run, which has settings."""
    try:
        document = json.loads(_text(path))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("settings"), dict):
        raise DataError(f"The file '{path}' is not the result of a run: run discover again.")
    return document
