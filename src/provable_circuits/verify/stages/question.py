"""One question on its way through the stages: cheap answers first, rigorous ones only.

    pool of earlier witnesses -> backward linear bounds (CROWN, or differential bounds) -> corners
    that the bounds point to -> PGD -> optimised alpha -> branch and bound on ReLUs -> neuron hulls
    where networks are large -> rational arithmetic, or input splits, where those can tell more

``PIPELINE``, at the end of this file, is the list. A stage either answers or leaves what it learnt.
Before neuron hulls, and during a search whenever it has bounded several times as many nodes as at
the last time, a longer attack is made, also from the points that the bounds of the search suggest.
Its work is a share of the search's, by count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from provable_circuits.network.ops import Constant
from provable_circuits.verify.attacking.candidates import candidate_at, middles, pool_points
from provable_circuits.verify.attacking.pgd import climb, excess_at, random_points
from provable_circuits.verify.attacking.restarts import Restarts
from provable_circuits.verify.bounding.alpha import Choice, optimise
from provable_circuits.verify.bounding.bounds import Bounds, picked
from provable_circuits.verify.bounding.crown import Pass
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import RootProblems, rounding_slack
from provable_circuits.verify.bounding.scores import costliest, relaxation_costs
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.branching.input_split import InputSplit
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import by_name
from provable_circuits.verify.neuron_hull.proof_reuse import ProofReuse
from provable_circuits.verify.neuron_hull.search import (
    HullSearch,
    has_hulls,
)
from provable_circuits.verify.outcome import Outcome, Reason
from provable_circuits.verify.reuse.memory import expanded, moved
from provable_circuits.verify.reuse.tightening import tighten_common
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.context import Context
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

CPU = torch.device("cpu")


class Question:
    """Decides one query.

    Args:
        context: what is prepared and remembered for all circuits.
        query: the query.
        settled: for each input of the claim, whether it is known to hold there already.
        deadline: when to stop.
    """

    def __init__(self, context: Context, query: Query, settled: Tensor, deadline: Deadline) -> None:
        self.context, self.knowledge = context, context.knowledge
        self.query = query = query.to(context.device)
        self.settled = settled.to(context.device)
        self.deadline = deadline
        self.tuning = context.configuration.stages
        self.structure = context.structure(query.graph)
        self.region = context.region(query.ranges)
        self.count = query.rows.shape[0]
        self.found: Witness | None = None
        self.proof_reuse = ProofReuse(self.knowledge.memory.saved_trees, query)
        self.small = self.structure.small
        self.stage = Stage.LINEAR
        self.bound = math.inf
        """A rigorous upper bound of the rows' excess, so far."""
        self.closed = -math.inf
        """The same of the rows that linear bounds closed."""
        self.bounds: Bounds
        """Bounds of every tensor, once a stage has computed them."""
        self.passed: Pass
        """The backward pass of the specification."""
        self.open: Tensor
        """The objectives that it leaves open, [n, 2]: input of the claim, and constraint."""
        self.roots: RootProblems | None = None
        self.search: BranchAndBound | None = None
        self._choice: Choice | None = None
        self._status = ""
        last = self.knowledge.last
        self.quick = (
            context.reuse and not self.small and last is not None and query.circuit <= last.circuit
        )
        """Whether bounds are derived from those of the circuit that was proved last."""
        self._near = False
        """Whether a candidate was so close to the threshold that rounding decides."""
        self._asked_exactly = False
        self._restarts = Restarts(
            context.effort, self.knowledge.pool, query, self.region, self.structure, deadline
        )

    def answer(self) -> Verdict:
        """Prove, refute, or say why neither: the stages of ``PIPELINE``, one after the other."""
        for stage in PIPELINE:
            verdict = stage(self)
            if verdict is not None:
                return verdict
        return self.undecided(Reason.NOT_TIGHT if self._curved else Reason.TOO_CLOSE)

    def identical(self) -> Proved | None:
        """A proof for the network itself, where the claim compares the circuit with it: no work."""
        (output,) = self.query.graph.outputs
        op = self.query.graph[output].op
        if not isinstance(op, Constant) or bool(op.value.any()):
            return None
        bound = float(self.query.offsets.max())
        if not bound <= 0:
            return None
        return Proved(self.context.encoder.specification.at_most(bound), Stage.IDENTICAL)

    def _proved(self, stage: str) -> Verdict:
        knowledge = self.knowledge
        bound = self.context.encoder.specification.at_most(min(self.bound, 0.0))
        if knowledge.last is not None and bool(self.settled.any()):
            bound = max(bound, knowledge.last.bound)
        roles = self.query.roles
        known = {roles[name]: moved(pair, CPU) for name, pair in self.bounds.ends.items()}
        self.proof_reuse.keep()
        knowledge.last = Known(self.query.circuit, self.query, known, bound)
        return Proved(bound, stage)

    def _refuted(self, stage: str) -> Verdict:
        if self.found is None:
            raise RuntimeError("a refutation without a witness")
        if stage != "pool":
            self.knowledge.remember(self.found)
        return Refuted(self.found, stage)

    def undecided(self, reason: str) -> Undecided:
        """Neither was shown; the bound says how far it got."""
        specification = self.context.encoder.specification
        return Undecided(reason, self.stage, specification.at_most(max(self.bound, 0.0)))

    # --- stages ---------------------------------------------------------------------------------

    def pool(self) -> Verdict | None:
        """Earlier witnesses, latest first."""
        pool = self.knowledge.pool
        if not pool or not self.query.ranges:
            return None
        problems = torch.tensor([witness.index for witness in pool], device=self.structure.device)
        found = self._try(pool_points(self.query, pool), problems)
        return self._refuted(Stage.POOL) if found else None

    def linear_bounds(self) -> Verdict | None:
        """Backward linear bounds; where a proof can be built on, with differential bounds below."""
        self.bounds = self._bounds(self.quick)
        return self._closed_by_bounds(Stage.DIFFERENCE if self.quick else Stage.LINEAR)

    def corners(self) -> Verdict | None:
        """The corners that the bounds of what is open point to."""
        points = self._corners_of(self.passed, self.open)
        return self._refuted(Stage.CORNER) if self._try(points, self.open[:, 0]) else None

    def tighten_costliest(self) -> Verdict | None:
        """Intermediate bounds of the costliest units, where they were derived so far."""
        return self._tighten(self.tuning.tightened_share) if self._untightened else None

    def attack(self) -> Verdict | None:
        """A short PGD attack."""
        if not self.query.ranges:
            return None
        return self._refuted(Stage.ATTACK) if self._attack(self.passed, self.open) else None

    def tighten_all(self) -> Verdict | None:
        """Intermediate bounds of the other units."""
        return self._tighten(1.0) if self._untightened else None

    def optimise_alpha(self) -> Verdict | None:
        """Bounds with optimised alpha, for all open objectives together."""
        if not self.query.ranges:
            return None
        self.stage = Stage.SLOPES
        problems, constraints = self.open.T
        self.roots = roots = self._roots(self.bounds, problems, constraints)
        offsets = roots.offsets
        relaxed = Relaxed.whole(roots.bounds, UnstableUnits(roots.bounds))
        steps = self.tuning.small_alpha_steps if self.small else self.tuning.alpha_steps
        choice = optimise(relaxed, roots.start, roots.rows, offsets, relaxed.alpha, steps=steps)
        self._restarts.passed += steps * len(problems)
        self._restarts.asked[problems, constraints] = True
        value = choice.found.value[:, 0]
        value = value + offsets - rounding_slack(value, offsets)
        self._narrow(max(self.closed, -float(value.min())))
        if bool((value >= 0).all()):
            return self._proved(Stage.SLOPES)
        self._choice = choice
        return None

    def branch(self) -> Verdict | None:
        """Branch and bound: until it is decided, or as long as it pays before neuron hulls."""
        if self.roots is None or self._choice is None:
            return None
        self.stage = Stage.BRANCHING
        self.search = search = BranchAndBound(self.roots, self._attempt, self.deadline)
        if self.small:
            search.halt = lambda: self._near
        hulls = not self.small and has_hulls(self.structure, self.region)
        choice, most = self._choice, self.tuning.hulls_after if hulls else math.inf
        return self._after(lambda: search.run(choice, most))

    def neuron_hulls(self) -> Verdict | None:
        """What the tree leaves open once it is large: neuron hulls, then more of the tree."""
        search = self.search
        if search is None or self._status != Outcome.MORE:
            return None
        return self._after(lambda: self._hulls(search))

    def exact_when_near(self) -> Verdict | None:
        """Rational arithmetic where candidates all but reach the threshold; or the tree goes on."""
        search = self.search
        if search is None or self._status != Outcome.CLOSE or search.halt is None:
            return None
        verdict = self.exactly()
        if verdict is not None:
            return verdict
        search.halt, self.stage = None, Stage.BRANCHING
        return self._after(search.resume)

    def exactly(self) -> Verdict | None:
        """Rational arithmetic, which is asked once; None where it cannot tell."""
        if self._asked_exactly:
            return None
        self._asked_exactly = True
        self.stage = Stage.EXACT
        verdict = self.context.exact.decide(self.query.circuit, self.deadline)
        if isinstance(verdict, Proved):
            return self._proved(Stage.EXACT)
        if isinstance(verdict, Refuted):
            self.found = verdict.witness
            return self._refuted(Stage.EXACT)
        return None

    def split_inputs(self) -> Verdict | None:
        """Input splits, where activations or balls are curved and ReLU splits do not suffice."""
        if self.roots is None or not self._curved:
            return None
        self.stage = Stage.HALVING
        status = InputSplit(self.roots, self._attempt, self.deadline).run()
        if status == Outcome.REFUTED:
            return self._refuted(self.stage)
        return self._proved(Stage.HALVING) if status == Outcome.PROVED else None

    # --- what the stages are made of ------------------------------------------------------------

    @property
    def _untightened(self) -> bool:
        """Whether intermediate bounds were derived, and units may be bounded better."""
        return self.quick and bool(self.query.ranges)

    @property
    def _curved(self) -> bool:
        return not self.structure.piecewise_linear or self.region.has_balls(2)

    def _closed_by_bounds(self, stage: str) -> Verdict | None:
        """One backward pass for the whole specification; a proof if it leaves nothing open."""
        self.passed, self.open = self._linear(self.bounds)
        return None if len(self.open) else self._proved(stage)

    def _tighten(self, share: float) -> Verdict | None:
        self.stage = Stage.REFINING
        self.bounds = self._sharpen(self.bounds, self.passed, self.open, share)
        return self._closed_by_bounds(Stage.LINEAR)

    def _after(self, step: Callable[[], str]) -> Verdict | None:
        """What a step of the tree shows; its bound counts whatever ends it."""
        search = self.search
        try:
            self._status = step()
        finally:
            if search is not None:
                self._narrow(max(self.closed, search.bound))
        if self._status == Outcome.REFUTED:
            return self._refuted(self.stage)
        return self._proved(self.stage) if self._status == Outcome.PROVED else None

    def _bounds(self, quick: bool) -> Bounds:
        """Enclosures of every tensor: remembered, derived from the last proof's, or computed.

        ``quick`` leaves the circuit's own tensors with what is derived; those that all questions
        have in common are bounded well once.
        """
        last, query, memory = self.knowledge.last, self.query, self.knowledge.memory
        started = by_name(memory.started, query.roles)
        prior = {name: ends for name, (ends, _) in started.items() if name in query.graph}
        if quick and last is not None:
            derived = self.context.differential.enclosures(last, query)
            prior |= {name: moved(ends, self.context.device) for name, ends in derived.items()}
        bounds = Bounds(
            self.structure,
            self.region,
            self.count,
            memory.recall(query),
            prior,
            by_name(memory.lines, query.roles),
            self.deadline,
            refined={name: mask for name, (_, mask) in started.items() if name in query.graph},
        )
        try:
            bounds.compute(refine=query.common if quick else True)
        except OutOfTime:
            memory.keep_unfinished(bounds, query.roles)
            raise
        memory.keep(bounds, query.roles)
        if not quick:
            memory.keep_own(bounds, query)
        return bounds

    def _linear(self, bounds: Bounds) -> tuple[Pass, Tensor]:
        """One backward pass for the whole specification; what it leaves open, [n, 2]."""
        offsets = -self.query.offsets
        found = bounds.backward(
            self.query.graph.outputs[0], -self.query.rows, keep_rows=not self.small
        )
        reached = found.value + offsets - rounding_slack(found.value, offsets)
        asked = ~self.settled.unsqueeze(1)
        open_ = ~(reached >= 0) & asked
        shut = reached[(reached >= 0) & asked]
        self.closed = -float(shut.min()) if len(shut) else -math.inf
        self._narrow(-float(reached[~self.settled].min()))
        return found, open_.nonzero()

    def _narrow(self, bound: float) -> None:
        """Take a new upper bound of all rows, if it is one."""
        if bound < self.bound:
            self.bound = bound

    def _sharpen(self, bounds: Bounds, found: Pass, open_: Tensor, share: float) -> Bounds:
        """Refine, for inputs still open, the units that make up a share of their bounds' costs."""
        structure, common = self.structure, self.query.common
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
            by_name(self.knowledge.memory.lines, self.query.roles),
            self.deadline,
        )
        sharper.compute(refine=False)
        return sharper

    def _hulls(self, search: BranchAndBound) -> str:
        """What a search has left open, by hulls, and by going on with it; what it returns."""
        self.stage = Stage.HULL
        bounds, (problems, constraints) = self.bounds, self.open.T
        if self._attack_long(problems[search.open], constraints[search.open]):
            return Outcome.REFUTED
        loose = self._loose(problems)
        tuning = self.context.configuration.neuron_hull
        for most in (tuning.first_subdomains, tuning.most_subdomains):
            left = search.open
            some = left[loose[left]] if most == tuning.first_subdomains else left
            if most == tuning.most_subdomains and bool(loose[left].any()):
                bounds = self._closer(bounds, problems[left])
            if not len(some):
                continue
            roots = self._roots(bounds, problems[some], constraints[some])
            hulls = HullSearch(roots, self._attempt, self.deadline, self.proof_reuse, most)
            still = hulls.run()
            if still is None:
                return Outcome.REFUTED
            proved = some[~torch.isin(some, some[still])]
            search.settle(left[~torch.isin(left, proved)], hulls.reached)
            if hulls.too_large.issuperset(problems[search.open].tolist()):
                break
        if len(search.open):
            self.stage = Stage.BRANCHING
        return search.resume()

    def _loose(self, problems: Tensor) -> Tensor:
        """For each of some inputs, whether hulls may still tighten common tensors; a mask."""
        structure = self.structure
        read = {node.inputs[0] for node in structure.activations} - structure.single_layer
        common = {self.query.roles[name] for name in self.query.common & read}
        loose = self.knowledge.memory.loose(common, problems)
        found = sorted({problem for _, problem in loose})
        return torch.isin(problems, torch.tensor(found, dtype=torch.long, device=problems.device))

    def _closer(self, bounds: Bounds, problems: Tensor) -> Bounds:
        """The bounds with what hulls make of tensors that all questions have in common."""
        memory, query = self.knowledge.memory, self.query
        with self.deadline.shared():
            tighten_common(memory, bounds, query.roles, problems)
        prior = {node.inputs[0]: bounds.ends[node.inputs[0]] for node in self.structure.activations}
        known, lines = memory.recall(query), by_name(memory.lines, query.roles)
        tightened = Bounds(
            self.structure, self.region, self.count, known, prior, lines, self.deadline
        )
        tightened.compute(refine=False)
        return tightened

    def _roots(self, bounds: Bounds, problems: Tensor, constraints: Tensor) -> RootProblems:
        """Some rows of some problems, to be decided."""
        rows = -self.query.rows[problems, constraints].unsqueeze(1)
        return RootProblems(
            bounds.select(problems), problems, rows, -self.query.offsets[problems, constraints]
        )

    def _corners_of(self, found: Pass, open_: Tensor) -> dict[str, Tensor]:
        problems, constraints = open_.T
        region = self.region.select(problems)
        return {
            name: region.corner(name, reached[problems, constraints])
            for name, reached in found.inputs.items()
        }

    def _attack(self, found: Pass, open_: Tensor) -> bool:
        """Climb from the corners that the bounds point to, and from random points."""
        effort = self.context.effort
        query = self.query
        problems, constraints = open_.T
        corners = self._corners_of(found, open_)
        starts_each = effort.starts if self.small else 1
        copies = problems.repeat(starts_each)
        starts = self._random(copies)
        centers = middles(query.ranges, problems, [n for n in starts if n not in corners])
        for name, first in {**centers, **corners}.items():
            starts[name] = torch.cat([first, starts[name]])
        steps = effort.steps if self.small else effort.steps // 2
        everyone = torch.cat([problems, copies])
        return self._climb(starts, everyone, constraints.repeat(starts_each + 1), steps)

    def _attack_long(self, problems: Tensor, constraints: Tensor) -> bool:
        """A longer attack on some rows, with an adaptive step size: a proof would cost far more."""
        if not self._try(*self._restarts.attack(problems, constraints)):
            return False
        self.stage = Stage.ATTACK
        return True

    def _random(self, problems: Tensor) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.context.effort.seed)
        return random_points(self.region, problems, generator)

    def _climb(
        self, starts: Mapping[str, Tensor], problems: Tensor, constraints: Tensor, steps: int
    ) -> bool:
        """Climb from starts, each for one constraint of one problem; whether there is a witness."""
        query = self.query
        rows = query.rows[problems, constraints].unsqueeze(1)
        offsets = query.offsets[problems, constraints].unsqueeze(1)
        best = climb(
            query.graph, self.region, problems, starts, rows, offsets, steps, self.deadline
        )
        return bool((best.excess > 0).any()) and self._try(best.points, problems)

    def _attempt(self, points: Mapping[str, Tensor], problems: Tensor) -> bool:
        """Try what a search suggests; attack from the best of it when that is due."""
        points, excess = self._evaluated(points, problems)
        if self._replayed(points, problems, excess):
            return True
        restarts = self._restarts
        restarts.suggest(points, problems, excess)
        return restarts.due and self._attack_long(*restarts.asked.nonzero().T)

    def _try(self, points: Mapping[str, Tensor], problems: Tensor) -> bool:
        """Evaluate candidate points; replay those that seem to violate the claim."""
        points, excess = self._evaluated(points, problems)
        return self._replayed(points, problems, excess)

    def _evaluated(
        self, points: Mapping[str, Tensor], problems: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Points for every input, and the excess there, [n, constraints]."""
        query = self.query
        missing = [name for name in query.graph.inputs if name not in points]
        whole = {**points, **middles(query.ranges, problems, missing)}
        return whole, excess_at(query.graph, whole, query.rows[problems], query.offsets[problems])

    def _replayed(self, points: Mapping[str, Tensor], problems: Tensor, excess: Tensor) -> bool:
        """Replay the points that seem to violate the claim, best first."""
        worst = excess.amax(1)
        slack = self.tuning.near * (1 + self.query.offsets[problems].abs().amax(1))
        self._near |= bool((worst > -slack).any())
        order = worst.argsort(descending=True)[: self.tuning.replayed]
        likely = order[worst[order] > 0].tolist()
        if not likely:
            return False
        encoder, circuit, roles = self.context.encoder, self.query.circuit, self.query.roles
        candidates = [
            candidate_at(encoder, circuit, roles, points, i, int(problems[i])) for i in likely
        ]
        replayed = self.context.replay.witnesses(candidates)
        self.found = next((witness for witness in replayed if witness is not None), None)
        return self.found is not None


PIPELINE: tuple[Callable[[Question], Verdict | None], ...] = (
    Question.pool,
    Question.linear_bounds,
    Question.corners,
    Question.tighten_costliest,
    Question.attack,
    Question.tighten_all,
    Question.optimise_alpha,
    Question.branch,
    Question.neuron_hulls,
    Question.exact_when_near,
    Question.exactly,
    Question.split_inputs,
)
"""The stages in order: each answers, or leaves what it learnt to the next ones."""
