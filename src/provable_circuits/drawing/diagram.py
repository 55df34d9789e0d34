"""What a drawing of a circuit shows, as plain data: layers, their components, and connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from provable_circuits.errors import ArgumentError

STATUSES = MappingProxyType(
    {
        "kept": "kept",
        "removed": "removed",
        "first only": "only in {first}",
        "second only": "only in {second}",
    }
)
"""What can be said of a component, and how the legend puts it."""

KEPT = MappingProxyType(
    {
        "necessary": "kept: necessary",
        "refuted-when-tried": "kept: not removable from a larger circuit",
        "undecided": "kept: undecided, or not asked about",
        "removable": "kept: could be removed",
    }
)
"""Why a component of one circuit is kept, where that is known, and how the legend puts it."""

WORDS = MappingProxyType({**KEPT, **STATUSES})
"""All of these, in the order of the legend."""

JOINS = MappingProxyType({"+": "sum", "−": "difference", "‖": "concatenation"})  # noqa: RUF001
"""Where connections meet: what is drawn, and what that means."""


@dataclass(frozen=True, slots=True)
class DiagramNode:
    """One component.

    Attributes:
        name: its full name.
        label: the short name that is written on it, a number within its layer as a rule.
        status: a word of ``STATUSES`` or ``KEPT``; where two circuits are compared, ``"kept"``
            means by both and ``"removed"`` by both.
    """

    name: str
    label: str
    status: str

    def __post_init__(self) -> None:
        if self.status not in WORDS:
            raise ArgumentError(
                f"The 'status' of a DiagramNode must be one of {', '.join(map(repr, WORDS))}. "
                f"Got {self.status!r} instead."
            )


@dataclass(frozen=True, slots=True)
class Column:
    """One layer with its components; without any it is a mere place, such as the input.

    Attributes:
        title: the name of the layer.
        nodes: its components.
        join: if it is no layer but a place where connections meet, a symbol of ``JOINS``.
    """

    title: str
    nodes: tuple[DiagramNode, ...] = ()
    join: str = ""

    def __post_init__(self) -> None:
        if self.join and (self.join not in JOINS or self.nodes):
            raise ArgumentError(
                f"The 'join' of a Column must be one of {', '.join(map(repr, JOINS))}, and such a "
                f"column has no nodes. Got {self.join!r} and {len(self.nodes)} nodes instead."
            )


@dataclass(frozen=True, slots=True)
class Link:
    """A connection from one column to another, by their places.

    Attributes:
        source, target: the columns.
        dashed: it is residual.
        pairs: which nodes of the one are connected to which of the other, by their places; None if
            all are to all.
    """

    source: int
    target: int
    dashed: bool = False
    pairs: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Diagram:
    """A circuit, or two compared, ready to be drawn.

    Attributes:
        columns: the layers, from the left to the right.
        links: the connections between them, each from the left to the right.
        title: what is written above.
        compared: what the two circuits are called, if there are two.
    """

    columns: tuple[Column, ...]
    links: tuple[Link, ...] = ()
    title: str = ""
    compared: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for link in self.links:
            if not 0 <= link.source < link.target < len(self.columns):
                raise ArgumentError(
                    f"A Link must lead from a column to a later one of {len(self.columns)}. "
                    f"Got {link.source} and {link.target} instead."
                )
            sizes = [len(self.columns[place].nodes) for place in (link.source, link.target)]
            for pair in link.pairs or ():
                if len(pair) != 2 or not all(0 <= i < n for i, n in zip(pair, sizes, strict=True)):
                    raise ArgumentError(
                        f"The 'pairs' of a Link must be places among {sizes[0]} and {sizes[1]} "
                        f"nodes. Got {pair} instead."
                    )

    @property
    def joins(self) -> tuple[str, ...]:
        """The symbols where connections meet that occur."""
        found = {column.join for column in self.columns}
        return tuple(symbol for symbol in JOINS if symbol in found)

    @property
    def nodes(self) -> tuple[DiagramNode, ...]:
        """All components, column by column."""
        return tuple(node for column in self.columns for node in column.nodes)

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The statuses that occur, each with words for it and how many have it."""
        counts = Counter(node.status for node in self.nodes)
        return tuple(
            (status, f"{self.words(status)} ({counts[status]})")
            for status in WORDS
            if counts[status]
        )

    def explained(self, reasons: Mapping[str, str]) -> Diagram:
        """The same diagram with the reason why each component is kept, a word of ``KEPT``.

        Args:
            reasons: the reasons by the names of components; those without one stay as they are.
        """
        columns = tuple(
            replace(
                column,
                nodes=tuple(
                    replace(node, status=reasons.get(node.name, "kept"))
                    if node.status == "kept"
                    else node
                    for node in column.nodes
                ),
            )
            for column in self.columns
        )
        return replace(self, columns=columns)

    def words(self, status: str) -> str:
        """How a status is put in this diagram."""
        if self.compared is None:
            return WORDS[status]
        if status in ("kept", "removed"):
            return f"{status} by both"
        first, second = self.compared
        return WORDS[status].format(first=first, second=second)

    @property
    def description(self) -> str:
        """The whole drawing in words, layer by layer."""
        sentences = []
        for column in (column for column in self.columns if column.nodes):
            parts = []
            for status in WORDS:
                labels = [node.label for node in column.nodes if node.status == status]
                if labels:
                    parts.append(f"{self.words(status)} {', '.join(labels)}")
            sentences.append(f"{column.title}: {'; '.join(parts)}.")
        return " ".join(sentences)
