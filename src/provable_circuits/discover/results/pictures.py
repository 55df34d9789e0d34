"""Pictures of a result: from its document, so that they can be made from a saved run as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provable_circuits.drawing.charts import Series, bars, steps
from provable_circuits.drawing.scene import Scene

VERDICTS = ("proved", "refuted", "held", "undecided")
"""All kinds of verdicts, in the order of their colours."""


def size_chart(document: Mapping[str, Any]) -> Scene:
    """The size of the best circuit and the lower bound over time; see ``Result.document``."""
    timeline, seconds = document["timeline"], document["seconds"]
    sizes = [(moment["seconds"], moment["size"]) for moment in timeline]
    bounds = [(m["seconds"], m["lower"]) for m in timeline if m["lower"] is not None]
    holds = document["minimality"]["lower_holds"]
    condition = ", if the predicate is monotone" if holds == "assumed" else ""
    series = [Series("size of the best circuit", _until(sizes, seconds))]
    if any(lower for _, lower in bounds):
        series.append(Series(f"lower bound{condition}", _until(bounds, seconds)))
    return steps(series, title="Size over time", x="seconds", y="components")


def verdict_chart(document: Mapping[str, Any]) -> Scene:
    """How many questions each stage answered how."""
    return bars(
        document["queries"]["by_stage_and_verdict"],
        title="Verdicts by stage",
        x="questions",
        parts=VERDICTS,
    )


def _until(points: list[tuple[float, float]], end: float) -> tuple[tuple[float, float], ...]:
    """The same points, the last one held until the end."""
    return (*points, (end, points[-1][1])) if points else ()
