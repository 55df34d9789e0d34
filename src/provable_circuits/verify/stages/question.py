"""One problem on its way through the stages: cheap answers first, rigorous ones only.

    pool of earlier witnesses -> backward linear bounds (CROWN, or differential bounds) -> corners
    that the bounds point to -> PGD -> input splits, where few inputs are free and these come first
    -> optimised alpha -> branch and bound on ReLUs -> neuron hulls where networks are large ->
    rational arithmetic, or more input splits, where those can tell more

The list is ``PIPELINE`` (``pipeline``). A stage either answers or leaves what it learnt.
Claims and plain properties are problems alike; they differ in the ``Definition`` behind them.
Before neuron hulls, and during a search whenever it has bounded several times as many nodes as at
the last time, a longer attack is made, also from the points that the bounds of the search suggest.
Its work is a share of the search's, by count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

import torch
from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.attacking.attack import Attack
from provable_circuits.verify.bounding.bounds import Bounds, picked
from provable_circuits.verify.bounding.crown import Pass
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import rounding_slack
from provable_circuits.verify.bounding.scores import costliest, relaxation_costs
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.input_split import InputSplit
from provable_circuits.verify.branching.linear_programs import has_programs
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.encoding.definition import ClauseKey, Definition
from provable_circuits.verify.encoding.problem import Problem
from provable_circuits.verify.encoding.roles import by_name
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.reuse.memory import expanded, moved
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.answer import Answer, Given, Means
from provable_circuits.verify.stages.objectives import Objectives


class Question(Generic[Given]):
    """Decides one problem.

    Args:
        means: what stages work with.
        problem: the problem.
        definition: the question that it was written from.
        deadline: when to stop.
        settled: for each input of the batch, whether it is known to hold there already.
    """

    def __init__(
        self,
        means: Means,
        problem: Problem,
        definition: Definition[Given],
        deadline: Deadline,
        settled: Tensor | None = None,
    ) -> None:
        self.means, self.definition, self.deadline = means, definition, deadline
        self.problem = problem = problem.to(means.device)
        self.count = len(problem.rows)
        self.tuning = means.configuration.stages
        none = torch.zeros(self.count, dtype=torch.bool)
        self.settled = (none if settled is None else settled).to(means.device)
        self.structure = means.structure(problem.graph)
        self.region = Region(problem.ranges, means.configuration.bounding.few_boxes)
        self.attacks = Attack(
            problem, definition, self.region, self.structure, means.effort, deadline
        )
        self.stage = Stage.LINEAR
        self.bound = math.inf
        """A rigorous upper bound of the clauses' excess, so far."""
        self.closed = -math.inf
        """The same of the clauses that linear bounds or input splits closed."""
        self.bounds: Bounds
        """Bounds of every tensor, once a stage has computed them."""
        self.passed: Pass
        """The backward pass of the objectives."""
        self.open: Tensor
        """The clauses that are open, [n, 2]: input of the batch, and clause."""
        self.parts: list[Objectives] = []
        """What is open, as searches of single objectives, once alpha is optimised."""
        self.boxes: InputSplit | None = None
        self._derived: Mapping[str, Interval] | None = None
        self._asked: set[ClauseKey] = set()
        """The clauses that exact arithmetic was asked about."""

    @property
    def quick(self) -> bool:
        """Whether bounds are derived from those of an earlier proof."""
        return self._derived is not None

    @property
    def curved(self) -> bool:
        """Whether something has no two pieces to split: smooth activations, 2-balls."""
        return not self.structure.piecewise_linear or self.region.has_balls(2)

    def undecided(self, reason: str) -> Answer[Given]:
        """Neither was shown; the bound says how far it got."""
        return Answer(Outcome.OPEN, self.stage, self.bound, None, reason)

    def _proved(self, stage: Stage) -> Answer[Given]:
        for part in self.parts:
            part.proof_reuse.keep()
        return Answer(Outcome.PROVED, stage, min(self.bound, 0.0))

    def _refuted(self, stage: Stage) -> Answer[Given]:
        if self.attacks.found is None:
            raise RuntimeError("a refutation without a witness")
        stage = Stage.ATTACK if self.attacks.attacked else stage
        return Answer(Outcome.REFUTED, stage, self.bound, self.attacks.found)

    # --- stages ---------------------------------------------------------------------------------

    def pool(self) -> Answer[Given] | None:
        """Witnesses of earlier questions, latest first."""
        if not self.problem.ranges:
            return None
        return self._refuted(Stage.POOL) if self.attacks.earlier() else None

    def linear_bounds(self) -> Answer[Given] | None:
        """Backward linear bounds; where a proof can be built on, with differential bounds below."""
        self._derived = None if self.structure.small else self.definition.derived()
        self.bounds = self._bounds()
        return self._closed_by_bounds(Stage.DIFFERENTIAL if self.quick else Stage.LINEAR)

    def corners(self) -> Answer[Given] | None:
        """The corners that the bounds of what is open point to."""
        found = self.attacks.corners(self.passed, self.open)
        return self._refuted(Stage.CORNER) if found else None

    def tighten_costliest(self) -> Answer[Given] | None:
        """Intermediate bounds of the costliest units, where they were derived so far."""
        return self._tighten(self.tuning.tightened_share) if self._untightened else None

    def attack(self) -> Answer[Given] | None:
        """A short PGD attack."""
        if not self.problem.ranges:
            return None
        found = self.attacks.short(self.passed, self.open)
        return self._refuted(Stage.ATTACK) if found else None

    def tighten_all(self) -> Answer[Given] | None:
        """Intermediate bounds of the other units."""
        return self._tighten(1.0) if self._untightened else None

    def split_inputs(self) -> Answer[Given] | None:
        """Input splits, where few inputs are free and these come first."""
        if not self.means.inputs_first or not self.problem.ranges:
            return None
        few = has_programs(self.bounds, UnstableUnits(self.bounds))
        return self._split(self.tuning.first_boxes if few else self.tuning.most_boxes)

    def optimise_alpha(self) -> Answer[Given] | None:
        """Bounds with optimised alpha, for all open objectives together."""
        if not self.problem.ranges:
            return None
        self.parts = self._parts()
        return self._each(Objectives.optimise_alpha)

    def branch(self) -> Answer[Given] | None:
        """Branch and bound: until it is decided, or as long as it pays before something else."""
        return self._each(lambda part: part.branch(self._most))

    def neuron_hulls(self) -> Answer[Given] | None:
        """What the tree leaves open once it is large: neuron hulls, then more of the tree."""
        return self._each(Objectives.hulls)

    def exact_when_near(self) -> Answer[Given] | None:
        """Rational arithmetic where candidates all but reach the threshold; or the tree goes on."""
        by_exact = False
        for part in self.parts:
            while doubtful := part.doubtful:
                proved = self._exactly(doubtful)
                if proved is None:
                    return self._refuted(Stage.EXACT)
                by_exact |= bool(proved)
                self._settle(part, doubtful, proved)
        return self._known(Stage.EXACT if by_exact else self.stage)

    def exactly(self) -> Answer[Given] | None:
        """Rational arithmetic for what no split can close; None where it cannot tell."""
        close = [part for part in self.parts if part.status == Outcome.CLOSE]
        if self.parts:
            asked = [key for part in close for key in part.open]
        else:
            asked = [(problem, clause) for problem, clause in self.open.tolist()]
        proved = self._exactly(asked) if asked else frozenset[ClauseKey]()
        if proved is None:
            return self._refuted(Stage.EXACT)
        if not proved:
            return None
        if not self.parts and proved.issuperset(asked):
            return self._proved(Stage.EXACT)
        for part in close:
            self._settle(part, part.open, proved)
        return self._known(Stage.EXACT)

    def split_inputs_further(self) -> Answer[Given] | None:
        """Input splits where ReLU splits do not suffice; without limit for curved problems."""
        if not self.parts or (self.boxes is None and not self.curved):
            return None
        return self._split(math.inf if self.curved else self.tuning.most_boxes)

    def branch_further(self) -> Answer[Given] | None:
        """What is left of the trees, without a limit."""
        return self._each(Objectives.resume)

    # --- what the stages are made of ------------------------------------------------------------

    @property
    def _untightened(self) -> bool:
        """Whether intermediate bounds were derived, and units may be bounded better."""
        return self.quick and bool(self.problem.ranges)

    @property
    def _most(self) -> float:
        """Subdomains of a tree before input splits go on, where they have begun."""
        boxes = self.boxes
        waits = boxes is not None and boxes.subdomains <= self.tuning.most_boxes and not self.curved
        return self.tuning.first_subdomains if waits else math.inf

    def _each(self, step: Callable[[Objectives], Outcome]) -> Answer[Given] | None:
        """Take every part that is open a step further; what is known of all then."""
        for part in self.parts:
            if part.status == Outcome.PROVED:
                continue
            try:
                step(part)
            finally:
                self.stage = part.stage
                self._narrow(max(self.closed, *(part.bound for part in self.parts)))
            if part.status == Outcome.REFUTED:
                break
        return self._known(self.stage)

    def _known(self, stage: Stage) -> Answer[Given] | None:
        """What the parts show together."""
        if any(part.status == Outcome.REFUTED for part in self.parts):
            return self._refuted(stage)
        done = bool(self.parts) and all(part.status == Outcome.PROVED for part in self.parts)
        return self._proved(stage) if done else None

    def _exactly(self, clauses: Sequence[ClauseKey]) -> frozenset[ClauseKey] | None:
        """Which clauses rational arithmetic proves, each asked about once; None if refuted."""
        asked = [key for key in clauses if key not in self._asked]
        if not asked:
            return frozenset()
        self._asked.update(asked)
        self.stage = Stage.EXACT
        proved, self.attacks.found = self.definition.exactly(asked, self.deadline)
        return proved if self.attacks.found is None else None

    def _settle(
        self, part: Objectives, asked: Sequence[ClauseKey], proved: frozenset[ClauseKey]
    ) -> None:
        """Hand on to a part what rational arithmetic has proved."""
        try:
            part.settle(asked, proved, self._most)
        finally:
            self.stage = part.stage
            self._narrow(max(self.closed, *(part.bound for part in self.parts)))

    def _split(self, most: float) -> Answer[Given] | None:
        """Split inputs, if so few are free that it pays; what stays open is narrowed down."""
        if self.boxes is None:
            boxes = InputSplit(
                self.problem,
                self.structure,
                self.region,
                self.open,
                self.attacks.suggested,
                self.deadline,
            )
            if not boxes.suits:
                return None
            self.boxes = boxes
        self.stage = Stage.INPUT_SPLIT
        outcome = self.boxes.run(most)
        if outcome == Outcome.REFUTED:
            return self._refuted(Stage.INPUT_SPLIT)
        if outcome == Outcome.PROVED:
            return self._proved(Stage.INPUT_SPLIT)
        left = self.boxes.open
        if len(left) < len(self.open):
            self.open, self.closed = left, max(self.closed, 0.0)
        return None

    def _parts(self) -> list[Objectives]:
        """Open clauses of one objective together, and each other one over its maximum."""
        problem, memory = self.problem, self.means.memory
        keys: list[ClauseKey] = [(p, c) for p, c in self.open.tolist()]
        single = [(p, c, place) for p, c in keys if (place := problem.single(c)) is not None]
        parts = []
        if single:
            places = torch.tensor([(p, place) for p, _, place in single], device=self.open.device)
            own = [(p, c) for p, c, _ in single]
            parts.append(self._part(problem, own, places, self.bounds))
        for key in keys:
            if problem.single(key[1]) is None:
                alone = problem.maximum(key[1])
                bounds = Bounds(
                    self.means.structure(alone.graph),
                    self.region,
                    self.count,
                    memory.recall(alone),
                    None,
                    by_name(memory.lines, alone.roles),
                    self.deadline,
                )
                bounds.compute()
                first = torch.zeros(1, 2, dtype=torch.long, device=self.open.device)
                parts.append(self._part(alone, [key], first, bounds))
        return parts

    def _part(
        self, problem: Problem, clauses: list[ClauseKey], places: Tensor, bounds: Bounds
    ) -> Objectives:
        memory = self.means.memory
        return Objectives(problem, clauses, places, bounds, self.attacks, memory, self.deadline)

    def _closed_by_bounds(self, stage: Stage) -> Answer[Given] | None:
        """One backward pass for all objectives; a proof if it leaves nothing open."""
        self.passed, self.open = self._linear(self.bounds)
        asked = self.attacks.restarts.asked
        asked.zero_()
        asked[self.open[:, 0], self.open[:, 1]] = True
        return None if len(self.open) else self._proved(stage)

    def _tighten(self, share: float) -> Answer[Given] | None:
        self.stage = Stage.TIGHTENING
        self.bounds = self._sharpen(self.bounds, self.passed, self.open, share)
        return self._closed_by_bounds(Stage.LINEAR)

    def _bounds(self) -> Bounds:
        """Enclosures of every tensor: remembered, derived from the last proof's, or computed.

        Derived ones serve the problem's own tensors as they are; those that all questions have in
        common are bounded well once.
        """
        problem, memory = self.problem, self.means.memory
        started = by_name(memory.started, problem.roles)
        prior = {name: ends for name, (ends, _) in started.items() if name in problem.graph}
        if self._derived is not None:
            device = self.means.device
            prior |= {name: moved(ends, device) for name, ends in self._derived.items()}
        bounds = Bounds(
            self.structure,
            self.region,
            self.count,
            memory.recall(problem),
            prior,
            by_name(memory.lines, problem.roles),
            self.deadline,
            refined={name: mask for name, (_, mask) in started.items() if name in problem.graph},
        )
        try:
            bounds.compute(refine=problem.common if self.quick else True)
        except OutOfTime:
            memory.keep_unfinished(bounds, problem.roles)
            raise
        memory.keep(bounds, problem.roles)
        if not self.quick:
            memory.keep_own(bounds, problem)
        return bounds

    def _linear(self, bounds: Bounds) -> tuple[Pass, Tensor]:
        """One backward pass for all objectives; the clauses that it leaves open, [n, 2]."""
        problem = self.problem
        offsets = -problem.offsets
        found = bounds.backward(
            problem.graph.outputs[0], -problem.rows, keep_rows=not self.structure.small
        )
        reached = found.value + offsets - rounding_slack(found.value, offsets)
        excess = problem.of_clauses(-reached)
        asked = ~self.settled.unsqueeze(1)
        open_ = ~(excess <= 0) & asked
        shut = excess[(excess <= 0) & asked]
        self.closed = float(shut.max()) if len(shut) else -math.inf
        self._narrow(float(excess[~self.settled].max()))
        return found, open_.nonzero()

    def _narrow(self, bound: float) -> None:
        """Take a new upper bound of all clauses, if it is one."""
        if bound < self.bound:
            self.bound = bound

    def _sharpen(self, bounds: Bounds, found: Pass, open_: Tensor, share: float) -> Bounds:
        """Refine, for inputs still open, the units that make up a share of their bounds' costs."""
        structure, common = self.structure, self.problem.common
        open_ = self.problem.objectives(open_)
        problems = open_[:, 0].unique()
        counts = torch.zeros(found.value.shape, dtype=torch.bool, device=structure.device)
        counts[open_[:, 0], open_[:, 1]] = True
        costs: dict[str, Tensor] = {}
        for name, cost in relaxation_costs(bounds, found).items():
            source = structure.graph[name].inputs[0]
            if source not in common:
                mask = counts.reshape(*counts.shape, *([1] * (cost.ndim - 2)))
                costs[source] = (cost * mask).amax(1)[problems]
        sources = {node.inputs[0] for node in structure.activations}
        before = {name: expanded(bounds.ends[name], self.count) for name in sources}
        tightened = Bounds(
            structure,
            self.region.select(problems),
            len(problems),
            known={n: picked(e, problems) for n, e in bounds.ends.items() if n in common},
            prior={n: picked(e, problems) for n, e in before.items() if n not in common},
            deadline=self.deadline,
            targets=costliest(costs, share),
        )
        tightened.compute(refine=True)
        prior = {
            name: (
                before[name][0].index_copy(0, problems, tightened.ends[name][0]),
                before[name][1].index_copy(0, problems, tightened.ends[name][1]),
            )
            for name in sources
            if name not in common
        }
        known = {name: ends for name, ends in bounds.ends.items() if name in common}
        sharper = Bounds(
            structure,
            self.region,
            self.count,
            known,
            prior,
            by_name(self.means.memory.lines, self.problem.roles),
            self.deadline,
        )
        sharper.compute(refine=False)
        return sharper
