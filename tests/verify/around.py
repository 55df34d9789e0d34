"""Tolerances on both sides of an optimum that is known."""

from __future__ import annotations

from tests.oracle.cases import Case, Truth

GAPS = (1e-3, 1e-2, 0.1)
NEAREST = 2e-5


def around(case: Case, truth: Truth) -> list[tuple[float, str]]:
    """Tolerances (fractions of the margin) on both sides of the threshold, and their verdicts."""
    gap = GAPS[case.seed % len(GAPS)]
    if case.metric.startswith("winner"):
        holds = min(truth.low - max(gap, 1e-3), 1.0)
        fails = max(truth.high + max(gap, 1e-3), 0.0)
        asked = [(holds, "proved")] if holds >= 0 else []
        return asked + ([(fails, "refuted")] if fails <= 1 else [])
    step = max(gap * abs(truth.high), NEAREST)
    asked = [(truth.high + step, "proved")]
    if truth.low - step > 0:
        asked.append((truth.low - step, "refuted"))
    return asked
