"""The plots of a run: how the search went."""

from __future__ import annotations

from provable_circuits.discover.run import Run
from provable_circuits.drawing.charts import Series, bars, steps
from provable_circuits.drawing.svg import svg

VERDICTS = ("proved", "refuted", "held", "undecided")


def search_plots(run: Run) -> list[str]:
    """Size and bounds over time, and verdicts by stage, as SVG; none where nothing happened."""
    plots = []
    timeline, seconds = run.document["timeline"], run.document["seconds"]
    if timeline:
        sizes = [(moment["seconds"], float(moment["size"])) for moment in timeline]
        series = [Series("smallest circuit so far", _until(sizes, seconds))]
        lower = [(m["seconds"], float(m["lower"])) for m in timeline if m["lower"] is not None]
        if any(bound for _, bound in lower):
            series.append(Series("no circuit is smaller than", _until(lower, seconds)))
        title = "Size and bounds over time" if len(series) > 1 else "Size over time"
        plots.append(svg(steps(series, title=title, x="seconds", y="components")))
    answers = run.document["queries"]["by_stage_and_verdict"]
    if answers:
        chart = bars(answers, title="Verdicts by stage", x="questions", parts=VERDICTS)
        plots.append(svg(chart))
    return plots


def _until(points: list[tuple[float, float]], end: float) -> tuple[tuple[float, float], ...]:
    """Points of a value that holds until the end."""
    return (*points, (max(end, points[-1][0]), points[-1][1]))
