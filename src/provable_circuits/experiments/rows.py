"""One batch of one experiment: what is run, and what is kept of it as plain data.

    input robustness     a sampled and a proved circuit, zero patching; both decided by proof
    patching robustness  circuits sampled under zero and under mean patching, and a proved one;
                         all decided by proof over the same patching domain
    minimality           one input, inputs and patches both ranging; every algorithm, without
                         labels that another one refutes
    coverage             a sampled and a proved circuit at one radius
    runtime              the size of a proved circuit over time at one radius

A circuit is decided by proof with a verifier that knows nothing of the search that found it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Domain, Point
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Metric, WinnerMargin
from provable_circuits.claims.patching import IntervalHull, Mean, Patching, Reachable, Zero
from provable_circuits.discover.api import discover
from provable_circuits.discover.results.result import Result
from provable_circuits.experiments.assumptions import label_cells
from provable_circuits.network.components import Components
from provable_circuits.verify.api import verify
from provable_circuits.verify.verdict import Verdict
from provable_circuits.zoo.benchmarks import Batch, Benchmark

BUDGET = 60.0
"""Seconds for the search for a smallest circuit."""


@dataclass(frozen=True, slots=True)
class Job:
    """One batch at one setting.

    Attributes:
        batch: which batch.
        metric: how outputs are compared.
        eps: the radius.
        delta: the tolerance.
        patching: of minimality alone, ``"reachable"`` or ``"interval"``.
        patch_eps: the radius that patches come from, of minimality alone.
    """

    batch: int
    metric: str
    eps: float
    delta: float
    patching: str = ""
    patch_eps: float = 0.0

    @property
    def key(self) -> str:
        """The job in a word, by which it is found again."""
        parts = [str(self.batch), self.metric, f"{self.eps:g}", f"{self.delta:g}"]
        return "/".join(parts + ([self.patching] if self.patching else []))


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """A benchmark with the batches of a run, ready for jobs."""

    benchmark: Benchmark
    components: Components
    batches: list[Batch]
    samples: Any
    timeout: float
    check_timeout: float
    max_nodes: int | None = None
    """Nodes for a question and for a check, instead of seconds."""

    @property
    def limits_in_words(self) -> str:
        """The limits of questions and checks."""
        if self.max_nodes is not None:
            return f"{self.max_nodes} nodes for each question of a search and each check"
        return (
            f"{self.timeout:g} s for each question of a search, {self.check_timeout:g} s for each "
            "check of its circuit"
        )

    def balls(self, batch: Batch, eps: float) -> list[Domain]:
        """A ball around each input."""
        return [Ball(x, eps, clip=self.benchmark.clip) for x in batch.inputs]

    def metric(self, job: Job, batch: Batch) -> Metric:
        """The metric of a job; the one output of a regression is compared as it is."""
        if job.metric == "winner-margin":
            return WinnerMargin(0.5)
        if job.metric == "max-abs" or self.benchmark.regression:
            return MaxAbs(job.delta)
        return LogitDifference(job.delta, batch.label)

    def search(self, claim: Claim, algorithm: str = "greedy", **more: Any) -> Result:
        """A search with the settings of the run.

        An interrupted search returns the best circuit so far, which is no row of a table: the
        interrupt goes on from here.
        """
        timeout = self.timeout if self.max_nodes is None else None
        result = discover(
            self.benchmark.graph,
            claim,
            self.components,
            algorithm,
            timeout=timeout,
            max_nodes=self.max_nodes,
            certify=False,
            **more,
        )
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        return result

    def decided(self, result: Result, claim: Claim) -> Verdict:
        """What a fresh verifier says of a circuit."""
        graph, timeout = self.benchmark.graph, self.check_timeout
        if self.max_nodes is not None:
            return verify(graph, result.circuit, claim, max_nodes=self.max_nodes, certify=False)
        return verify(graph, result.circuit, claim, timeout, certify=False)


def input_row(bench: Bench, job: Job) -> dict[str, Any]:
    """Input robustness of a sampled and of a proved circuit."""
    batch = bench.batches[job.batch]
    claim = Claim(bench.balls(batch, job.eps), Zero(), bench.metric(job, batch))
    return {
        "sampling": _method(bench, bench.search(claim, method="sampling"), claim),
        "provable": _method(bench, bench.search(claim), claim),
    }


def patching_row(bench: Bench, job: Job) -> dict[str, Any]:
    """Patching robustness of circuits found under zero and mean patching, and of a proved one."""
    batch = bench.batches[job.batch]
    points: list[Domain] = [Point(x) for x in batch.inputs]
    metric = bench.metric(job, batch)
    claim = Claim(points, Reachable(job.eps, clip=bench.benchmark.clip), metric)
    fixed: dict[str, Patching] = {"zero": Zero(), "mean": Mean(bench.samples)}
    row = {
        name: _method(
            bench, bench.search(Claim(points, patching, metric), method="sampling"), claim
        )
        for name, patching in fixed.items()
    }
    row["provable"] = _method(bench, bench.search(claim), claim)
    return row


def minimality_row(bench: Bench, job: Job) -> dict[str, Any]:
    """Every algorithm under inputs and patches that both range."""
    batch = bench.batches[job.batch]
    kind = Reachable if job.patching == "reachable" else IntervalHull
    patching = kind(job.patch_eps, clip=bench.benchmark.clip)
    claim = Claim(bench.balls(batch, job.eps), patching, bench.metric(job, batch))
    searches: dict[str, dict[str, Any]] = {
        "greedy": {},
        "binary-search": {},
        "blocking-sets": {"t_max": 3},
        "hitting-set": {"budget": BUDGET},
    }
    results = {name: bench.search(claim, name, **more) for name, more in searches.items()}
    labels = label_cells(results)
    return {name: {**circuit_cell(result), **labels[name]} for name, result in results.items()}


def coverage_row(bench: Bench, job: Job) -> dict[str, Any]:
    """The circuits that are compared."""
    batch = bench.batches[job.batch]
    claim = Claim(bench.balls(batch, job.eps), Zero(), bench.metric(job, batch))
    return {
        "sampling": circuit_cell(bench.search(claim, method="sampling")),
        "provable": circuit_cell(bench.search(claim)),
    }


def runtime_row(bench: Bench, job: Job) -> dict[str, Any]:
    """The size of a proved circuit over time."""
    batch = bench.batches[job.batch]
    claim = Claim(bench.balls(batch, job.eps), Zero(), bench.metric(job, batch))
    result = bench.search(claim)
    return {"provable": {**circuit_cell(result), "timeline": [asdict(m) for m in result.timeline]}}


def circuit_cell(result: Result) -> dict[str, Any]:
    """What is kept of a search."""
    return {
        "size": len(result.circuit),
        "of": len(result.circuit.components),
        "components": list(result.circuit.names),
        "faithful": result.faithful,
        "seconds": result.seconds,
        "seconds_undecided": result.lost,
        "queries": dict(result.queries),
        "stages": dict(result.stages),
    }


def _method(bench: Bench, result: Result, claim: Claim) -> dict[str, Any]:
    return {**circuit_cell(result), "robust": bench.decided(result, claim).kind}
