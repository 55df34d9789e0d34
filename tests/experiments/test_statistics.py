"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from provable_circuits.experiments.statistics import overlap, spread, summary


def cell(robust: str, seconds: float, size: int, undecided: int = 0) -> dict[str, Any]:
    return {
        "robust": robust,
        "seconds": seconds,
        "seconds_undecided": 1.0 if undecided else 0.0,
        "size": size,
        "of": 10,
        "queries": {"proved": 4, "undecided": undecided},
    }


def test_undecided_checks_are_counted_and_not_dropped() -> None:
    found = summary(
        [
            cell("proved", 1, 4),
            cell("refuted", 2, 6),
            cell("proved", 6, 5),
            cell("undecided", 3, 5, 2),
        ]
    )
    assert found.robust == pytest.approx((200 / 3, 100 * math.sqrt(2 / 9 / 3)))
    assert found.robust_of_all == 50.0
    assert found.open_checks == 1
    assert (found.queries, found.undecided) == (18, 2)
    assert found.seconds == pytest.approx((3.0, math.sqrt(14 / 3)))
    assert found.median == 2.0
    assert found.lost == 1.0
    assert found.size[0] == 5.0


def test_spread_of_one() -> None:
    assert spread([3.0]) == (3.0, 0.0)


def test_overlap() -> None:
    found = overlap(["a", "b", "c"], ["b", "c", "d", "e"])
    assert found == {
        "both": 2,
        "provable_only": 1,
        "sampled_only": 2,
        "iou": 2 / 5,
        "dice": 4 / 7,
        "difference": 3 / 5,
        "provable_over_sampled": 2 / 4,
        "sampled_over_provable": 2 / 3,
    }
    assert overlap([], [])["iou"] == 1.0
