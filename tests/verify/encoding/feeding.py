"""Networks, claims about them, and what their merged graphs are fed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from provable_circuits.claims.metrics import (
    LogitDifference,
    MaxAbs,
    Metric,
    Norm,
    WinnerMargin,
)
from provable_circuits.claims.patching import (
    Constant,
    FixedPatching,
    IntervalHull,
    Mean,
    Patching,
    Reachable,
    Zero,
)
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Blocks, Groups, Patches
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Conv2d,
    Linear,
    MaxPool2d,
    ReLU,
    Reshape,
    Sigmoid,
    Subtract,
)
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import RoleKind


def weights(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator)


def dense_graph() -> Graph:
    """A residual sum, constants that are added and joined, activations that do not keep zero."""
    w, builder = weights(0), GraphBuilder()
    x = builder.input("x", (4,))
    relu = builder.add("relu", ReLU(), builder.add("fc1", Linear(w(5, 4), w(5)), x))
    second = builder.add("fc2", Linear(w(5, 5)), relu)
    moved = builder.add("moved", Affine(w(5), w(5)), builder.add("add", Add(), second, relu))
    joined = builder.add("cat", Concat(0), builder.constant("c", w(2)), moved, x)
    third = builder.add("sigmoid", Sigmoid(), builder.add("fc3", Linear(w(4, 11), w(4)), joined))
    fourth = builder.add("clip", Clip(-0.5, 0.5), builder.add("fc4", Linear(w(3, 4)), third))
    return builder.build([builder.add("fc5", Linear(w(3, 3), w(3)), fourth)])


def conv_graph() -> Graph:
    """Normalisation, groups, max pooling, a projection, and two heads that are subtracted."""
    w, builder = weights(1), GraphBuilder()
    x = builder.input("x", (2, 6, 6))
    conv1 = builder.add("conv1", Conv2d(w(4, 2, 3, 3), w(4), padding=(1, 1)), x)
    relu1 = builder.add(
        "relu1", ReLU(), builder.add("bn1", BatchNorm(w(4, 1, 1), w(4, 1, 1)), conv1)
    )
    pool = builder.add("pool", MaxPool2d((2, 2), (2, 2)), relu1)
    grouped = builder.add("conv2", Conv2d(w(4, 2, 3, 3), w(4), padding=(1, 1), groups=2), pool)
    relu2 = builder.add("relu2", ReLU(), grouped)
    conv3 = builder.add("conv3", Conv2d(w(3, 4, 1, 1)), relu2)
    shortcut = builder.add("proj", Conv2d(w(3, 2, 1, 1), w(3), (2, 2)), x)
    relu3 = builder.add("relu3", ReLU(), builder.add("add", Add(), conv3, shortcut))
    flat = builder.add("flat", Reshape((27,)), relu3)
    head = builder.add("head", Linear(w(2, 27), w(2)), flat)
    small = builder.add(
        "flat2", Reshape((4,)), builder.add("avg", AvgPool2d((6, 6), (6, 6)), relu1)
    )
    other = builder.add("other", Linear(w(2, 4)), small)
    return builder.build([builder.add("difference", Subtract(), head, other)])


def token_graph() -> Graph:
    """Layers that read the last of two dimensions: their channels are not the first."""
    w, builder = weights(2), GraphBuilder()
    x = builder.input("x", (4, 3))
    relu = builder.add("relu", ReLU(), builder.add("fc1", Linear(w(4, 3), w(4)), x))
    second = builder.add("relu2", ReLU(), builder.add("fc2", Linear(w(4, 4), w(4)), relu))
    flat = builder.add("flat", Reshape((16,)), second)
    return builder.build([builder.add("fc3", Linear(w(3, 16), w(3)), flat)])


COMPONENTS: dict[str, Callable[[], Components]] = {
    "neurons": lambda: dense_graph().components("neuron"),
    "blocks of neurons": lambda: dense_graph().components(Blocks(2), outputs=False),
    "filters": lambda: conv_graph().components("filter", shortcuts=True),
    "patches": lambda: conv_graph().components(Patches(2, 3)),
    "tokens": lambda: token_graph().components("neuron"),
    "by hand": lambda: conv_graph().components(
        Groups({"conv1": {"a": [0, 2], "b": [3]}, "conv3": {"c": [1]}, "head": {"out": [1]}})
    ),
}
PATCHINGS: dict[str, Callable[[Graph], Patching]] = {
    "zero": lambda graph: Zero(),
    "constant": lambda graph: Constant(0.3),
    "mean": lambda graph: Mean(weights(2)(20, *graph.input_shape)),
    "reachable": lambda graph: Reachable(eps=0.3),
    "hull": lambda graph: IntervalHull(eps=0.3),
}
METRICS: dict[str, Metric] = {
    "logit": LogitDifference(0.5, [0, 1]),
    "largest": MaxAbs(0.5),
    "1-norm": Norm(0.7, 1),
    "winner": WinnerMargin(0.3, "all"),
}


def circuits(components: Components) -> list[Circuit]:
    """All, nothing, one removed in each layer, one kept in each layer, and random ones."""
    full, empty = components.full(), components.empty()
    first = [site.components[0].name for site in components.sites]
    found = [full, empty, *(full.remove(name) for name in first), empty.add(*first)]
    for seed in range(3):
        drawn = torch.rand(len(components), generator=torch.Generator().manual_seed(seed))
        names = [name for name, share in zip(components.names, drawn, strict=True) if share < 0.6]
        found.append(components.circuit(names))
    return found


def patch_values(encoder: Encoder, patching: Patching, source: Tensor) -> Mapping[str, Tensor]:
    """A patch that the patching allows: at ``source``, or anywhere in the boxes."""
    components = encoder.components
    if isinstance(patching, FixedPatching):
        return patching.values(components)
    if isinstance(patching, Reachable):
        activations = components.graph.activations(source)
        return {site.tensor: activations[site.tensor] for site in components.sites}
    values = {}
    for site in components.sites:
        lower, upper = (end.expand(2, *site.layer.shape) for end in encoder.hull[site.tensor])
        values[site.tensor] = lower + (upper - lower) * weights(5)(*lower.shape).sigmoid()
    return values


def feeds(
    query: Query, z: Tensor, source: Tensor, patch: Mapping[str, Tensor], components: Components
) -> dict[str, Tensor]:
    """What each input of the merged graph takes at this input and patch."""
    graph = components.graph
    found: dict[str, Tensor] = {}
    activations = graph.activations(z)
    for name in query.graph.inputs:
        kind, tensor = query.roles[name].kind, query.roles[name].tensor
        if kind is RoleKind.INPUT:
            found[name] = z
        elif kind is RoleKind.PATCH_INPUT:
            found[name] = source
        elif kind is RoleKind.AT_POINT:
            found[name] = activations[tensor]
        else:
            site = next(site for site in components.sites if site.tensor == tensor)
            kept = site.unit_mask(components.masks([query.circuit]))[0].expand(site.layer.shape)
            found[name] = patch[tensor].flatten(1)[:, (~kept).flatten()]
        box = query.ranges[name]
        assert ((box.lower <= found[name]) & (found[name] <= box.upper)).all()
    return found
