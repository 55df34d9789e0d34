"""How fast are the sub-queries of greedy runs decided, and by which stage?

Runs greedy input-robustness searches (k = 3 inputs, zero patching, logit difference) and prints,
for every radius, the mean and median time of a sub-query, how many each stage decided and how long
each took, what stayed undecided, and the peak memory. MNIST needs nothing but the package's extras;
the other networks are read from the folder in PROVABLE_CIRCUITS_DATA and left out where it is not
set.

    python benchmarks/verifier.py [--circuits 10] [--only mnist]
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import provable_circuits as pc
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network

INPUTS = 3


@dataclass(frozen=True)
class Setting:
    """One network with labelled inputs and a claim's numbers."""

    name: str
    graph: pc.Graph
    inputs: Tensor
    labels: Tensor
    granularity: str
    eps: float
    delta: float
    clip: tuple[float, float] | None

    def batches(self) -> Iterator[tuple[int, Tensor]]:
        """Batches of inputs of one class that the network gets right, class after class."""
        right = self.graph.run(self.inputs.float()).argmax(1) == self.labels
        for start in range(0, len(self.inputs), INPUTS):
            for label in self.labels.unique().tolist():
                own = self.inputs[right & (self.labels == label)][start : start + INPUTS]
                if len(own) == INPUTS:
                    yield label, own


def settings(only: str | None) -> Iterator[Setting]:
    """What can be measured here."""
    digits = load_digits()
    for eps in (0.01, 0.05):
        yield Setting(
            "mnist", mnist_network(), digits.images, digits.labels, "neuron", eps, 2.0, (0, 1)
        )
    folder = os.environ.get("PROVABLE_CIRCUITS_DATA")
    if folder is None or only == "mnist":
        return
    data = Path(folder)
    with np.load(data / "gtsrb_test.npz") as file:
        inputs, labels = torch.tensor(file["x"] / 255.0), torch.tensor(file["y"].astype(np.int64))
    graph = pc.Graph.from_onnx(data / "gtsrb_cnn.onnx")
    yield Setting("gtsrb", graph, inputs, labels, "filter", 0.001, 5.0, (0, 1))
    with np.load(data / "cifar10_test.npz") as file:
        mean, std = (file[key].reshape(1, 3, 1, 1) for key in ("mean", "std"))
        inputs = torch.tensor((file["x"] / 255.0 - mean) / std)
        labels = torch.tensor(file["y"].astype(np.int64))
    graph = pc.Graph.from_onnx(data / "cifar10_resnet_2b.onnx")
    yield Setting("cifar10 (normalised scale)", graph, inputs, labels, "filter", 0.015, 2.0, None)


def measure(setting: Setting, circuits: int, timeout: float) -> None:
    """Run greedy searches and print the table."""
    components = setting.graph.components(setting.granularity)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    sizes, totals = [], []
    for (label, batch), _ in zip(setting.batches(), range(circuits), strict=False):
        claim = pc.Claim(
            [pc.Ball(x, setting.eps, clip=setting.clip) for x in batch],
            pc.Zero(),
            pc.LogitDifference(setting.delta, label),
        )
        began = time.perf_counter()
        verifier = pc.Verifier(components, claim)
        circuit = components.full()
        for component in components.discovery_order():
            candidate = circuit.remove(component.name)
            asked = time.perf_counter()
            verdict = verifier.ask(candidate, timeout)
            times[verdict.kind, verdict.stage].append(time.perf_counter() - asked)
            circuit = candidate if verdict.proved else circuit
        totals.append(time.perf_counter() - began)
        sizes.append(len(circuit))
    everything = np.concatenate([np.array(values) for values in times.values()])
    undecided = sum(len(v) for (kind, _), v in times.items() if kind == "undecided")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{setting.name}, eps {setting.eps:g}, delta {setting.delta:g}: {len(sizes)} circuits")
    print(
        f"  sub-query: mean {everything.mean() * 1e3:.2f} ms, median "
        f"{np.median(everything) * 1e3:.2f} ms; circuit: median {np.median(totals):.2f} s, "
        f"mean size {np.mean(sizes):.1f} of {len(components)}"
    )
    print(f"  undecided: {undecided} of {len(everything)}; peak memory {memory:.2f} GB")
    for (kind, stage), values in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(
            f"  {kind:<9} {stage:<10} {len(values):>5}  {np.mean(values) * 1e3:>8.2f} ms each  "
            f"{sum(values) / everything.sum():>6.1%} of the time"
        )


def main() -> None:
    """Measure everything that is at hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--circuits", type=int, default=10, help="greedy runs for each setting")
    parser.add_argument("--only", help="only the network of this name")
    parser.add_argument("--timeout", type=float, default=45.0, help="seconds for each sub-query")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for setting in settings(arguments.only):
        if arguments.only is None or setting.name.startswith(arguments.only):
            measure(setting, arguments.circuits, arguments.timeout)


if __name__ == "__main__":
    main()
