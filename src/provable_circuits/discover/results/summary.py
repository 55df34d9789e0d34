"""A result in a few lines, from its document: the same words after a search and from a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from provable_circuits.discover.results.certification_document import certification_lines
from provable_circuits.discover.results.guarantees import HOLDS, NECESSITY
from provable_circuits.discover.results.labels import label_lines

FAITHFUL = {
    "proved": "proved for every input in {domains} domain(s)",
    "sampled": "held at the sampled points; nothing is proved",
    "undecided": "not decided",
}
"""How far faithfulness was shown."""

CERTIFIED = "certified for every input in {domains} domain(s)"
"""The same of what was proved, and what the checker has accepted."""

NOT_CHECKED = "  NOT CHECKED since it was loaded: provable-circuits check does so"
"""What is said of a saved run with a certificate."""

STOPPED = {"interrupted": "interrupted", "budget": "its time was over"}
"""Why a search was cut short."""


def summary(document: Mapping[str, Any], checked: bool = True) -> str:
    """What was found, what it rests on, and what it cost.

    Args:
        document: the document of a result.
        checked: whether its certificate, if it has one, was checked in this process.
    """
    circuit, claim = document["circuit"], document["claim"]
    inputs = claim["inputs"]
    lines = [f"Circuit: {circuit['size']} of {circuit['of']} components", *_by_layer(circuit)]
    if document["stopped"] is not None:
        why = STOPPED[document["stopped"]]
        lines.append(f"Stopped early: {why}; this is the best circuit so far")
    certified = bool(document.get("certified"))
    shown = CERTIFIED if certified and checked else FAITHFUL[document["faithful"]]
    lines.append(f"Faithful: {shown.format(domains=len(inputs))}")
    lines += certification_lines(document)
    if certified and not checked:
        lines.append(NOT_CHECKED)
    lines += _confirmation_lines(document)
    lines.append(f"  inputs    {inputs[0]}" + (" ..." if len(inputs) > 1 else ""))
    lines.append(f"  patching  {claim['patching']}")
    lines.append(f"  metric    {claim['metric']}")
    lines += label_lines(document.get("labels"))
    lines += _minimality_lines(document["minimality"])
    counts = Counter(document["kept"].values())
    lines.append("Kept components:")
    for status in (word for word in NECESSITY if counts[word]):
        lines.append(f"  {counts[status]:>3} {NECESSITY[status]}")
        if status != "necessary":
            names = [name for name, word in document["kept"].items() if word == status]
            lines.append(f"      {', '.join(names)}")
    if not counts:
        lines.append("    0 (the empty circuit is faithful: is the tolerance too large?)")
    queries = document["queries"]
    answers = ", ".join(f"{count} {kind}" for kind, count in sorted(queries["by_verdict"].items()))
    lines.append(f"Questions: {queries['total']} ({answers}) in {document['seconds']:.2f} s")
    return "\n".join(lines)


def _confirmation_lines(document: Mapping[str, Any]) -> list[str]:
    """What a verifier that reuses nothing says of a circuit that the search proved."""
    confirmation = document.get("confirmation")
    if confirmation is None:
        return []
    seconds = f"{confirmation['seconds']:.2f} s"
    if confirmation["verdict"] == "proved":
        return [f"  confirmed in {seconds}, by a verifier that reuses nothing"]
    if confirmation["verdict"] == "refuted":
        return [
            "  proved by the search, but REFUTED by a verifier that reuses nothing: an internal",
            "  inconsistency, please report it; nothing is claimed of this circuit",
        ]
    return [
        "  proved by the search, but not confirmed: a verifier that reuses nothing was undecided",
        f"  after {seconds} ({confirmation['reason']})",
    ]


def _by_layer(circuit: Mapping[str, Any]) -> list[str]:
    """One line for each layer: what is kept, of how many."""
    lines = []
    kept = set(circuit["components"])
    width = max(len(layer["name"]) for layer in circuit["layers"])
    for layer in circuit["layers"]:
        own = [name.rpartition("/")[2] for name in layer["components"] if name in kept]
        names = ", ".join(own) if own else "nothing"
        lines.append(
            f"  {layer['name']:<{width}}  {len(own):>3} of {len(layer['components']):<4} {names}"
        )
    return lines


def _minimality_lines(minimality: Mapping[str, Any]) -> list[str]:
    if minimality["notion"] == "none":
        lines = [f"Minimal: not shown ({minimality['basis']})"]
    else:
        how = HOLDS[minimality["holds"]]
        lines = [f"Minimal: {minimality['notion']}{f', {how}' if how else ''}"]
        lines.append(f"  because {minimality['basis']}")
    if minimality["lower"] and minimality["notion"] != "cardinal":
        assumed = minimality["lower_holds"] == "assumed"
        condition = "if the predicate is monotone, " if assumed else ""
        bound = f"no faithful circuit has fewer than {minimality['lower']} components"
        lines.append(f"  {condition}{bound}")
    return lines
