"""Diagrams to draw."""

from __future__ import annotations

from collections.abc import Sequence

from provable_circuits.drawing.diagram import STATUSES, Column, Diagram, Link, Node


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
                Node(f"conv{i}/{prefix}{j}", f"{prefix}{j}", statuses[j % len(statuses)])
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
