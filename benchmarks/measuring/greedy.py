"""The greedy search, each of its sub-queries timed. Every benchmark of the verifier runs this one.

C = all components
for each component v, later layers first:
    ask whether the claim holds of C without v; if it is proved, C = C without v
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import provable_circuits as pc


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One sub-query: the circuit asked about, the verdict, and how long it took."""

    circuit: pc.Circuit
    verdict: pc.Verdict
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One greedy search: the circuit it found, its sub-queries, its time with all set-up."""

    circuit: pc.Circuit
    asked: tuple[Asked, ...]
    seconds: float


def search(components: pc.Components, claim: pc.Claim, timeout: float) -> Search:
    """Run a greedy search with a fresh verifier.

    Args:
        components: the components of the network.
        claim: the claim.
        timeout: seconds for each sub-query.
    """
    began = time.perf_counter()
    verifier = pc.Verifier(components, claim)
    circuit = components.full()
    verifier.ask(circuit, timeout)
    asked = []
    for component in components.discovery_order():
        candidate = circuit.remove(component.name)
        started = time.perf_counter()
        verdict = verifier.ask(candidate, timeout)
        asked.append(Asked(candidate, verdict, time.perf_counter() - started))
        circuit = candidate if verdict.proved else circuit
    return Search(circuit, tuple(asked), time.perf_counter() - began)
