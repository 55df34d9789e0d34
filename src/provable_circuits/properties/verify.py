"""Plain properties: is there an input of the box whose output must not be?

A case of a property is a box and a conjunction ``rows @ y <= bounds``. It is safe iff

    max over i of (rows[i] . y - bounds[i])  >  0        for every x in the box,

strictly, since the constraints include their ends. A maximum is a tree of ReLUs, max(a, b) =
b + relu(a - b), so a case is one row over one graph, which branch and bound decides. The slopes of
those ReLUs are the weights of a combination of constraints: choosing them well finds the
combination that no output satisfies, where there is one.

    backward linear bounds, constraint by constraint -> corners -> PGD -> input splits where few
    inputs vary -> optimised alpha -> branch and bound on ReLUs -> exact arithmetic, where an output
    may touch its bound

``holds`` rests on rigorous bounds over the box rounded outward; ``violated`` on a point inside the
box as written, at which interval arithmetic on the network as given satisfies every constraint. In
exact arithmetic both rest on the rational numbers of the network and of the file.

    >>> from provable_circuits.network.graph import GraphBuilder
    >>> from provable_circuits.network.ops import ReLU
    >>> from provable_circuits.properties.vnnlib import parse_property
    >>> builder = GraphBuilder()
    >>> graph = builder.build([builder.add("relu", ReLU(), builder.input("x", (1,)))])
    >>> text = '''(declare-const X_0 Real) (declare-const Y_0 Real)
    ...           (assert (>= X_0 -1.0)) (assert (<= X_0 1.0)) (assert (>= Y_0 {}))'''
    >>> decide(graph, parse_property(text.format("1.5"))).status
    'holds'
    >>> decide(graph, parse_property(text.format("1.0"))).counterexample
    (tensor([1.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.lowering import lower
from provable_circuits.network.ops import Add, Gather, Input, Linear, ReLU, Reshape, Subtract
from provable_circuits.properties.confirm import replay_case
from provable_circuits.properties.constraints import STRICT, Constraints
from provable_circuits.properties.counterexample import (
    Counterexample,
    exact_counterexample,
    replayed_counterexample,
)
from provable_circuits.properties.exact import decide_case
from provable_circuits.properties.input_split import Bisection
from provable_circuits.properties.vnnlib import Case, Property
from provable_circuits.verify.bounding.alpha import optimise
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.crown import Pass
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import leak
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.branching.linear_programs import has_programs
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline, OutOfNodes, OutOfTime, limits
from provable_circuits.verify.encoding.query import InputRange
from provable_circuits.verify.outcome import Outcome, Reason
from provable_circuits.verify.stage import Stage

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class PropertyVerdict:
    """The answer about one property.

    Attributes:
        status: ``holds``, ``violated``, ``unknown`` or ``timeout``.
        counterexample: for ``violated`` an input and its output, per sample, float64.
        reason: why, where it is ``unknown`` or ``timeout``; else the stage that decided.
        seconds: how long it took.
        decimals: the input in decimals that lie inside the box as written and meet what it asks
            for. Each reads as the float64 number of ``counterexample``, unless ``note`` says that
            there is none; it may be a quotient then.
        note: what is to be known about the counterexample.
    """

    status: str
    counterexample: tuple[Tensor, Tensor] | None
    reason: str
    seconds: float
    decimals: tuple[str, ...] | None = None
    note: str = ""

    def __bool__(self) -> bool:
        raise TypeError("A verdict is not a boolean: compare its status.")


def decide(
    graph: Graph,
    question: Property,
    timeout: float | None = None,
    seed: int = 0,
    *,
    max_nodes: int | None = None,
    configuration: Configuration = DEFAULT,
) -> PropertyVerdict:
    """Whether ``graph`` keeps clear of everything that ``question`` describes.

    Args:
        graph: the network.
        question: what must not happen.
        timeout: seconds after which the answer is ``timeout``; 60 by default, and none where
            ``max_nodes`` is given.
        seed: the seed of random starts of the attack.
        max_nodes: nodes after which the answer is ``timeout``: a limit that is repeatable.
        configuration: the tuning of the stages.

    Raises:
        PropertyError: the property is about another number of inputs or outputs.
    """
    seconds, max_nodes = limits(timeout, max_nodes, configuration.limits.property_seconds)
    question.check(graph)
    started = time.monotonic()
    deadline = Deadline.after(seconds, max_nodes)
    decision = _Decision(graph, question, deadline, seed, configuration)
    try:
        status, reason = decision.answer()
    except OutOfNodes:
        status, reason = "timeout", f"{max_nodes} nodes were bounded"
    except OutOfTime:
        status, reason = "timeout", f"{seconds:g} seconds have passed"
    found = decision.found
    if found is None:
        return PropertyVerdict(status, None, reason, time.monotonic() - started)
    return PropertyVerdict(
        status, (found.x, found.y), reason, time.monotonic() - started, found.decimals, found.note
    )


def _gradient(value: Tensor, leaf: Tensor) -> Tensor | None:
    """The gradient, or None where the value does not depend on the leaf."""
    if not value.requires_grad:
        return None
    return torch.autograd.grad(value, leaf, allow_unused=True)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """Cases of one box that are still to be decided, and what is known about the box."""

    constraints: Constraints
    bounds: Bounds
    starts: Tensor

    def subdomains(self, size: int) -> Iterator[Constraints]:
        """The cases, so many at once as are attacked together."""
        cases = self.constraints.cases
        for first in range(0, len(cases), size):
            yield Constraints(cases[first : first + size])


class _Decision:
    """One property on its way through the stages."""

    def __init__(
        self,
        graph: Graph,
        question: Property,
        deadline: Deadline,
        seed: int,
        configuration: Configuration,
    ) -> None:
        self.configuration = configuration
        self.tuning = configuration.properties
        self.graph = graph
        self.question = question
        self.deadline = deadline
        self.generator = torch.Generator().manual_seed(seed)
        self.network = _flat(lower(graph))
        self.structure = Structure(self.network, CPU, configuration)
        self.found: Counterexample | None = None
        self._near: set[int] = set()
        """The cases, by identity, that a candidate came so close to that rounding decides."""
        self._tried: set[int] = set()
        """Those that exact arithmetic was asked about."""
        self._exact = False
        """Whether it decided any."""

    def answer(self) -> tuple[str, str]:
        """The status, and the stage that decided or the reason why none could."""
        left: list[_Open] = []
        for cases in _by_box(self.question.cases):
            open_ = self._linear(cases)
            if self.found is not None:
                return "violated", "corner"
            if open_ is not None:
                left.append(open_)
        if not left:
            return "holds", "linear"
        most = self.tuning.attack_cases
        if any(self._attack(open_, part) for open_ in left for part in open_.subdomains(most)):
            return "violated", "attack"
        stage, doubts = Stage.BISECTION, []
        for open_ in left:
            status, own = self._split(open_)
            if self._exact and own == "branching":
                own = "exact"
            if status == Outcome.REFUTED:
                return "violated", own
            if status != Outcome.PROVED:
                doubts.append(status)
            if own != "bisection":
                stage = Stage.EXACT if self._exact else Stage.BRANCHING
        return ("unknown", doubts[0]) if doubts else ("holds", stage)

    # --- stages ---------------------------------------------------------------------------------

    def _linear(self, cases: list[Case]) -> _Open | None:
        """Backward bounds of every constraint over one box; what they leave open."""
        self.deadline.check()
        everything, box = Constraints(cases), self._box(cases[0])
        if self._try(everything, _middle(box)):
            return None
        region = Region({self._input: box}, self.configuration.bounding.few_boxes)
        bounds = Bounds(self.structure, region, 1, deadline=self.deadline)
        bounds.compute()
        if not len(everything):
            return _Open(everything, bounds, _middle(box))
        found = bounds.backward(self._output, everything.rows.unsqueeze(0))
        excluded = everything.excluded(found.value)[0]
        if bool(excluded.all()):
            return None
        open_ = Constraints([cases[i] for i in (~excluded).nonzero().flatten().tolist()])
        corners = self._corners(bounds, found)[~excluded[everything.owners]]
        self._try(open_, corners)
        return _Open(open_, bounds, torch.cat([_middle(box), corners]))

    def _corners(self, bounds: Bounds, found: Pass) -> Tensor:
        """For each row, the corner of the box that its bound points to."""
        reached = found.inputs.get(self._input)
        count = found.value.shape[1]
        if reached is None:
            box = bounds.region.ranges[self._input]
            return _middle(box).expand(count, *self.graph.input_shape)
        many = bounds.region.select(torch.zeros(count, dtype=torch.long))
        return many.corner(self._input, reached[0])

    def _attack(self, open_: _Open, part: Constraints) -> bool:
        """Signed gradient descent on the worst constraint of each case, from several starts."""
        box = open_.bounds.region.ranges[self._input]
        shape, tuning = self.graph.input_shape, self.tuning
        count = tuning.attack_starts
        share = torch.rand((count, *shape), generator=self.generator, dtype=torch.float64)
        drawn = box.lower + share * (box.upper - box.lower)
        starts = torch.cat([open_.starts[: 2 * count], drawn])
        points = starts.repeat(len(part.cases), *([1] * len(shape)))
        own = torch.arange(len(part.cases)).repeat_interleave(len(starts)).unsqueeze(1)
        for step in range(tuning.attack_steps):
            self.deadline.check()
            with torch.enable_grad():
                leaf = points.detach().requires_grad_()
                worst = part.worst(self._run(leaf)).gather(1, own).squeeze(1)
                slope = _gradient(worst.sum(), leaf)
            if bool((worst <= 0).any()) and self._try(part, points):
                return True
            if slope is None:
                return False
            rate = 0.5 * (1 - step / tuning.attack_steps)
            moved = points - slope.sign() * (box.upper - box.lower) * rate
            points = torch.minimum(torch.maximum(moved, box.lower), box.upper)
        return self._try(part, points)

    def _split(self, open_: _Open) -> tuple[str, str]:
        """Halve the box where few inputs vary, and split ReLUs; the status and the stage.

        Where few units are unstable their splits need far fewer subdomains, whatever the inputs:
            then some boxes are halved only, and the rest once the tree of splits has grown large.
        """
        box = open_.bounds.region.ranges[self._input]
        varying = int((box.lower < box.upper).sum())
        if varying > self.tuning.few_inputs or not len(open_.constraints):
            return self._search(open_), "branching"
        few = has_programs(open_.bounds, UnstableUnits(open_.bounds))
        halving = Bisection(
            self.structure,
            box,
            open_.constraints,
            lambda points: self._try(open_.constraints, points),
            self.deadline,
            self.tuning.first_boxes if few else self.tuning.most_boxes,
        )
        status = halving.run()
        if status == Outcome.OPEN and few:
            status = self._search(open_, self.tuning.first_subdomains)
            if status != Outcome.MORE:
                return status, "branching"
            halving.most = self.tuning.most_boxes
            status = halving.run()
        if status == Outcome.OPEN:
            return self._search(open_), "branching"
        return status, "bisection"

    def _search(self, open_: _Open, most: float = math.inf) -> str:
        """Branch and bound: cases of one constraint together, each other case over its maximum."""
        cases = open_.constraints.cases
        if any(len(case.rows) == 1 for case in cases):
            single = Constraints([case for case in cases if len(case.rows) == 1])
            rows = single.rows.unsqueeze(1)
            status = self._branch(open_.bounds, single, rows, single.offsets, most)
            if status != Outcome.PROVED:
                return status
        for case in cases:
            if len(case.rows) == 1:
                continue
            if not len(case.rows):
                return "the box as written has no point that float64 holds"
            known = open_.bounds
            structure = Structure(_with_maximum(self.network, case), CPU, self.configuration)
            bounds = Bounds(
                structure, known.region, 1, known.ends, None, known.lines, self.deadline
            )
            bounds.compute()
            row = torch.ones(1, 1, 1, dtype=torch.float64)
            offset = torch.full((1,), -STRICT, dtype=torch.float64)
            status = self._branch(bounds, Constraints([case]), row, offset, most)
            if status != Outcome.PROVED:
                return status
        return Outcome.PROVED

    def _branch(
        self,
        known: Bounds,
        constraints: Constraints,
        rows: Tensor,
        offsets: Tensor,
        most: float,
    ) -> str:
        """Decide rows over one box: proved, refuted, more subdomains, or the reason why neither."""
        problems = torch.zeros(len(rows), dtype=torch.long)
        structure, start = known.structure, known.structure.graph.outputs[0]
        bounds = Bounds(
            structure,
            known.region.select(problems),
            len(rows),
            {name: _repeated(ends, len(rows)) for name, ends in known.ends.items()},
            deadline=self.deadline,
        )
        bounds.compute(refine=False)
        relaxed = Relaxed.whole(bounds, UnstableUnits(bounds))
        choice = optimise(
            relaxed, start, rows, offsets, relaxed.alpha, steps=self.tuning.alpha_steps
        )
        search = BranchAndBound(
            RootProblems(bounds, problems, rows, offsets),
            lambda points, _: self._try(constraints, points[self._input]),
            self.deadline,
        )
        search.halt = lambda: not self._near <= self._tried
        status = search.run(choice, most)
        while status == Outcome.CLOSE and search.halt is not None:
            status = self._exactly(search, constraints.cases, most)
        if status != Outcome.CLOSE:
            return status
        if all(leak(structure.ops[node.name]) is not None for node in structure.activations):
            return Reason.TOO_CLOSE
        return "the bounds of its curved activations are not tight enough"

    def _exactly(self, search: BranchAndBound, cases: Sequence[Case], most: float) -> str:
        """Rational arithmetic, for cases that rounding leaves open; then the search goes on."""
        left = search.open.tolist()
        asked = [i for i in left if i in search.close or id(cases[i]) in self._near]
        proved = []
        for i in asked:
            if id(cases[i]) in self._tried:
                continue
            self._tried.add(id(cases[i]))
            status, met = decide_case(self.network, cases[i], self.deadline, self.configuration)
            if met is not None:
                self._exact = True
                self.found = exact_counterexample(self.graph, self.network, cases[i], met)
                return Outcome.REFUTED
            if status == Outcome.PROVED:
                self._exact = True
                proved.append(i)
        if len(proved) < len(asked):
            search.halt = None
        rest = [i for i in left if i not in proved]
        search.settle(torch.tensor(rest, dtype=torch.long), 0.0)
        return search.resume(most)

    # --- candidates -----------------------------------------------------------------------------

    def _try(self, constraints: Constraints, points: Tensor) -> bool:
        """Replay the best of some points of the cases' box, [n, *shape]."""
        first = constraints.cases[0]
        flat = torch.minimum(torch.maximum(points.flatten(1), first.inner_lower), first.inner_upper)
        best, case = constraints.worst(self._run(flat.reshape(points.shape))).min(1)
        for i in best.argsort().tolist()[: self.tuning.replayed]:
            own = constraints.cases[int(case[i])]
            if float(best[i]) <= self.tuning.near * (1 + float(own.bounds.abs().sum())):
                self._near.add(id(own))
            if not float(best[i]) <= 0:
                return False
            replayed = replay_case(self.graph, own, flat[i])
            if replayed is not None:
                self.found = replayed_counterexample(self.graph, own, *replayed)
                return True
        return False

    # --- the network ----------------------------------------------------------------------------

    @property
    def _input(self) -> str:
        return self.network.inputs[0]

    @property
    def _output(self) -> str:
        return self.network.outputs[0]

    def _run(self, points: Tensor) -> Tensor:
        return evaluate(self.network, {self._input: points})[self._output]

    def _box(self, case: Case) -> InputRange:
        shape = (1, *self.graph.input_shape)
        return InputRange(case.lower.reshape(shape), case.upper.reshape(shape))


def _by_box(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that share a box, in the order in which their boxes first appear."""
    groups: dict[tuple[int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((id(case.lower), id(case.upper)), []).append(case)
    return list(groups.values())


def _middle(box: InputRange) -> Tensor:
    return box.lower + (box.upper - box.lower) * 0.5


def _repeated(ends: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    lower, upper = (end.expand(count, *end.shape[1:]) for end in ends)
    return lower, upper


def _copied(graph: Graph) -> tuple[GraphBuilder, str]:
    """A builder that has written the graph so far, and its name for the output."""
    builder = GraphBuilder(check_weights=False)
    names: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            names[node.name] = builder.input(node.name, node.shape)
        else:
            sources = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.name, node.op, *sources, layer=node.layer)
    return builder, names[graph.outputs[0]]


def _flat(graph: Graph) -> Graph:
    """The graph with its output as one vector."""
    if len(graph.output_shape) == 1:
        return graph
    builder, output = _copied(graph)
    size = math.prod(graph.output_shape)
    return builder.build([builder.add("flat", Reshape((size,)), output)])


def _with_maximum(graph: Graph, case: Case) -> Graph:
    """The graph behind whose output the largest of rows @ y - bounds is computed."""
    builder, output = _copied(graph)
    value = builder.add("constraints", Linear(case.rows, -case.bounds), output)
    while (count := builder[value].shape[0]) > 1:
        half = (count + 1) // 2
        # The middle one of an odd number is compared with itself.
        one = builder.add(f"{value}.left", Gather(torch.arange(half)), value)
        other = builder.add(f"{value}.right", Gather(torch.arange(count - half, count)), value)
        gap = builder.add(f"{value}.gap", Subtract(), one, other)
        gain = builder.add(f"{value}.gain", ReLU(), gap)
        value = builder.add(f"{value}.max", Add(), other, gain)
    return builder.build([value])
