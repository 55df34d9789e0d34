"""A run: all that is worth keeping of a search, as plain data that needs no model to be read.

A run is saved as a folder:

- ``result.json``: the document of the result, with the settings and how each witness breaks the
  claim, in words;
- ``circuit.json``: the circuit, as ``Circuit.to_json`` writes it;
- ``diagram.json``: the network's layers, components and connections, for drawings;
- ``inputs.npz``: the claim's inputs ``x``, the network's ``outputs`` there and, where they are
  known, labels ``y`` and the ``mean`` and ``std`` by which inputs were made from pixels;
- ``witnesses.npz``: for each component with a witness its input, ``<component>:z``, and what
  removed components were patched with, ``<component>:patch_input`` or
  ``<component>:patch:<tensor>``;
- ``certificate/``: the certificate of what was found, where there is one.

``result.json`` has the digests of the other files and its own, and of the certificate. A run that
was loaded is not checked, whatever it says of itself, until ``check_run`` has done so.

Nothing that is read is executed, and every file is checked before anything is made of it.

A run that is saved over an older one replaces its files, and the pages that ``show --html`` made of
the older one go: they would tell of another circuit than the files beside them.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.archives import read_arrays
from provable_circuits.arguments import parameter, refused
from provable_circuits.discover.results.digests import BESIDE, DOCUMENT, check_digests, with_digests
from provable_circuits.discover.results.labels import label_document
from provable_circuits.discover.results.run_format import (
    CIRCUIT,
    FORMAT,
    FORMAT_VERSION,
    check,
    check_result,
    check_together,
    diagram_from,
)
from provable_circuits.discover.results.summary import summary
from provable_circuits.drawing.diagram import Diagram
from provable_circuits.errors import DataError
from provable_circuits.files import place_of, prepare_folder, write_folder
from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.certificate import MANIFEST, MOST_BYTES, read

Array = NDArray[Any]

CERTIFICATE = "certificate"
"""The folder of the certificate, in that of the run."""

FILES = (DOCUMENT, *BESIDE)
"""The files of a run."""

PAGES = ("report.html", "comparison.html")
"""The pages that are written into the folder of a run, unless another place is named."""

PAGE_MARK = " \N{EN DASH} provable-circuits</title>"
"""How the title of every such page ends; by that they are told from the pages of others."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What is kept of a search.

    Attributes:
        document: the result as plain data, see ``Result.document``.
        circuit: the circuit as JSON, see ``Circuit.to_json``.
        diagram: the network's layers and components, and which are kept.
        inputs: the claim's unperturbed inputs, [inputs, *shape].
        outputs: the network's outputs there, [inputs, outputs].
        witnesses: arrays by name, see ``Run.witness``.
        labels: what the inputs show, [inputs], if that is known.
        certificate: the files of its certificate, by name; None where there is none.
        checked: when the checker accepted that certificate, in this process; empty if it did not.
        mean, std: inputs are ``(pixel - mean) / std``, by channel; None if they are pixels.
    """

    document: Mapping[str, Any]
    circuit: str
    diagram: Diagram
    inputs: Array
    outputs: Array
    witnesses: Mapping[str, Array]
    labels: Array | None = None
    mean: Array | None = None
    std: Array | None = None
    certificate: Mapping[str, bytes] | None = field(default=None, repr=False)
    checked: str = ""

    @property
    def kept(self) -> tuple[str, ...]:
        """The components of the circuit, in graph order."""
        return tuple(self.document["circuit"]["components"])

    @property
    def components(self) -> tuple[str, ...]:
        """All components of the network, in graph order."""
        layers = self.document["circuit"]["layers"]
        return tuple(name for layer in layers for name in layer["components"])

    def witness(self, component: str, what: str = "z") -> Array | None:
        """An array of a component's witness: its input, or the ``"patch_input"``, if there is."""
        return self.witnesses.get(f"{component}:{what}")

    def pixels(self, values: Array) -> Array:
        """Inputs in the scale that they had before they were normalised for the network."""
        if self.mean is None or self.std is None:
            return values
        mean, std = (v.reshape(-1, 1, 1) if v.size > 1 else v for v in (self.mean, self.std))
        return np.asarray(values * std + mean)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the run into a folder, which is made if need be.

        All files are replaced together: whoever looks, and whoever comes after a death at any
        moment, finds the old run or the new one, whole. Pages about an older run of that folder are
        removed; no other file is touched, and no symbolic link is followed.
        """
        folder = _folder(folder)
        prepare_folder(folder)
        inputs = {"x": self.inputs, "outputs": self.outputs}
        for name, values in [("y", self.labels), ("mean", self.mean), ("std", self.std)]:
            if values is not None:
                inputs[name] = values
        files = {
            "circuit.json": f"{self.circuit}\n".encode(),
            "diagram.json": f"{json.dumps(asdict(self.diagram), indent=2)}\n".encode(),
            "inputs.npz": _archive(inputs),
            "witnesses.npz": _archive(self.witnesses),
        }
        document = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.document}
        text = json.dumps(with_digests(document, files), indent=2)
        files[DOCUMENT] = f"{text}\n".encode()
        for name, data in (self.certificate or {}).items():
            files[f"{CERTIFICATE}/{name}"] = data
        try:
            write_folder(folder, files)
            _remove_pages(folder)
            if self.certificate is None:
                _remove_certificate(folder / CERTIFICATE)
        except OSError as error:
            raise DataError(f"The folder '{folder}' cannot be written: {error.strerror}.") from None

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Run:
        """Read what ``save`` or ``provable-circuits discover --out`` wrote.

        Raises:
            DataError: the folder or a file is missing, damaged, or of another format.
        """
        folder = _folder(folder)
        if not folder.is_dir():
            raise DataError(
                f"There is no folder '{folder}': write one with provable-circuits discover --out."
            )
        files = {name: place_of(folder, name) for name in FILES}
        document = _read_json(files["result.json"])
        check_result(document, files["result.json"])
        circuit = _read_json(files["circuit.json"])
        check(circuit, CIRCUIT, files["circuit.json"])
        diagram = diagram_from(_read_json(files["diagram.json"]), files["diagram.json"])
        arrays = _read_arrays(files["inputs.npz"], "x", "outputs")
        labels = arrays.get("y")
        told = {k: v for k, v in document.items() if k != "digests" and not k.startswith("format")}
        told.setdefault("labels", label_document(arrays["outputs"], labels))  # of older runs
        run = cls(
            document=told,
            circuit=json.dumps(circuit, indent=2),
            diagram=diagram,
            inputs=arrays["x"],
            outputs=arrays["outputs"],
            witnesses=_read_arrays(files["witnesses.npz"]),
            labels=labels,
            mean=arrays.get("mean"),
            std=arrays.get("std"),
            certificate=_read_certificate(place_of(folder, CERTIFICATE), document),
        )
        check_together(run, circuit, folder)
        check_digests(document, files)
        return run

    def __str__(self) -> str:
        return summary(self.document, checked=bool(self.checked))


def _folder(folder: Any) -> Path:
    if not isinstance(folder, str | PathLike):
        raise refused(parameter("folder"), "the name of a folder", folder)
    return Path(folder)


def _remove_pages(folder: Path) -> None:
    """Remove pages about a run that is replaced; what is no such page stays."""
    for path in (folder / name for name in PAGES):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(65536)
        if PAGE_MARK.encode() in head:
            path.unlink()


def _archive(arrays: Mapping[str, Array]) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **arrays)
    return data.getvalue()


def _remove_certificate(folder: Path) -> None:
    """Remove the certificate of a run that is replaced by one without."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for name in MOST_BYTES:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _read_certificate(folder: Path, document: Mapping[str, Any]) -> dict[str, bytes] | None:
    """The files of the certificate that a document speaks of."""
    if not document.get("certified"):
        return None
    try:
        files = {name: (folder / name).read_bytes() for name in MOST_BYTES}
    except OSError as error:
        raise DataError(
            f"The run is certified, and its certificate in '{folder}' cannot be read: "
            f"{error.strerror}."
        ) from None
    if hashlib.sha256(files[MANIFEST]).hexdigest() != document["certification"]["digest"]:
        raise DataError(f"The certificate in '{folder}' is another than that of the run.")
    try:
        read(folder)
    except RefusedError as error:
        raise DataError(f"The certificate in '{folder}' is refused: {error}") from None
    return files


def _read_json(path: Path) -> Any:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(document, ensure_ascii=False).encode("utf-8")  # no half characters
        return document
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}': the folder is not that of a run.") from None
    except OSError as error:
        raise DataError(f"The file '{path}' cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise DataError(f"The file '{path}' is not JSON: run discover again.") from None


def _read_arrays(path: Path, *needed: str) -> dict[str, Array]:
    try:
        arrays = read_arrays(path)
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}': the folder is not that of a run.") from None
    except (OSError, ValueError):
        raise DataError(
            f"The file '{path}' is not a whole .npz file of plain arrays: run discover again."
        ) from None
    for name in needed:
        if name not in arrays or arrays[name].ndim == 0:
            raise DataError(f"The file '{path}' has no array '{name}': run discover again.")
    for name, values in arrays.items():
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise DataError(f"The array '{name}' of '{path}' does not hold finite numbers.")
    return arrays
