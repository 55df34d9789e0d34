"""What a circuit computes: one interpreter, for any arithmetic.

A circuit is a mask on pairs of a source and a reader. A source is a unit of a tensor at which
components are cut; a reader is a node that reads the tensor, or whoever takes the network's
outputs. For each pair the mask says whether the reader sees the unit's own value or its patch:

    seen(s, r) = where(mask(s, r), own(s), patch(s))          own(r) = op_r(seen(s, r) for each s)

A circuit of nodes is the case in which all readers of a source see the same; where they differ, an
edge was removed. What the values are is the arithmetic's business: floating-point tensors,
intervals, rational forms, or nodes of a graph that is being written. An arithmetic that has the
network's own tensors at hand is asked for them wherever no removed pair lies upstream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import Tensor

from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Input

if TYPE_CHECKING:
    from provable_circuits.network.components import Components, Site

Value = TypeVar("Value")

Reader = str | None
"""A node by its name; None is whoever takes the network's outputs."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceMask:
    """Which units of one tensor each of its readers sees; the others are patched.

    Attributes:
        kept: for readers that are not listed, [circuits, *shape that broadcasts to the tensor's];
            None if they see every unit's own value.
        readers: the same for readers that see something else.
    """

    kept: Tensor | None
    readers: Mapping[Reader, Tensor | None] = field(default_factory=dict)

    def seen_by(self, reader: Reader) -> Tensor | None:
        """The units that a reader sees; None if all."""
        return self.readers.get(reader, self.kept)


class CircuitMask:
    """A circuit, or several of one network, as a mask on pairs of a source and a reader.

    Args:
        sources: by tensor, those of which some reader does not see every unit.
    """

    __slots__ = ("sources",)

    def __init__(self, sources: Mapping[str, SourceMask]) -> None:
        self.sources = dict(sources)

    @classmethod
    def of_nodes(cls, components: Components, keep: Tensor) -> CircuitMask:
        """Circuits of nodes, from [circuits, components]: all readers of a source agree."""
        return cls.of_pairs(components, keep, {})

    @classmethod
    def of_pairs(
        cls, components: Components, keep: Tensor, readers: Mapping[Reader, Tensor]
    ) -> CircuitMask:
        """Circuits of pairs.

        Args:
            components: the components that sources are made of.
            keep: what readers see that are not listed, [circuits, components].
            readers: for other readers, what these see.
        """
        found = {}
        for site in components.sites:
            kept = _partial(site, keep)
            own = {reader: _partial(site, other) for reader, other in readers.items()}
            if kept is not None or any(mask is not None for mask in own.values()):
                found[site.tensor] = SourceMask(kept, own)
        return cls(found)

    def seen_by(self, source: str, reader: Reader) -> Tensor | None:
        """The units of a tensor that a reader sees; None if all."""
        mask = self.sources.get(source)
        return None if mask is None else mask.seen_by(reader)

    def read(self, source: str, readers: Iterable[Reader]) -> Tensor | None:
        """The units of a tensor that some of these readers see; None if all are."""
        found: Tensor | None = None
        for reader in readers:
            kept = self.seen_by(source, reader)
            if kept is None:
                return None
            found = kept if found is None or found is kept else found | kept
        return found

    def read_in(self, graph: Graph, source: str) -> Tensor | None:
        """The units of a tensor that some reader in a graph sees; None if all are."""
        readers: list[Reader] = [node.name for node in graph.consumers[source]]
        return self.read(source, [*readers, None] if source in graph.outputs else readers or [None])

    def touched(self, graph: Graph) -> frozenset[str]:
        """Tensors that may differ from the network's own before they are patched themselves."""
        found: set[str] = set()
        sources = self.sources
        for node in graph.nodes:
            for name in node.inputs:
                if name in found or (
                    name in sources and sources[name].seen_by(node.name) is not None
                ):
                    found.add(node.name)
                    break
        return frozenset(found)


NOTHING_REMOVED = CircuitMask({})
"""The network itself."""


def _partial(site: Site, keep: Tensor) -> Tensor | None:
    """The units of a site that circuits keep; None if all keep all."""
    own = keep[:, site.start : site.start + len(site.components)]
    return None if bool(own.all()) else site.unit_mask(keep)


class Arithmetic(ABC, Generic[Value]):
    """What values are, and what is done with them.

    Attributes:
        shares: whether the network's own tensors are at hand, and not its inputs alone.
    """

    shares: bool = False

    @abstractmethod
    def own(self, node: Node) -> Value:
        """The network's own tensor: of an input, or, if ``shares``, of any node."""

    @abstractmethod
    def apply(self, node: Node, inputs: Sequence[Value]) -> Value:
        """What a node makes of what it sees of its inputs."""

    @abstractmethod
    def patched(self, node: Node, value: Value, kept: Tensor) -> Value:
        """A node's value with the units outside ``kept`` replaced by their patch."""


def interpret(
    graph: Graph, mask: CircuitMask, arithmetic: Arithmetic[Value], wanted: Sequence[str]
) -> dict[str, Value]:
    """The wanted tensors of a circuit's run, as whoever takes the outputs sees them.

    Only what they depend on is computed, node by node, and is forgotten after its last reader.
    """
    sources, shares = mask.sources, arithmetic.shares
    touched = mask.touched(graph) if sources else frozenset()
    staying = set(wanted)
    needed, last = set(wanted), dict[str, str]()
    steps: list[tuple[Node, bool]] = []
    for node in reversed(graph.nodes):
        if node.name in needed:
            at_hand = isinstance(node.op, Input) or (shares and node.name not in touched)
            steps.append((node, at_hand))
            if not at_hand:
                needed.update(node.inputs)
                for source in node.inputs:
                    last.setdefault(source, node.name)
    held: dict[str, Value] = {}
    masked: dict[str, _Masked[Value]] = {}

    def seen(source: str, reader: Reader) -> Value:
        return masked[source].seen_by(reader) if source in masked else held[source]

    for node, at_hand in reversed(steps):
        name = node.name
        if at_hand:
            value = arithmetic.own(node)
        else:
            value = arithmetic.apply(node, [seen(source, name) for source in node.inputs])
            for source in node.inputs:
                if last[source] == name and source not in staying:
                    held.pop(source, None)
                    masked.pop(source, None)
        held[name] = value
        if name in sources:
            masked[name] = _Masked(node, value, sources[name], arithmetic)
    return {name: seen(name, None) for name in wanted}


class _Masked(Generic[Value]):
    """A tensor that some reader does not see as it is; what readers see is made once."""

    __slots__ = ("_arithmetic", "_mask", "_node", "_own", "_seen")

    def __init__(
        self, node: Node, own: Value, mask: SourceMask, arithmetic: Arithmetic[Value]
    ) -> None:
        self._node, self._own, self._mask, self._arithmetic = node, own, mask, arithmetic
        self._seen: dict[int, Value] = {}

    def seen_by(self, reader: Reader) -> Value:
        kept = self._mask.seen_by(reader)
        if kept is None:
            return self._own
        if id(kept) not in self._seen:
            self._seen[id(kept)] = self._arithmetic.patched(self._node, self._own, kept)
        return self._seen[id(kept)]
