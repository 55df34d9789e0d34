"""What linear bounds cost: from which size on work is saved, and how alpha and beta are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.tuning import Tuning, tuned


@dataclass(frozen=True, slots=True)
class BoundingTuning(Tuning):
    """Tuning of ``verify/bounding``."""

    small_units: int = tuned(
        600,
        "activation units",
        "Graphs of no more are small: bounds of subdomains are tightened, circuits come in batches",
        least=0,
    )
    single_from: int = tuned(
        1024,
        "units of one tensor",
        "Graphs with a larger tensor are bounded in float32 where many rows are",
        least=0,
    )
    chunk_elements: int = tuned(
        2**20,
        "numbers",
        "The largest tensor of rows that one backward pass holds, so that it fits a cache",
        least=1,
    )
    few_boxes: int = tuned(
        8,
        "boxes",
        "Where subdomains share no more boxes, a row is multiplied with all of them at once",
        least=0,
    )
    norm_growth: float = tuned(
        1e4,
        "multiples of the first norm",
        "How far a carried bound of a norm may grow before the norm is measured",
        least=1,
    )
    alpha_rate: float = tuned(0.1, "slope per step", "The first step of alpha", above=0)
    beta_rate: float = tuned(0.2, "multiplier per step", "The first step of beta", above=0)
    rate_decay: float = tuned(
        0.93, "share of the step before", "How the steps of alpha and beta shrink", above=0, most=1
    )
    sign_slack: float = tuned(
        1e-13,
        "share of the largest in the tensor",
        "A bound that reaches no further across zero does not make a unit worth a split",
        least=0,
    )
    least_cost: float = tuned(
        1e-9,
        "as the bound",
        "The cost of an unstable unit that costs nothing now, so that it still counts as unstable",
        above=0,
    )

    def is_small(self, units: int) -> bool:
        """Whether so many activation units are few: the one threshold of size."""
        return units <= self.small_units
