"""How what the verifier holds is read: the one place that knows the roles of merged graphs' inputs.

INPUT                               the claimed input
AT_POINT                            the network's tensor at an input that is a single point
PATCH_INPUT                         the input that patches are taken at
PATCH_VALUES                        patch values of a site: of its removed units alone, or of all
                                    units, where a row's range is zero for those kept
a tensor of ``Query.tensors``       the circuit's version of a tensor, before its patch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tests.enclosures.truth import CPU, Points, Run, Truth
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Input, Op
from provable_circuits.rounding import Interval
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.batched import Gate
from provable_circuits.verify.encoding.circuit_tensor import Cut, Unread, ZeroFilled
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import Role, RoleKind
from provable_circuits.verify.verdict import Verdict
from provable_circuits.verify.verifier import Verifier


class Counted(Deadline):
    """A limit that passes after it was looked at so many times, whatever the clock says."""

    __slots__ = ("_looks",)

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def left(self) -> float:
        return 1.0

    @property
    def passed(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@contextmanager
def limited(looks: int) -> Iterator[None]:
    """Every limit that is set within passes after it was looked at so many times."""
    before = Deadline.__dict__["after"]
    Deadline.after = classmethod(lambda *_: Counted(looks))  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Deadline.after = before  # type: ignore[method-assign]


def ask(verifier: Verifier, circuit: Circuit, looks: int) -> Verdict:
    """One question, within a limit that does not depend on the clock."""
    with limited(looks):
        return verifier.ask(circuit, timeout=60.0)


def screen(verifier: Verifier, circuits: list[Circuit], looks: int) -> list[Verdict | None]:
    """Many at once, within such a limit."""
    with limited(looks):
        return verifier.screen(circuits, timeout=60.0)


@dataclass(frozen=True)
class Regime:
    """From which size on the verifier treats networks as large; None leaves that as it is.

    Attributes:
        small: a network of no more activation units is small.
        single: tensors of more units are bounded in float32.
        solved: after so many subdomains linear programs are asked.
    """

    small: int | None = None
    single: int | None = None
    solved: int | None = None

    @property
    def configuration(self) -> Configuration:
        """The verifier's configuration with these sizes."""
        bounding = {"small_units": self.small, "single_from": self.single}
        branching = {"programs_after": self.solved, "every_program_after": self.solved}
        return DEFAULT.changed(
            bounding={name: value for name, value in bounding.items() if value is not None},
            branching={name: value for name, value in branching.items() if value is not None},
        )


class Merged:
    """Merged graphs of one claim at points: what their inputs and then all their nodes are."""

    def __init__(self, truth: Truth, points: Points, roles: Mapping[str, Role]) -> None:
        self.truth = truth
        self.roles = roles
        self.points = points
        self.at = truth.network((points.z, points.z))
        self._found: dict[int, tuple[Graph, dict[str, Interval]]] = {}

    def gated(self, graph: Graph) -> bool:
        """Whether each row of the graph is a circuit of its own."""
        return any(isinstance(node.op, Gate) for node in graph.nodes)

    def feeds(
        self,
        graph: Graph,
        circuit: Circuit,
        which: Tensor,
        ranges: Mapping[str, InputRange] | None = None,
        rows: Tensor | None = None,
    ) -> dict[str, Interval]:
        """The inputs of a graph at some of the points, [n, *shape].

        Args:
            graph: the graph.
            circuit: the circuit that it is about, unless each row has its own.
            which: which points.
            ranges, rows: where the inputs of rows range, and the row of each point; only needed
                where each row has a circuit of its own.
        """
        points, truth = self.points, self.truth
        found: dict[str, Interval] = {}
        for name in graph.inputs:
            role = self._role(name)
            site = role.tensor
            if role.kind is RoleKind.INPUT:
                value = points.z[which]
            elif role.kind is RoleKind.AT_POINT:
                lower, upper = self.at[site]
                found[name] = (lower[which], upper[which])
                continue
            elif role.kind is RoleKind.PATCH_INPUT and points.source is not None:
                value = points.source[which]
            elif role.kind is RoleKind.PATCH_VALUES and points.values is not None:
                value = points.values[site][which]
                if graph[name].shape == value.shape[1:] and ranges is not None and rows is not None:
                    box = ranges[name]
                    value = torch.minimum(torch.maximum(value, box.lower[rows]), box.upper[rows])
                else:
                    value = value.flatten(1)[:, ~truth.kept(circuit)[site].flatten()]
            else:
                raise LookupError(
                    f"the merged graph has an input {name!r} that nothing is known of"
                )
            found[name] = (value, value)
        return found

    def _role(self, name: str) -> Role:
        """The role of an input; the network's own graph, which nobody encoded, has one."""
        if name not in self.roles and name == self.truth.graph.inputs[0]:
            return Role(RoleKind.INPUT, name)
        return self.roles[name]

    def inputs(self, graph: Graph, circuit: Circuit, moved: bool) -> dict[str, Interval]:
        """The inputs of a graph at all points; without those that are ``moved`` into boxes."""
        given = [
            name
            for name in graph.inputs
            if not (moved and self._role(name).kind is RoleKind.PATCH_VALUES)
        ]
        nodes = [graph[name] for name in given]
        return self.feeds(Graph(nodes, given, given), circuit, torch.arange(len(self.points)))

    def nodes(self, graph: Graph, circuit: Circuit) -> dict[str, Interval]:
        """Every tensor of a graph about one circuit, at all points; kept for the next time."""
        held = self._found.get(id(graph))
        if held is None:
            everyone = torch.arange(len(self.points))
            held = (graph, evaluated(graph, self.feeds(graph, circuit, everyone), len(everyone)))
            self._found[id(graph)] = held
        return held[1]

    def of_rows(
        self,
        graph: Graph,
        circuit: Circuit,
        which: Tensor,
        ranges: Mapping[str, InputRange],
        rows: Tensor,
    ) -> dict[str, Interval]:
        """Every tensor at some points, each for one row of a graph of many circuits."""
        feeds = self.feeds(graph, circuit, which, ranges, rows)
        return evaluated(graph, feeds, len(which), rows)


def evaluated(
    graph: Graph, feeds: Mapping[str, Interval], count: int, rows: Tensor | None = None
) -> dict[str, Interval]:
    """Every tensor of a graph in interval arithmetic, from its inputs on: [count, *shape]."""
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            found[node.name] = feeds[node.name]
            continue
        op: Op = node.op.to(torch.float64, CPU)
        if rows is not None:
            op = op.select(rows)
        lower, upper = op.interval(*(found[name] for name in node.inputs))
        found[node.name] = (lower.expand(count, *node.shape), upper.expand(count, *node.shape))
    return found


def expected(query: Query, run: Run) -> Iterator[tuple[str, Tensor | None, Interval]]:
    """What a query's tensors must be, by a plain run of its circuit.

    Yields:
        A node of the merged graph; the channels of it that are meant, None for all; and the value
        that they must have.
    """
    for name, where in query.tensors.items():
        if name not in run.before or where.node not in query.graph:
            continue
        lower, upper = run.before[name]
        if isinstance(where, Cut | ZeroFilled | Unread):
            channels = where.kept if isinstance(where, ZeroFilled) else None
            yield where.node, channels, (lower[:, where.kept], upper[:, where.kept])
        else:
            yield where.node, None, (lower, upper)


def zeros(query: Query, run: Run) -> Iterator[tuple[str, Interval]]:
    """The channels of a plain run that a query takes for zero, with the name of their tensor."""
    for name, where in query.tensors.items():
        if name not in run.before or not isinstance(where, Cut | ZeroFilled):
            continue
        lower, upper = run.before[name]
        mask = torch.ones(lower.shape[1], dtype=torch.bool)
        mask[where.kept] = False
        yield name, (lower[:, mask], upper[:, mask])
