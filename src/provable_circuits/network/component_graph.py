"""A circuit as a graph of its components, for the tools of the field.

There is an edge from one component to another if a unit of the second's layer is computed from a
unit of the first, without another component in between. Which units a unit is computed from is a
matter of the operations, not of their weights: a filter of a grouped convolution reads the channels
of its group, a unit of a linear layer reads all there are. Additions, concatenations and layers
without components are passed through, so that around a residual block both ways are there. The
input is one node and the output another. An edge is in the circuit if both its ends are.

    for each layer with components, and for the input:
        mark the units of each of its components
        for each operation behind it:
            mark the units that are computed from a marked one
            where components are cut: there is an edge to those with a mark, and it is taken away
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from provable_circuits.errors import MissingExtraError
from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components, Site
from provable_circuits.network.graph import Node

if TYPE_CHECKING:
    import networkx

INPUT = -1
"""The place of the network's input among the layers with components; theirs are 0, 1, ..."""

CHUNK = 2**24
"""Marks in the largest tensor while components are followed."""


@dataclass(frozen=True, slots=True, eq=False)
class Connections:
    """Which layers with components read from which, by their places in graph order.

    Attributes:
        sources: for each layer the places of those it reads; ``INPUT`` for the network's input.
        output: the places that the network's output reads.
        pairs: by the places of a layer and of one that reads it, which components of the one (the
            rows; the input is one row) those of the other (the columns) read.
        reaching: by the place of a layer that the output reads, which of its components it reads.
        tensors: for each tensor the places that it is computed from, with no component in between.
    """

    sources: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    pairs: Mapping[tuple[int, int], Tensor]
    reaching: Mapping[int, Tensor]
    tensors: Mapping[str, frozenset[int]]


def connections(components: Components) -> Connections:
    """How the components of a network are connected."""
    sites = components.sites
    pairs: dict[tuple[int, int], Tensor] = {}
    reaching: dict[int, Tensor] = {}
    tensors: dict[str, set[int]] = {node.name: set() for node in components.graph.nodes}
    for place in range(INPUT, len(sites)):
        found, reached = _read_from(components, place)
        for name in reached:
            tensors[name].add(place)
        for target, edges in found.items():
            if bool(edges.any()) and target == len(sites):
                reaching[place] = edges[:, 0]
            elif bool(edges.any()):
                pairs[place, target] = edges
    return Connections(
        tuple(
            tuple(place for place in range(INPUT, target) if (place, target) in pairs)
            for target in range(len(sites))
        ),
        tuple(reaching),
        pairs,
        reaching,
        {name: frozenset(places) for name, places in tensors.items()},
    )


def _read_from(components: Components, place: int) -> tuple[dict[int, Tensor], set[str]]:
    """By target, which of its components read those of one layer; the output comes last.

    And the tensors that are computed from some of them with no component in between.
    """
    graph, sites = components.graph, components.sites
    count = 1 if place == INPUT else len(sites[place].components)
    size = max(1, CHUNK // max(math.prod(node.shape) for node in graph.nodes))
    parts: dict[int, list[Tensor]] = {}
    reached: set[str] = set()
    for start in range(0, count, size):
        own = torch.arange(start, min(start + size, count))
        found, names = _followed(components, place, own)
        reached |= names
        for target, edges in found.items():
            parts.setdefault(target, []).append(edges)
    return {target: torch.cat(edges) for target, edges in parts.items()}, reached


def _followed(
    components: Components, place: int, own: Tensor
) -> tuple[dict[int, Tensor], set[str]]:
    """The components, [own, components], that read some of one layer, by target; and tensors."""
    graph, sites = components.graph, components.sites
    cuts = {site.tensor: target for target, site in enumerate(sites)}
    marks: dict[str, Tensor] = {}
    found = {
        target: torch.zeros(len(own), len(site.components), dtype=torch.bool)
        for target, site in enumerate(sites)
    }
    for node in graph.nodes:
        shapes = [graph[name].shape for name in node.inputs]
        mark = _marked(node, [marks.get(name) for name in node.inputs], shapes)
        if place == INPUT and node.name in graph.inputs:
            mark = torch.ones(1, *node.shape)
        target = cuts.get(node.name)
        if target is not None and mark is not None:
            found[target] |= _cut(sites[target], mark)
            mark = mark * (sites[target].labels < 0)
        if target is not None and target == place:
            begun = sites[place].labels.expand(node.shape) == own.reshape(
                -1, *[1] * len(node.shape)
            )
            mark = begun.float() if mark is None else torch.maximum(mark, begun.float())
        if mark is not None and bool(mark.any()):
            marks[node.name] = mark
    output = torch.zeros(len(own), 1, dtype=torch.bool)
    for name in graph.outputs:
        if name in marks:
            output |= marks[name].flatten(1).any(1, keepdim=True)
    return {**found, len(sites): output}, set(marks)


def _marked(
    node: Node, inputs: Sequence[Tensor | None], shapes: Sequence[ops.Shape]
) -> Tensor | None:
    """The units, [n, *shape], that are computed from marked ones; None if no input has any."""
    given = [mark for mark in inputs if mark is not None]
    if not given:
        return None
    filled = [
        mark if mark is not None else given[0].new_zeros(len(given[0]), *shape)
        for mark, shape in zip(inputs, shapes, strict=True)
    ]
    op = node.op.to(given[0].dtype, given[0].device)
    if isinstance(op, ops.Linear):
        made = filled[0].amax(-1, keepdim=True).expand(len(filled[0]), *node.shape)
    elif isinstance(op, ops.Conv2d):
        made = _convolved(op, filled[0])
    elif isinstance(op, ops.Activation | ops.Square | ops.Affine | ops.Divide):
        made = filled[0].expand(len(filled[0]), *node.shape)
    elif isinstance(op, ops.MaxPool2d):
        made = op.forward(*filled)
    elif isinstance(op, ops.LinearOp):
        made = op.spread(*filled)
    else:  # nothing is known of it: everything may be computed from everything
        some = torch.stack([mark.flatten(1).any(1) for mark in filled]).any(0)
        made = some.reshape(-1, *[1] * len(node.shape)).expand(-1, *node.shape)
    return (made > 0).float()


def _convolved(op: ops.Conv2d, mark: Tensor) -> Tensor:
    """Units that are computed from marked ones; all channels of a group read the same."""
    own = mark.unflatten(1, (op.groups, -1)).amax(2)
    window = mark.new_ones(op.groups, 1, *op.weight.shape[2:])
    made = replace(op, weight=window, bias=None).spread(own)
    return made.repeat_interleave(len(op.weight) // op.groups, dim=1)


def _cut(site: Site, mark: Tensor) -> Tensor:
    """Which components of a layer have a marked unit: [n, components]."""
    labels = site.labels.expand(site.layer.shape).flatten()
    count = len(site.components)
    hits = torch.zeros(len(mark), count + 1)
    hits.index_add_(1, labels % (count + 1), mark.flatten(1))
    return hits[:, :count] > 0


def edges(circuit: Circuit) -> Iterator[tuple[str | None, str | None]]:
    """All edges by the names of components; None is the input in front, the output behind."""
    sites = circuit.components.sites
    found = connections(circuit.components)

    def names(place: int) -> list[str | None]:
        return [None] if place == INPUT else [c.name for c in sites[place].components]

    for target, (site, sources) in enumerate(zip(sites, found.sources, strict=True)):
        for place in sources:
            own = names(place)
            for i, j in found.pairs[place, target].nonzero().tolist():
                yield own[i], site.components[j].name
    for place in found.output:
        for name, reaches in zip(names(place), found.reaching[place].tolist(), strict=True):
            if reaches:
                yield name, None


def circuit_to_networkx(circuit: Circuit) -> networkx.DiGraph:
    """See ``Circuit.to_networkx``."""
    try:
        import networkx
    except ImportError:
        raise MissingExtraError("networkx", "networkx", "Circuit.to_networkx") from None
    graph = networkx.DiGraph(
        network=circuit.components.graph.digest, size=len(circuit), of=len(circuit.components)
    )
    graph.add_node("input", layer=None, index=None, kept=True)
    for component in circuit.components:
        kept = component in circuit
        graph.add_node(component.name, layer=component.layer, index=component.index, kept=kept)
    graph.add_node("output", layer=None, index=None, kept=True)
    for source, target in edges(circuit):
        ends = source or "input", target or "output"
        graph.add_edge(*ends, kept=all(graph.nodes[end]["kept"] for end in ends))
    return graph


def circuit_to_eap_json(circuit: Circuit, heads: bool = False) -> str:
    """See ``Circuit.to_eap_json``."""
    components = circuit.components
    names = _head_names(components) if heads else _plain_names(components)
    kept: dict[str | None, bool] = {None: True}  # the input and the output always are
    kept.update((name, name in circuit) for name in components.names)
    nodes: dict[str, dict[str, Any]] = {"input": {"in_graph": True}}
    for component in components:
        nodes[names[component.name]] = {
            "in_graph": kept[component.name],
            "component": component.name,
            "layer": component.layer,
            "index": component.index,
        }
    nodes["logits"] = {"in_graph": True}
    listed: dict[str, dict[str, Any]] = {}
    for source, target in edges(circuit):
        within = kept[source] and kept[target]
        begin = "input" if source is None else names[source]
        end = "logits" if target is None else names[target]
        for letter in ("<q>", "<k>", "<v>") if heads and target is not None else ("",):
            edge = {"score": float(within), "in_graph": within}
            listed[f"{begin}->{end}{letter}"] = edge
    document = {
        "cfg": {
            "n_layers": len(components.sites),
            "n_heads": max(len(site.components) for site in components.sites),
            "parallel_attn_mlp": False,
            "d_model": 1,
            "network": components.graph.digest,
            "layers": [site.layer.name for site in components.sites],
        },
        "nodes": nodes,
        "edges": listed,
    }
    return json.dumps(document)


def _plain_names(components: Components) -> dict[str, str]:
    """The components' own names, but for the arrow that the names of edges are made with."""
    names: dict[str, str] = {}
    taken = set(components.names)
    for name in components.names:
        plain = name
        while "->" in plain or (plain != name and plain in taken):
            plain = plain.replace("->", "→") if "->" in plain else f"{plain}'"
        taken.add(plain)
        names[name] = plain
    return names


def _head_names(components: Components) -> dict[str, str]:
    """Component i of layer l as attention head i of layer l."""
    return {
        component.name: f"a{place}.h{component.index}"
        for place, site in enumerate(components.sites)
        for component in site.components
    }
