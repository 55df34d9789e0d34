"""Confirmation: the circuit that a search returns is proved once more, by a verifier of its own.

A search derives: each question starts from what earlier ones showed, and a mistake in what is
carried from one to the next would make its answers false. So before the word proved is said, a new
verifier decides the final circuit with every form of reuse and derivation switched off. Where that
one does not come to a proof, both answers are kept, and the circuit does not count as proved.

A circuit with a certificate (``certifying``) needs none: the checker relies on still less.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.choice import verifier_of
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Undecided, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Confirmation:
    """What a verifier without reuse says of the circuit found.

    Attributes:
        verdict: its answer.
        seconds: how long it took.
    """

    verdict: Verdict
    seconds: float

    def document(self) -> dict[str, Any]:
        """The confirmation as plain data, ready for JSON."""
        return {
            "verdict": self.verdict.kind,
            "stage": self.verdict.stage,
            "reason": getattr(self.verdict, "reason", None),
            "seconds": self.seconds,
        }


def confirm(
    circuit: Circuit,
    claim: Claim,
    timeout: float,
    max_nodes: int | None,
    searched: float,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    configuration: Configuration = DEFAULT,
) -> Confirmation:
    """Prove a circuit that a search has proved once more, from nothing.

    It may take as long as a question of the search, as the whole search, or ten seconds, whichever
    is longest; under a limit in nodes, sixteen times the nodes of a question.

    Args:
        circuit: the circuit.
        claim: the claim.
        timeout: seconds for a question of the search.
        max_nodes: nodes for a question of the search.
        searched: seconds that the search took.
        seed: the seed of random starts of attacks.
        device: where bounds are computed.
        configuration: the tuning of the verifier, and these limits.
    """
    began = time.monotonic()
    usual = configuration.limits
    verifier = verifier_of(
        circuit.components,
        claim,
        seed=seed,
        device=device,
        reuse=False,
        configuration=configuration,
    )
    try:
        if max_nodes is None:
            verdict = verifier.ask(circuit, max(timeout, searched, usual.confirmation_seconds))
        else:
            verdict = verifier.ask(circuit, math.inf, usual.confirmation_nodes * max_nodes)
    except KeyboardInterrupt:
        verdict = Undecided(Reason.INTERRUPTED, Stage.CONFIRMATION)
    if verdict.refuted:
        logger.error("%r was proved by a search and is refuted by a new verifier", circuit)
    return Confirmation(verdict, time.monotonic() - began)
