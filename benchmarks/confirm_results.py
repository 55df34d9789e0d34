"""Confirm the circuits that ``docs/results`` calls proved, each by a verifier that reuses nothing.

Of networks that are not small every circuit is taken: those that a search proved, and sampled ones
that a check proved. A line for each that is not confirmed, and the counts.

    python benchmarks/confirm_results.py DATA [--only gtsrb/input-robustness] [--timeout 120]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Point
from provable_circuits.claims.patching import Reachable, Zero
from provable_circuits.experiments.rows import Bench, Job
from provable_circuits.verify.verifier import Verifier
from provable_circuits.zoo.benchmarks import Batch, load_benchmark

RESULTS = Path(__file__).parent.parent / "docs" / "results"
LARGE = ("taxinet", "gtsrb", "cifar10")


def claim_of(bench: Bench, experiment: str, row: dict[str, Any]) -> Claim:
    """The claim of a row, from the places of its inputs."""
    data = bench.benchmark
    batch = Batch(row["label"], tuple(row["inputs"]), data.inputs[list(row["inputs"])])
    job = Job(row["batch"], row["metric"], row["eps"], row["delta"])
    metric = bench.metric(job, batch)
    if experiment == "input-robustness":
        return Claim(bench.balls(batch, job.eps), Zero(), metric)
    points = [Point(x) for x in batch.inputs]
    return Claim(points, Reachable(job.eps, clip=data.clip), metric)


def main() -> None:
    """Go through the rows of every experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=120.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for path in sorted(RESULTS.glob("*/*/rows.jsonl")):
        name, experiment = path.parts[-3:-1]
        if name not in LARGE or asked.only not in f"{name}/{experiment}":
            continue
        benchmark = load_benchmark(name, asked.data)
        components = benchmark.graph.components(benchmark.granularity)
        bench = Bench(benchmark, components, [], None, asked.timeout, asked.timeout)
        counts: Counter[str] = Counter()
        for line in path.read_text().splitlines()[1:]:
            row = json.loads(line)
            claim = claim_of(bench, experiment, row)
            for method, cell in row.items():
                if not isinstance(cell, dict) or "proved" not in (cell["faithful"], cell["robust"]):
                    continue
                verifier = Verifier(components, claim, reuse=False)
                verdict = verifier.ask(components.circuit(cell["components"]), asked.timeout)
                counts[f"{method} {verdict.kind}"] += 1
                if not verdict.proved:
                    print(f"  {row['key']} {method}: {verdict}", flush=True)
        print(f"{name} {experiment}: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
