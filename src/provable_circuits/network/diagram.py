"""A circuit as a diagram: its layers in a row, and how they are connected.

Connections are read from the graph. A layer reads a tensor, and is linked to the layer whose output
reaches it. Where tensors of several layers meet, in a residual sum or a concatenation, there is a
place of its own, drawn as a plus: they are linked to it, and it to what reads the sum. So each
block of a residual network has one connection around it, and every connection of the component
graph (``component_graph``) is a path from one layer to another by way of such places.
Layers without components are passed through. What reads only a part of a sum or a concatenation, a
slice of it say, is linked to the layers which that part is computed from, and not to the join. A
link is a residual connection if there is a longer way beside it, through other layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from provable_circuits.drawing.diagram import JOINS, Column, Diagram, DiagramNode, Link
from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.component_graph import INPUT, Connections, connections
from provable_circuits.network.components import Component, Components

SYMBOLS: Mapping[type[ops.Op], str] = MappingProxyType(
    {ops.Add: "+", ops.Subtract: "−", ops.Concat: "‖"}  # noqa: RUF001
)
"""The operations at which connections meet."""


def diagram_of(
    circuit: Circuit,
    other: Circuit | None = None,
    *,
    called: tuple[str, str] = ("the first circuit", "the second circuit"),
) -> Diagram:
    """The diagram of a circuit, or of two of the same network compared.

    Args:
        circuit: the circuit.
        other: a second one, to be compared with it.
        called: what the two are called in the legend.
    """
    columns, links = _skeleton(circuit.components)
    return Diagram(
        columns=tuple(
            Column(
                column.title,
                tuple(_node(component, circuit, other) for component in column.components),
                column.join,
            )
            for column in columns
        ),
        links=links,
        title=_title(circuit, other),
        compared=None if other is None else called,
    )


def _title(circuit: Circuit, other: Circuit | None) -> str:
    of = len(circuit.components)
    if other is None:
        return f"{len(circuit)} of {of} components kept"
    return (
        f"{len(circuit)} and {len(other)} of {of} components kept, "
        f"{len(circuit & other)} by both circuits"
    )


def _node(component: Component, circuit: Circuit, other: Circuit | None) -> DiagramNode:
    label = component.name.removeprefix(f"{component.layer}/")
    first = component in circuit
    second = first if other is None else component in other
    status = {
        (True, True): "kept",
        (True, False): "first only",
        (False, True): "second only",
        (False, False): "removed",
    }[first, second]
    return DiagramNode(component.name, label, status)


@dataclass(slots=True, eq=False)
class _Place:
    """A column while the graph is walked: the input, a layer, a join or the output.

    Attributes:
        title: what it is called.
        site: the place of the layer among those with components; None if it is none.
        components: its components.
        join: the symbol of a join.
        sources: the columns that are linked to it.
        beside: it is a layer that projects a residual connection.
        reads: the places, among those with components, that a join is computed from.
    """

    title: str
    site: int | None = None
    components: tuple[Component, ...] = ()
    join: str = ""
    sources: list[_Place] = field(default_factory=list)
    beside: bool = False
    reads: frozenset[int] = frozenset()


def _skeleton(components: Components) -> tuple[list[_Place], tuple[Link, ...]]:
    """The columns from the input to the output, joins among them, and the links between them."""
    found = connections(components)
    columns = _columns(components, found)
    number = {id(column): i for i, column in enumerate(columns)}
    beside = {i for i, column in enumerate(columns) if column.beside}
    named = {
        (number[id(source)], number[id(column)]): _components_linked(found, source, column)
        for column in columns
        for source in column.sources
    }
    return columns, tuple(
        Link(*pair, dashed=_residual(pair, set(named), beside), pairs=named[pair])
        for pair in sorted(named)
    )


def _columns(components: Components, found: Connections) -> list[_Place]:
    """All places in graph order, each with those that are linked to it."""
    graph = components.graph
    begins = {site.layer.source: i for i, site in enumerate(components.sites)}
    cuts = {site.tensor: i for i, site in enumerate(components.sites)}
    first = _Place("input", INPUT)
    columns = [first]
    layers: dict[int, _Place] = {}
    joins: dict[str, _Place] = {}
    origins: dict[str, list[_Place]] = {}
    for node in graph.nodes:
        arrived = _unique(place for name in node.inputs for place in origins[name])
        if node.name in graph.inputs:
            arrived = [first]
        symbol = SYMBOLS.get(type(node.op))
        several = sum(bool(origins[name]) for name in node.inputs) > 1
        if symbol is not None and several and len(arrived) > 1:
            inner = {
                name: joins[name]
                for name in node.inputs
                if name in joins and len(graph.consumers[name]) == 1 and name not in graph.outputs
            }
            join = _join(symbol, [(inner.get(name), origins[name]) for name in node.inputs])
            join.reads = frozenset().union(*(found.tensors[name] for name in node.inputs))
            columns.append(join)
            arrived = [join]
        if node.name in begins:
            place = begins[node.name]
            site = components.sites[place]
            sources = _narrowed(arrived, frozenset(found.sources[place]))
            layers[place] = _Place(
                site.layer.name, place, site.components, "", sources, site.layer.is_shortcut
            )
            columns.append(layers[place])
        if node.name in cuts:
            arrived = [layers[cuts[node.name]], *arrived]
        origins[node.name] = _narrowed(arrived, found.tensors[node.name])
        if [place.join for place in origins[node.name]] == [symbol]:
            joins[node.name] = origins[node.name][0]
    last = _unique(place for name in graph.outputs for place in origins[name])
    columns.append(_Place("output", sources=_narrowed(last, frozenset(found.output))))
    return _read_by_some(columns)


def _join(symbol: str, inputs: Iterable[tuple[_Place | None, list[_Place]]]) -> _Place:
    """Where tensors meet: a sum that nothing else reads is a part of the sum that reads it.

    Args:
        symbol: what is drawn.
        inputs: of each tensor the join that it is, if nothing else reads it, and its places.
    """
    sources: list[_Place] = []
    for inner, places in inputs:
        same = inner is not None and inner.join == symbol == "+"
        sources += inner.sources if inner is not None and same else places
    return _Place(JOINS[symbol], join=symbol, sources=_unique(sources))


def _narrowed(places: Iterable[_Place], reads: frozenset[int]) -> list[_Place]:
    """The same without layers that are not read, and with parts of joins instead of the whole."""
    found: list[_Place] = []
    for place in places:
        if place.join and not place.reads <= reads:
            found += _narrowed(place.sources, reads)
        elif place.join or place.site in reads:
            found.append(place)
    return _unique(found)


def _read_by_some(columns: list[_Place]) -> list[_Place]:
    """The columns without joins that are linked to nothing."""
    kept: list[_Place] = []
    read: set[int] = set()
    for column in reversed(columns):
        if not column.join or id(column) in read:
            kept.append(column)
            read |= {id(source) for source in column.sources}
    return kept[::-1]


def _unique(places: Iterable[_Place]) -> list[_Place]:
    return list({id(place): place for place in places}.values())


def _components_linked(
    found: Connections, source: _Place, target: _Place
) -> tuple[tuple[int, int], ...] | None:
    """Which components of two layers a link is between; None for all, and at a join."""
    if source.site in (None, INPUT) or target.site is None:
        return None
    edges = found.pairs[source.site, target.site]
    return None if bool(edges.all()) else tuple((i, j) for i, j in edges.nonzero().tolist())


def _residual(pair: tuple[int, int], pairs: set[tuple[int, int]], beside: set[int]) -> bool:
    """Whether other layers lead from the one to the other too, or one of the two is a shortcut."""
    if beside & set(pair):
        return True
    source, target = pair
    reached = {source}
    for start, end in sorted(pairs - {pair}):
        if start in reached:
            reached.add(end)
    return target in reached
