"""Bounds of every tensor of a merged graph, for a batch of problems.

Forward: interval propagation, node by node, intersected with whatever is known already. Where an
activation reads a tensor whose sign is still open at some units, those units alone are bounded
again by a backward pass, and the tighter ends are carried on forward. Every end is an enclosure,
rounding included, so ends from different passes, queries and parents of a split may be intersected
freely. Where an intersection is empty, one of two things is true. Below a split, whose constraint
need not be met anywhere, no point is left: the subdomain is empty. Anywhere else two proofs
contradict each other, and nothing may be concluded: ``InconsistentBoundsError``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.network.execution import operations
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Conv2d, Input, Linear, LinearOp, Op
from provable_circuits.rounding import InconsistentBoundsError, Interval, exact_products
from provable_circuits.verify.bounding.crown import Pass, Sizes, View, backward
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import Lines, leak, lines
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline


def activation_units(graph: Graph) -> int:
    """How many units the activations of a graph have: its size, as ``small`` means it."""
    return sum(
        math.prod(node.shape)
        for node in graph.nodes
        if node.inputs and not isinstance(node.op, LinearOp)
    )


class Structure:
    """What bounds need to know of a graph, worked out once.

    Args:
        graph: the graph.
        device: where bounds are computed.
        configuration: the tuning of whatever works on the graph.
    """

    def __init__(
        self, graph: Graph, device: torch.device, configuration: Configuration = DEFAULT
    ) -> None:
        self.graph = graph
        self.configuration = configuration
        self.ops = operations(graph, torch.float64, device)
        self.device = device
        self.activations = tuple(
            node for node in graph.nodes if node.inputs and not isinstance(node.op, LinearOp)
        )
        self.largest = max((math.prod(node.shape) for node in graph.nodes), default=1)
        self.single = self.largest > configuration.bounding.single_from and exact_products(
            torch.float32, device
        )
        """Whether many rows are bounded in float32, which is faster where tensors are large."""

    @cached_property
    def piecewise_linear(self) -> bool:
        """Whether every activation is piecewise linear with one kink."""
        return all(leak(self.ops[node.name]) is not None for node in self.activations)

    @cached_property
    def small(self) -> bool:
        """Whether the graph is small enough for work that grows with its units."""
        return self.configuration.bounding.is_small(activation_units(self.graph))

    @property
    def guide(self) -> torch.dtype:
        """The arithmetic in which slopes, lines and multipliers are chosen."""
        return torch.float32 if self.single else torch.float64

    def select(self, rows: Tensor) -> Structure:
        """The structure for some rows of a batch, each as often as it is named."""
        if all(op.select(rows) is op for op in self.ops.values()):
            return self
        nodes = [replace(node, op=node.op.select(rows)) for node in self.graph.nodes]
        graph = Graph(nodes, self.graph.inputs, self.graph.outputs)
        return Structure(graph, self.device, self.configuration)

    @cached_property
    def single_ops(self) -> Mapping[str, Op]:
        """The operations in float32."""
        return operations(self.graph, torch.float32, self.device)

    @cached_property
    def affine(self) -> frozenset[str]:
        """Tensors, other than inputs, that no activation lies before."""
        found: set[str] = set()
        for node in self.graph.nodes:
            if isinstance(node.op, LinearOp) or not node.inputs:
                found |= {node.name} if found.issuperset(node.inputs) else set()
        return frozenset(found.difference(self.graph.inputs))

    @cached_property
    def upstream(self) -> dict[str, frozenset[str]]:
        """For each tensor, those that it depends on, itself included."""
        found: dict[str, frozenset[str]] = {}
        for node in self.graph.nodes:
            before = (found[name] for name in node.inputs)
            found[node.name] = frozenset({node.name}).union(*before)
        return found

    @cached_property
    def inner(self) -> frozenset[str]:
        """Activations that lie before another one."""
        found: set[str] = set()
        before: dict[str, frozenset[str]] = {}
        activations = {node.name for node in self.activations}
        for node in self.graph.nodes:
            passed = frozenset[str]().union(*(before[name] for name in node.inputs))
            if node.name in activations:
                found |= passed
                passed |= {node.name}
            before[node.name] = passed
        return frozenset(found)

    @cached_property
    def single_layer(self) -> frozenset[str]:
        """Tensors at which one layer at most lies between them and the inputs.

        Interval propagation from a box is exact there, but for rounding.
        """
        mixed: dict[str, int] = {}
        for node in self.graph.nodes:
            depth = max((mixed[name] for name in node.inputs), default=0)
            if not isinstance(node.op, LinearOp) and node.inputs:
                depth = 2
            elif isinstance(node.op, Linear | Conv2d) or len(node.inputs) > 1:
                depth += 1
            mixed[node.name] = depth
        return frozenset(name for name, depth in mixed.items() if depth <= 1)


class Bounds:
    """Enclosures of the tensors of a graph over a region, for a batch of problems.

    ``known`` ends are taken as they are; ``prior`` ends are intersected with what is computed.
    ``targets`` are masks [problems, *shape] of the units that are worth refining, by tensor;
    ``refined`` those that were bounded backward already, which is kept up to date. ``splits`` says
    in which problems, [problems], units of a tensor were split; only there, and behind such a
    tensor, may bounds contradict each other.
    """

    def __init__(
        self,
        structure: Structure,
        region: Region,
        problems: int,
        known: Mapping[str, Interval] | None = None,
        prior: Mapping[str, Interval] | None = None,
        known_lines: Mapping[str, Lines] | None = None,
        deadline: Deadline | None = None,
        targets: Mapping[str, Tensor] | None = None,
        refined: Mapping[str, Tensor] | None = None,
        splits: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.structure = structure
        self.region = region
        self.problems = problems
        self.ends: dict[str, Interval] = {}
        self.lines: dict[str, Lines] = {}
        self.sizes = Sizes(self.ends)
        self._single_lines: dict[str, Lines] = {}
        self._reaches: dict[str, float] = {}
        self.known = known or {}
        self.prior = prior or {}
        self.known_lines = known_lines or {}
        self.deadline = deadline or Deadline()
        self.targets = targets
        self.refined = dict(refined or {})
        self.splits = splits or {}
        self.empty = torch.zeros(problems, dtype=torch.bool, device=structure.device)
        """Problems of which no point is left, by bounds that their splits made contradict."""

    def compute(self, refine: bool | Collection[str] = True) -> None:
        """Enclose every tensor; with ``refine``, bound unstable units again by backward passes.

        Of a collection of names, only those tensors are bounded again.
        """
        ops = self.structure.ops
        for node in self.structure.graph.nodes:
            name, op = node.name, ops[node.name]
            settled = self.known.get(name)
            if isinstance(op, Input):
                ends = self.region.ends(name)
            else:
                if not isinstance(op, LinearOp) and node.inputs:
                    source = node.inputs[0]
                    again = refine if isinstance(refine, bool) else source in refine
                    self._open(name, source, again)
                if settled is None:
                    ends = op.interval(*(self.ends[source] for source in node.inputs))
                else:
                    ends = settled
            before = self.prior.get(name)
            if before is not None:
                ends = self._met(
                    name, torch.maximum(ends[0], before[0]), torch.minimum(ends[1], before[1])
                )
            self.ends[name] = ends

    def _met(self, name: str, lower: Tensor, upper: Tensor) -> Interval:
        """The bounds of an intersection; of an empty one, below a split, what encloses both sides.

        Raises:
            InconsistentBoundsError: it is empty, and no split can be the reason.
        """
        crossed = lower > upper
        if not bool(crossed.any()):
            return lower, upper
        vacant = crossed.flatten(1).any(1).expand(self.problems)
        excused = torch.zeros_like(self.empty)
        for split, mask in self.splits.items():
            if split in self.structure.upstream[name]:
                excused |= mask
        if bool((vacant & ~excused).any()):
            raise InconsistentBoundsError(f"the bounds of {name!r} contradict each other")
        self.empty = self.empty | vacant
        return torch.minimum(lower, upper), torch.maximum(lower, upper)

    def select(self, problems: Tensor) -> Bounds:
        """The enclosures of some of the problems, each as often as it is named, and their lines."""
        chosen = Bounds(
            self.structure.select(problems),
            self.region.select(problems),
            len(problems),
            picked_all(self.ends, problems),
            deadline=self.deadline,
        )
        chosen.compute(refine=False)
        return chosen

    def _open(self, activation: str, source: str, refine: bool) -> None:
        """Settle the bounds of what an activation reads, and its lines."""
        op = self.structure.ops[activation]
        if activation in self.known_lines:
            self.lines[activation] = self.known_lines[activation]
            return
        if refine and source not in self.known:
            self.refine(source, piecewise_linear=leak(op) is not None)
        self.lines[activation] = lines(op, self.ends[source])

    def refine(self, name: str, piecewise_linear: bool = True) -> None:
        """Bound the units of a tensor that are open (all, unless it feeds a ReLU) backward."""
        structure = self.structure
        box = all(r.domains is None for r in self.region.ranges.values())
        if box and name in structure.single_layer:
            return
        lower, upper = (self._expanded(end) for end in self.ends[name])
        shape = lower.shape[1:]
        flat_lower, flat_upper = lower.flatten(1).clone(), upper.flatten(1).clone()
        wanted = (
            (flat_lower < 0) & (flat_upper > 0) if piecewise_linear else flat_lower < flat_upper
        )
        if self.targets is not None and name in self.targets:
            wanted &= self.targets[name].flatten(1)
        before = self.refined.get(name)
        done = torch.zeros_like(wanted) if before is None else before.flatten(1)
        wanted &= ~done
        most = int(wanted.sum(1).max()) if wanted.numel() else 0
        if most == 0:
            return
        # The unstable units of each problem first; problems with fewer repeat settled ones.
        units = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
        chunk = structure.configuration.bounding.chunk_elements
        size = max(1, chunk // (2 * self.problems * structure.largest))
        for part in units.split(size, dim=1):
            if self.deadline.passed:
                self.refined[name] = done.unflatten(1, shape)
                self.ends[name] = (flat_lower.unflatten(1, shape), flat_upper.unflatten(1, shape))
                self.deadline.check()
            dtype = torch.float32 if structure.single else torch.float64
            rows = lower.new_zeros(
                self.problems, 2, part.shape[1], flat_lower.shape[1], dtype=dtype
            )
            rows[:, 0].scatter_(2, part.unsqueeze(2), 1.0)
            rows[:, 1].scatter_(2, part.unsqueeze(2), -1.0)
            found = self.backward(name, rows.flatten(1, 2).unflatten(2, shape)).value
            least, most_ = found[:, : part.shape[1]], -found[:, part.shape[1] :]
            flat_lower.scatter_(1, part, torch.maximum(flat_lower.gather(1, part), least))
            flat_upper.scatter_(1, part, torch.minimum(flat_upper.gather(1, part), most_))
            done = done.scatter(1, part, True)
        self.ends[name] = self._met(
            name, flat_lower.unflatten(1, shape), flat_upper.unflatten(1, shape)
        )

    def view(self, dtype: torch.dtype) -> View:
        """What a backward pass needs, in the arithmetic of one dtype."""
        structure = self.structure
        single = dtype == torch.float32
        if single:
            for name, line in self.lines.items():
                if name not in self._single_lines:
                    self._single_lines[name] = line.single()
        return View(
            structure.graph,
            structure.single_ops if single else structure.ops,
            self.region,
            self._single_lines if single else self.lines,
            self.sizes,
            self._measured_reach if single else self._carried_reach,
            structure.configuration.bounding.norm_growth,
        )

    def backward(
        self,
        start: str,
        rows: Tensor,
        *,
        multipliers: Mapping[str, Tensor] | None = None,
        rigorous: bool = True,
        keep_rows: bool = False,
    ) -> Pass:
        """One backward pass from ``start``, in the arithmetic of ``rows``."""
        return backward(
            self.view(rows.dtype),
            start,
            rows,
            multipliers=multipliers,
            rigorous=rigorous,
            keep_rows=keep_rows,
        )

    def _carried_reach(self, name: str) -> float:
        """A bound of |L||x| + |b| that costs nothing."""
        op = self.structure.ops[name]
        largest = max(self.sizes[source] for source in self.structure.graph[name].inputs)
        return largest * op.gain + op.offset_size if isinstance(op, LinearOp) else math.inf

    def _measured_reach(self, name: str) -> float:
        """The largest entry of |L||x| + |b| over all problems."""
        reach = self._reaches.get(name)
        if reach is None:
            op = self.structure.ops[name]
            sizes = [
                torch.maximum(-low, high).clamp_min(0)
                for low, high in (self.ends[source] for source in self.structure.graph[name].inputs)
            ]
            spread = float(op.spread(*sizes).amax()) if isinstance(op, LinearOp) else math.inf
            reach = spread * (1 + 1e-6) + (op.offset_size if isinstance(op, LinearOp) else 0.0)
            self._reaches[name] = reach
        return reach

    def _expanded(self, end: Tensor) -> Tensor:
        return end.expand(self.problems, *end.shape[1:])


def picked(ends: Interval, problems: Tensor) -> Interval:
    """The bounds of some problems; those of constants are the same for all."""
    lower, upper = ends
    return (lower[problems], upper[problems]) if len(lower) > 1 else ends


def picked_all(ends: Mapping[str, Interval], problems: Tensor) -> dict[str, Interval]:
    """``picked`` for several tensors."""
    return {name: picked(pair, problems) for name, pair in ends.items()}
