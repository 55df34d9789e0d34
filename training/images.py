"""Trains the CIFAR-10, GTSRB and TaxiNet networks from the data sets' own distributions.

    python training/images.py gtsrb --data DIR [--epochs N] [--seed S]

writes the network as ONNX into the same folder, under the name that ``load_benchmark`` reads. AdamW
under a one-cycle learning rate; images are shifted by up to two pixels at random. The last epoch is
kept, and nothing is selected on test images. (MNIST has ``training/mnist.py``.)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from provable_circuits.errors import ArgumentError, ProvableCircuitsError
from provable_circuits.network.graph import Graph
from provable_circuits.zoo.architectures import GtsrbCnn, ResNet2b, TaxiNetCnn
from provable_circuits.zoo.benchmarks import normalised_cifar
from provable_circuits.zoo.official import Images, cifar10_images, gtsrb_images, taxinet_images

BATCH = 128
SHIFT = 2


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained: a network, on which images, into which file."""

    network: Callable[[], nn.Module]
    images: Callable[[Path], Images]
    inputs: Callable[[Tensor], Tensor]
    file: str
    epochs: int
    regression: bool = False


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float() / 255


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        "cifar10": Task(
            ResNet2b,
            lambda folder: cifar10_images(folder, "train"),
            lambda pixels: normalised_cifar(pixels).float(),
            "cifar10_resnet_2b.onnx",
            30,
        ),
        "gtsrb": Task(
            GtsrbCnn, lambda folder: gtsrb_images(folder, "train"), _scaled, "gtsrb_cnn.onnx", 18
        ),
        "taxinet": Task(TaxiNetCnn, taxinet_images, _scaled, "taxinet_cnn.onnx", 200, True),
    }
)


def train(name: str, folder: Path, epochs: int | None = None, seed: int = 0) -> Path:
    """Train a network, and write it into the folder its images are in."""
    if name not in TASKS:
        raise ArgumentError(f"The network must be one of {', '.join(TASKS)}. Got {name!r} instead.")
    task = TASKS[name]
    found = task.images(folder)
    x = task.inputs(torch.from_numpy(found.images))
    y = torch.from_numpy(found.labels)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = task.network()
    rounds = task.epochs if epochs is None else epochs
    optimiser = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = max(1, rounds * -(-len(x) // BATCH))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps + 1)
    for epoch in range(rounds):
        total = 0.0
        for some in torch.randperm(len(x), generator=generator).split(BATCH):
            output = module(_shifted(x[some], generator))
            loss = (
                F.mse_loss(output[:, 0], y[some].float())
                if task.regression
                else F.cross_entropy(output, y[some])
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(some)
        typer.echo(f"epoch {epoch + 1} of {rounds}: loss {total / len(x):.4f}", err=True)
    path = folder / task.file
    Graph.from_torch(module.eval(), x[:1]).to_onnx(path)
    return path


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """A batch of images, moved by a few pixels."""
    down, right = (int(v) for v in torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator))
    return images.roll((down, right), (2, 3))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("network", choices=TASKS)
    parser.add_argument("--data", type=Path, required=True, help="where the images are")
    parser.add_argument("--epochs", type=int, help="passes over the data")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        path = train(options.network, options.data, options.epochs, options.seed)
    except ProvableCircuitsError as error:
        typer.echo(f"Error: {error}", err=True)
        return error.exit_code
    typer.echo(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
