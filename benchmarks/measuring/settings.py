"""The settings that are measured: a benchmark of the zoo, and the numbers of a claim.

Each greedy search is asked about k = 3 inputs of one class that the network gets right, always the
same ones (``Benchmark.batches``).

    input      inputs Ball(eps), patching Zero, logit difference of the class within delta
    patching   inputs Point, patching Reachable(eps), logit difference of the class within delta

TaxiNet predicts a distance: the largest difference of outputs (there is one) is the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import provable_circuits as pc
from provable_circuits.zoo.benchmarks import Batch, Benchmark, load_benchmark

NETWORKS = ("mnist", "gtsrb", "taxinet", "cifar10")


def network(name: str, folder: Path | None) -> Benchmark:
    """A benchmark from a folder; MNIST is always the one of the package."""
    return load_benchmark(name, None if name == "mnist" else folder)


@dataclass(frozen=True, slots=True)
class Limit:
    """What is asked of a setting: ``what`` is at most ``most``; see ``results.Measured``."""

    what: str
    most: float


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: which network, which kind of claim, how far, how close.

    Attributes:
        network: a key of ``NETWORKS``.
        kind: ``"input"`` or ``"patching"`` robustness.
        eps: the radius, in the maximum norm.
        delta: how far the output may move.
        limits: what is asked of it.
    """

    network: str
    kind: str
    eps: float
    delta: float
    limits: tuple[Limit, ...] = ()

    def __str__(self) -> str:
        scale = ", normalised scale" if self.network == "cifar10" else ""
        return f"{self.network}, {self.kind}, eps {self.eps:g}{scale}, delta {self.delta:g}"

    @property
    def threads(self) -> int:
        """One where tensors are small and a second would only wait; two for the others."""
        return 1 if self.network in ("mnist", "taxinet") else 2

    def claim(self, benchmark: Benchmark, batch: Batch) -> pc.Claim:
        """The claim about one batch of inputs."""
        metric: pc.Metric = pc.MaxAbs(self.delta)
        if not benchmark.regression:
            metric = pc.LogitDifference(self.delta, batch.label)
        if self.kind == "input":
            balls = [pc.Ball(x, self.eps, clip=benchmark.clip) for x in batch.inputs]
            return pc.Claim(balls, pc.Zero(), metric)
        points = [pc.Point(x) for x in batch.inputs]
        return pc.Claim(points, pc.Reachable(self.eps, clip=benchmark.clip), metric)


def _undecided(share: float) -> Limit:
    return Limit("undecided", share)


SETTINGS = (
    Setting("mnist", "input", 0.01, 2.0, (Limit("mean", 2.0), _undecided(0.0))),
    Setting("mnist", "input", 0.05, 2.0, (Limit("mean", 20.0), _undecided(0.0))),
    Setting("gtsrb", "input", 0.001, 5.0, (_undecided(0.01),)),
    Setting("taxinet", "input", 0.005, 0.92, (_undecided(0.01),)),
    Setting("cifar10", "input", 0.015, 2.0, (Limit("median", 60.0), _undecided(0.02))),
    Setting("mnist", "patching", 0.01, 0.5, (_undecided(0.02),)),
    Setting("taxinet", "patching", 0.01, 0.92, (_undecided(0.02),)),
    Setting("gtsrb", "patching", 0.005, 2.0, (_undecided(0.05),)),
    Setting("cifar10", "patching", 0.03, 0.1, (_undecided(0.15),)),
)
