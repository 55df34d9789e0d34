"""From a Graph to a ``torch.nn.Module``.

Layers become ``nn.Linear`` and ``nn.Conv2d`` under their own names, common activations torch's own
modules, and every other operation a small module that holds its numbers as buffers. They are wired
by a ``torch.fx.GraphModule``: an ordinary module whose ``code`` can be read, and which can be
trained, copied, and captured with ``torch.export``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, fx, nn

from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.graph import Graph, Node

FUNCTIONS: dict[type[ops.Op], Callable[..., Tensor]] = {
    ops.Add: operator.add,
    ops.Subtract: operator.sub,
}
"""Operations that hold nothing and are one call."""

ACTIVATIONS: dict[type[ops.Op], Callable[[], nn.Module]] = {
    ops.ReLU: nn.ReLU,
    ops.Sigmoid: nn.Sigmoid,
    ops.Tanh: nn.Tanh,
}
"""Operations for which torch has a module without settings."""


class Operation(nn.Module):
    """An operation that torch has no module for; its numbers are buffers."""

    def __init__(self, op: ops.Op) -> None:
        super().__init__()
        self.op = op
        for name, value in op.parameters().items():
            self.register_buffer(name, value.clone())

    def forward(self, *inputs: Tensor) -> Tensor:
        """The operation, with the numbers that the module holds."""
        held = dict(self.named_buffers(recurse=False))
        op = replace(self.op, **held) if held else self.op  # type: ignore[type-var]
        return op.forward(*inputs)

    def extra_repr(self) -> str:
        settings = [f"{name}={value}" for name, value in self.op.settings().items()]
        return ", ".join([self.op.name, *settings])


def expand_to_batch(value: Tensor, like: Tensor) -> Tensor:
    """A tensor that is the same for every sample, once for each sample of ``like``."""
    return value.expand(like.shape[0], *value.shape[1:])


def graph_to_torch(graph: Graph, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A module in evaluation mode that computes the graph, its weights in ``dtype``."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ArgumentError(
            f"The 'dtype' parameter must be such as torch.float32. Got {dtype!r} instead."
        )
    return _ModuleWriter(graph, dtype).module()


class _ModuleWriter:
    """The module while it is written."""

    def __init__(self, graph: Graph, dtype: torch.dtype) -> None:
        self._graph = graph
        self._dtype = dtype
        self._fx = fx.Graph()
        self._root = nn.Module()
        self._names = _ModuleNames()
        self._values: dict[str, fx.Node] = {}
        self._varying = set(graph.inputs)
        for node in graph.nodes:
            if self._varying.intersection(node.inputs):
                self._varying.add(node.name)

    def module(self) -> nn.Module:
        """The whole module."""
        for node in self._graph.nodes:
            self._values[node.name] = self._write(node)
        outputs = [self._expanded(name) for name in self._graph.outputs]
        self._fx.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
        self._fx.lint()
        return fx.GraphModule(self._root, self._fx, class_name="Network").eval()

    def _write(self, node: Node) -> fx.Node:
        op = node.op
        if isinstance(op, ops.Input):
            return self._fx.placeholder(f"input_{_plain(node.name)}")
        if isinstance(op, ops.Concat):
            values = [self._expanded(name) for name in node.inputs]
            return self._fx.call_function(torch.cat, (values, op.dim + 1))
        sources = tuple(self._values[name] for name in node.inputs)
        function = FUNCTIONS.get(type(op))
        if function is not None:
            return self._fx.call_function(function, sources)
        name = self._names.choose(node.layer or node.name)
        _attach(self._root, name, self._module(op))
        return self._fx.call_module(name, sources)

    def _expanded(self, name: str) -> fx.Node:
        """A tensor with one row for each sample, though it may be the same for all."""
        value = self._values[name]
        if name in self._varying or not self._graph.inputs:
            return value
        return self._fx.call_function(expand_to_batch, (value, self._values[self._graph.inputs[0]]))

    def _module(self, op: ops.Op) -> nn.Module:
        """The module of one operation."""
        op = op.to(self._dtype, torch.device("cpu"))
        if isinstance(op, ops.Linear):
            units, inputs = op.weight.shape
            return _filled(nn.Linear(inputs, units, op.bias is not None, dtype=self._dtype), op)
        if isinstance(op, ops.Conv2d):
            filters, channels, height, width = op.weight.shape
            layer = nn.Conv2d(
                channels * op.groups,
                filters,
                (height, width),
                op.stride,
                op.padding,
                op.dilation,
                op.groups,
                op.bias is not None,
                dtype=self._dtype,
            )
            return _filled(layer, op)
        if isinstance(op, ops.LeakyReLU):
            return nn.LeakyReLU(op.slope)
        activation = ACTIVATIONS.get(type(op))
        return Operation(op) if activation is None else activation()


def _filled(layer: nn.Linear | nn.Conv2d, op: ops.Linear | ops.Conv2d) -> nn.Module:
    """The layer with the operation's weights."""
    with torch.no_grad():
        layer.weight.copy_(op.weight)
        if layer.bias is not None and op.bias is not None:
            layer.bias.copy_(op.bias)
    return layer


def _attach(root: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a dotted path, with plain modules on the way."""
    *way, last = path.split(".")
    for name in way:
        if name not in dict(root.named_children()):
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    root.add_module(last, module)


class _ModuleNames:
    """Chooses for each layer a dotted path that no other needs and torch does not use itself."""

    def __init__(self) -> None:
        self._leaves: set[str] = set()
        self._inner: set[str] = set()

    def choose(self, name: str) -> str:
        """The name itself where that is possible, else one like it."""
        path = ".".join(_harmless(part) for part in name.split("."))
        number = 0
        while not self._free(path):
            number += 1
            path = f"{_harmless(name.replace('.', '_'))}_{number}"
        self._leaves.add(path)
        self._inner.update(_ways(path))
        return path

    def _free(self, path: str) -> bool:
        taken = path in self._leaves or path in self._inner
        return not taken and self._leaves.isdisjoint(_ways(path))


def _ways(path: str) -> list[str]:
    """The paths of all modules that a dotted path leads through."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _harmless(part: str) -> str:
    """A name that a child of any module can have."""
    name = _plain(part)
    used = not name or hasattr(nn.Module(), name) or hasattr(fx.GraphModule, name)
    return f"{name}_" if used else name


def _plain(name: str) -> str:
    """Letters, digits and underscores alone: torch writes names into code that it runs."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
