"""``verify``: one circuit, one claim, one verdict."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from provable_circuits.arguments import flag, instance
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.verify.certification import certification_limit, certified
from provable_circuits.verify.choice import verifier_of
from provable_circuits.verify.verdict import Proved, Refuted, Verdict


def verify(
    graph: Graph,
    circuit: Circuit,
    claim: Claim,
    timeout: float | None = None,
    *,
    max_nodes: int | None = None,
    certify: bool = True,
    certify_timeout: float | None = None,
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
        certify: write what was shown as a certificate, and have the checker accept it; then
            ``verdict.certified``. Where that does not succeed, ``verdict.uncertified`` says why.
        certify_timeout: seconds for the certificate's proof; by default as many as the answer
            took and at least 10, and ``max_nodes`` alone where that is given.
        seed: the seed of random starts of the attack.
        device: where bounds are computed, such as ``"cuda"``.

    Returns:
        Proved, Refuted (with a witness that was replayed) or Undecided (with the reason).
    """
    instance("graph", graph, Graph, "a Graph, as from Graph.from_torch or Graph.from_onnx")
    instance("circuit", circuit, Circuit, "a circuit")
    if circuit.components.graph is not graph and circuit.components.graph.digest != graph.digest:
        raise ArgumentError("The circuit belongs to another network than the one given.")
    flag("certify", certify)
    certification_limit(certify_timeout, max_nodes, 0.0)
    began = time.monotonic()
    verifier = verifier_of(circuit.components, claim, seed=seed, device=device, reuse=False)
    verdict = verifier.ask(circuit, timeout, max_nodes)
    if not certify or not isinstance(verdict, Proved | Refuted):
        return verdict
    limit = certification_limit(certify_timeout, max_nodes, time.monotonic() - began)
    witness = verdict.witness if isinstance(verdict, Refuted) else None
    found = certified(claim, circuit, limit, faithful=witness is None, witness=witness)
    return replace(verdict, certificate=found.certificate, uncertified=found.reason)
