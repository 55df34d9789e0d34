"""Which verifier decides a claim: one for finite domains, and one for all others."""

from __future__ import annotations

import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.network.components import Components
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.finite.verifier import FiniteVerifier
from provable_circuits.verify.unrelaxed import UnrelaxedVerifier, relaxable
from provable_circuits.verify.verifier import Verifier


def verifier_of(
    components: Components,
    claim: Claim,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    reuse: bool = True,
    configuration: Configuration = DEFAULT,
) -> Verifier | FiniteVerifier | UnrelaxedVerifier:
    """The verifier of a claim about a network's circuits; see ``Verifier``."""
    if isinstance(claim, Claim) and claim.finite:
        return FiniteVerifier(
            components, claim, seed=seed, device=device, reuse=reuse, configuration=configuration
        )
    right = isinstance(components, Components) and isinstance(claim, Claim)
    if right and not relaxable(components):
        return UnrelaxedVerifier(
            components, claim, seed=seed, device=device, configuration=configuration
        )
    return Verifier(
        components, claim, seed=seed, device=device, reuse=reuse, configuration=configuration
    )
