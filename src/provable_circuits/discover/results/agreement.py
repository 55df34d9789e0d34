"""Whether the parts of a run agree: its document with itself, and with its certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from provable_circuits.proof.checker.certificate import ARRAYS, MANIFEST

Files = Mapping[str, bytes]


def contradiction(document: Mapping[str, Any]) -> str | None:
    """What the document of a result says against itself; None if nothing."""
    certified, faithful = document.get("certified", False), document["faithful"]
    told, minimality = document.get("certification"), document["minimality"]
    necessary = [name for name, why in document["kept"].items() if why == "necessary"]
    size, lower = document["circuit"]["size"], minimality["lower"]
    queries, proved = document["queries"], faithful == "proved"
    by_hand = document["settings"].get("method", "proof") == "proof"
    for wrong, what in [
        (certified and not proved, f"it is certified, and {faithful}"),
        (certified and not (told and told["digest"]), "it is certified, without a certificate"),
        (not certified and told and told["digest"], "it has a certificate, and is not certified"),
        (
            "certified" in document and proved and not certified
            and document.get("confirmation") is None,
            "it is proved, and neither certified nor confirmed",
        ),
        (
            by_hand and minimality["notions"].get("local") == "unconditional"
            and "removable" in document["kept"].values(),
            "it is locally minimal, and a component is removable",
        ),
        (
            minimality["notion"] == "quasi" and minimality["holds"] == "unconditional"
            and not necessary,
            "it is quasi-minimal, and no component is necessary",
        ),
        (proved and lower is not None and lower > size, f"no circuit below {lower} is faithful"),
        (queries["total"] != sum(queries["by_verdict"].values()), "its questions do not add up"),
        (queries["total"] != sum(queries["by_stage"].values()), "its stages do not add up"),
    ]:  # fmt: skip
        if wrong:
            return what
    return None


def disagreement(document: Mapping[str, Any], inputs: NDArray[Any], files: Files) -> str | None:
    """What a certificate says against the run that it belongs to; None if nothing."""
    try:
        manifest = json.loads(files[MANIFEST])
        return next(_differences(document, inputs, manifest, load(files[ARRAYS[0]])), None)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, SafetensorError):
        return "it cannot be read"


def _differences(
    document: Mapping[str, Any],
    inputs: NDArray[Any],
    manifest: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> Iterator[str]:
    circuit, minimality = document["circuit"], document["minimality"]
    statements: dict[str, list[Any]] = {}
    for statement in manifest["statements"]:
        statements.setdefault(statement["kind"], []).append(statement)
    left_out = [left["statement"] for left in document["certification"]["left_out"]]
    withdrawn = "withdrawn" in minimality
    names = {name for site in manifest["components"] for name in site["names"]}
    if set(manifest["circuit"]) != set(circuit["components"]):
        yield "it is about another circuit"
    if names != {name for layer in circuit["layers"] for name in layer["components"]}:
        yield "it is about other components"
    if "faithful" not in statements:
        yield "it does not state that the circuit is faithful"
    if len(manifest["statements"]) != len(document["certification"]["statements"]):
        yield "it has another number of statements"
    necessary = {name for name, why in document["kept"].items() if why == "necessary"}
    stated = {statement["component"] for statement in statements.get("necessary", [])}
    doubted = sum(text.endswith(" is necessary") for text in left_out)
    if not stated <= necessary or len(necessary - stated) != doubted:
        yield "other components are necessary by it"
    lower = [statement["size"] for statement in statements.get("lower-bound", [])]
    claimed = [] if minimality["lower"] is None else [minimality["lower"]]
    bounded = any("fewer than" in text for text in left_out)
    if lower != claimed and not (bounded or withdrawn):
        yield "its lower bound is another"
    notions = [statement["notion"] for statement in statements.get("minimal", [])]
    if notions and notions != [minimality["notion"]] and not withdrawn:
        yield "its notion of minimality is another"
    domains = manifest["claim"]["inputs"]
    centres = [arrays[domain.get("x", domain.get("centre"))] for domain in domains]
    if len(centres) != len(inputs) or not all(map(np.array_equal, centres, inputs)):
        yield "it is about other inputs"
