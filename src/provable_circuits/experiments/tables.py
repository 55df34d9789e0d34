"""Tables of an experiment: ours beside the paper's, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from provable_circuits.experiments.assumptions import ALGORITHMS
from provable_circuits.experiments.published import COVERAGE, PUBLISHED
from provable_circuits.experiments.statistics import Summary, overlap, spread, summary

Row = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]

METHODS = {
    "input-robustness": ("sampling", "provable"),
    "patching-robustness": ("zero", "mean", "provable"),
}


def markdown(table: Table) -> str:
    """A Markdown table."""
    heads, rows = table
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def as_csv(table: Table) -> str:
    """The same as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows(table[1])
    return text.getvalue()


def robustness_table(experiment: str, benchmark: str, rows: Sequence[Row]) -> Table:
    """A row for each setting and method, with the paper's figures in the next columns."""
    heads = [
        "metric",
        "eps",
        "delta",
        "method",
        "batches",
        "s (mean ± sd)",
        "s (median, without undecided)",
        "s in undecided",
        "size (mean ± sd)",
        "robust % (± se, decided)",
        "robust % (of all)",
        "checks undecided",
        "sub-queries undecided",
        "paper: s",
        "paper: size",
        "paper: robust %",
    ]
    lines = []
    for (metric, eps, delta), own in _by_setting(rows):
        told, failed = _told(own)
        for method in METHODS[experiment] if told else ():
            found = summary([row[method] for row in told])
            paper = PUBLISHED.get((experiment, benchmark, metric, eps, delta), {}).get(method)
            lines.append(
                [
                    metric,
                    f"{eps:g}",
                    f"{delta:g}",
                    method,
                    f"{found.batches}{failed}",
                    *_ours(found),
                    *(["-", "-", "-"] if paper is None else _theirs(paper)),
                ]
            )
    return heads, lines


def _by_setting(rows: Sequence[Row]) -> list[tuple[tuple[str, float, float], list[Row]]]:
    """The rows of each metric, radius and tolerance."""
    groups: dict[tuple[str, float, float], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["metric"], row["eps"], row["delta"]].append(row)
    return sorted(groups.items(), key=lambda item: item[0])


def _told(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """The rows of claims that the network satisfies, and how many others there are, in words."""
    told = [row for row in rows if not row.get("network_fails")]
    failed = len(rows) - len(told)
    return told, f" (+{failed} the network fails)" if failed else ""


def _ours(found: Summary) -> list[str]:
    robust = "-" if found.robust is None else f"{found.robust[0]:.1f} ± {found.robust[1]:.1f}"
    share = found.undecided / found.queries if found.queries else 0.0
    return [
        f"{found.seconds[0]:.3f} ± {found.seconds[1]:.3f}",
        f"{found.median:.3f}",
        f"{found.lost:.1f}",
        f"{found.size[0]:.2f} ± {found.size[1]:.2f} of {found.of}",
        robust,
        "-" if found.robust_of_all is None else f"{found.robust_of_all:.1f}",
        str(found.open_checks),
        f"{found.undecided} of {found.queries} ({share:.1%})",
    ]


def _theirs(paper: tuple[float | None, float, float]) -> list[str]:
    seconds, size, robust = paper
    return ["-" if seconds is None else f"{seconds:g}", f"{size:g}", f"{robust:g}"]


def minimality_table(rows: Sequence[Row]) -> Table:
    """A row for each patching and algorithm."""
    heads = [
        "patching",
        "algorithm",
        "inputs",
        "size (mean ± sd)",
        "lower bound (mean)",
        "shown smallest",
        "rests on an assumption",
        "labels withdrawn",
        "s (mean ± sd)",
        "sub-queries undecided",
    ]
    lines = []
    for patching in dict.fromkeys(row["patching"] for row in rows):
        own = [row for row in rows if row["patching"] == patching and not row.get("network_fails")]
        for algorithm in ALGORITHMS if own else ():
            cells = [row[algorithm] for row in own]
            found = summary(cells)
            lowers = [cell["lower"] for cell in cells if cell["lower"] is not None]
            smallest = [cell for cell in cells if cell["notion"] == "cardinal"]
            lines.append(
                [
                    patching,
                    algorithm,
                    str(len(cells)),
                    f"{found.size[0]:.2f} ± {found.size[1]:.2f}",
                    _lower(lowers, len(cells)),
                    str(len(smallest)),
                    str(sum(cell["holds"] == "assumed" for cell in smallest)),
                    _withdrawn(cells),
                    f"{found.seconds[0]:.2f} ± {found.seconds[1]:.2f}",
                    f"{found.undecided} of {found.queries}",
                ]
            )
    return heads, lines


def _withdrawn(cells: Sequence[Row]) -> str:
    """At how many inputs labels were withdrawn, and of them circuits called smallest."""
    told = [cell["withdrawn"] for cell in cells if "withdrawn" in cell]
    smallest = sum(label["notion"] == "cardinal" for label in told)
    return f"{len(told)}, {smallest} of them smallest" if smallest else str(len(told))


def _lower(bounds: Sequence[float], inputs: int) -> str:
    """The mean of lower bounds, and how many inputs have one, if not all do."""
    if not bounds:
        return "-"
    few = f" (of {len(bounds)} inputs)" if len(bounds) < inputs else ""
    return f"{spread(bounds)[0]:.2f}{few}"


def coverage_table(benchmark: str, rows: Sequence[Row]) -> Table:
    """A row for each radius, with the paper's figures where it has this setting."""
    heads = [
        "eps",
        "batches",
        "both",
        "provable only",
        "% of network",
        "sampled only",
        "% of network",
        "IoU",
        "Dice",
        "symmetric difference",
        "provable over sampled",
        "sampled over provable",
        "paper: provable only",
        "paper: sampled only",
    ]
    lines = []
    for (metric, eps, delta), rows_of in _by_setting(rows):
        own, failed = _told(rows_of)
        if not own:
            continue
        found = [overlap(r["provable"]["components"], r["sampling"]["components"]) for r in own]
        means = {name: spread(cell[name] for cell in found)[0] for name in found[0]}
        size = own[0]["provable"]["of"]
        paper = COVERAGE.get((benchmark, metric, eps, delta))
        lines.append(
            [
                f"{eps:g}",
                f"{len(own)}{failed}",
                f"{means['both']:.2f}",
                f"{means['provable_only']:.2f}",
                f"{100 * means['provable_only'] / size:.2f}",
                f"{means['sampled_only']:.2f}",
                f"{100 * means['sampled_only'] / size:.2f}",
                *(
                    f"{means[name]:.3f}"
                    for name in (
                        "iou",
                        "dice",
                        "difference",
                        "provable_over_sampled",
                        "sampled_over_provable",
                    )
                ),
                *(("-", "-") if paper is None else (f"{paper[0]:g}", f"{paper[1]:g}")),
            ]
        )
    return heads, lines


def runtime_table(rows: Sequence[Row]) -> Table:
    """A row for each radius."""
    heads = ["eps", "batches", "size (mean ± sd)", "s (mean ± sd)", "sub-queries undecided"]
    lines = []
    for (_, eps, _), rows_of in _by_setting(rows):
        own, failed = _told(rows_of)
        if not own:
            continue
        found = summary([row["provable"] for row in own])
        ours = _ours(found)
        batches = f"{found.batches}{failed}"
        lines.append([f"{eps:g}", batches, ours[3], ours[0], ours[-1]])
    return heads, lines


def qualitative_table(rows: Sequence[Row]) -> Table:
    """A row for each batch: how the witness moves the target output of network and circuits."""
    heads = [
        "batch",
        "class",
        "provable size",
        "sampled size",
        "sampled circuit",
        "network: clean, moved",
        "provable: clean, moved",
        "sampled: clean, moved",
    ]
    lines = []
    for row in _told(rows)[0]:
        outputs = row.get("witness", {}).get("outputs")
        cells = (
            ["-"] * 3
            if outputs is None
            else [
                f"{a:.2f}, {b:.2f}"
                for a, b in (outputs[n] for n in ("network", "provable", "sampling"))
            ]
        )
        lines.append(
            [
                str(row["batch"]),
                str(row["label"]),
                str(row["provable"]["size"]),
                str(row["sampling"]["size"]),
                row["sampling"]["robust"],
                *cells,
            ]
        )
    return heads, lines
