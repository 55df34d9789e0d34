"""Plain execution: what a network and its circuits compute. This is the reference semantics.

A circuit's run computes the network node by node. At every site (the tensor at which the
components of a layer are cut) the units of removed components take their patch value instead of
the value just computed, and everything downstream sees that:

    h_site = where(kept, h_site, patch_site)

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
from provable_circuits.network.ops import Input, Op

if TYPE_CHECKING:
    from provable_circuits.network.circuit import Circuit
    from provable_circuits.network.components import Components
    from provable_circuits.network.graph import Graph

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
    return _walk(graph, feeds, wanted, {}, circuits=1)


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
    keep = components.masks([circuit]).to(batch.device)
    patches = {
        site.tensor: (site.unit_mask(keep), values[site.tensor]) for site in components.sites
    }
    return _walk(components.graph, {components.graph.inputs[0]: batch}, wanted, patches, circuits=1)


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
    graph = components.graph
    count = keep.shape[0]
    patches: dict[str, tuple[Tensor, Tensor]] = {}
    for site in components.sites:
        mask = site.unit_mask(keep)
        if not bool(mask.all()):
            patches[site.tensor] = (mask, patch[site.tensor])
    feeds = {graph.inputs[0]: batch}
    output = _walk(graph, feeds, graph.outputs[:1], patches, count)[graph.outputs[0]]
    if output.shape[0] == batch.shape[0]:
        return output.expand(count, *output.shape)
    return output.reshape(count, -1, *output.shape[1:])


def _walk(
    graph: Graph,
    feeds: Mapping[str, Tensor],
    wanted: Sequence[str],
    patches: Mapping[str, tuple[Tensor, Tensor]],
    circuits: int,
) -> dict[str, Tensor]:
    """Compute node by node, patching at sites, and forget tensors after their last reader.

    If a fed input requires its gradient, every wanted tensor does, constants among them.
    """
    example = next(iter(feeds.values()), torch.empty(1, dtype=torch.float64))
    batch = max((value.shape[0] for value in feeds.values()), default=1)
    traced = torch.is_grad_enabled() and any(value.requires_grad for value in feeds.values())
    ops = operations(graph, example.dtype, example.device)
    last_reader = {source: node.name for node in graph.nodes for source in node.inputs}
    held: dict[str, Tensor] = {}
    keep = set(wanted)
    for node in graph.nodes:
        if isinstance(node.op, Input):
            if node.name not in feeds:
                raise ArgumentError(f"The graph's input {node.name!r} was not given.")
            value = feeds[node.name]
        else:
            value = ops[node.name].forward(*_aligned([held[n] for n in node.inputs], circuits))
        if node.name in patches:
            mask, patch = patches[node.name]
            shared = value.shape[0] <= batch
            own = value.unsqueeze(0) if shared else value.unflatten(0, (circuits, -1))
            patched = torch.where(mask.unsqueeze(1), own, patch)
            value = patched.expand(circuits, batch, *node.shape).flatten(0, 1)
        if traced and node.name in keep and not value.requires_grad:  # a constant
            value = value.expand(max(batch, len(value)), *node.shape).clone().requires_grad_()
        held[node.name] = value
        for source in node.inputs:
            if last_reader[source] == node.name and source not in keep:
                held.pop(source, None)
    return {name: _for_all(held[name], batch) for name in wanted}


def _for_all(value: Tensor, batch: int) -> Tensor:
    """A tensor for every sample; itself where it has them all, as no gradient reaches a view."""
    return value if len(value) != 1 or batch == 1 else value.expand(batch, *value.shape[1:])


def _aligned(values: list[Tensor], circuits: int) -> list[Tensor]:
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
