"""A circuit as a diagram: its layers in a row, and how they are connected.

Connections are read from the graph. A layer reads a tensor, and is linked to the layer whose output
reaches it. Where tensors of several layers meet, in a residual sum or a concatenation, there is a
place of its own, drawn as a plus: they are linked to it, and it to what reads the sum. So each
block of a residual network has one connection around it, and every connection of the component
graph (``component_graph``) is a path from one layer to another by way of such places.
Layers without components are passed through. A link is a residual connection if there is a longer
way beside it, through other layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from provable_circuits.drawing.diagram import JOINS, Column, Diagram, Link, Node
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


def _node(component: Component, circuit: Circuit, other: Circuit | None) -> Node:
    label = component.name.removeprefix(f"{component.layer}/")
    first = component in circuit
    second = first if other is None else component in other
    status = {
        (True, True): "kept",
        (True, False): "first only",
        (False, True): "second only",
        (False, False): "removed",
    }[first, second]
    return Node(component.name, label, status)


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
    """

    title: str
    site: int | None = None
    components: tuple[Component, ...] = ()
    join: str = ""
    sources: list[_Place] = field(default_factory=list)
    beside: bool = False


def _skeleton(components: Components) -> tuple[list[_Place], tuple[Link, ...]]:
    """The columns from the input to the output, joins among them, and the links between them."""
    columns = _columns(components)
    number = {id(column): i for i, column in enumerate(columns)}
    beside = {i for i, column in enumerate(columns) if column.beside}
    found = connections(components)
    named: dict[tuple[int, int], tuple[tuple[int, int], ...] | None] = {}
    for column in columns:
        for source in column.sources:
            there, own = _direct(found, source, column, columns[-1])
            if there:
                named[number[id(source)], number[id(column)]] = own
    pairs = set(named)
    return columns, tuple(
        Link(*pair, dashed=_residual(pair, pairs, beside), pairs=named[pair])
        for pair in sorted(pairs)
    )


def _columns(components: Components) -> list[_Place]:
    graph = components.graph
    begins = {site.layer.source: i for i, site in enumerate(components.sites)}
    cuts = {site.tensor: i for i, site in enumerate(components.sites)}
    first = _Place("input")
    columns = [first]
    layers: dict[int, _Place] = {}
    joins: dict[str, _Place] = {}
    origins: dict[str, list[_Place]] = {name: [first] for name in graph.inputs}
    for node in graph.nodes:
        inputs = [origins[name] for name in node.inputs if origins.get(name)]
        arrived = _unique(place for origin in inputs for place in origin)
        symbol = SYMBOLS.get(type(node.op))
        if symbol is not None and len(arrived) > 1 and len(inputs) > 1:
            join = _Place(JOINS[symbol], join=symbol)
            for name in node.inputs:
                inner = joins.get(name)
                alone = len(graph.consumers[name]) == 1 and name not in graph.outputs
                if inner is not None and alone and inner.join == symbol == "+":
                    columns.remove(inner)
                    join.sources += inner.sources
                else:
                    join.sources += origins.get(name, [])
            join.sources = _unique(join.sources)
            joins[node.name] = join
            columns.append(join)
            arrived = [join]
        if node.name in begins:
            place = begins[node.name]
            site = components.sites[place]
            layer = _Place(
                site.layer.name, place, site.components, "", arrived, site.layer.is_shortcut
            )
            layers[place] = layer
            columns.append(layer)
        if node.name in cuts:
            own = layers[cuts[node.name]]
            covered = bool((components.sites[cuts[node.name]].labels >= 0).all())
            arrived = [own] if covered else _unique([own, *arrived])
        if node.name not in graph.inputs:
            origins[node.name] = arrived
    last = _unique(place for name in graph.outputs for place in origins[name])
    return [*columns, _Place("output", sources=last)]


def _unique(places: Iterable[_Place]) -> list[_Place]:
    return list({id(place): place for place in places}.values())


def _direct(
    found: Connections, source: _Place, target: _Place, output: _Place
) -> tuple[bool, tuple[tuple[int, int], ...] | None]:
    """Whether a link is there, and which components it is between; None for all."""
    if source.join or target.join:
        return True, None
    place = INPUT if source.site is None else source.site
    if target is output:
        return place in found.reaching, None
    if target.site is None or (place, target.site) not in found.pairs:
        return False, None
    edges = found.pairs[place, target.site]
    if place == INPUT or bool(edges.all()):
        return True, None
    return True, tuple((i, j) for i, j in edges.nonzero().tolist())


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
