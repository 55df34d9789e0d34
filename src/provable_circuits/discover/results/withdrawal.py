"""What several searches about one claim say together: labels that one refutes are withdrawn.

A label such as "smallest, if the predicate is monotone" is a statement about the claim. It stands
until any search about the same claim refutes what it rests on, and monotonicity is refuted if

- a search met a circuit that was proved and a larger one that was refuted, or two searches did so
  together;
- a circuit was proved that is smaller than a lower bound which holds if the predicate is monotone;
- a circuit was proved within one that is subset-minimal if the predicate is monotone.

Then no label of any of the searches that rests on it stands: subset- and cardinal-minimality, the
lower bound, and the lower bounds over time. A label that holds up to undecided questions falls by
itself, if a circuit was proved that it says there is none of. What was shown without a condition
stays. Should even that be contradicted, the answers are inconsistent, and both are not relied upon.

Where a search evaluated the claim at points, what it found to hold says nothing of a search by
proof. What was proved holds at points too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provable_circuits.discover.predicates.monotonicity import CONTRADICTED
from provable_circuits.discover.results.guarantees import remaining_basis, strongest
from provable_circuits.discover.search import Search

MOST = 1000
"""Circuits of each kind that are kept of a search: the smallest proved, the largest refuted."""

PROOF = "proof"
NOT_MONOTONE = "the predicate is not monotone"


@dataclass(frozen=True, slots=True)
class Shown:
    """Circuits that a search decided, as bits: the smallest proved, and the largest refuted."""

    proved: tuple[int, ...] = ()
    refuted: tuple[int, ...] = ()


NOTHING = Shown()


@dataclass(frozen=True, slots=True)
class Labels:
    """What a search says of its circuit, and what it showed of circuits.

    Attributes:
        name: what the search is called.
        method: ``"proof"``, or how circuits were evaluated at points.
        circuit: the circuit found, as bits.
        proved, refuted: circuits, as bits, that were shown to be faithful, or not to be.
        notions: how each notion of minimality holds, a word of ``HOLDS``.
        lower: the lower bound; None if none is claimed.
        lower_assumed: it holds if the predicate is monotone.
        contradicted: the search's own answers showed the predicate not to be monotone.
        because: why something was withdrawn; empty if nothing was.
        monotone: whether bounds may still rest on the predicate's being monotone.
    """

    name: str
    method: str
    circuit: int
    proved: frozenset[int]
    refuted: frozenset[int]
    notions: Mapping[str, str]
    lower: int | None
    lower_assumed: bool
    contradicted: bool
    because: str = ""
    monotone: bool = True

    @property
    def size(self) -> int:
        """How many components the circuit has."""
        return self.circuit.bit_count()


def shown_by(search: Search) -> Shown:
    """What a search showed, as far as it is kept."""
    return Shown(
        _extreme(search.proved, lambda small, large: small & large == small, 1),
        _extreme(search.unfaithful, lambda large, small: small & large == small, -1),
    )


def _extreme(circuits: Iterable[int], covers: Any, sign: int) -> tuple[int, ...]:
    """The extreme circuits, without those that another one covers."""
    found: list[int] = []
    for bits in sorted(circuits, key=lambda bits: (sign * bits.bit_count(), bits))[:MOST]:
        if not any(covers(other, bits) for other in found):
            found.append(bits)
    return tuple(found)


def settled(searches: Sequence[Labels]) -> list[Labels]:
    """The labels of searches about one claim that stand, given what all of them showed."""
    return [_settled(own, searches) for own in searches]


def _settled(own: Labels, searches: Sequence[Labels]) -> Labels:
    refuted = _refutation(own, searches)
    against = _against(own, searches)
    notions, lower = dict(own.notions), own.lower
    why = [refuted] if refuted else []
    for notion, holds in own.notions.items():
        if holds in ("unknown", "no"):
            continue
        if notion in against:
            notions[notion] = "unknown" if holds == "unconditional" else "no"
            why.append(against[notion].words(own, holds == "unconditional"))
        elif refuted and holds.startswith("assumed"):
            notions[notion] = "unknown"
    if "lower" in against:
        lower = None
        why.append(against["lower"].words(own, not own.lower_assumed))
    elif refuted and own.lower_assumed:
        lower = None
    if notions == dict(own.notions) and lower == own.lower:
        return own
    monotone = not refuted and lower == own.lower
    return replace(own, notions=notions, lower=lower, because=why[0], monotone=monotone)


@dataclass(frozen=True, slots=True)
class _Against:
    """A circuit that was proved, and that a label says there is none of."""

    search: Labels
    circuit: int

    def words(self, own: Labels, firm: bool) -> str:
        """What it is, for the search whose label it shows to be false."""
        within = " within this one" if self.circuit & own.circuit == self.circuit else ""
        size = self.circuit.bit_count()
        fact = f"{self.search.name} proved a circuit of {size} components{within}"
        return f"{fact}, against what was shown without condition" if firm else fact

    def refutes(self, label: str, own: Labels) -> str:
        """Why the predicate is not monotone, if the label of a search would hold if it were."""
        end = "if the predicate is monotone: it is not"
        if label in ("subset", "local"):
            fact = f"{self.search.name} proved a circuit within that of {own.name}"
            return f"{fact}, which is {label}-minimal {end}"
        fact = f"{self.search.name} proved a circuit of {self.circuit.bit_count()} components"
        if label == "lower":
            return f"{fact}, and by {own.name} none has fewer than {own.lower} {end}"
        return f"{fact}, and that of {own.name}, of {own.size}, is a smallest one {end}"


def _against(own: Labels, searches: Sequence[Labels]) -> dict[str, _Against]:
    """The labels of a search that proved circuits show to be false; of several the smallest."""
    found: dict[str, _Against] = {}
    for other, bits in sorted(_faithful(own, searches), key=lambda pair: pair[1].bit_count()):
        size = bits.bit_count()
        within = bits != own.circuit and bits & own.circuit == bits
        for label, false in (
            ("cardinal", size < own.size),
            ("subset", within),
            ("local", within and size == own.size - 1),
            ("lower", own.lower is not None and size < own.lower),
        ):
            if false:
                found.setdefault(label, _Against(other, bits))
    return found


def _refutation(own: Labels, searches: Sequence[Labels]) -> str:
    """Why the predicate that a search asked about is not monotone; empty if it may be."""
    alike = [other for other in searches if other.method == own.method]
    for other in alike:
        if other.contradicted:
            return f"{other.name} refuted a circuit around a faithful one: {NOT_MONOTONE}"
    for other in alike:
        for label, fact in _against(other, searches).items():
            if other.lower_assumed if label == "lower" else other.notions.get(label) == "assumed":
                return fact.refutes(label, other)
    around = list(_unfaithful(own, searches))
    for other, small in _faithful(own, searches):
        for third, large in around:
            if small & large == small:
                pair = f"{other.name} proved a circuit within one that {third.name} refuted"
                return f"{pair}: {NOT_MONOTONE}"
    return ""


def _faithful(own: Labels, searches: Sequence[Labels]) -> Iterator[tuple[Labels, int]]:
    """Circuits that satisfy the predicate of a search."""
    for other in searches:
        if other.method in (own.method, PROOF):
            yield from ((other, bits) for bits in other.proved)


def _unfaithful(own: Labels, searches: Sequence[Labels]) -> Iterator[tuple[Labels, int]]:
    """Circuits that do not."""
    for other in searches:
        if own.method in (other.method, PROOF):
            yield from ((other, bits) for bits in other.refuted)


# --- documents -----------------------------------------------------------------------------------


def labels_of(document: Mapping[str, Any], name: str) -> Labels:
    """What the document of a result says; see ``Result.document``."""
    circuit, minimality = document["circuit"], document["minimality"]
    settings, shown = document["settings"], document.get("shown", {"proved": [], "refuted": []})
    names = [name for layer in circuit["layers"] for name in layer["components"]]
    place = {name: 1 << i for i, name in enumerate(names)}
    bits = sum(place[name] for name in circuit["components"])
    proved = {int(text, 16) for text in shown["proved"]}
    refuted = {int(text, 16) for text in shown["refuted"]}
    if document["faithful"] != "undecided":
        proved.add(bits)
    for kept, status in document["kept"].items():
        if status in ("necessary", "removable"):
            (refuted if status == "necessary" else proved).add(bits & ~place[kept])
    blocking = document.get("blocking_set")
    if not isinstance(blocking, dict):
        blocking = {}
    removed = blocking.get("components")
    if isinstance(removed, list) and removed and set(map(str, removed)) <= set(names):
        refuted.add((1 << len(names)) - 1 - sum(place[str(name)] for name in removed))
    method = str(settings.get("method", PROOF))
    if method != PROOF:
        method = f"{method} {settings.get('points')} {settings.get('seed')}"
    told = {minimality["monotone"], blocking.get("monotone")}
    return Labels(
        name=name,
        method=method,
        circuit=bits,
        proved=frozenset(proved),
        refuted=frozenset(refuted),
        notions=minimality["notions"],
        lower=minimality["lower"],
        lower_assumed=minimality["lower"] is not None and minimality["lower_holds"] == "assumed",
        contradicted=CONTRADICTED in told,
    )


def settled_documents(
    documents: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Documents of results about one claim, without the labels that do not stand.

    What was withdrawn, and why, is told under ``minimality.withdrawn``.
    """
    before = [labels_of(document, name) for document, name in zip(documents, names, strict=True)]
    after = settled(before)
    refuted = [_refutation(own, before) for own in before]
    return [
        _without_blocking(_document(document, new) if new.because else dict(document), reason)
        for document, new, reason in zip(documents, after, refuted, strict=True)
    ]


def _document(document: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    old = document["minimality"]
    notion, holds = strongest(labels.notions)
    sampled = labels.method != PROOF
    basis = old["basis"]
    if (notion, holds) != (old["notion"], old["holds"]):
        left = remaining_basis(notion, holds, sampled)
        basis = f"{left}; {old['notion']} minimality was" if left else "withdrawn"
        basis = f"{basis} withdrawn: {labels.because}" if left else f"{basis}: {labels.because}"
    minimality = {
        **old,
        "notion": notion,
        "holds": holds,
        "basis": basis,
        "notions": dict(labels.notions),
        "lower": labels.lower,
        "lower_holds": None if labels.lower is None else old["lower_holds"],
        "monotone": old["monotone"] if labels.monotone else labels.because,
        "withdrawn": withdrawn(old, labels),
    }
    return {**document, "minimality": minimality, "timeline": timeline(document, labels)}


def withdrawn(old: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    """What does not stand of a notion, how it held, and a lower bound; and why."""
    kept = strongest(labels.notions) == (old["notion"], old["holds"])
    return {
        "notion": None if kept else old["notion"],
        "holds": None if kept else old["holds"],
        "lower": None if old["lower"] == labels.lower else old["lower"],
        "because": labels.because,
    }


def timeline(document: Mapping[str, Any], labels: Labels) -> list[dict[str, Any]]:
    """The timeline of a search, without lower bounds if they rest on what was refuted."""
    moments = document["timeline"]
    return [dict(m) if labels.monotone else {**m, "lower": None} for m in moments]


def _without_blocking(document: dict[str, Any], refuted: str) -> dict[str, Any]:
    """A document whose blocking set is not called smallest on an assumption that was refuted."""
    blocking = document.get("blocking_set")
    if not refuted or not isinstance(blocking, dict) or blocking.get("holds") != "assumed":
        return document
    told = {"smallest": False, "lower": None, "monotone": refuted}
    return {**document, "blocking_set": {**blocking, **told}}
