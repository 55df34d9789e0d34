"""Certifying: what a search says of its circuit is proved as data, and the checker is run on it.

The certificate states that the circuit is faithful, by a proof for each input; that components are
necessary, each by its witness; a lower bound, by blocking sets with their witnesses and a proof
that no smaller set meets them all; and the notion of minimality that follows.

A certificate makes a confirmation by a fresh verifier unnecessary: the checker has learnt nothing
from the search, and relies on less than such a verifier.
"""

from __future__ import annotations

from collections.abc import Mapping

from provable_circuits.claims.claim import Claim
from provable_circuits.discover.results.guarantees import Kept, minimality
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.proof.covering import LowerBound
from provable_circuits.verify.certification import Certification, certified
from provable_circuits.verify.verdict import Refuted


def certified_result(
    search: Search,
    circuit: Circuit,
    claim: Claim,
    kept: Mapping[str, Kept],
    limit: tuple[float, int],
) -> Certification:
    """Try to have what a search found certified.

    Args:
        search: the search, whose verdict on the circuit is Proved.
        circuit: the circuit.
        claim: the claim.
        kept: why its components are kept.
        limit: seconds and nodes for the proof.
    """
    necessary = {
        name: reason.verdict.witness
        for name, reason in kept.items()
        if reason.status == "necessary" and isinstance(reason.verdict, Refuted)
    }
    return certified(
        claim,
        circuit,
        limit,
        necessary=necessary,
        lower=_lower(search),
        minimal=_minimal(search, circuit, kept),
    )


def _monotone(search: Search) -> str:
    return "shown" if search.monotone.known else "assumed"


def _lower(search: Search) -> LowerBound | None:
    """The lower bound that a search claims, and all blocking sets that it has witnesses of."""
    size = search.claimed_lower
    if not size:
        return None
    full = search.components.full()
    missed = sorted(full.bits & ~bits for bits in search.refuted)
    minimal: list[int] = []
    for bits in sorted(missed, key=lambda bits: bits.bit_count()):
        if not any(smaller & bits == smaller for smaller in minimal):
            minimal.append(bits)
    blocking = {
        frozenset(Circuit(search.components, bits).names): search.refuted[full.bits & ~bits].witness
        for bits in minimal
    }
    return LowerBound(size, blocking, _monotone(search))


def _minimal(search: Search, circuit: Circuit, kept: Mapping[str, Kept]) -> list[tuple[str, str]]:
    """The notion of minimality that is to be told of, if it holds without undecided questions."""
    told = minimality(search, circuit, search.verdict, kept)
    if told.notion == "none" or told.holds not in ("unconditional", "assumed"):
        return []
    needs = told.notion in ("subset", "cardinal") and len(circuit) > 1
    return [(told.notion, _monotone(search) if needs else "")]
