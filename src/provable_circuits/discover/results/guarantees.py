"""What a search has shown of its circuit: why each component is kept, and how minimal it is.

A component that is kept is

- ``necessary``: the final circuit without it was refuted, by a witness that was replayed;
- ``refuted-when-tried``: a larger circuit without it was refuted, and that witness does not break
  the final circuit without it;
- ``removable``: the final circuit without it was proved (a local check asks);
- ``undecided``: none of these; a question about it stayed undecided, or none was asked.

Witnesses of larger circuits are tried on the final one before anything is concluded. Under
interval-hull patching they carry over: what a component computed in the larger circuit is a value
that it may be patched with in the smaller one.

From that follows how minimal the circuit is, by the definitions (``minimality``):

- quasi, if some component is necessary; local, if all are;
- subset, if it is locally minimal and the predicate is monotone, known or assumed;
- cardinal, if no smaller circuit can be faithful: a lower bound that holds if the predicate is
  monotone equals its size, or it is empty, or it has one component and is locally minimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.results.minimality import NOTIONS
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.verdict import Refuted, Verdict

TRIED = 3
"""Witnesses of larger circuits that are tried for each component."""

NECESSITY = MappingProxyType(
    {
        "necessary": "necessary: without it this very circuit breaks the claim",
        "refuted-when-tried": "refuted when tried: without it a larger circuit breaks the claim",
        "undecided": "not shown necessary: removing it was undecided, or never asked about",
        "removable": "removable: without it the circuit is faithful too",
    }
)
"""Why a component is kept, and what that means."""

HOLDS = MappingProxyType(
    {
        "unconditional": "",
        "assumed": "if the predicate is monotone",
        "undecided": "up to undecided questions",
        "assumed-undecided": "if the predicate is monotone, and up to undecided questions",
        "no": "shown not to hold",
        "unknown": "not shown",
    }
)
"""How a notion of minimality holds, and what is said of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Why a component is kept.

    Attributes:
        status: a word of ``NECESSITY``.
        verdict: the verdict on the final circuit without it, where there is one; else that on the
            larger circuit it was tried on.
        undecided: ``"here"`` if the question about the final circuit without it stayed undecided,
            ``"larger"`` if one about a larger circuit did, empty if there was no such question.
    """

    status: str
    verdict: Verdict | None = None
    undecided: str = ""


@dataclass(frozen=True, slots=True)
class Minimality:
    """How minimal a circuit is.

    Attributes:
        notion: the strongest notion that holds, ``"none"`` if none was shown.
        holds: how it holds, a word of ``HOLDS``.
        basis: what that rests on, in a sentence.
        notions: how each notion holds, from the weakest to the strongest.
    """

    notion: str
    holds: str
    basis: str
    notions: Mapping[str, str]


def necessity(search: Search, circuit: Circuit, local_check: bool) -> dict[str, Kept]:
    """Why each component of the final circuit is kept."""
    without = {name: circuit.remove(name) for name in circuit.names}
    found: dict[str, Kept] = {}
    for name, smaller in without.items():
        known = search.known(smaller)
        if known is not None:
            found[name] = Kept("necessary", known)
    larger = {
        name: _larger(search, smaller, name)
        for name, smaller in without.items()
        if name not in found
    }
    for turn in range(TRIED):
        names = [name for name in larger if name not in found and len(larger[name]) > turn]
        carried = search.predicate.carried(
            [without[name] for name in names], [larger[name][turn] for name in names]
        )
        for name, refuted in zip(names, carried, strict=True):
            if refuted is not None:
                found[name] = Kept("necessary", refuted)
    left = [name for name in without if name not in found]
    if local_check and left:
        search.phase("local check", len(left))
        with search.cut_short():
            for name in left:
                verdict = search.inspect(without[name], name)
                if verdict.refuted:
                    found[name] = Kept("necessary", verdict)
                elif faithful(verdict):
                    found[name] = Kept("removable", verdict)
    for name in left:
        if name not in found:
            found[name] = _not_settled(search, without[name], name, larger[name])
    return {name: found[name] for name in circuit.names}


def _not_settled(search: Search, smaller: Circuit, name: str, tried: list[Refuted]) -> Kept:
    """What is left to say of a component whose removal from the final circuit has no answer."""
    if tried or _around(smaller, name, search.unfaithful):
        return Kept("refuted-when-tried", tried[0] if tried else None)
    here = smaller.bits in search.undecided
    above = bool(_around(smaller, name, search.undecided))
    return Kept("undecided", None, "here" if here else "larger" if above else "")


def _around(smaller: Circuit, name: str, circuits: Iterable[int]) -> list[int]:
    """Circuits without a component that contain this one, the smallest first."""
    place = 1 << smaller.components.index_of(name)
    around = [b for b in circuits if not b & place and b & smaller.bits == smaller.bits]
    return sorted(around, key=lambda bits: (bits.bit_count(), bits))


def _larger(search: Search, smaller: Circuit, name: str) -> list[Refuted]:
    """Refutations of circuits without a component that contain this one, the closest first."""
    return [search.refuted[bits] for bits in _around(smaller, name, search.refuted)[:TRIED]]


def minimality(
    search: Search, circuit: Circuit, verdict: Verdict | None, kept: Mapping[str, Kept]
) -> Minimality:
    """How minimal the circuit is, by what was shown."""
    if verdict is None or not faithful(verdict):
        notions = dict.fromkeys(NOTIONS, "unknown")
        return Minimality("none", "unknown", "the circuit was not shown to be faithful", notions)
    statuses = [reason.status for reason in kept.values()]
    monotone = search.monotone
    under = "unconditional" if monotone.known else "assumed"
    quasi = "unconditional" if "necessary" in statuses else "unknown"
    if all(status == "removable" for status in statuses):
        quasi = "no"
    if "removable" in statuses:
        local = subset = cardinal = "no"
    else:
        local = _local(kept, monotone.known)
        subset = cardinal = "unknown"
        if len(circuit) <= 1 and local == "unconditional":
            subset = cardinal = "unconditional"
        elif monotone.usable:
            subset = _both(_local(kept, True), under)
        if cardinal == "unknown" and monotone.usable and search.lower == len(circuit):
            cardinal = under
            subset, local = (under if h != "unconditional" else h for h in (subset, local))
            quasi = under if quasi != "unconditional" and circuit else quasi
    notions = {"quasi": quasi, "local": local, "subset": subset, "cardinal": cardinal}
    notion, holds = strongest(notions)
    if notion == "none":
        return Minimality(notion, holds, "no component was shown to be necessary", notions)
    return Minimality(notion, holds, _basis(notion, holds, search, circuit), notions)


def strongest(notions: Mapping[str, str]) -> tuple[str, str]:
    """The notion to be told of, and how it holds; those up to undecided questions come last."""
    for wanted in (("unconditional", "assumed"), ("undecided", "assumed-undecided")):
        for notion in reversed(NOTIONS):
            if notions.get(notion) in wanted:
                return notion, notions[notion]
    return "none", "unknown"


def _local(kept: Mapping[str, Kept], carries: bool) -> str:
    """How local minimality holds; where answers carry over, those on larger circuits count."""
    shown = {"necessary", "refuted-when-tried"} if carries else {"necessary"}
    open_ = {"here", "larger"} if carries else {"here"}
    left = [reason for reason in kept.values() if reason.status not in shown]
    if not left:
        return "unconditional"
    return "undecided" if all(reason.undecided in open_ for reason in left) else "unknown"


def _both(holds: str, under: str) -> str:
    """How something holds that rests on both."""
    if holds == "unknown" or under == "unconditional":
        return holds
    return "assumed" if holds == "unconditional" else "assumed-undecided"


def _basis(notion: str, holds: str, search: Search, circuit: Circuit) -> str:
    """What a notion rests on."""
    if not circuit:
        return "the empty circuit is faithful"
    if notion in ("quasi", "local") or len(circuit) == 1:
        own = notion if notion == "quasi" else "local"
        return remaining_basis(own, holds, bool(search.queries["held"]))
    if notion == "cardinal":
        condition = "if so, " if holds == "assumed" else ""
        rest = f"no circuit of fewer than {search.lower} components is faithful"
        return f"{search.monotone.reason}; {condition}{rest}"
    condition = "if so, " if holds.startswith("assumed") else ""
    but = _but(holds)
    return f"{search.monotone.reason}; {condition}no component can be removed{but}"


def remaining_basis(notion: str, holds: str, sampled: bool) -> str:
    """What the notions rest on that need no monotone predicate; empty for the others."""
    how = "at the sampled points" if sampled else "by a replayed witness"
    if notion == "quasi":
        return f"a component is necessary, {how}"
    if notion == "local":
        return f"every component is necessary{_but(holds) or ', ' + how}"
    return ""


def _but(holds: str) -> str:
    return " but for those whose removal stayed undecided" if "undecided" in holds else ""
