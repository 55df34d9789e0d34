"""A circuit as a diagram: its layers in a row, and how they are connected.

Connections are read from the graph. A layer reads a tensor; that is linked to the layers whose
outputs reach it without passing through another layer that has components. A link is a residual
connection if there is a longer way beside it, through other layers. A tensor that is read more than
once is a stream, and what is read from it further on comes from the layer that wrote to it last: so
each block of a residual network has one connection around it, rather than one from every block
before.
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

    @property
    def columns(self) -> frozenset[int]:
        """All of them."""
        return self.joined | {self.latest}


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
        column = columns.get(node.name)
        if sources:
            trail = _joined(sources, beside, len(graph.consumers[node.name]) > 1)
            if column is not None:
                pairs |= {(source, column) for source in trail.columns}
            trails[node.name] = trail
        if column is not None:
            trails[node.name] = _Trail(column)
    for name in graph.outputs:
        if name in trails:  # else it is a constant
            pairs |= {(source, last) for source in trails[name].columns}
    return tuple(Link(*pair, dashed=_residual(pair, pairs, beside)) for pair in sorted(pairs))


def _joined(sources: Sequence[_Trail], beside: set[int], shared: bool) -> _Trail:
    """Where a tensor that is made from several comes from; a layer ``beside`` never leads."""
    latest = max((s.latest for s in sources), key=lambda column: (column not in beside, column))
    joined = {source.latest for source in sources} - {latest}
    for source in sources:
        if source.latest == latest or not source.shared:
            joined |= source.joined
    alone = len(sources) == 1
    return _Trail(latest, frozenset(joined), shared or (alone and sources[0].shared))


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
