"""A circuit: the set of components that are kept, everything else being patched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from provable_circuits.arguments import instance, refused, whole
from provable_circuits.drawing.files import save
from provable_circuits.drawing.svg import svg
from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Component, Components
from provable_circuits.network.execution import Patch, run_circuits
from provable_circuits.network.graph import Graph

if TYPE_CHECKING:
    import networkx

FORMAT = "provable-circuits/circuit"


@dataclass(frozen=True, slots=True)
class Circuit:
    """An immutable set of components of one network.

    Set algebra works as for ``frozenset``: ``|``, ``&``, ``-``, ``^``, ``<=``, ``<``, and ``~`` for
    the complement. ``bits`` has bit i set when component i, in graph order, is kept.
    """

    components: Components
    bits: int

    def __post_init__(self) -> None:
        if not isinstance(self.components, Components):
            expected = "Components, as from graph.components()"
            raise refused("The 'components' parameter of Circuit", expected, self.components)
        if not isinstance(self.bits, int) or isinstance(self.bits, bool):
            object.__setattr__(self, "bits", whole("bits", self.bits, "Circuit", least=0))
        if self.bits < 0 or self.bits >> len(self.components):
            raise ArgumentError(
                f"The 'bits' parameter of Circuit must have at most {len(self.components)} bits. "
                f"Got {self.bits:#x} instead."
            )

    def __contains__(self, component: object) -> bool:
        name = component.name if isinstance(component, Component) else component
        return isinstance(name, str) and bool(self.bits >> self.components.index_of(name) & 1)

    def __iter__(self) -> Iterator[Component]:
        return (c for i, c in enumerate(self.components) if self.bits >> i & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __or__(self, other: Circuit) -> Circuit:
        return self._with(self.bits | self._bits_of(other))

    def __and__(self, other: Circuit) -> Circuit:
        return self._with(self.bits & self._bits_of(other))

    def __sub__(self, other: Circuit) -> Circuit:
        return self._with(self.bits & ~self._bits_of(other))

    def __xor__(self, other: Circuit) -> Circuit:
        return self._with(self.bits ^ self._bits_of(other))

    def __invert__(self) -> Circuit:
        return self.components.full() - self

    def __le__(self, other: Circuit) -> bool:
        return self.bits & ~self._bits_of(other) == 0

    def __lt__(self, other: Circuit) -> bool:
        return self <= other and self.bits != other.bits

    def __ge__(self, other: Circuit) -> bool:
        return other <= self

    def __gt__(self, other: Circuit) -> bool:
        return other < self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the components kept, in graph order."""
        return tuple(component.name for component in self)

    def add(self, *names: str) -> Circuit:
        """This circuit with more components kept: ``circuit.add("fc1/0", "fc1/3")``."""
        return self | self.components.circuit(self._names(names, "add"))

    def remove(self, *names: str) -> Circuit:
        """This circuit with some components removed: ``circuit.remove("fc1/0", "fc1/3")``."""
        return self - self.components.circuit(self._names(names, "remove"))

    def restrict(self, layer: str) -> Circuit:
        """The components kept in one layer."""
        own = [c.name for c in self.components if c.layer == layer]
        if not own:
            layers = dict.fromkeys(c.layer for c in self.components)
            raise ArgumentError(
                f"The network has no layer named {layer!r} with components; it has "
                f"{', '.join(layers)}."
            )
        return self & self.components.circuit(own)

    def run(
        self,
        x: Any,
        patch: Patch | Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """What the circuit computes for a batch, the rest patched (with zero by default)."""
        return run_circuits(self.components, [self], x, patch, dtype)[0]

    def to_graph(self, patch: Patch | Mapping[str, Tensor] | None = None) -> Graph:
        """The circuit as a network of its own: removed components are cut out of the weights.

        It computes what ``run`` computes with the same patch, to rounding, from the same input to
        the same output. Go on from there with ``Graph.to_onnx`` or ``Graph.to_torch``.

        Args:
            patch: what removed components output: ``Zero()`` (the default), ``Mean(data)``,
                ``Constant(value)``, or values by the name of each site's tensor.

        Raises:
            ArgumentError: the patching gives no single value (``Reachable``, ``IntervalHull``).
        """
        from provable_circuits.network.pruning import prune

        return prune(self, patch)

    def to_networkx(self) -> networkx.DiGraph:
        """The components of the network and how they are connected, as a directed graph.

        Nodes are ``"input"``, every component by its name, and ``"output"``, with attributes
        ``layer``, ``index`` (within the layer) and ``kept``; edges have ``kept``, true where both
        ends are. Needs the extra ``networkx``.
        """
        from provable_circuits.network.component_graph import circuit_to_networkx

        return circuit_to_networkx(self)

    def to_eap_json(self, *, heads: bool = False) -> str:
        """The components and how they are connected, in the schema of EAP-IG and MIB.

        That is the JSON that ``Graph.to_json`` of EAP-IG 2.0 (2025) writes and the MIB circuit
        track reads: ``cfg``; ``nodes``, by name, with ``in_graph``; ``edges``, named ``"a->b"``,
        with ``score`` and ``in_graph``. The ends are ``input`` and ``logits``. Scores are 1 within
        the circuit and 0 elsewhere. An arrow in a component's name is written ``→``; the name
        itself is the node's ``component``.

        Args:
            heads: name components as attention heads, ``a<layer>.h<index>``, with edges for their
                queries, keys and values. ``Graph.from_json`` of EAP-IG makes the nodes of a
                transformer from ``cfg`` and knows no others, so that it reads only this form.
        """
        from provable_circuits.network.component_graph import circuit_to_eap_json

        return circuit_to_eap_json(self, heads)

    def to_json(self) -> str:
        """One JSON document: the components kept, of how many, and of which network."""
        record = {
            "format": FORMAT,
            "network": self.components.graph.digest,
            "components": list(self.names),
            "size": len(self),
            "of": len(self.components),
        }
        return json.dumps(record, indent=2)

    @classmethod
    def from_json(cls, text: str, components: Components) -> Circuit:
        """Read what ``to_json`` wrote, against the same network's components."""
        instance("text", text, str, "a text, as to_json gives it", "Circuit.from_json")
        expected = "Components, as from graph.components()"
        instance("components", components, Components, expected, "Circuit.from_json")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"The circuit is not JSON: {str(error)[:200]}.") from None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ArgumentError(f"The circuit must be a JSON object of format {FORMAT!r}.")
        if record.get("network") != components.graph.digest:
            raise ArgumentError("The circuit belongs to another network: their digests differ.")
        names = record.get("components")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ArgumentError("The circuit's 'components' must be a list of names.")
        if record.get("of") != len(components):
            raise ArgumentError(
                f"The circuit was made for {record.get('of')} components, these are "
                f"{len(components)}: use the same granularity."
            )
        circuit = components.circuit(names)
        if record.get("size") != len(circuit):
            raise ArgumentError(
                f"The circuit says that it keeps {record.get('size')} components, "
                f"and names {len(circuit)}."
            )
        return circuit

    def draw(self, path: str | PathLike[str] | None = None, other: Circuit | None = None) -> str:
        """A drawing of the circuit as SVG text; layers from the left to the right.

        Args:
            path: a file to write it to as well, ``.svg``, or ``.png`` (extra ``plot``).
            other: a circuit to compare with; what only one of the two keeps is in colour.
        """
        from provable_circuits.network.diagram import diagram_of

        if other is not None:
            self._bits_of(instance("other", other, Circuit, "a circuit", "Circuit.draw"))
        diagram = diagram_of(self, other)
        if path is not None:
            save(diagram, path)
        return svg(diagram)

    def _repr_svg_(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        layers: dict[str, list[str]] = {}
        for component in self:
            short = component.name.removeprefix(f"{component.layer}/")
            layers.setdefault(component.layer, []).append(short)
        kept = "; ".join(f"{layer} {', '.join(names)}" for layer, names in layers.items())
        return f"Circuit({len(self)} of {len(self.components)}: {kept or 'nothing kept'})"

    @staticmethod
    def _names(names: tuple[str, ...], method: str) -> tuple[str, ...]:
        """The arguments of a method that takes names, one argument for each."""
        for place, name in enumerate(names):
            if isinstance(name, str):
                continue
            advice = f"write {method}(*names) to unpack several"
            if isinstance(name, Component):
                advice = f"write {method}(component.name)"
            if isinstance(name, Circuit):
                advice = "write circuit | other, or circuit - other"
            expected = "a component's name"
            raise refused(f"Argument {place} of Circuit.{method}", expected, name, advice)
        return names

    def _with(self, bits: int) -> Circuit:
        return Circuit(self.components, bits)

    def _bits_of(self, other: Circuit) -> int:
        if not isinstance(other, Circuit):
            raise refused("Both sides of an operation on circuits", "circuits", other)
        if other.components is not self.components and other.components != self.components:
            raise ArgumentError("Both circuits must be sets of the same network's components.")
        return other.bits
