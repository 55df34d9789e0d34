"""Monotonicity: whether enlarging a faithful circuit keeps it faithful.

Subset- and cardinal-minimality by few questions rest on it. Of the patchings here

- ``IntervalHull`` is monotone by construction, if each claimed domain lies within the box around
  its patching domain. Let B be the boxes of interval propagation. By induction over the layers
  whatever a circuit computes, its inputs in the claimed domain and its patches in B, lies in B
  again: so a component that is kept gives a value that was allowed as its patch, and a larger
  circuit does nothing that a smaller one could not do.
- ``Reachable`` is monotone only if activations of different inputs can be combined at will, which
  no ordinary network grants. It is the paper's assumption (its Section 4.3), and is named whenever
  something rests on it.
- ``Zero``, ``Mean`` and ``Constant`` are not monotone: two components that cancel each other may be
  removed together, but not one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.claims.claim import Claim

CONTRADICTED = "the predicate is not monotone: a circuit around a faithful one was refuted"
"""The reason of a predicate that the answers of a search showed not to be monotone."""

AT_YOUR_REQUEST = "monotone is assumed at your request, although"


@dataclass(frozen=True, slots=True)
class Monotonicity:
    """What is known of a predicate.

    Attributes:
        known: it is monotone, by construction.
        assumed: it is taken to be, without a proof.
        reason: why, in a sentence.
    """

    known: bool
    assumed: bool
    reason: str

    @property
    def usable(self) -> bool:
        """Whether conclusions may be drawn from it, with or without an assumption."""
        return self.known or self.assumed


def monotonicity(claim: Claim, assume: bool = False) -> Monotonicity:
    """Whether faithfulness under ``claim`` is monotone.

    Args:
        claim: the claim.
        assume: take it to be monotone where that is not known.
    """
    patching = claim.patching
    if patching.has_boxes:
        outside = _outside(claim)
        if outside is None:
            return Monotonicity(True, False, "interval-hull patching is monotone by construction")
        reason = (
            f"the domain of input {outside} reaches outside the box of its patching domain, so "
            "that interval-hull patching is not known to be monotone: make the patching domain at "
            "least as large"
        )
        return Monotonicity(False, assume, f"{AT_YOUR_REQUEST} {reason}" if assume else reason)
    if patching.has_source:
        return Monotonicity(
            False, True, "assumed: activations of different inputs can be combined at will"
        )
    reason = f"faithfulness under {type(patching).__name__} patching is not monotone in general"
    return Monotonicity(False, assume, f"{AT_YOUR_REQUEST} {reason}" if assume else reason)


def _outside(claim: Claim) -> int | None:
    """The first input whose domain is not inside the box of its patching domain."""
    for index, domain in enumerate(claim.inputs):
        lower, upper = domain.bounds()
        least, most = claim.patching.domain(index, claim.inputs).bounds()
        if not bool(((lower >= least) & (upper <= most)).all()):
            return index
    return None
