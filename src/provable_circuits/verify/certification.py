"""Certification: what was decided is proved once more as data, and the checker is run on it.

Until the checker has accepted it, something is *proved*: our verifier says so. After that it is
*certified*. Where no certificate comes about within its limit, the answer is what it was, and why
there is none is said.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from provable_circuits.arguments import time_limit
from provable_circuits.claims.claim import Claim
from provable_circuits.errors import CertificateError
from provable_circuits.network.circuit import Circuit
from provable_circuits.proof.certify import Certificate, certify
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.outcome import Reason


@dataclass(frozen=True, slots=True, eq=False)
class Certification:
    """An attempt to have something certified.

    Attributes:
        certificate: what the checker has accepted; None if it did not come to that.
        reason: why there is none, in a sentence; empty where there is one.
        seconds: how long the attempt took.
    """

    certificate: Certificate | None
    reason: str
    seconds: float


def certification_limit(
    certify_timeout: float | None, max_nodes: int | None, took: float
) -> tuple[float, int]:
    """Seconds and nodes for a certificate.

    Args:
        certify_timeout: seconds that were asked for; None for as many as the answer took, and at
            least ten, or for a limit in nodes alone where there is one.
        max_nodes: nodes of a question; None for the usual limit, since trees are kept.
        took: seconds that the answer took.
    """
    limits = DEFAULT.limits
    nodes = limits.certificate_nodes if max_nodes is None else max_nodes
    if certify_timeout is not None:
        return time_limit("certify_timeout", certify_timeout), nodes
    return (math.inf if max_nodes is not None else max(took, limits.certificate_seconds)), nodes


def certified(
    claim: Claim, circuit: Circuit, limit: tuple[float, int], **statements: Any
) -> Certification:
    """Try to have statements about a circuit certified.

    Args:
        claim: the claim.
        circuit: the circuit.
        limit: seconds and nodes for the proof.
        **statements: see ``proof.certify.certify``.
    """
    began = time.monotonic()
    found, reason = None, ""
    try:
        found = certify(
            claim, circuit, Deadline.after(*limit), tuning=DEFAULT.proving, **statements
        )
    except OutOfTime as stopped:
        within = f"{limit[0]:.3g} seconds" if stopped.reason == Reason.TIME else f"{limit[1]} nodes"
        reason = f"No proof was found within {within}."
    except CertificateError as error:
        reason = str(error)
    except KeyboardInterrupt:
        reason = "It was interrupted."
    return Certification(found, reason, time.monotonic() - began)
