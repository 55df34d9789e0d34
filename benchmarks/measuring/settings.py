"""The settings that are measured: a network, real inputs, and the numbers of a claim.

Each greedy search is asked about k = 3 inputs of one class that the network gets right. The batches
are always the same: classes take turns, each gives its first three inputs, then its next three; if
there are fewer searches than classes, they are spread evenly over the classes.

    input      inputs Ball(eps), patching Zero, logit difference of the class within delta
    patching   inputs Point, patching Reachable(eps), logit difference of the class within delta

TaxiNet predicts a distance: an input counts as right if it is off by less than 0.2 m, the recording
it comes from is its class, and the largest difference of outputs (there is one) is the metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import provable_circuits as pc
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network

INPUTS = 3
RIGHT_WITHIN = 0.2
"""How far off, in metres, a prediction of TaxiNet may be that counts as right."""

FOLDER = "PROVABLE_CIRCUITS_DATA"
"""The environment variable that names the folder of the other networks and their inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network with the inputs it gets right.

    Attributes:
        graph: the network.
        granularity: what its components are.
        inputs: float64 [n, *shape].
        classes: [n]; an output of the network, but for regression.
        clip: ends of the inputs' scale; None where it is not clipped.
        regression: whether outputs are quantities instead of logits.
    """

    graph: pc.Graph
    granularity: str
    inputs: Tensor
    classes: Tensor
    clip: tuple[float, float] | None = (0.0, 1.0)
    regression: bool = False

    def batches(self, count: int) -> list[tuple[int, Tensor]]:
        """So many batches of one class, or as many as there are: the class, and its inputs."""
        apart = {c: self.inputs[self.classes == c] for c in self.classes.unique().tolist()}
        chosen: list[tuple[int, Tensor]] = []
        for start in range(0, len(self.inputs), INPUTS):
            turn = [
                (label, own[start : start + INPUTS])
                for label, own in apart.items()
                if len(own) >= start + INPUTS
            ]
            wanted = count - len(chosen)
            if wanted < len(turn):
                return chosen + [turn[i * len(turn) // wanted] for i in range(wanted)]
            chosen += turn
        return chosen


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

    def claim(self, network: Network, label: int, batch: Tensor) -> pc.Claim:
        """The claim about one batch of inputs."""
        metric: pc.Metric = pc.MaxAbs(self.delta)
        if not network.regression:
            metric = pc.LogitDifference(self.delta, label)
        if self.kind == "input":
            balls = [pc.Ball(x, self.eps, clip=network.clip) for x in batch]
            return pc.Claim(balls, pc.Zero(), metric)
        points = [pc.Point(x) for x in batch]
        return pc.Claim(points, pc.Reachable(self.eps, clip=network.clip), metric)


def _undecided(share: float) -> Limit:
    return Limit("undecided", share)


SETTINGS = (
    Setting("mnist", "input", 0.01, 2.0, (Limit("mean", 2.0), _undecided(0.0))),
    Setting("mnist", "input", 0.05, 2.0, (Limit("mean", 20.0), _undecided(0.0))),
    Setting("gtsrb", "input", 0.001, 5.0, (_undecided(0.01),)),
    Setting("taxinet", "input", 0.005, 0.92, (_undecided(0.01),)),
    Setting("cifar10", "input", 0.015, 2.0, (Limit("median", 60.0), _undecided(0.02))),
    Setting("mnist", "patching", 0.01, 0.5, (_undecided(0.01),)),
    Setting("taxinet", "patching", 0.01, 0.92, (_undecided(0.01),)),
    Setting("gtsrb", "patching", 0.005, 2.0, (_undecided(0.05),)),
    Setting("cifar10", "patching", 0.03, 0.1, (_undecided(0.15),)),
)


def _classifier(
    graph: pc.Graph,
    granularity: str,
    inputs: Tensor,
    labels: Tensor,
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Network:
    right = graph.run(inputs.float()).argmax(1) == labels
    return Network(graph, granularity, inputs[right], labels[right], clip)


def _mnist(_: Path | None) -> Network:
    digits = load_digits()
    return _classifier(mnist_network(), "neuron", digits.images.double(), digits.labels)


def _gtsrb(folder: Path | None) -> Network:
    graph, arrays = _read(folder, "gtsrb_cnn.onnx", "gtsrb_test.npz")
    labels = torch.tensor(arrays["y"].astype(np.int64))
    return _classifier(graph, "filter", torch.tensor(arrays["x"] / 255.0), labels)


def _cifar10(folder: Path | None) -> Network:
    graph, arrays = _read(folder, "cifar10_resnet_2b.onnx", "cifar10_test.npz")
    mean, std = (arrays[key].astype(np.float64).reshape(1, 3, 1, 1) for key in ("mean", "std"))
    inputs = torch.tensor((arrays["x"] / 255.0 - mean) / std)
    return _classifier(graph, "filter", inputs, torch.tensor(arrays["y"].astype(np.int64)), None)


def _taxinet(folder: Path | None) -> Network:
    graph, arrays = _read(folder, "taxinet_cnn.onnx", "taxinet.npz")
    inputs = torch.tensor(arrays["x"] / 255.0)
    recordings = torch.tensor(np.unique(arrays["source"], return_inverse=True)[1])
    right = (graph.run(inputs.float())[:, 0] - torch.tensor(arrays["cte"])).abs() < RIGHT_WITHIN
    return Network(graph, "filter", inputs[right], recordings[right], regression=True)


def _read(folder: Path | None, model: str, data: str) -> tuple[pc.Graph, dict[str, np.ndarray]]:
    if folder is None:
        raise FileNotFoundError(f"{model} and {data}: no folder is given")
    with np.load(folder / data) as file:
        return pc.Graph.from_onnx(folder / model), dict(file)


NETWORKS: dict[str, Callable[[Path | None], Network]] = {
    "mnist": _mnist,
    "gtsrb": _gtsrb,
    "taxinet": _taxinet,
    "cifar10": _cifar10,
}

FILES = {
    "mnist": (),
    "gtsrb": ("gtsrb_cnn.onnx", "gtsrb_test.npz"),
    "taxinet": ("taxinet_cnn.onnx", "taxinet.npz"),
    "cifar10": ("cifar10_resnet_2b.onnx", "cifar10_test.npz"),
}
"""What each network is read from; MNIST comes with the package and its extra ``mnist``."""


def missing(network: str, folder: Path | None) -> str | None:
    """Why a network is left out, in words; None where it is at hand."""
    if folder is None and FILES[network]:
        return f"no folder is given: set {FOLDER}, or --data"
    for name in FILES[network]:
        if folder is not None and not (folder / name).is_file():
            return f"the folder has no {name}"
    return None
