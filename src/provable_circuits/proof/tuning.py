"""How hard the prover tries; what the checker accepts does not depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class ProvingTuning(Tuning):
    """Tuning of the prover of certificates."""

    steps: int = tuned(
        40, "steps", "Steps of alpha at the root; half as many in a subdomain", least=2
    )
    long_steps: int = tuned(600, "steps", "Steps in a leaf with no ReLU left to split", least=1)
    tightened_units: int = tuned(
        4096,
        "units",
        "Up to so many in a problem, bounds behind a split are computed again",
        least=0,
    )
    near: float = tuned(
        1e-6, "as the bound", "Leaves that miss zero by no more are for rational numbers", least=0
    )
    denominator: int = tuned(
        10**4, "denominator", "The largest of a beta in rational numbers", least=1
    )
    reduction: float = tuned(
        0.5, "of the proof's work", "How much a proof is worked on to make it smaller", least=0
    )
    reduction_steps: int = tuned(
        0, "steps", "Steps of alpha in a split that may be dropped, after a first bound", least=0
    )
    reduced_depth: int = tuned(
        200, "splits", "Deeper trees are left as they are", least=1, most=500
    )
    levels: tuple[int, ...] = tuned(
        (1, 3, 15), "levels", "Numbers of steps of alpha from 0 to 1 that are tried", least=1
    )


USUAL = ProvingTuning()
