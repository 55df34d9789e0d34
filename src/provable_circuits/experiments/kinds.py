"""The experiments by name: which rows each makes, which table and which figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from provable_circuits.errors import ClaimFailsError
from provable_circuits.experiments.memory import peak_memory
from provable_circuits.experiments.qualitative import qualitative_row
from provable_circuits.experiments.rows import (
    Bench,
    Job,
    coverage_row,
    input_row,
    minimality_row,
    patching_row,
    runtime_row,
)

ROWS: Mapping[str, Callable[[Bench, Job], dict[str, Any]]] = MappingProxyType(
    {
        "input-robustness": input_row,
        "patching-robustness": patching_row,
        "minimality": minimality_row,
        "coverage": coverage_row,
        "runtime": runtime_row,
        "qualitative": qualitative_row,
    }
)


def run_job(bench: Bench, experiment: str, job: Job) -> dict[str, Any]:
    """The row of a job. A network that violates the claim itself is told of, and no error."""
    batch = bench.batches[job.batch]
    row: dict[str, Any] = {
        "key": job.key,
        "label": batch.label,
        "inputs": list(batch.places),
        **asdict(job),
    }
    try:
        row |= ROWS[experiment](bench, job)
    except ClaimFailsError:
        row["network_fails"] = True
    return {**row, "peak_gb": peak_memory()}
