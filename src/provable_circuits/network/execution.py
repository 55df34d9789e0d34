"""Plain execution: what a network and its circuits compute, in floating point.

What a circuit computes is defined in ``network/semantics.py``; here it is done with numbers.
Many circuits run in one call. A tensor that no removal has touched yet is the same for all of them
and is computed once for the batch; from the first site at which circuits differ on, tensors carry
``circuits x batch`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from provable_circuits.arguments import got, parameter, refused
from provable_circuits.errors import ArgumentError
from provable_circuits.network.arrays import as_tensor
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import IntegerInput, Op
from provable_circuits.network.semantics import (
    NOTHING_REMOVED,
    Arithmetic,
    CircuitMask,
    interpret,
)

if TYPE_CHECKING:
    from provable_circuits.network.circuit import Circuit
    from provable_circuits.network.components import Components

CHUNK_ELEMENTS = 2**23
"""Numbers in the largest tensor of one chunk of circuits: 64 MB in float64."""


class Patch(Protocol):
    """What removed components output: for each site a value that broadcasts to batch x shape."""

    def values(self, components: Components) -> Mapping[str, Tensor]:
        """Per-site tensors, by the name of the site's tensor, with a batch dimension."""


def as_batch(graph: Graph, x: Any, dtype: torch.dtype | None = None) -> Tensor:
    """``x`` as a batch of inputs of ``graph``; a single sample without batch dimension is one."""
    try:
        batch = as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"The 'x' parameter must be a tensor or an array of numbers. Got {got(x)} instead."
        ) from None
    shape = graph.input_shape
    if tuple(batch.shape) == shape:
        batch = batch.unsqueeze(0)
    if tuple(batch.shape[1:]) != shape or batch.ndim != len(shape) + 1:
        raise ArgumentError(
            f"The 'x' parameter must be inputs of shape {list(shape)} behind a batch dimension. "
            f"Got {list(batch.shape)} instead."
        )
    if isinstance(graph[graph.inputs[0]].op, IntegerInput) and not bool(
        (batch == batch.round()).all()
    ):
        raise ArgumentError("The 'x' parameter must hold integers: the network reads tokens.")
    if dtype is None:
        dtype = batch.dtype if batch.dtype in (torch.float32, torch.float64) else torch.float32
    return batch.to(dtype)


def run(graph: Graph, x: Any, dtype: torch.dtype | None = None) -> Tensor:
    """The network's output for a batch of inputs."""
    values = evaluate(graph, {graph.inputs[0]: as_batch(graph, x, dtype)})
    return values[graph.outputs[0]]


def activations(graph: Graph, x: Any, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Every tensor of the network for a batch of inputs."""
    feeds = {graph.inputs[0]: as_batch(graph, x, dtype)}
    return evaluate(graph, feeds, [node.name for node in graph.nodes])


def evaluate(
    graph: Graph, feeds: Mapping[str, Tensor], wanted: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """The ``wanted`` tensors (the outputs by default) for fed inputs, in the inputs' dtype."""
    wanted = graph.outputs if wanted is None else wanted
    floats = Floats(graph, feeds, wanted)
    found = interpret(graph, NOTHING_REMOVED, floats, wanted)
    return {name: _for_all(value, floats.batch) for name, value in found.items()}


def run_circuits(
    components: Components,
    circuits: Sequence[Circuit],
    x: Any,
    patch: Patch | Mapping[str, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The outputs of many circuits on one batch: [circuits, batch, *output shape].

    Args:
        components: the components that the circuits are sets of.
        circuits: any number of circuits.
        x: a batch of inputs.
        patch: what removed components output, as a fixed patching or by the name of each site's
            tensor; zero by default.
        dtype: the arithmetic; the input's own by default.
    """
    graph = components.graph
    batch = as_batch(graph, x, dtype)
    if not circuits:
        return batch.new_empty((0, batch.shape[0], *graph.output_shape))
    values = patch_values(components, patch, batch)
    keep = components.masks(circuits).to(batch.device)
    largest = max(math.prod(node.shape) for node in graph.nodes) * max(batch.shape[0], 1)
    size = max(1, CHUNK_ELEMENTS // max(largest, 1))
    chunks = [
        _run_chunk(components, keep[start : start + size], batch, values)
        for start in range(0, len(circuits), size)
    ]
    return torch.cat(chunks)


def circuit_activations(
    circuit: Circuit,
    x: Any,
    wanted: Sequence[str],
    patch: Patch | Mapping[str, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Tensors of one circuit's run, patched, by name: [batch, *shape].

    With gradients enabled each is on the way to those computed from it, and can be differentiated
    by.
    """
    components = circuit.components
    batch = as_batch(components.graph, x, dtype)
    if torch.is_grad_enabled():
        batch = batch.clone().requires_grad_()
    values = patch_values(components, patch, batch)
    mask = CircuitMask.of_nodes(components, components.masks([circuit]).to(batch.device))
    graph = components.graph
    floats = Floats(graph, {graph.inputs[0]: batch}, wanted, values)
    found = interpret(graph, mask, floats, wanted)
    return {name: _for_all(value, len(batch)) for name, value in found.items()}


def patch_values(
    components: Components, patch: Patch | Mapping[str, Tensor] | None, batch: Tensor
) -> dict[str, Tensor]:
    """The patch of every site, checked, in the batch's dtype."""
    if patch is None:
        return {site.tensor: batch.new_zeros(1) for site in components.sites}
    if isinstance(patch, type):
        raise refused(parameter("patch"), "a fixed patching such as Zero()", patch)
    if not isinstance(patch, Mapping) and not hasattr(patch, "values"):
        raise ArgumentError(
            "The 'patch' parameter must give each removed unit one value, as Zero, Mean and "
            "Constant do: a circuit whose patches range is no single function. "
            f"Got {patch!r} instead."
        )
    given = patch if isinstance(patch, Mapping) else patch.values(components)
    for name in given:
        if name not in components.graph:
            raise ArgumentError(
                f"The 'patch' parameter names {name!r}, which is no tensor of the network."
            )
    values = {}
    for site in components.sites:
        if site.tensor not in given:
            raise ArgumentError(
                f"The 'patch' parameter has no value for {site.tensor!r}, where components are cut."
            )
        value = given[site.tensor].to(batch)
        size = (len(batch), *site.layer.shape)
        try:
            fits = torch.broadcast_shapes(value.shape, size) == size
        except RuntimeError:
            fits = False
        if not fits:
            raise ArgumentError(
                f"The 'patch' parameter's value for {site.tensor!r} must broadcast to "
                f"{list(size)}. Got {list(value.shape)} instead."
            )
        values[site.tensor] = value
    return values


def _run_chunk(
    components: Components, keep: Tensor, batch: Tensor, patch: Mapping[str, Tensor]
) -> Tensor:
    """One chunk; ``keep`` is [circuits, components], true where a component is kept."""
    graph, count = components.graph, keep.shape[0]
    mask = CircuitMask.of_nodes(components, keep)
    floats = Floats(graph, {graph.inputs[0]: batch}, graph.outputs[:1], patch, count)
    output = interpret(graph, mask, floats, graph.outputs[:1])[graph.outputs[0]]
    output = _for_all(output, len(batch))
    if output.shape[0] == batch.shape[0]:
        return output.expand(count, *output.shape)
    return output.reshape(count, -1, *output.shape[1:])


class Floats(Arithmetic[Tensor]):
    """Plain floating point, for a batch of inputs and any number of circuits.

    A tensor has ``batch`` samples, or one, as long as circuits agree on it, else ``circuits x
    batch``.

    Args:
        graph: the network.
        feeds: its inputs, by name.
        wanted: tensors that will be asked for; if an input requires its gradient, each of them
            does, constants among them.
        patch: by site, patch values that broadcast to [batch, *shape].
        circuits: how many circuits.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Mapping[str, Tensor],
        wanted: Sequence[str] = (),
        patch: Mapping[str, Tensor] | None = None,
        circuits: int = 1,
    ) -> None:
        example = next(iter(feeds.values()), torch.empty(1, dtype=torch.float64))
        self.feeds = feeds
        self.patch = patch or {}
        self.circuits = circuits
        self.batch = max((value.shape[0] for value in feeds.values()), default=1)
        self.ops = operations(graph, example.dtype, example.device)
        traced = torch.is_grad_enabled() and any(value.requires_grad for value in feeds.values())
        self._traced = frozenset(wanted if traced else ())

    def own(self, node: Node) -> Tensor:
        if node.name not in self.feeds:
            raise ArgumentError(f"The graph's input {node.name!r} was not given.")
        return self.feeds[node.name]

    def apply(self, node: Node, inputs: Sequence[Tensor]) -> Tensor:
        value = self.ops[node.name].forward(*_aligned(inputs, self.circuits))
        if node.name in self._traced and not value.requires_grad:  # a constant
            value = value.expand(max(self.batch, len(value)), *node.shape).clone().requires_grad_()
        return value

    def patched(self, node: Node, value: Tensor, kept: Tensor) -> Tensor:
        shared = value.shape[0] <= self.batch
        own = value.unsqueeze(0) if shared else value.unflatten(0, (self.circuits, -1))
        patched = torch.where(kept.unsqueeze(1), own, self.patch[node.name])
        return patched.expand(self.circuits, self.batch, *node.shape).flatten(0, 1)


def _for_all(value: Tensor, batch: int) -> Tensor:
    """A tensor for every sample; itself where it has them all, as no gradient reaches a view."""
    return value if len(value) != 1 or batch == 1 else value.expand(batch, *value.shape[1:])


def _aligned(values: Sequence[Tensor], circuits: int) -> list[Tensor]:
    """Repeat what is the same for all circuits where another operand differs between them."""
    most = max((value.shape[0] for value in values), default=0)
    return [
        value
        if value.shape[0] in (1, most) or circuits == 1
        else value.repeat(circuits, *([1] * (value.ndim - 1)))
        for value in values
    ]


def operations(graph: Graph, dtype: torch.dtype, device: torch.device) -> Mapping[str, Op]:
    """The graph's operations with parameters in ``dtype`` on ``device``; made once and kept."""
    cache: dict[tuple[torch.dtype, torch.device], dict[str, Op]]
    cache = graph.__dict__.setdefault("_operations", {})
    key = (dtype, device)
    if key not in cache:
        cache[key] = {node.name: node.op.to(dtype, device) for node in graph.nodes}
    return cache[key]
