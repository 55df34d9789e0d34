"""How fast are the sub-queries of greedy searches decided, by which stage, and what stays open?

Runs greedy searches for circuits that are robust to their input and to patching, and prints
Markdown tables: one row for each setting, what is asked of it, and for each setting what every
stage answered. Each setting runs in a process of its own, so that its memory is its own. MNIST
needs nothing but the package's extras; the other networks are read from a folder, and it is said
which are left out.

    python benchmarks/verifier.py [--circuits 10] [--minutes 20] [--only mnist] [--claim input]
                                  [--timeout 45] [--data FOLDER] [--out docs/performance.md]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

import provable_circuits as pc
from measuring.greedy import Search, search
from measuring.results import Answer, Measured, stages, summary, targets
from measuring.settings import NETWORKS, SETTINGS, Setting, network
from measuring.tables import made_with, put
from provable_circuits.errors import DataError
from provable_circuits.experiments.memory import peak_memory
from provable_circuits.zoo.benchmarks import FOLDER


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        circuits: searches for each setting.
        timeout: seconds for each sub-query.
        minutes: after which a setting starts no further search.
    """

    circuits: int
    timeout: float
    minutes: float


CORES = 2
"""Searches run at once, or threads of one search."""


def searches_at_once(setting: Setting, effort: Effort) -> int:
    """As many as there are cores for, if there are as many."""
    return min(CORES // setting.threads, effort.circuits)


def measure(setting: Setting, folder: Path | None, effort: Effort, place: int) -> Measured:
    """Run the searches of one setting that fall to this process; meant for a fresh one."""
    torch.set_num_threads(setting.threads)
    began = time.monotonic()
    benchmark = network(setting.network, folder)
    components = benchmark.graph.components(benchmark.granularity)
    answers: list[Answer] = []
    sizes: list[int] = []
    totals: list[float] = []
    at_once = searches_at_once(setting, effort)
    for batch in list(benchmark.batches(effort.circuits))[place::at_once]:
        if sizes and time.monotonic() - began > effort.minutes * 60:
            break
        found = search(components, setting.claim(benchmark, batch), effort.timeout)
        answers += answers_of(found)
        sizes.append(len(found.circuit))
        totals.append(found.seconds)
        print(f"{setting}: circuit {len(sizes)}, {found.seconds:.2f} s", file=sys.stderr)
    return Measured(
        setting=setting,
        components=len(components),
        answers=tuple(answers),
        sizes=tuple(sizes),
        totals=tuple(totals),
        memory=peak_memory() or 0.0,
    )


def answers_of(found: Search) -> list[Answer]:
    """The sub-queries of a search in plain words and numbers."""
    return [
        Answer(
            asked.verdict.kind,
            asked.verdict.stage,
            asked.seconds,
            asked.verdict.reason if isinstance(asked.verdict, pc.Undecided) else "",
        )
        for asked in found.asked
    ]


def alone(setting: Setting, folder: Path | None, effort: Effort) -> Measured | str:
    """``measure`` in processes of its own; why there is no result, if there is none."""
    context = multiprocessing.get_context("spawn")
    count = searches_at_once(setting, effort)
    try:
        with ProcessPoolExecutor(count, mp_context=context) as pool:
            jobs = [pool.submit(measure, setting, folder, effort, i) for i in range(count)]
            return Measured.joined([job.result() for job in jobs])
    except DataError as error:
        return str(error)
    except Exception as error:  # one setting that fails must not cost the others their results
        traceback.print_exception(error)
        return f"it FAILED with {type(error).__name__}: {error}"


def report(results: Sequence[Measured], left_out: Sequence[str]) -> str:
    """All tables, one below the other."""
    parts = [made_with(Path(__file__).name)]
    if left_out:
        parts.append("Left out:\n\n" + "\n".join(f"- {line}" for line in left_out))
    if results:
        parts += [summary(results), "What is asked of it:", targets(results)]
        parts.append("By stage, the costliest first:")
    for found in results:
        parts += [f"**{found.setting}**", stages(found)]
    return "\n\n".join(parts)


def main() -> None:
    """Measure what is asked for and at hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--circuits", type=int, default=10, help="searches for each setting")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no further search after this"
    )
    parser.add_argument("--only", choices=sorted(NETWORKS), help="only this network")
    parser.add_argument("--claim", choices=("input", "patching", "both"), default="both")
    parser.add_argument("--timeout", type=float, default=45.0, help="seconds for each sub-query")
    parser.add_argument(
        "--data", type=Path, help=f"the folder of networks and inputs; by default ${FOLDER}"
    )
    parser.add_argument("--out", type=Path, help="a page that takes the tables between markers")
    arguments = parser.parse_args()
    if arguments.circuits < 1 or not arguments.timeout > 0:
        parser.error("--circuits and --timeout must be positive")
    folder = arguments.data or (Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else None)
    effort = Effort(arguments.circuits, arguments.timeout, arguments.minutes)
    results, left_out = [], []
    for setting in SETTINGS:
        if arguments.only not in (None, setting.network):
            continue
        if arguments.claim not in ("both", setting.kind):
            continue
        found = alone(setting, folder, effort)
        if isinstance(found, Measured):
            results.append(found)
        else:
            left_out.append(f"{setting}: {found}")
    text = report(results, left_out)
    print(text)
    if arguments.out is not None:
        put(arguments.out, f"{arguments.claim} robustness", text)


if __name__ == "__main__":
    main()
