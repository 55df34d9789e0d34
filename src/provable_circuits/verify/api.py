"""``verify``: one circuit, one claim, one verdict."""

from __future__ import annotations

from dataclasses import replace

import torch

from provable_circuits.arguments import flag, instance
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import ArgumentError, CertificateError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.proof.certify import certify as make_certificate
from provable_circuits.verify.choice import verifier_of
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline, OutOfTime, limits
from provable_circuits.verify.verdict import Proved, Refuted, Verdict


def verify(
    graph: Graph,
    circuit: Circuit,
    claim: Claim,
    timeout: float | None = None,
    *,
    max_nodes: int | None = None,
    certify: bool = False,
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
        certify: write what was shown as a certificate, and have the checker accept it. That may
            take as long again; where it does not succeed, ``verdict.uncertified`` says why.
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
    verifier = verifier_of(circuit.components, claim, seed=seed, device=device, reuse=False)
    verdict = verifier.ask(circuit, timeout, max_nodes)
    return _certified(verdict, circuit, claim, timeout, max_nodes) if certify else verdict


def _certified(
    verdict: Verdict, circuit: Circuit, claim: Claim, timeout: float | None, max_nodes: int | None
) -> Verdict:
    """A verdict with a certificate that the checker has accepted, or why there is none."""
    if not isinstance(verdict, Proved | Refuted):
        return verdict
    witness = verdict.witness if isinstance(verdict, Refuted) else None
    limit = Deadline.after(*limits(timeout, max_nodes, DEFAULT.limits.question_seconds))
    try:
        found = make_certificate(
            claim,
            circuit,
            limit,
            faithful=witness is None,
            witness=witness,
            tuning=DEFAULT.proving,
        )
    except OutOfTime as stopped:
        return replace(verdict, uncertified=f"The limit in {stopped.reason} was reached.")
    except CertificateError as error:
        return replace(verdict, uncertified=str(error))
    return replace(verdict, certificate=found)
