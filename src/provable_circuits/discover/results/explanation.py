"""How a witness breaks a claim."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import LogitDifference, SameAnswer
from provable_circuits.claims.words import Broken, broken
from provable_circuits.verify.verdict import Witness


def broken_by(claim: Claim, witness: Witness, anchor: Tensor | None) -> Broken:
    """How a witness breaks a claim's metric.

    Args:
        claim: the claim.
        witness: the witness.
        anchor: the network's outputs at the unperturbed inputs, [inputs, outputs]. Over finite
            domains every input is its own, and None is enough.
    """
    metric, index = claim.metric, witness.index
    if claim.finite or anchor is None:
        if isinstance(metric, LogitDifference | SameAnswer) and isinstance(metric.target, tuple):
            metric = replace(metric, target=metric.target[index])
        anchor, index = witness.reference.unsqueeze(0), 0
    how = broken(metric, index, anchor, witness.reference, witness.output, witness.excess)
    if witness.position is None:
        return how
    return Broken(how.outputs, f"at position {witness.position} {how.words}")
