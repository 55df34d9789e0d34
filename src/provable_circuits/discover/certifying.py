"""Certifying: what a search says of its circuit is proved as data, and the checker is run on it.

The certificate states that the circuit is faithful, by a proof for each input, and that components
are necessary, each by its witness. It makes a confirmation by a fresh verifier unnecessary: the
checker has learnt nothing from the search, and knows less than such a verifier.
"""

from __future__ import annotations

from collections.abc import Mapping

from provable_circuits.claims.claim import Claim
from provable_circuits.discover.results.guarantees import Kept
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.certification import Certification, certified
from provable_circuits.verify.verdict import Refuted


def certified_result(
    search: Search,
    circuit: Circuit,
    claim: Claim,
    kept: Mapping[str, Kept],
    limit: tuple[float, int | None],
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
    return certified(claim, circuit, limit, necessary=necessary)
