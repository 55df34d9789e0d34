"""Statistics of rows, as the paper prints them.

Times and sizes: mean and standard deviation over batches. Shares of robust circuits: percent and
standard error, over the batches that were decided; and beside it over all, an undecided one counted
as not robust. Sub-queries: how many stayed undecided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Summary:
    """What is printed of one method over many batches."""

    batches: int
    seconds: tuple[float, float]
    median: float
    lost: float
    size: tuple[float, float]
    of: int
    robust: tuple[float, float] | None
    robust_of_all: float | None
    open_checks: int
    queries: int
    undecided: int


def summary(cells: Sequence[dict[str, Any]]) -> Summary:
    """The summary of one method's cells, one for each batch."""
    kinds = [cell["robust"] for cell in cells if "robust" in cell]
    decided = [kind == "proved" for kind in kinds if kind != "undecided"]
    robust = None
    if kinds:
        share = sum(decided) / len(decided) if decided else math.nan
        error = math.sqrt(share * (1 - share) / len(decided)) if decided else math.nan
        robust = (100 * share, 100 * error)
    own = [cell["seconds"] - cell["seconds_undecided"] for cell in cells]
    return Summary(
        batches=len(cells),
        seconds=spread([cell["seconds"] for cell in cells]),
        median=statistics.median(own),
        lost=sum(cell["seconds_undecided"] for cell in cells),
        size=spread([cell["size"] for cell in cells]),
        of=cells[0]["of"],
        robust=robust,
        robust_of_all=100 * sum(decided) / len(kinds) if kinds else None,
        open_checks=sum(kind == "undecided" for kind in kinds),
        queries=sum(sum(cell["queries"].values()) for cell in cells),
        undecided=sum(cell["queries"].get("undecided", 0) for cell in cells),
    )


def spread(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation."""
    listed = list(values)
    return statistics.fmean(listed), statistics.stdev(listed) if len(listed) > 1 else 0.0


def overlap(one: Sequence[str], other: Sequence[str]) -> dict[str, float]:
    """How two circuits, the provable and the sampled one, overlap."""
    provable, sampled = set(one), set(other)
    both, either = len(provable & sampled), len(provable | sampled)
    return {
        "both": both,
        "provable_only": len(provable - sampled),
        "sampled_only": len(sampled - provable),
        "iou": both / either if either else 1.0,
        "dice": 2 * both / (len(provable) + len(sampled)) if either else 1.0,
        "difference": len(provable ^ sampled) / either if either else 0.0,
        "provable_over_sampled": both / len(sampled) if sampled else 1.0,
        "sampled_over_provable": both / len(provable) if provable else 1.0,
    }
