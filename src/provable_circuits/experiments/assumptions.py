"""Labels of the searches of one row that stand beside each other.

The searches of a row of minimality are about one claim. What one of them shows withdraws labels of
the others: see ``discover.withdrawal``. Rows that were made before that was done are settled when
they are read, by what they tell: the circuits that were proved, the labels, and whether a search
saw the predicate not to be monotone, which leaves no lower bound in its timeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provable_circuits.discover.predicates.monotonicity import CONTRADICTED
from provable_circuits.discover.results.guarantees import strongest
from provable_circuits.discover.results.minimality import NOTIONS
from provable_circuits.discover.results.result import Result
from provable_circuits.discover.results.withdrawal import (
    PROOF,
    Labels,
    settled,
    settled_documents,
    timeline,
    withdrawn,
)

ALGORITHMS = ("greedy", "binary-search", "blocking-sets", "hitting-set")

PROVED = "proved"
INTERVAL = "interval"
"""The patching under which nothing is assumed."""


def label_cells(results: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    """What the searches of a row say of their circuits, each by the name of its algorithm."""
    documents = [result.document() for result in results.values()]
    cells = {}
    for name, document in zip(results, settled_documents(documents, list(results)), strict=True):
        minimality = document["minimality"]
        cells[name] = {
            "lower": minimality["lower"],
            "lower_holds": minimality["lower_holds"],
            "notion": minimality["notion"],
            "holds": minimality["holds"],
            "notions": minimality["notions"],
            "monotone": minimality["monotone"],
            "timeline": document["timeline"],
        }
        if "withdrawn" in minimality:
            cells[name]["withdrawn"] = minimality["withdrawn"]
    return cells


def settled_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the labels that other searches of it refute; itself if all stand."""
    searches = [name for name in ALGORITHMS if name in row]
    names = sorted({name for search in searches for name in row[search]["components"]})
    place = {name: 1 << i for i, name in enumerate(names)}
    labels = [_labels(name, row[name], place, row["patching"]) for name in searches]
    found = settled(labels)
    changed = {new.name: _cell(row[new.name], new) for new in found if new.because}
    return {**row, **changed} if changed else row


def _labels(name: str, cell: Mapping[str, Any], place: Mapping[str, int], patching: str) -> Labels:
    bits = sum(place[component] for component in cell["components"])
    assumed = cell.get("lower_holds", None if patching == INTERVAL else "assumed") == "assumed"
    told = dict.fromkeys(NOTIONS, "unknown") | {cell["notion"]: cell["holds"]}
    return Labels(
        name=name,
        method=PROOF,
        circuit=bits,
        proved=frozenset({bits} if cell["faithful"] == PROVED else ()),
        refuted=frozenset(),
        notions=cell.get("notions", told),
        lower=cell["lower"],
        lower_assumed=assumed and cell["lower"] is not None,
        contradicted=_contradicted(cell),
    )


def _contradicted(cell: Mapping[str, Any]) -> bool:
    """Whether a search saw the predicate not to be monotone."""
    if "monotone" in cell:
        return bool(cell["monotone"] == CONTRADICTED)
    bounds = [moment["lower"] for moment in cell["timeline"]]
    return bool(bounds) and all(bound is None for bound in bounds)


def _cell(cell: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    notion, holds = strongest(labels.notions)
    under = "assumed" if labels.lower_assumed else "unconditional"
    return {
        **cell,
        "lower": labels.lower,
        "lower_holds": None if labels.lower is None else under,
        "notion": notion,
        "holds": holds,
        "notions": dict(labels.notions),
        "timeline": timeline(cell, labels),
        "withdrawn": withdrawn(cell, labels),
    }
