"""The MNIST network of the benchmarks: 784-13-11-10, fully connected, with ReLU.

Its weights come with the package. They were trained by ``training/mnist.py`` on the 4,000 training
digits that ``load_digits`` returns without a folder; ``mnist_record`` says how, and how well it
does. On the full MNIST test set, 10,000 digits it never saw and that nothing was tuned on, it
classifies 94.02 % correctly.

    >>> graph = mnist_network()
    >>> graph
    Graph(x [784] -> fc3 [10]; 6 nodes, 10,479 parameters)
    >>> graph.components()
    Components(34: fc1 13, fc2 11, fc3 10)
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provable_circuits.errors import ModelFileError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU, as_parameter
from provable_circuits.network.weights import check_weights, read_metadata, read_weights

SIZES = (784, 13, 11, 10)
LAYERS = ("fc1", "fc2", "fc3")
SHIPPED_WEIGHTS = Path(__file__).parent / "weights" / "mnist_fc_784_13_11_10.safetensors"
RECORD_KEY = "training"
"""The one metadata entry of a weights file: how it was made, as JSON. (Safetensors writes several
entries in an arbitrary order; with one, equal training gives equal bytes.)"""


class MnistNet(nn.Module):
    """The network as a PyTorch module: images [batch, 784] in [0, 1] to logits [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(SIZES[0], SIZES[1])
        self.fc2 = nn.Linear(SIZES[1], SIZES[2])
        self.fc3 = nn.Linear(SIZES[2], SIZES[3])

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return logits


def mnist_network(weights: str | PathLike[str] | None = None) -> Graph:
    """The network as a Graph, equal to ``Graph.from_torch`` of the module but ready at once.

    Args:
        weights: a file that ``training/mnist.py`` wrote, or another with the same tensors; the
            shipped weights by default.

    Raises:
        ModelFileError: the file is missing or damaged.
        WeightsError: the file's tensors are not those of this network.
    """
    path = SHIPPED_WEIGHTS if weights is None else weights
    values = read_weights(path)
    with torch.device("meta"):  # names and shapes alone
        check_weights(values, MnistNet().state_dict(), path)
    builder = GraphBuilder()
    tensor = builder.input("x", SIZES[:1])
    for name in LAYERS:
        layer = Linear(as_parameter(values[f"{name}.weight"]), as_parameter(values[f"{name}.bias"]))
        tensor = builder.add(name, layer, tensor, layer=name)
        if name != LAYERS[-1]:
            tensor = builder.add("relu", ReLU(), tensor)
    return builder.build([tensor])


def mnist_record(weights: str | PathLike[str] | None = None) -> dict[str, str]:
    """How a weights file was trained, in words: data, seed, epochs, settings, accuracy reached.

    Args:
        weights: a file that ``training/mnist.py`` wrote; the shipped weights by default.

    Raises:
        ModelFileError: the file is missing or damaged, or carries no such record.
    """
    path = SHIPPED_WEIGHTS if weights is None else weights
    try:
        record = json.loads(read_metadata(path)[RECORD_KEY])
    except (KeyError, json.JSONDecodeError):
        record = None
    if not isinstance(record, dict):
        raise ModelFileError(
            f"The file '{path}' has no training record (a JSON object in the metadata entry "
            f"'{RECORD_KEY}'); write one with training/mnist.py of the repository."
        )
    return {str(name): str(value) for name, value in record.items()}
