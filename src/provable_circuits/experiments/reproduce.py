"""Run an experiment of the paper on a benchmark, and write its table and figures.

A folder holds ``rows.jsonl`` (one line for each batch, as it finishes), ``table.md``, ``table.csv``
and figures. A run that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from provable_circuits.errors import ArgumentError
from provable_circuits.experiments import published
from provable_circuits.experiments.assumptions import settled_row
from provable_circuits.experiments.figures import draw
from provable_circuits.experiments.journal import Journal
from provable_circuits.experiments.kinds import ROWS, run_job
from provable_circuits.experiments.rows import Bench, Job
from provable_circuits.experiments.tables import (
    Table,
    as_csv,
    coverage_table,
    markdown,
    minimality_table,
    qualitative_table,
    robustness_table,
    runtime_table,
)
from provable_circuits.files import write_file
from provable_circuits.parallel import Crew
from provable_circuits.progress import Listener, Progress
from provable_circuits.zoo.benchmarks import load_benchmark

METRICS = ("logit-difference", "winner-margin", "max-abs")
SWEEPS = ("eps", "delta")
INPUTS = {"minimality": 1}
"""Inputs of a batch, where they are not three."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run.

    Attributes:
        experiment: a key of ``ROWS``.
        benchmark: a benchmark of the zoo.
        batches: how many batches, None for all there are.
        metric: how outputs are compared.
        sweep: ``"eps"`` or ``"delta"`` for the paper's ablation, None for its main setting.
        folder: the benchmarks' files; None for what comes with the package.
        timeout: seconds for each question of a search.
        check_timeout: seconds for the proof, from scratch, of a circuit that was found; None for
            the same.
        max_nodes: nodes for each of these, instead of any limit in seconds; None for seconds.
        seed: of the choice of batches.
    """

    experiment: str
    benchmark: str
    batches: int | None
    metric: str = "logit-difference"
    sweep: str | None = None
    folder: str | None = None
    timeout: float = 45.0
    check_timeout: float | None = None
    max_nodes: int | None = None
    seed: int = 0

    def head(self, network: str) -> dict[str, Any]:
        """What tells this run from others: everything that its rows depend on.

        The number of batches does, for batches are spread over the classes and means are taken over
        inputs outside of them. The folder does not, as long as the network in it, by its digest, is
        the same.
        """
        told = asdict(self)
        del told["folder"]
        if self.max_nodes is None:  # rows of before there was such a limit go on
            del told["max_nodes"]
        return {**told, "network": network}

    def jobs(self, batches: int) -> list[Job]:
        """Every batch at every setting, setting by setting."""
        return [job for setting in self._settings() for job in setting_jobs(setting, batches)]

    def _settings(self) -> list[Job]:
        if self.experiment == "minimality":
            eps, delta = published.MINIMALITY[self.benchmark]
            radius = round(published.PATCH_RATIO * eps, 12)
            kinds = ("reachable", "interval")
            return [Job(0, self.metric, eps, delta, kind, radius) for kind in kinds]
        patching = self.experiment == "patching-robustness"
        eps, delta = (published.PATCHING if patching else published.INPUT)[self.benchmark]
        if self.metric == "max-abs" and self.benchmark == "mnist":
            delta = published.ABS_MAX_DELTA
        if self.experiment in ("coverage", "runtime"):
            radii = published.COVERAGE_RADII if self.benchmark == "mnist" else (eps,)
            return [Job(0, self.metric, radius, delta) for radius in radii]
        if self.sweep is None:
            return [Job(0, self.metric, eps, delta)]
        values = published.SWEEPS.get((self.experiment, self.benchmark, self.sweep))
        if values is None:
            raise ArgumentError(
                f"The paper has no sweep over {self.sweep} of {self.experiment} on "
                f"{self.benchmark}."
            )
        if self.sweep == "eps":
            return [Job(0, self.metric, value, delta) for value in values]
        return [Job(0, self.metric, eps, value) for value in values]


def setting_jobs(setting: Job, batches: int) -> list[Job]:
    """One setting for every batch."""
    told = asdict(setting)
    return [Job(**{**told, "batch": batch}) for batch in range(batches)]


def reproduce(
    request: Request, out: Path, workers: int = 1, listener: Listener | None = None
) -> str:
    """Run what is not yet there, write table and figures, and return the page as Markdown.

    A run that is interrupted leaves the table and figures of what is there by then.
    """
    _check(request)
    bench = _bench(request)
    jobs = request.jobs(len(bench.batches))
    journal = Journal(out / "rows.jsonl", request.head(bench.benchmark.graph.digest))
    if request.experiment == "minimality":
        journal.revise([settled_row(row) for row in journal.rows.values()])
    left = [job for job in jobs if job.key not in journal.rows]
    began = time.monotonic()
    page = ""
    try:
        for done, row in enumerate(_rows(request, bench, left, workers), 1):
            journal.add(row)
            if listener is not None:
                listener(_progress(row, began, done, len(left)))
    finally:
        there = [journal.rows[job.key] for job in jobs if job.key in journal.rows]
        if there:
            page = _write(request, bench, workers, out, there, len(jobs))
    return page


def _write(
    request: Request,
    bench: Bench,
    workers: int,
    out: Path,
    rows: Sequence[dict[str, Any]],
    total: int,
) -> str:
    """Table and figures of the rows that are there, of so many in all; the page."""
    table = _table(request, rows)
    figures = draw(request.experiment, rows, out)
    page = _page(request, bench, table, workers, rows)
    if len(rows) < total:
        page += f"\n{len(rows)} of {total} rows so far: the same command goes on.\n"
    page += _shown(figures)
    write_file(out / "table.md", page.encode())
    write_file(out / "table.csv", as_csv(table).encode())
    return page


def _check(request: Request) -> None:
    for what, value, known in [
        ("experiment", request.experiment, tuple(ROWS)),
        ("metric", request.metric, METRICS),
        ("sweep", request.sweep, (None, *SWEEPS)),
    ]:
        if value not in known:
            names = ", ".join(str(name) for name in known if name is not None)
            raise ArgumentError(f"The {what} must be one of {names}. Got {value!r} instead.")


def _bench(request: Request) -> Bench:
    benchmark = load_benchmark(
        request.benchmark, None if request.folder is None else Path(request.folder)
    )
    size = INPUTS.get(request.experiment, 3)
    batches = benchmark.batches(request.batches, size, request.seed)
    samples, _ = benchmark.means_from(batches, seed=request.seed)
    components = benchmark.graph.components(benchmark.granularity)
    check = request.timeout if request.check_timeout is None else request.check_timeout
    return Bench(benchmark, components, batches, samples, request.timeout, check, request.max_nodes)


def _rows(
    request: Request, bench: Bench, jobs: Sequence[Job], workers: int
) -> Iterator[dict[str, Any]]:
    """The rows of the jobs, as they finish."""
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield run_job(bench, request.experiment, job)
        return
    crew = Crew(workers, build_runner, json.dumps(asdict(request)).encode())
    threads = ThreadPoolExecutor(workers)
    try:
        calls = [
            threads.submit(lambda j=job: crew.submit("row", asdict(j)).result())  # type: ignore[misc]
            for job in jobs
        ]
        for call in as_completed(calls):
            yield json.loads(call.result())
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        crew.close()


class Runner:
    """What a worker holds: the benchmark, ready for jobs."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.bench = _bench(request)

    def row(self, job: dict[str, Any]) -> str:
        """The row of a job, as JSON."""
        return json.dumps(run_job(self.bench, self.request.experiment, Job(**job)))


def build_runner(data: bytes) -> Runner:
    """What a worker makes of what it was sent."""
    return Runner(Request(**json.loads(data)))


def _progress(row: dict[str, Any], began: float, done: int, total: int) -> Progress:
    cell = row.get("provable") or row.get("greedy") or {"size": 0, "of": 0, "queries": {}}
    return Progress(
        seconds=time.monotonic() - began,
        doing=f"batch {row['key']}",
        size=cell["size"],
        of=cell["of"],
        lower=None,
        queries=cell["queries"],
        done=done,
        total=total,
    )


def _table(request: Request, rows: Sequence[dict[str, Any]]) -> Table:
    if request.experiment == "minimality":
        return minimality_table(rows)
    if request.experiment == "coverage":
        return coverage_table(request.benchmark, rows)
    if request.experiment == "runtime":
        return runtime_table(rows)
    if request.experiment == "qualitative":
        return qualitative_table(rows)
    return robustness_table(request.experiment, request.benchmark, rows)


def _page(
    request: Request, bench: Bench, table: Table, workers: int, rows: Sequence[dict[str, Any]]
) -> str:
    """The table, with what it was made of."""
    benchmark = bench.benchmark
    _, means = benchmark.means_from(bench.batches, seed=request.seed)
    lines = [
        f"# {request.experiment} on {benchmark.title}",
        "",
        f"Network and inputs: {benchmark.origin}.",
        f"{len(bench.batches)} batches of {len(bench.batches[0].places)}, seed {request.seed}; "
        f"{bench.limits_in_words}; {workers} worker(s){_memory(rows)}.",
    ]
    if request.experiment == "patching-robustness":
        lines.append(f"Means over {means}.")
    lines += ["", markdown(table), "", f"`{_command(request, workers)}`", _machine()]
    return "\n".join(lines) + "\n"


def _shown(figures: Sequence[Path]) -> str:
    """The figures on the page."""
    pictures = [path for path in figures if path.suffix == ".png"]
    return "".join(f"\n![{path.stem.replace('_', ' ')}]({path.name})\n" for path in pictures)


def _memory(rows: Sequence[dict[str, Any]]) -> str:
    peaks = [row["peak_gb"] for row in rows if row["peak_gb"] is not None]
    return f", at most {max(peaks):.2f} GB each" if peaks else ""


def _command(request: Request, workers: int) -> str:
    """What runs the same again."""
    words = ["provable-circuits reproduce", request.experiment, "--benchmark", request.benchmark]
    words += [] if request.batches is None else ["--batches", str(request.batches)]
    words += [] if request.metric == METRICS[0] else ["--metric", request.metric]
    words += [] if request.sweep is None else ["--sweep", request.sweep]
    words += [] if request.timeout == 45 else ["--timeout", f"{request.timeout:g}"]
    if request.check_timeout is not None:
        words += ["--check-timeout", f"{request.check_timeout:g}"]
    words += [] if request.max_nodes is None else ["--max-nodes", str(request.max_nodes)]
    words += [] if request.seed == 0 else ["--seed", str(request.seed)]
    words += [] if workers == 1 else ["--workers", str(workers)]
    words += [] if request.folder is None else ["--data", "DIR"]
    return " ".join([*words, "--out", "DIR"])


def _machine() -> str:
    from provable_circuits import __version__

    return (
        f"provable-circuits {__version__}, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores."
    )
