"""``verify``: one circuit, one claim, one verdict."""

from __future__ import annotations

import torch

from provable_circuits.arguments import instance
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.verify.verdict import Verdict
from provable_circuits.verify.verifier import Verifier


def verify(
    graph: Graph,
    circuit: Circuit,
    claim: Claim,
    timeout: float | None = None,
    *,
    max_nodes: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Verdict:
    """Prove or refute that ``circuit`` behaves like ``graph`` wherever the claim says.

    Args:
        graph: the network.
        circuit: a circuit of that network.
        claim: over which inputs, under which patching, by which metric.
        timeout: seconds after which the answer is Undecided; 45 by default, and none where
            ``max_nodes`` is given.
        max_nodes: nodes of branch and bound after which it is: a limit that is repeatable.
        seed: the seed of random starts of the attack.
        device: where bounds are computed, such as ``"cuda"``.

    Returns:
        Proved, Refuted (with a witness that was replayed) or Undecided (with the reason).
    """
    instance("graph", graph, Graph, "a Graph, as from Graph.from_torch or Graph.from_onnx")
    instance("circuit", circuit, Circuit, "a circuit")
    if circuit.components.graph is not graph and circuit.components.graph.digest != graph.digest:
        raise ArgumentError("The circuit belongs to another network than the one given.")
    return Verifier(circuit.components, claim, seed=seed, device=device, reuse=False).ask(
        circuit, timeout, max_nodes
    )
