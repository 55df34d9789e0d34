"""Groups of tuning: each field has a unit, an explanation and limits, which are held to."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from provable_circuits.errors import ArgumentError
from provable_circuits.tuning import Sense, Tuning, tuned


@dataclass(frozen=True, slots=True)
class Some(Tuning):
    """A group."""

    steps: int = tuned(4, "steps", "Steps of ascent", least=1)
    rate: float = tuned(0.5, "share", "How far they go", above=0, most=2)
    reaches: tuple[float, ...] = tuned((0.1, 0.2), "share", "How far each goes", least=0)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("steps", 0, "must be a whole number of at least 1. Got 0 instead."),
        ("steps", 1.5, "must be a whole number of at least 1. Got 1.5 instead."),
        ("steps", True, "must be a whole number of at least 1. Got True instead."),
        ("rate", 0.0, "must be a number above 0. Got 0.0 instead."),
        ("rate", 2.5, "must be a number above 0. Got 2.5 instead."),
        ("rate", float("nan"), "must be a number above 0. Got nan instead."),
        ("rate", "fast", "must be a number above 0. Got 'fast' instead."),
        ("reaches", 0.1, "must be a tuple of numbers. Got 0.1 instead."),
        ("reaches", (0.1, -0.2), "must be a number of at least 0. Got -0.2 instead."),
    ],
)
def test_values_that_make_no_sense_are_refused(field: str, value: Any, told: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        Some(**{field: value})
    assert str(refused.value) == f"The '{field}' parameter of Some {told}"
    with pytest.raises(ArgumentError) as refused:
        Some().changed({field: value})
    assert str(refused.value) == f"The '{field}' parameter of Some {told}"


def test_limits_themselves_are_values() -> None:
    assert Some(steps=1, rate=2.0, reaches=(0.0,)) == Some().changed(
        {"steps": 1, "rate": 2, "reaches": (0.0,)}
    )
    assert Some(reaches=()).reaches == ()


def test_a_group_is_frozen_and_explained() -> None:
    with pytest.raises(FrozenInstanceError):
        Some().steps = 5  # type: ignore[misc]
    assert list(Some.senses()) == ["steps", "rate", "reaches"]
    assert Some.senses()["rate"] == Sense("share", "How far they go", None, 0, 2)


def test_fields_that_are_not_there_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"must be one of steps, rate, reaches\. Got 'step'"):
        Some().changed({"step": 5})
