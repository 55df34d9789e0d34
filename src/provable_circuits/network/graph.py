"""The network: an immutable graph of typed operations on named tensors.

A ``Graph`` is a list of nodes in an order in which each comes after what it reads. A
``GraphBuilder`` makes one; adding an operation that is already there, on the same inputs, returns
the node that is there. So whatever two networks written into one graph have in common is one node.

    >>> import torch
    >>> from provable_circuits.network.ops import Linear, ReLU
    >>> builder = GraphBuilder()
    >>> x = builder.input("x", (2,))
    >>> hidden = builder.add("fc", Linear(torch.eye(2)), x)
    >>> graph = builder.build(outputs=[builder.add("relu", ReLU(), hidden)])
    >>> graph.run(torch.tensor([[1.0, -2.0]]))
    tensor([[1., 0.]])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, WeightsError
from provable_circuits.network.ops import Constant, Input, IntegerInput, Op, Shape

if TYPE_CHECKING:
    from provable_circuits.network.components import Components
    from provable_circuits.network.granularity import Granularity


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One named tensor: the operation that makes it, what it reads, and its per-sample shape.

    ``layer`` is the name the model gives to the layer, where it is one (``layer1.0.conv2``).
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    shape: Shape
    layer: str | None = None

    def __repr__(self) -> str:
        return f"{self.name} = {self.op.name}({', '.join(self.inputs)}) {list(self.shape)}"


class Graph:
    """A network as an immutable graph. Make one with ``from_torch``, ``from_onnx`` or a builder."""

    __slots__ = ("__dict__", "_nodes", "inputs", "outputs")

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    @classmethod
    def from_torch(cls, module: torch.nn.Module, example_input: Tensor) -> Graph:
        """Capture a module as it behaves in evaluation mode.

        Args:
            module: any ``nn.Module`` of one input and one output; it is left as it was.
            example_input: an input with its batch dimension, such as ``torch.zeros(1, 3, 32, 32)``.

        Raises:
            UnsupportedOperationError: an operation that has no exact counterpart here.
            ArgumentError: an example input that the module does not take.
            WeightsError: NaN or infinite weights.
        """
        from provable_circuits.network.torch.importer import graph_from_torch

        return graph_from_torch(module, example_input)

    @classmethod
    def from_onnx(cls, path: str | PathLike[str]) -> Graph:
        """Read an ONNX file of one input and one output; nothing in the file is executed.

        Operations: Add, AveragePool, BatchNormalization, Cast, Clip, Concat, Constant, Conv, Div,
        Dropout, Erf, Exp, Expand, Flatten, Gather, Gelu, Gemm, GlobalAveragePool, Identity,
        LayerNormalization, LeakyRelu, MatMul, MaxPool, Mul, Neg, Pad, Pow, Reciprocal, ReduceMean,
        ReduceSum, Relu, Reshape, Shape, Sigmoid, Size, Slice, Softmax, Sqrt, Squeeze, Sub, Sum,
        Tanh, Transpose, Unsqueeze, Where.

        Raises:
            ModelFileError: the file is missing, cut short or not ONNX.
            UnsupportedOperationError: an operation that has no exact counterpart here.
            WeightsError: NaN or infinite weights.
        """
        from provable_circuits.network.onnx.importer import graph_from_onnx

        return graph_from_onnx(path)

    def to_onnx(self, path: str | PathLike[str], dtype: torch.dtype = torch.float32) -> None:
        """Write the graph as an ONNX file with a free batch dimension, its weights in ``dtype``."""
        from provable_circuits.network.onnx.exporter import graph_to_onnx

        graph_to_onnx(self, path, dtype)

    def to_torch(self, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        """An ordinary module, in evaluation mode, that computes the graph in ``dtype``.

        Layers are ``nn.Linear`` and ``nn.Conv2d`` under the model's names for them, so that their
        weights can be trained on; whatever else holds numbers holds them as buffers.
        """
        from provable_circuits.network.torch.exporter import graph_to_torch

        return graph_to_torch(self, dtype)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each after those it reads."""
        return tuple(self._nodes.values())

    def below(self, name: str) -> Graph:
        """The part that computes one tensor, with the inputs that it needs."""
        needed = _needed(self.nodes, [self[name].name])
        nodes = [node for node in self.nodes if node.name in needed]
        return Graph(nodes, [given for given in self.inputs if given in needed], [name])

    def __getitem__(self, name: str) -> Node:
        try:
            return self._nodes[name]
        except KeyError:
            raise ArgumentError(f"The graph has no tensor named {name!r}.") from None

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        heads = ", ".join(f"{name} {list(self[name].shape)}" for name in self.inputs)
        tails = ", ".join(f"{name} {list(self[name].shape)}" for name in self.outputs)
        return f"Graph({heads} -> {tails}; {len(self)} nodes, {self.parameter_count:,} parameters)"

    def summary(self) -> str:
        """One line for each node: name, operation, inputs and shape."""
        return "\n".join(repr(node) for node in self.nodes)

    @property
    def input_shape(self) -> Shape:
        """The per-sample shape of the one input."""
        return self[self._only(self.inputs, "input")].shape

    @property
    def output_shape(self) -> Shape:
        """The per-sample shape of the one output."""
        return self[self._only(self.outputs, "output")].shape

    @property
    def parameter_count(self) -> int:
        """How many numbers the operations hold."""
        return sum(p.numel() for node in self.nodes for p in node.op.parameters().values())

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """For every tensor, the nodes that read it."""
        readers: dict[str, list[Node]] = {name: [] for name in self._nodes}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers[name].append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    @cached_property
    def digest(self) -> str:
        """A hash of structure, names and weights: equal for equal networks, on any machine."""
        hasher = hashlib.sha256()
        for node in self.nodes:
            settings = {key: repr(value) for key, value in node.op.settings().items()}
            record = [node.name, node.op.name, node.inputs, node.shape, node.layer, settings]
            hasher.update(json.dumps(record).encode())
            for key, value in node.op.parameters().items():
                array = value.cpu().numpy()
                hasher.update(json.dumps([key, str(array.dtype), array.shape]).encode())
                hasher.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        hasher.update(json.dumps([self.inputs, self.outputs]).encode())
        return hasher.hexdigest()

    def run(self, x: Any, dtype: torch.dtype | None = None) -> Tensor:
        """The output for a batch of inputs, computed in ``dtype`` (the input's own by default)."""
        from provable_circuits.network.execution import run

        return run(self, x, dtype)

    def activations(self, x: Any, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Every tensor of the network, by name, for a batch of inputs."""
        from provable_circuits.network.execution import activations

        return activations(self, x, dtype)

    def components(
        self,
        granularity: str | Granularity | Sequence[str | Granularity] = "auto",
        *,
        outputs: bool = True,
        shortcuts: bool = False,
    ) -> Components:
        """What a circuit can keep or remove.

        Args:
            granularity: ``"neuron"`` (units of linear layers; of transformers, of MLPs),
                ``"filter"`` (channels of convolutions), ``"head"`` (attention heads), ``"mlp"``
                (whole MLP blocks), ``"auto"`` (heads and neurons if there is attention, filters
                alone if there are convolutions, else neurons), a ``Granularity`` of your own, or a
                list of them: ``["head", "neuron"]``, ``["filter", "neuron"]``.
            outputs: whether the units of the output layer are components too.
            shortcuts: whether projections on shortcut paths are cut into components.
        """
        from provable_circuits.network.components import components_of

        return components_of(self, granularity, outputs=outputs, shortcuts=shortcuts)

    def _only(self, names: tuple[str, ...], what: str) -> str:
        if len(names) != 1:
            raise ArgumentError(
                f"This needs a graph of one {what}. Got {len(names)} {what}s instead."
            )
        return names[0]


def _needed(nodes: Sequence[Node], outputs: Iterable[str]) -> set[str]:
    """The names of all that some tensors depend on, themselves included."""
    needed = set(outputs)
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return needed


class GraphBuilder:
    """Writes a graph node by node; the same operation on the same inputs is written once.

    Args:
        check_weights: whether NaN and infinite weights are refused. Only a graph made of the parts
            of another, which was checked, does without.
    """

    def __init__(self, check_weights: bool = True) -> None:
        self._check_weights = check_weights
        self._nodes: dict[str, Node] = {}
        self._shared: dict[tuple[object, ...], str] = {}
        self._inputs: list[str] = []
        self.shared_count = 0
        """How many additions were answered by a node that was already there."""

    def input(self, name: str, shape: Shape, integer: bool = False) -> str:
        """Declare an input, of integers such as tokens if ``integer``, and return its name."""
        op = IntegerInput(tuple(shape)) if integer else Input(tuple(shape))
        node = Node(self._fresh(name), op, (), tuple(shape))
        self._nodes[node.name] = node
        self._inputs.append(node.name)
        return node.name

    def constant(self, name: str, value: Tensor) -> str:
        """Add a per-sample constant and return its name."""
        return self.add(name, Constant(value))

    def add(self, name: str, op: Op, *inputs: str, layer: str | None = None) -> str:
        """Add an operation and return the name of its tensor: ``name``, or that of its twin."""
        for source in inputs:
            if source not in self._nodes:
                raise ArgumentError(f"{op.name} '{name}' reads {source!r}, which is not there yet.")
        key = (op.sharing_key, inputs)
        twin = self._shared.get(key)
        if twin is not None:
            self.shared_count += 1
            return twin
        for parameter, value in op.parameters().items() if self._check_weights else ():
            if not bool(torch.isfinite(value).all()):
                raise WeightsError(
                    f"The {parameter} of {op.name} '{layer or name}' has NaN or infinite values; "
                    f"nothing can be proved about such a network."
                )
        shape = op.shape(*(self._nodes[source].shape for source in inputs))
        node = Node(self._fresh(name), op, inputs, shape, layer)
        self._nodes[node.name] = node
        self._shared[key] = node.name
        return node.name

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def build(self, outputs: Iterable[str]) -> Graph:
        """The finished graph, without whatever no output depends on (inputs always stay)."""
        outputs = tuple(outputs)
        for name in outputs:
            if name not in self._nodes:
                raise ArgumentError(f"The graph has no tensor named {name!r} to give out.")
        needed = _needed(list(self._nodes.values()), outputs).union(self._inputs)
        nodes = [node for node in self._nodes.values() if node.name in needed]
        return Graph(nodes, self._inputs, outputs)

    def _fresh(self, name: str) -> str:
        if name not in self._nodes:
            return name
        number = 1
        while f"{name}_{number}" in self._nodes:
            number += 1
        return f"{name}_{number}"
