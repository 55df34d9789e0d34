"""``verify``: one circuit, one claim, one verdict."""

from __future__ import annotations

from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.verify.verdict import Verdict
from provable_circuits.verify.verifier import Verifier


def verify(
    graph: Graph, circuit: Circuit, claim: Claim, timeout: float = 45.0, *, seed: int = 0
) -> Verdict:
    """Prove or refute that ``circuit`` behaves like ``graph`` wherever the claim says.

    Args:
        graph: the network.
        circuit: a circuit of that network.
        claim: over which inputs, under which patching, by which metric.
        timeout: seconds after which the answer is Undecided.
        seed: the seed of random starts of the attack.

    Returns:
        Proved, Refuted (with a witness that was replayed) or Undecided (with the reason).
    """
    if circuit.components.graph is not graph and circuit.components.graph.digest != graph.digest:
        raise ArgumentError("The circuit belongs to another network than the one given.")
    if not timeout > 0:
        raise ArgumentError(f"The 'timeout' parameter must be positive. Got {timeout} instead.")
    return Verifier(circuit.components, claim, seed=seed).ask(circuit, timeout)
