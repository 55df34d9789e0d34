"""Figures of an experiment, as PNG and SVG. Without matplotlib (extra ``plot``) none are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from provable_circuits.experiments.assumptions import ALGORITHMS
from provable_circuits.experiments.qualitative import draw_qualitative, save_figure
from provable_circuits.experiments.statistics import overlap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]

MEASURES = {
    "iou": "IoU",
    "dice": "Dice",
    "difference": "symmetric difference",
    "provable_over_sampled": "provable over sampled",
    "sampled_over_provable": "sampled over provable",
}


def draw(experiment: str, rows: Sequence[Row], out: Path) -> list[Path]:
    """Draw what an experiment has figures of; the files written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    rows = [row for row in rows if not row.get("network_fails")]
    written = draw_qualitative(rows, out) if experiment == "qualitative" else []
    for name, plot in FIGURES.get(experiment, {}).items() if rows else ():
        figure = Figure(figsize=(6, 4), layout="constrained")
        FigureCanvasAgg(figure)
        plot(figure.add_subplot(), rows)
        for kind in ("png", "svg"):
            written.append(out / f"{name}.{kind}")
            save_figure(figure, written[-1], dpi=150)
    return written


def _coverage(axes: Axes, rows: Sequence[Row]) -> None:
    radii = sorted({row["eps"] for row in rows})
    found = {
        eps: [
            overlap(row["provable"]["components"], row["sampling"]["components"])
            for row in rows
            if row["eps"] == eps
        ]
        for eps in radii
    }
    for measure, label in MEASURES.items():
        means = [np.mean([cell[measure] for cell in found[eps]]) for eps in radii]
        axes.plot(radii, means, marker="o", label=label)
    axes.set(xlabel="radius", ylabel="mean over batches", ylim=(0, 1.05))
    axes.legend()


def _scatter(axes: Axes, rows: Sequence[Row]) -> None:
    """Circuit size against the size of the smallest hitting set, larger where points coincide.

    Inputs of which a search refuted the assumption behind the bound have none, and no point.
    """
    marks = {"greedy": "o", "binary-search": "s", "blocking-sets": "^"}
    most = 1
    bounded = [row for row in rows if row["hitting-set"]["lower"] is not None]
    for algorithm, mark in marks.items() if bounded else ():
        pairs = Counter((row["hitting-set"]["lower"], row[algorithm]["size"]) for row in bounded)
        x, y = zip(*pairs, strict=True)
        axes.scatter(
            x, y, s=[12 + 12 * n for n in pairs.values()], marker=mark, label=algorithm, alpha=0.7
        )
        most = max(most, *x, *y)
    axes.plot([0, most], [0, most], "--", color="grey", label="equal")
    axes.set(xlabel="lower bound by hitting sets", ylabel="components kept")
    axes.legend()


def _over_time(axes: Axes, rows: Sequence[Row]) -> None:
    for algorithm in ALGORITHMS:
        _steps(axes, [row[algorithm] for row in rows], algorithm)
    axes.set(xlabel="seconds", ylabel="components kept (mean)", xscale="log")
    axes.legend()


def _runtime(axes: Axes, rows: Sequence[Row]) -> None:
    for eps in sorted({row["eps"] for row in rows}):
        _steps(axes, [row["provable"] for row in rows if row["eps"] == eps], f"radius {eps:g}")
    axes.set(xlabel="seconds", ylabel="components kept (mean)", xscale="log")
    axes.legend()


def _steps(axes: Axes, cells: Sequence[Mapping[str, Any]], label: str) -> None:
    """The mean size over time; a search that has ended keeps its size."""
    longest = max(cell["seconds"] for cell in cells)
    times = np.geomspace(1e-3, max(longest, 2e-3), 200)
    sizes = []
    for cell in cells:
        seconds = np.array([moment["seconds"] for moment in cell["timeline"]])
        values = np.array([cell["of"], *(moment["size"] for moment in cell["timeline"])])
        sizes.append(values[np.searchsorted(seconds, times, side="right")])
    axes.plot(times, np.mean(sizes, axis=0), label=label)


FIGURES: Mapping[str, Mapping[str, Callable[[Axes, Sequence[Row]], None]]] = MappingProxyType(
    {
        "coverage": {"coverage": _coverage},
        "minimality": {"hitting_sets": _scatter, "over_time": _over_time},
        "runtime": {"over_time": _runtime},
    }
)
