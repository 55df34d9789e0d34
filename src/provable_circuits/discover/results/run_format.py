"""What the files of a run must hold, and that they belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provable_circuits.discover.results.agreement import contradiction, disagreement
from provable_circuits.discover.results.certification_document import CERTIFICATION
from provable_circuits.discover.results.guarantees import HOLDS, NECESSITY
from provable_circuits.discover.results.json_shape import fits
from provable_circuits.discover.results.labels import LABELS, label_document
from provable_circuits.discover.results.summary import FAITHFUL, STOPPED
from provable_circuits.drawing.diagram import Column, Diagram, DiagramNode, Link
from provable_circuits.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from provable_circuits.discover.results.run import Run

FORMAT = "provable-circuits/run"
FORMAT_VERSION = 1

WITNESS = {
    "input": int,
    "excess": float,
    "constraint": int,
    "reference": [float],
    "output": [float],
    "stage": str,
    "matters": [int],
    "in_words": str,
}
RESULT = {
    "circuit": {
        "components": [str],
        "size": int,
        "of": int,
        "network": str,
        "layers": [{"name": str, "components": [str]}],
    },
    "faithful": str,
    "bound": (float, None),
    "claim": {
        "inputs": [str],
        "patching": str,
        "metric": str,
        "in_words": {"inputs": [str], "patching": str, "metric": str},
    },
    "minimality": {
        "notion": str,
        "holds": str,
        "basis": str,
        "notions": {str: str},
        "lower": (int, None),
        "lower_holds": (str, None),
        "upper": (int, None),
        "monotone": str,
    },
    "kept": {str: str},
    "witnesses": {str: WITNESS},
    "queries": {
        "total": int,
        "by_verdict": {str: int},
        "by_stage": {str: int},
        "by_stage_and_verdict": {str: {str: int}},
    },
    "timeline": [{"seconds": float, "size": int, "lower": (int, None), "queries": int}],
    "stopped": (str, None),
    "seconds": float,
    "settings": {},
    "version": str,
}
OPTIONAL: dict[tuple[str, ...], Any] = {
    ("confirmation",): (
        {"verdict": str, "stage": str, "reason": (str, None), "seconds": float},
        None,
    ),
    ("certified",): bool,
    ("certification",): (CERTIFICATION, None),
    ("digests",): {str: str},
    ("labels",): (LABELS, None),
    ("shown",): {"proved": [str], "refuted": [str]},
    ("claim", "digest"): (str, None),
    ("minimality", "withdrawn"): {
        "notion": (str, None),
        "holds": (str, None),
        "lower": (int, None),
        "because": str,
    },
}
"""What runs of earlier versions do not tell."""

CIRCUIT = {"format": str, "network": str, "components": [str], "size": int, "of": int}
DIAGRAM = {  # and of later versions the 'join' of a column, the 'pairs' of a link
    "columns": [{"title": str, "nodes": [{"name": str, "label": str, "status": str}]}],
    "links": [{"source": int, "target": int, "dashed": bool}],
    "title": str,
}


def check(document: Any, shape: Any, path: Path) -> None:
    """Refuse a document that does not have a shape."""
    try:
        fits(document, shape, path.stem)
    except DataError as error:
        raise DataError(f"The file '{path}' is not that of a run: {error}") from None


def check_result(document: Any, path: Path) -> None:
    """Refuse what is no result, of another version, or uses words without a meaning here."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"The file '{path}' was not written by provable-circuits discover --out.")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise DataError(
            f"The file '{path}' has the format version {version!r}, and version {FORMAT_VERSION} "
            "is read here: run discover again, or use the version that wrote it."
        )
    check(document, RESULT, path)
    _check_optional(document, path)
    minimality = document["minimality"]
    for place, word, known in [
        ("faithful", document["faithful"], FAITHFUL),
        ("stopped", document["stopped"], {None, *STOPPED}),
        ("minimality.holds", minimality["holds"], HOLDS),
        *((f"minimality.notions.{n}", word, HOLDS) for n, word in minimality["notions"].items()),
        *((f"kept.{name}", word, NECESSITY) for name, word in document["kept"].items()),
    ]:
        if word not in known:
            raise DataError(
                f"The file '{path}' is not that of a run: the word {word!r} at 'result.{place}' "
                "has no meaning there."
            )
    wrong = contradiction(document)
    if wrong is not None:
        raise DataError(f"The file '{path}' contradicts itself: {wrong}.")
    told = (document.get("confirmation") or {}).get("verdict", document["faithful"])
    if (told == "proved") != (document["faithful"] == "proved"):
        raise DataError(
            f"The file '{path}' is not that of a run: it says that the circuit is "
            f"{document['faithful']} and its confirmation {told}."
        )


def _check_optional(document: dict[str, Any], path: Path) -> None:
    """Refuse what may be missing but is not what it should be."""
    for (*places, last), shape in OPTIONAL.items():
        part = document
        for place in places:
            part = part[place]
        if last in part:
            check(part[last], shape, path)
    of = document["circuit"]["of"]
    for texts in document.get("shown", {}).values():
        for text in texts:
            if not re.fullmatch("[0-9a-f]{1,100000}", text) or int(text, 16) >> of:
                raise DataError(
                    f"The file '{path}' is not that of a run: {text[:40]!r} at 'result.shown' is "
                    "no circuit of the network."
                )


def diagram_from(document: Mapping[str, Any], path: Path) -> Diagram:
    """A diagram from its document."""
    check(document, DIAGRAM, path)
    check([column.get("join", "") for column in document["columns"]], [str], path)
    try:
        columns = tuple(
            Column(
                column["title"],
                tuple(DiagramNode(n["name"], n["label"], n["status"]) for n in column["nodes"]),
                column.get("join", ""),
            )
            for column in document["columns"]
        )
        links = tuple(
            Link(li["source"], li["target"], li["dashed"], _pairs(li.get("pairs"), path))
            for li in document["links"]
        )
        return Diagram(columns, links, document["title"])
    except ArgumentError as error:
        raise DataError(f"The file '{path}' is not that of a run: {error}") from None


def _pairs(value: Any, path: Path) -> tuple[tuple[int, int], ...] | None:
    check(value, (None, [[int]]), path)
    return None if value is None else tuple(map(tuple, value))


def check_together(run: Run, circuit: Mapping[str, Any], folder: Path) -> None:
    """Refuse files that do not belong together."""
    document, witnesses = run.document, run.document["witnesses"]
    kept, known, count = set(run.kept), set(run.components), len(run.inputs)
    drawn = {node.name: node.status for node in run.diagram.nodes}
    width = run.outputs.shape[-1]
    arrays = [run.witness(name, what) for name in witnesses for what in ("z", "patch_input")]
    if run.certificate is not None:
        wrong = disagreement(document, run.inputs, run.certificate)
        if wrong is not None:
            raise DataError(
                f"The certificate in '{folder / 'certificate'}' does not belong to the run: "
                f"{wrong}."
            )
    for file, agrees in [
        ("result.json", kept <= known and set(document["kept"]) == kept and known),
        ("result.json", document["circuit"]["size"] == len(run.kept) == len(kept)),
        ("result.json", document["circuit"]["of"] == len(run.components) == len(known)),
        ("result.json", set(witnesses) <= kept),
        ("result.json", all(_fits_outputs(w, count, width) for w in witnesses.values())),
        ("circuit.json", circuit["components"] == list(run.kept)),
        ("circuit.json", circuit["network"] == document["circuit"]["network"]),
        ("diagram.json", drawn == {n: "kept" if n in kept else "removed" for n in known}),
        ("inputs.npz", run.outputs.ndim == 2 and len(run.outputs) == count > 0),
        ("inputs.npz", run.inputs.size > 0 and run.outputs.size > 0),
        ("inputs.npz", _fits_domains(document["claim"]["inputs"], count)),
        (
            "inputs.npz",
            len(document["claim"]["inputs"]) == len(document["claim"]["in_words"]["inputs"]),
        ),
        ("inputs.npz", run.labels is None or run.labels.shape == (count,)),
        ("inputs.npz", document["labels"] == label_document(run.outputs, run.labels)),
        ("inputs.npz", _fits_channels(run)),
        ("witnesses.npz", all(run.witness(name) is not None for name in witnesses)),
        ("witnesses.npz", all(a is None or a.shape == run.inputs.shape[1:] for a in arrays)),
    ]:
        if not agrees:
            raise DataError(
                f"The file '{folder / file}' does not belong to the others of its folder: "
                "run discover again."
            )


def _fits_domains(domains: list[str], count: int) -> bool:
    """Whether there is one input for each domain, or at least one for each finite domain."""
    if domains and all(text.startswith(("Finite(", "Tokens(")) for text in domains):
        return len(domains) <= count
    return len(domains) == count


def _fits_outputs(witness: Mapping[str, Any], inputs: int, outputs: int) -> bool:
    lengths = {len(witness["reference"]), len(witness["output"])}
    places = all(0 <= place < outputs for place in witness["matters"])
    return 0 <= witness["input"] < inputs and lengths == {outputs} and places


def _fits_channels(run: Run) -> bool:
    """Whether the means and deviations are one number each, or one for each channel."""
    if run.mean is None or run.std is None:
        return run.mean is None and run.std is None
    channels = run.inputs.shape[1] if run.inputs.ndim == 4 else 1
    return all(v.ndim == 1 and v.size in (1, channels) for v in (run.mean, run.std))
