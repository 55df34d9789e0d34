"""Diagrams to draw."""

from __future__ import annotations

from collections.abc import Sequence

from provable_circuits.drawing.diagram import STATUSES, Column, Diagram, DiagramNode, Link


def diagram(
    sizes: Sequence[int],
    statuses: Sequence[str] = ("kept", "removed"),
    links: Sequence[Link] | None = None,
    prefix: str = "",
) -> Diagram:
    """Layers of given sizes, their components having the statuses in turn."""
    columns = [
        Column(
            f"conv{i}",
            tuple(
                DiagramNode(f"conv{i}/{prefix}{j}", f"{prefix}{j}", statuses[j % len(statuses)])
                for j in range(size)
            ),
        )
        for i, size in enumerate(sizes)
    ]
    if links is None:
        links = [Link(i, i + 1) for i in range(len(sizes) + 1)]
    compared = ("mine", "yours") if "first only" in statuses else None
    places = (Column("input"), *columns, Column("output"))
    return Diagram(places, tuple(links), "A title", compared)


def compared(sizes: Sequence[int]) -> Diagram:
    """Two circuits compared, with a residual connection around each second layer."""
    links = [Link(i, i + 1) for i in range(len(sizes) + 1)]
    links += [Link(i, i + 2, dashed=True) for i in range(1, len(sizes), 2)]
    return diagram(sizes, tuple(STATUSES), links)


def residual(blocks: int, size: int) -> Diagram:
    """Blocks of two layers, each with a connection around it that joins in a sum behind it."""
    columns, links = [Column("input"), *diagram([size]).columns[1:-1]], [Link(0, 1)]
    stream = 1
    for i in range(blocks):
        columns += [*diagram([size, size], prefix=f"{i}.").columns[1:-1], Column("sum", (), "+")]
        links += [Link(stream, stream + 1), Link(stream + 1, stream + 2)]
        links += [Link(stream + 2, stream + 3), Link(stream, stream + 3, dashed=True)]
        stream += 3
    links.append(Link(stream, stream + 1))
    return Diagram((*columns, Column("output")), tuple(links), "A title")


def gathered(sizes: Sequence[int]) -> Diagram:
    """Each layer reads the concatenation of all before it."""
    columns, links = [Column("input")], []
    read = [0]
    for column in diagram(sizes).columns[1:]:
        if len(read) > 1:
            columns.append(Column("concatenation", (), "‖"))
            links += [Link(place, len(columns) - 1) for place in read]
        links.append(Link(len(columns) - 1, len(columns)))
        columns.append(column)
        read.append(len(columns) - 1)
    return Diagram(tuple(columns), tuple(links), "A title")
