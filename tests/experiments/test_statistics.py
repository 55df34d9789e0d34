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
    assert found.size == pytest.approx((5.0, math.sqrt(2 / 3)))
    assert (found.batches, found.of) == (4, 10)


def test_checks_that_were_not_made_or_not_decided() -> None:
    unchecked = [{k: v for k, v in cell("", 1, 4).items() if k != "robust"}] * 2
    found = summary(unchecked)
    assert (found.robust, found.robust_of_all, found.open_checks) == (None, None, 0)
    assert summary([{**unchecked[0], "queries": {"proved": 4}}]).undecided == 0
    found = summary([cell("undecided", 1, 4)] * 3)
    assert found.robust is not None
    assert all(math.isnan(value) for value in found.robust)
    assert (found.robust_of_all, found.open_checks) == (0.0, 3)


def test_spread_of_one_and_of_two() -> None:
    assert spread([3.0]) == (3.0, 0.0)
    assert spread([1.0, 3.0]) == pytest.approx((2.0, math.sqrt(2)))


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
    nothing = overlap([], [])
    assert [nothing[name] for name in ("both", "provable_only", "sampled_only")] == [0, 0, 0]
    assert (nothing["iou"], nothing["dice"], nothing["difference"]) == (1.0, 1.0, 0.0)
    one = overlap(["a"], [])
    assert (one["iou"], one["dice"], one["difference"]) == (0.0, 0.0, 1.0)
    assert (one["provable_over_sampled"], one["sampled_over_provable"]) == (1.0, 0.0)
    assert overlap([], ["a"])["sampled_over_provable"] == 1.0
