"""The four benchmarks of the paper, and TinyTaxiNet: a network and real inputs for it.

MNIST comes with the package and its extra ``mnist``. The others, and another MNIST network, are
read from a folder that holds them under these names:

    cifar10      cifar10_resnet_2b.onnx             cifar10_test.npz   x uint8 [n, 3, 32, 32], y
    gtsrb        gtsrb_cnn.onnx                     gtsrb_test.npz     x uint8 [n, 3, 32, 32], y
    taxinet      taxinet_cnn.onnx                   taxinet.npz        x uint8 [n, 1, 27, 54], cte
    tinytaxinet  tinytaxinet_fc_128_16_8_8_2.onnx   taxinet.npz        tiny8x16 [n, 128], cte
    mnist        mnist_fc_784_13_11_10.onnx         mnist_test.npz     x uint8 [n, 28, 28], y

Without the archive the data set's own distribution in the same folder serves (``official``), and
``training/images.py`` makes the networks from it.

A batch is k inputs of one class that the network gets right; a regression has one class, and counts
as right if it is off by less than 0.2.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.network.graph import Graph
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network
from provable_circuits.zoo.official import cifar10_images, gtsrb_images, taxinet_images

RIGHT_WITHIN = 0.2
"""How far off a regression may be that counts as right."""

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)

VNN_COMP_RESNET = "791aa24d77917ecda16809fbbd48e7739616f88ebf74cf358b2d1bf911dc4a6d"
"""The SHA-256 of resnet_2b.onnx as VNN-COMP 2021 published it."""

FOLDER = "PROVABLE_CIRCUITS_DATA"
"""The environment variable that names the folder."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Inputs of one class: which class, which of the benchmark's inputs, and those inputs."""

    label: int
    places: tuple[int, ...]
    inputs: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """A network, and inputs for it.

    Attributes:
        name: a key of ``BENCHMARKS``.
        title: the same for people.
        origin: which network and which inputs these are, and whether they are the paper's own.
        graph: the network.
        granularity: what its components are.
        inputs: float64 [n, *shape], as the network takes them.
        classes: [n].
        right: [n], whether the network gets an input right.
        samples: inputs over which means are taken; None for inputs outside the batches.
        clip: ends of the inputs' scale; None where they are not clipped.
        regression: whether outputs are quantities instead of logits.
    """

    name: str
    title: str
    origin: str
    graph: Graph
    granularity: str
    inputs: Tensor
    classes: Tensor
    right: Tensor
    samples: Tensor | None = None
    clip: tuple[float, float] | None = (0.0, 1.0)
    regression: bool = False

    def batches(self, count: int | None = None, size: int = 3, seed: int = 0) -> list[Batch]:
        """Disjoint batches, evenly over classes: all there are, or so many.

        Within a class inputs are drawn by the seed. Classes take turns; if there are fewer batches
        than classes in a turn, they are spread evenly over the classes.
        """
        generator = torch.Generator().manual_seed(seed)
        places = {}
        for label in self.classes.unique().tolist():
            own = ((self.classes == label) & self.right).nonzero().flatten()
            places[label] = own[torch.randperm(len(own), generator=generator)].tolist()
        chosen: list[tuple[int, list[int]]] = []
        start = 0
        while turn := [
            (c, p[start : start + size]) for c, p in places.items() if len(p) >= start + size
        ]:
            wanted = len(turn) if count is None else min(count - len(chosen), len(turn))
            chosen += [turn[i * len(turn) // wanted] for i in range(wanted)]
            start += size
            if count is not None and len(chosen) >= count:
                break
        return [Batch(label, tuple(p), self.inputs[p]) for label, p in chosen]

    def means_from(
        self, batches: list[Batch], count: int = 100, seed: int = 0
    ) -> tuple[Tensor, str]:
        """Inputs over which means are taken, and where they are from."""
        if self.samples is not None:
            pool, source = self.samples, "training inputs"
        else:
            used = {place for batch in batches for place in batch.places}
            free = [i for i in range(len(self.inputs)) if i not in used]
            pool, source = self.inputs[free], "test inputs outside the batches"
        if not len(pool):
            raise DataError(f"No inputs of {self.title} are left to take means over.")
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))[:count]
        return pool[order], f"{len(order)} {source}"


def load_benchmark(name: str, folder: Path | None = None) -> Benchmark:
    """One of ``BENCHMARKS``, from a folder; MNIST without one is that of the package."""
    if name not in BENCHMARKS:
        raise ArgumentError(
            f"The benchmark must be one of {', '.join(BENCHMARKS)}. Got {name!r} instead."
        )
    return BENCHMARKS[name](folder)


def normalised_cifar(pixels: Tensor) -> Tensor:
    """CIFAR-10 pixels, 0 to 255, as ResNet2b takes them."""
    mean, std = (
        torch.tensor(v, dtype=torch.float64).reshape(3, 1, 1) for v in (CIFAR_MEAN, CIFAR_STD)
    )
    return (pixels.double() / 255 - mean) / std


def _mnist(folder: Path | None) -> Benchmark:
    if folder is None:
        digits = load_digits()
        graph = mnist_network()
        return _classifier(
            "mnist",
            "MNIST",
            "784-13-11-10 of this package (not the paper's own), 1,000 digits held out of training",
            graph,
            "neuron",
            digits.images.double(),
            digits.labels,
            samples=load_digits(split="train").images.double(),
        )
    digits = load_digits(folder)
    own = folder / "mnist_fc_784_13_11_10.onnx"
    if not own.is_file():
        raise DataError(f"The benchmark mnist needs '{own.name}' in '{folder}'; it is not there.")
    graph = Graph.from_onnx(own)
    return _classifier(
        "mnist",
        "MNIST",
        "784-13-11-10 trained on the MNIST training set (not the paper's own), MNIST test set",
        graph,
        "neuron",
        digits.images.double(),
        digits.labels,
    )


def _cifar10(folder: Path | None) -> Benchmark:
    graph, data = _files(
        folder, "cifar10", "cifar10_resnet_2b.onnx", "cifar10_test.npz", ("x", "y")
    )
    return _classifier(
        "cifar10",
        "CIFAR-10",
        f"ResNet2b {_whose(folder)}, CIFAR-10 test images, in normalised scale",
        graph,
        "filter",
        normalised_cifar(torch.from_numpy(data["x"])),
        torch.from_numpy(data["y"]).long(),
        clip=None,
    )


def _whose(folder: Path | None) -> str:
    """Whether a ResNet2b is the one that VNN-COMP 2021 published, byte for byte."""
    path = Path(folder or ".") / "cifar10_resnet_2b.onnx"
    own = hashlib.sha256(path.read_bytes()).hexdigest() == VNN_COMP_RESNET
    return "of VNN-COMP 2021 (the paper's)" if own else "of other weights (not the paper's own)"


def _gtsrb(folder: Path | None) -> Benchmark:
    graph, data = _files(folder, "gtsrb", "gtsrb_cnn.onnx", "gtsrb_test.npz", ("x", "y"))
    return _classifier(
        "gtsrb",
        "GTSRB",
        "CNN of the paper's architecture (not the paper's weights), GTSRB test images",
        graph,
        "filter",
        torch.from_numpy(data["x"]).double() / 255,
        torch.from_numpy(data["y"]).long(),
    )


def _taxinet(folder: Path | None) -> Benchmark:
    graph, data = _files(folder, "taxinet", "taxinet_cnn.onnx", "taxinet.npz", ("x", "cte"))
    return _regression(
        "taxinet",
        "TaxiNet",
        "CNN of the paper's architecture (not the paper's weights), X-Plane images, most of which "
        "the network was fitted on",
        graph,
        "filter",
        torch.from_numpy(data["x"]).double() / 255,
        data,
    )


def _tinytaxinet(folder: Path | None) -> Benchmark:
    names = ("tiny8x16", "cte")
    graph, data = _files(
        folder, "tinytaxinet", "tinytaxinet_fc_128_16_8_8_2.onnx", "taxinet.npz", names
    )
    return _regression(
        "tinytaxinet",
        "TinyTaxiNet",
        "the public TinyTaxiNet (not in the paper), X-Plane images",
        graph,
        "neuron",
        torch.from_numpy(data["tiny8x16"]).double().flatten(1),
        data,
    )


BENCHMARKS: Mapping[str, Callable[[Path | None], Benchmark]] = MappingProxyType(
    {
        "mnist": _mnist,
        "cifar10": _cifar10,
        "gtsrb": _gtsrb,
        "taxinet": _taxinet,
        "tinytaxinet": _tinytaxinet,
    }
)


def _classifier(
    name: str,
    title: str,
    origin: str,
    graph: Graph,
    granularity: str,
    inputs: Tensor,
    labels: Tensor,
    **more: Any,
) -> Benchmark:
    right = graph.run(inputs).argmax(1) == labels
    return Benchmark(name, title, origin, graph, granularity, inputs, labels, right, **more)


def _regression(
    name: str,
    title: str,
    origin: str,
    graph: Graph,
    granularity: str,
    inputs: Tensor,
    data: Mapping[str, np.ndarray[Any, Any]],
) -> Benchmark:
    truth = torch.from_numpy(np.asarray(data["cte"], dtype=np.float64))
    right = (graph.run(inputs)[:, 0] - truth).abs() < RIGHT_WITHIN
    return Benchmark(
        name,
        title,
        origin,
        graph,
        granularity,
        inputs,
        torch.zeros(len(inputs), dtype=torch.int64),
        right,
        regression=True,
    )


def _files(
    folder: Path | None, name: str, model: str, data: str, arrays: tuple[str, ...]
) -> tuple[Graph, dict[str, np.ndarray[Any, Any]]]:
    """The network and the arrays of one benchmark."""
    if folder is None:
        raise DataError(
            f"The benchmark {name} needs a folder with '{model}' and '{data}': name it with --data "
            f"or in the environment variable {FOLDER}."
        )
    if not (folder / model).is_file():
        raise DataError(
            f"The benchmark {name} needs the file '{model}' in '{folder}'; it is not there."
        )
    if not (folder / data).is_file():
        return Graph.from_onnx(folder / model), _from_distribution(folder, name, data)
    try:
        with np.load(folder / data, allow_pickle=False) as archive:
            found = {array: archive[array] for array in arrays}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The file '{data}' must be an .npz file with {', '.join(arrays)}: {error}."
        ) from None
    return Graph.from_onnx(folder / model), found


def _from_distribution(folder: Path, name: str, data: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of one benchmark from the data set's own distribution, where no .npz is."""
    read = {
        "cifar10": lambda: cifar10_images(folder, "test"),
        "gtsrb": lambda: gtsrb_images(folder, "test"),
        "taxinet": lambda: taxinet_images(folder),
    }.get(name)
    if read is None:
        raise DataError(
            f"The benchmark {name} needs the file '{data}' in '{folder}'; it is not there."
        )
    try:
        found = read()
    except DataError as error:
        raise DataError(f"There is no '{data}' in '{folder}', and: {error}") from None
    return {"x": found.images, "y": found.labels, "cte": found.labels}
