"""The problem: network, circuit and patch source as one list of nodes, built from what is claimed.

Three copies of the network, each of the file's own operations:

    N   the network at an input z of the claim
    C   the circuit at the same z: the units of removed components replaced by patches
    S   the network at another input z', where patches are taken from one

A unit of C that nothing removed can reach IS the unit of N. A mask says which units ``differ``:
those removed, and from there whatever an operation can pass on, unit by unit. A node is named by
copy and tensor, "C:conv1". Behind the outputs come the nodes of the metric, "D:...", so that all
that is to be shown is: some linear functions of one node are never negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, RefusedError
from .operations import Bend, Linear, Operation, Square, Sum


@dataclass
class Step:
    """One operation of the network: the tensor it makes, from which, and its number of units."""

    name: str
    operation: Operation | None
    inputs: tuple[str, ...]
    units: int


@dataclass
class Region:
    """A box, cut with a ball around ``centre`` of the 1- or 2-norm where ``p`` says so.

    The box holds in place what does not move in the ball.
    """

    lower: Array
    upper: Array
    p: int = 0
    eps: float = 0.0
    centre: Array = None


@dataclass
class Node:
    """One tensor of one copy.

    Attributes:
        name: copy and tensor.
        operation: what makes it; None for an input.
        inputs: places of the nodes it is made of.
        units: how many numbers it has.
        twin: for a tensor of C, the place of the same tensor of N.
        differ: its units that may differ from the twin's; the others are the twin's.
        removed: its units that are replaced by patches.
        patch: what they are replaced by: numbers, or the place of a node.
    """

    name: str
    operation: Operation | None
    inputs: tuple[int, ...]
    units: int
    twin: int | None = None
    differ: Array = None
    removed: Array = None
    patch: Array | int | None = None


@dataclass
class Problem:
    """Nodes in the order of computation, the inputs' regions, and what is to be shown.

    ``objectives @ value(nodes[target]) + offsets >= 0``, for every row.
    """

    arithmetic: Arithmetic
    nodes: list[Node]
    regions: dict[int, Region]
    target: int
    objectives: Array
    offsets: Array
    places: dict[str, int]

    def place(self, name: str) -> int:
        """The node of that name; a tensor of C that differs nowhere is the network's."""
        if name not in self.places:
            raise RefusedError(f"The proof speaks of {name[:80]!r}, which there is not.")
        return self.places[name]


Patch = Mapping[str, Array] | Region | Mapping[str, Region]
"""Numbers by tensor; the region of z'; or a box for each tensor."""


class _Builder:
    def __init__(self, arithmetic: Arithmetic, steps: Sequence[Step], output: str) -> None:
        self.arithmetic, self.steps, self.output = arithmetic, steps, output
        self.nodes: list[Node] = []
        self.regions: dict[int, Region] = {}
        self.places: dict[str, int] = {}

    def add(self, node: Node) -> int:
        self.places[node.name] = len(self.nodes)
        self.nodes.append(node)
        return self.places[node.name]

    def network(self, copy: str, region: Region) -> None:
        """A copy of the whole network over a region."""
        if region.p and self.arithmetic.exact:
            raise RefusedError("Rational arithmetic knows no balls of the 1- and 2-norm.")
        for step in self.steps:
            inputs = tuple(self.places[f"{copy}:{name}"] for name in step.inputs)
            place = self.add(Node(f"{copy}:{step.name}", step.operation, inputs, step.units))
            if step.operation is None:
                self.regions[place] = region

    def circuit(self, removed: Mapping[str, Array], patch: Patch) -> None:
        """The copy with patches; only tensors with units that may differ become nodes."""
        differ = {step.name: np.zeros(step.units, dtype=bool) for step in self.steps}
        for step in self.steps:
            mask = touched(step.operation, [differ[name] for name in step.inputs], step.units)
            cut = removed.get(step.name)
            differ[step.name] = mask if cut is None else mask | cut
            twin = self.places[f"N:{step.name}"]
            if not differ[step.name].any():
                self.places[f"C:{step.name}"] = twin
                continue
            inputs = tuple(self.places[f"C:{name}"] for name in step.inputs)
            node = Node(f"C:{step.name}", step.operation, inputs, step.units, twin)
            node.differ = differ[step.name]
            if cut is not None and cut.any():
                node.removed, node.patch = cut, self._patch(step, patch)
            self.add(node)

    def _patch(self, step: Step, patch: Patch) -> Array | int:
        if isinstance(patch, Region):
            return self.places[f"S:{step.name}"]
        value = patch[step.name]
        if not isinstance(value, Region):
            return self.arithmetic.array(value)
        place = self.add(Node(f"H:{step.name}", None, (), step.units))
        self.regions[place] = value
        return place


def touched(operation: Operation | None, masks: Sequence[Array], units: int) -> Array:
    """Which units an operation can pass a difference on to."""
    if operation is None:
        return np.zeros(units, dtype=bool)
    if isinstance(operation, Linear):
        floats = [mask[None].astype(np.float64) for mask in masks]
        return np.asarray(operation.forward("touch", *floats)[0] != 0, dtype=bool)
    return masks[0]


def build(
    arithmetic: Arithmetic,
    steps: Sequence[Step],
    output: str,
    region: Region,
    removed: Mapping[str, Array],
    patch: Patch,
    metric: Mapping[str, Any],
) -> Problem:
    """The problem of one input region of a claim about one circuit."""
    builder = _Builder(arithmetic, steps, output)
    builder.network("N", region)
    if isinstance(patch, Region):
        builder.network("S", patch)
    builder.circuit(removed, patch)
    last, rows, offsets = _metric(builder, metric)
    return Problem(arithmetic, builder.nodes, builder.regions, last, rows, offsets, builder.places)


def _metric(builder: _Builder, metric: Mapping[str, Any]) -> tuple[int, Array, Array]:
    """The node that the claim is about, its objectives and their offsets."""
    arithmetic, kind = builder.arithmetic, metric["kind"]
    network, circuit = (builder.places[f"{copy}:{builder.output}"] for copy in "NC")
    units = builder.nodes[network].units
    one_hot = np.eye(units)
    if kind == "winner-margin":
        rows = one_hot[metric["winner"]] - one_hot[metric["others"]]
        return circuit, arithmetic.array(rows), arithmetic.array([-metric["margin"]] * len(rows))
    tolerance = arithmetic.array([metric["tolerance"]])[0]
    place = builder.add(Node("D:difference", Sum(minus=True), (circuit, network), units))
    if kind in ("logit-difference", "max-abs"):
        rows = one_hot if kind == "max-abs" else one_hot[[metric["target"]]]
        rows = arithmetic.array(np.concatenate([rows, -rows]))
        return place, rows, np.asarray([tolerance] * len(rows))
    if kind == "norm" and metric["p"] in (1, 2):
        operation = Bend(-1.0) if metric["p"] == 1 else Square()
        place = builder.add(Node("D:sizes", operation, (place,), units))
        offset = tolerance if metric["p"] == 1 else arithmetic.down(tolerance * tolerance)
        return place, arithmetic.array([-np.ones(units)]), np.asarray([offset])
    raise RefusedError(f"The metric {str(kind)[:40]!r} is none that can be proved.")
