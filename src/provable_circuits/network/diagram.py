"""A circuit as a diagram: its layers in a row, and how they are connected.

Connections are read from the graph. A layer reads a tensor; that is linked to the layers whose
outputs reach it without passing through another layer that has components. Where two ways meet, by
an addition, say, the later of the two layers is the way's own, and the other joins it by a residual
connection. A tensor that is read more than once is a stream, and what is read from it further on
comes from the layer that wrote to it last: so each block of a residual network has one connection
around it, rather than one from every block before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.diagram import Column, Diagram, Link, Node
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component, Components


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
    components = circuit.components
    columns = [
        Column(
            site.layer.name,
            tuple(_node(component, circuit, other) for component in site.components),
        )
        for site in components.sites
    ]
    return Diagram(
        columns=(Column("input"), *columns, Column("output")),
        links=_links(components),
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


@dataclass(frozen=True, slots=True)
class _Trail:
    """Where a tensor comes from: the latest column on its way, and others that joined after it.

    ``shared`` says that since then it passed through a tensor that others read as well.
    """

    latest: int
    joined: frozenset[int] = frozenset()
    shared: bool = False


def _links(components: Components) -> tuple[Link, ...]:
    """The connections between the input (column 0), the layers and the output (the last)."""
    graph = components.graph
    columns = {site.layer.source: i for i, site in enumerate(components.sites, start=1)}
    last = len(columns) + 1
    beside = {i for i, site in enumerate(components.sites, start=1) if site.layer.is_shortcut}
    trails: dict[str, _Trail] = {name: _Trail(0) for name in graph.inputs}
    pairs: set[tuple[int, int]] = set()
    for node in graph.nodes:
        sources = [trails[name] for name in node.inputs if name in trails]
        if not sources:
            continue
        trail = _joined(sources, beside, len(graph.consumers[node.name]) > 1)
        column = columns.get(node.name)
        if column is not None:
            pairs |= {(source, column) for source in (trail.latest, *trail.joined)}
            trail = _Trail(column)
        trails[node.name] = trail
    for name in graph.outputs:
        trail = trails[name]
        pairs |= {(source, last) for source in (trail.latest, *trail.joined)}
    return tuple(
        Link(source, target, _residual(source, target, beside)) for source, target in sorted(pairs)
    )


def _joined(sources: Sequence[_Trail], beside: set[int], shared: bool) -> _Trail:
    """Where a tensor that is made from several comes from; a layer ``beside`` never leads."""
    latest = max((s.latest for s in sources), key=lambda column: (column not in beside, column))
    joined = {source.latest for source in sources} - {latest}
    for source in sources:
        if source.latest == latest or not source.shared:
            joined |= source.joined
    alone = len(sources) == 1
    return _Trail(latest, frozenset(joined), shared or (alone and sources[0].shared))


def _residual(source: int, target: int, beside: set[int]) -> bool:
    """Whether a connection goes around a layer, or by a layer that does so itself."""
    passed = set(range(source + 1, target)) - beside
    return bool(passed) or source in beside or target in beside
