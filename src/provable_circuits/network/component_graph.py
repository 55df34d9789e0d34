"""A circuit as a graph of its components, for the tools of the field.

There is an edge from one component to another if the second's layer reads what the first's layer
makes without another layer with components in between; additions and concatenations are passed
through, so that around a residual block both ways are there. The input is one node and the output
another. An edge is in the circuit if both its ends are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provable_circuits.errors import MissingExtraError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components, Site

if TYPE_CHECKING:
    import networkx

INPUT = -1
"""The place of the network's input among the layers with components; theirs are 0, 1, ..."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Which layers with components read from which, by their places in graph order.

    Attributes:
        sources: for each layer the places of those it reads; ``INPUT`` for the network's input.
        output: the places that the network's output reads.
    """

    sources: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]


def connections(components: Components) -> Connections:
    """How the layers of a network are connected."""
    graph = components.graph
    places = {site.tensor: place for place, site in enumerate(components.sites)}
    begins = {site.layer.source: place for place, site in enumerate(components.sites)}
    reaching: dict[str, frozenset[int]] = {name: frozenset({INPUT}) for name in graph.inputs}
    sources: dict[int, tuple[int, ...]] = {}
    for node in graph.nodes:
        arrived = frozenset().union(*(reaching[name] for name in node.inputs))
        if node.name in graph.inputs:
            arrived = reaching[node.name]
        if node.name in begins:
            sources[begins[node.name]] = tuple(sorted(arrived))
        place = places.get(node.name)
        if place is not None:
            passes = not _covers(components.sites[place])
            arrived = frozenset({place}) | (arrived if passes else frozenset())
        reaching[node.name] = arrived
    output = frozenset().union(*(reaching[name] for name in graph.outputs))
    return Connections(
        tuple(sources[place] for place in range(len(components.sites))), tuple(sorted(output))
    )


def _covers(site: Site) -> bool:
    """Whether every unit of a layer belongs to a component, so that no path goes past them."""
    return bool((site.labels >= 0).all())


def edges(circuit: Circuit) -> Iterator[tuple[str | None, str | None]]:
    """All edges by the names of components; None is the input in front, the output behind."""
    sites = circuit.components.sites
    found = connections(circuit.components)

    def names(place: int) -> list[str | None]:
        return [None] if place == INPUT else [c.name for c in sites[place].components]

    for site, sources in zip(sites, found.sources, strict=True):
        for place in sources:
            for name in names(place):
                for component in site.components:
                    yield name, component.name
    for place in found.output:
        for name in names(place):
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
