"""Branch and bound: split the open ReLUs of problems until every subdomain is proved or one breaks.

A subdomain is the set of inputs on which some ReLU inputs have fixed signs. Its two children fix
one more unit. A subdomain is done when the rigorous bound of its row is nonnegative, or when the
signs that were fixed make its enclosures contradict each other, so that it is empty. Subdomains are
bounded in batches; a child inherits its parent's enclosures, alpha and beta. All open rows of all
inputs of a question are searched together, as so many roots. Where all units are settled the
subdomain is a linear program, whose duals close it (``leaf``). With a piecewise-linear network the
search ends, up to rounding at the threshold: there are finitely many subdomains.

Every bound also points to a corner of the region, which is tried as a candidate witness.

Branch and bound for networks: Bunel et al. (2020), Branch and Bound for Piecewise Linear Neural
Network Verification. Ours: all open objectives of a question share one tree of batches, and a split
is chosen by one backward pass for both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.verify.bounding.alpha import Choice, optimise
from provable_circuits.verify.bounding.bounds import Bounds, picked
from provable_circuits.verify.bounding.crown import Fixed, backward
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import (
    RootProblems,
    RootSearch,
    Try,
    rounding_slack,
)
from provable_circuits.verify.bounding.scores import unit_costs
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.leaf import solve_leaf
from provable_circuits.verify.branching.linear_programs import (
    Programs,
    PseudoCosts,
    has_programs,
)
from provable_circuits.verify.branching.subdomains import (
    Subdomains,
    batches,
    children_of,
    signs_of,
)
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.outcome import Outcome


class BranchAndBound(RootSearch):
    """Decides rows by splitting."""

    def __init__(self, roots: RootProblems, attempt: Try, deadline: Deadline) -> None:
        super().__init__(roots, attempt, deadline)
        self.whole = Relaxed.whole(roots.bounds, UnstableUnits(roots.bounds))
        self.units = self.whole.units
        self.small = self.structure.small
        self.tuning = tuning = self.structure.configuration.branching
        self.inner = self._inner()
        self.steps = tuning.steps
        self.candidates = tuning.small_candidates if self.small else tuning.candidates
        self.levels = tuning.small_levels if self.small else tuning.levels
        widest = tuning.small_width if self.small else tuning.width
        self.width = max(1, min(widest, tuning.batch_elements // max(self.structure.largest, 1)))
        self.guide = self.structure.guide
        self.halt: Callable[[], bool] | None = None
        """Whether candidates were too close to call. Where this is set the search stops as soon as
        they or a subdomain are: exact arithmetic can tell more. ``resume`` goes on without it."""
        self.programs: Programs | None = None
        """Linear programs of subdomains, once the tree has grown so large that they pay."""
        self.subdomains = 0
        """How many subdomains were bounded."""
        self._close: set[int] = set()
        """The roots of which a subdomain stayed open that no split can close."""
        self._queue = self._root_parts()
        self._reached = math.inf

    @property
    def bound(self) -> float:
        """A rigorous upper bound of what the rows, negated, can exceed: above zero while open."""
        if not len(self._queue):
            return -self._reached
        return -min(self._reached, float(self._queue.value.min()))

    def run(self, choice: Choice, most: float = math.inf) -> Outcome:
        """Search from the roots, with the slopes already chosen for them.

        Returns:
            ``proved``; ``refuted`` when a candidate was a witness; ``close`` when something stayed
            open that no split can close; ``more`` when that takes more subdomains than ``most``.
        """
        self._choice = choice
        self._begin(choice)
        return self.resume(most)

    def resume(self, most: float = math.inf) -> Outcome:
        """Go on where a search stopped for the number of its subdomains; what ``run`` returns."""
        tuning = self.tuning
        while len(self._queue):
            self.deadline.check()
            if self.subdomains >= most:
                return Outcome.MORE
            if self.halt is not None and (self._close or self.halt()):
                return Outcome.CLOSE
            many = self.subdomains > tuning.programs_after
            if self.programs is None and many and self._programmable:
                if self._solve_roots():
                    return Outcome.REFUTED
                continue
            long = self.small and not self._programmable
            if long and self.subdomains > tuning.long_after and self.steps < tuning.long_steps:
                # Deep subdomains live by their multipliers, and good ones keep the tree small.
                self.steps, self._reached = tuning.long_steps, math.inf
                self._close.clear()
                self._begin(self._choice)
            order = self._queue.value.argsort()
            batch, rest = self._queue[order[: self.width]], self._queue[order[self.width :]]
            if rest.lower.numel() > tuning.most_numbers:
                raise MemoryError
            open_ = (batch.scores > 0).any(1)
            for i in (~open_).nonzero().flatten().tolist():
                self.deadline.check()
                status = self._leaf(batch[i : i + 1])
                if status == Outcome.REFUTED:
                    return status
                if status == Outcome.CLOSE:
                    self._close.add(int(batch.root[i]))
            if bool(open_.any()):
                survivors = self._bound(self._best_split(batch[open_]))
                if survivors is None:
                    return Outcome.REFUTED
                rest = Subdomains.joined([rest, *survivors])
            self._queue = rest
        return Outcome.CLOSE if self._close else Outcome.PROVED

    @property
    def open(self) -> Tensor:
        """The roots that are not proved yet: subdomains are waiting, or were too close to call."""
        roots = self._close.union(self._queue.root.tolist())
        return torch.tensor(sorted(roots), dtype=torch.long, device=self._queue.root.device)

    @property
    def close(self) -> frozenset[int]:
        """The roots of which a subdomain stayed open that no split can close."""
        return frozenset(self._close)

    def settle(self, left: Tensor, reached: float) -> None:
        """Only these roots are open still; the others were proved, by bounds no less than this."""
        self._queue = self._queue[torch.isin(self._queue.root, left)]
        self._close.intersection_update(left.tolist())
        self._reached = min(self._reached, reached)

    def shallow(self, choice: Choice, rounds: int, most: int) -> Tensor:
        """Search for some rounds only; which roots are still open then, a mask.

        A root with more open subdomains than ``most``, or a subdomain that no split can close, is
        given up.
        """
        self._begin(choice)
        lost = torch.zeros(len(self.roots.problems), dtype=torch.bool, device=choice.alpha.device)
        for _ in range(rounds):
            lost[self._queue.root[~(self._queue.scores > 0).any(1)]] = True
            lost |= torch.bincount(self._queue.root, minlength=len(lost)) > most
            self._queue = self._queue[~lost[self._queue.root]]
            if not len(self._queue):
                break
            self.deadline.check()
            subdomains = self._costliest_split(self._queue)
            left = [
                self._bounded(subdomains[some])[2] for some in batches(len(subdomains), self.width)
            ]
            self._queue = Subdomains.joined(left)
        lost[self._queue.root] = True
        return lost

    def _begin(self, choice: Choice) -> None:
        roots = self._root_parts()
        empty = torch.zeros(len(roots), dtype=torch.bool, device=roots.root.device)
        self._queue = self._survivors(roots, self.whole, empty, choice, roots.signs)

    def _root_parts(self) -> Subdomains:
        count = len(self.roots.problems)
        zero = torch.zeros_like(self.whole.lower)
        none = zero.new_full((count,), -math.inf)
        root = torch.arange(count, device=zero.device)
        lower, upper = self.whole.lower, self.whole.upper
        signs = signs_of(lower, upper)
        return Subdomains(root, lower, upper, signs, self.whole.alpha, zero, zero, none, zero)

    def _inner(self) -> Tensor:
        """The units whose splits may tighten the bounds of others: [units]."""
        inner = [node.name in self.structure.inner for node in self.units.nodes]
        counts = torch.tensor(self.units.counts, dtype=torch.long)
        mask = torch.tensor(inner, dtype=torch.bool).repeat_interleave(counts)
        return mask.to(self.structure.device)

    # --- bounding and splitting ------------------------------------------------------------------

    def _relaxed(self, subdomains: Subdomains) -> Relaxed:
        """The subdomains with what they inherit."""
        region = self.region.select(subdomains.root)
        return Relaxed(
            self.roots.bounds,
            self.units,
            subdomains.root,
            region,
            subdomains.lower,
            subdomains.upper,
        )

    def _closer(self, subdomains: Subdomains) -> tuple[Relaxed, Tensor]:
        """The subdomains, bounds tightened where that may be; and which of them are empty then.

        In small networks that is where a unit was split that lies below others. Bounds of what is
        curved may be closer anywhere.
        """
        empty = torch.zeros(len(subdomains), dtype=torch.bool, device=subdomains.root.device)
        split = signs_of(subdomains.lower, subdomains.upper) != subdomains.signs
        changed = (split & self.inner).any(1) | (not self.structure.piecewise_linear)
        if not self.small or not bool(changed.any()):
            return self._relaxed(subdomains), empty
        relaxed, bounds = self._refined(subdomains[changed])
        empty[changed] = bounds.empty
        if bool(changed.all()):
            return relaxed, empty
        lower, upper = subdomains.lower.clone(), subdomains.upper.clone()
        lower[changed], upper[changed] = relaxed.lower, relaxed.upper
        return self._relaxed(replace(subdomains, lower=lower, upper=upper)), empty

    def _refined(self, subdomains: Subdomains) -> tuple[Relaxed, Bounds]:
        """The subdomains with every tensor enclosed anew, within what they inherit."""
        bounds = self._enclosed(subdomains, self._splits(subdomains))
        return Relaxed.whole(bounds, self.units), bounds

    def _enclosed(
        self, subdomains: Subdomains, splits: Mapping[str, Tensor] | None = None
    ) -> Bounds:
        """Every tensor of some subdomains, within what they inherit.

        Tensors that no activation lies before are the same in every subdomain.
        """
        ends = {
            node.inputs[0]: picked(self.roots.bounds.ends[node.inputs[0]], subdomains.root)
            for node in self.structure.activations
        }
        lower, upper = self.units.split(subdomains.lower), self.units.split(subdomains.upper)
        for node in self.units.nodes:
            source = node.inputs[0]
            ends[source] = (
                self.units.put(node, lower[node.name], ends[source][0]),
                self.units.put(node, upper[node.name], ends[source][1]),
            )
        region = self.region.select(subdomains.root)
        structure = self.structure.select(subdomains.root)
        known = {
            name: picked(self.roots.bounds.ends[name], subdomains.root)
            for name in self.structure.affine
        }
        bounds = Bounds(
            structure,
            region,
            len(subdomains),
            known,
            ends,
            deadline=self.deadline,
            splits=splits,
        )
        bounds.compute(refine=self.small)
        return bounds

    def _splits(self, subdomains: Subdomains) -> dict[str, Tensor]:
        """By tensor, the subdomains in which units of it that are open at the root have a sign."""
        open_ = (self.whole.lower < 0) & (self.whole.upper > 0)
        split = (signs_of(subdomains.lower, subdomains.upper) != 0) & open_[subdomains.root]
        pieces = self.units.split(split)
        return {node.inputs[0]: pieces[node.name].any(1) for node in self.units.nodes}

    def _survivors(
        self,
        subdomains: Subdomains,
        relaxed: Relaxed,
        empty: Tensor,
        choice: Choice,
        signs: Tensor,
    ) -> Subdomains:
        """The subdomains whose bound does not reach, with what was learnt about them."""
        offsets = self.roots.offsets[subdomains.root]
        value = choice.found.value[:, 0]
        reached = value + offsets - rounding_slack(value, offsets)
        done = reached >= 0
        if bool(done.any()):
            self._reached = min(self._reached, float(reached[done].min()))
        done |= empty
        rows = relaxed.coefficients(choice.found)
        left = (~done).nonzero().flatten()
        learnt = Subdomains(
            root=subdomains.root,
            lower=relaxed.lower,
            upper=relaxed.upper,
            signs=signs,
            alpha=choice.alpha,
            beta=choice.multipliers,
            rows=rows,
            value=reached,
            scores=unit_costs(
                rows,
                relaxed.lower,
                relaxed.upper,
                choice.alpha,
                self.units.sizes,
                self.structure.configuration.bounding,
            ),
        )
        return learnt[left]

    def _best_split(self, subdomains: Subdomains) -> Subdomains:
        """The children of each subdomain at the units that promise most.

        The costliest units of each subdomain are tried with one backward pass, a row for each side,
        at the alpha and beta of their parent. Those whose worse side is best are taken: one, or in
        small networks, where a batch costs little more than a subdomain, several at once. This
        costs a pass over many rows and saves most of the tree.
        """
        if self.programs is not None and self.subdomains > self.tuning.every_program_after:
            return self._tried_split(self.programs, subdomains)
        count = min(self.candidates, len(self.units))
        best = subdomains.scores.topk(count, dim=1)
        promise = torch.cat(
            [
                self._promise(subdomains[some], best.indices[some])
                for some in batches(len(subdomains), self.tuning.tried_width)
            ]
        )
        promise = torch.where(best.values > 0, promise, -math.inf)
        order = promise.argsort(dim=1, descending=True)[:, : self._depth(subdomains, self.levels)]
        return children_of(
            subdomains, best.indices.gather(1, order), best.values.gather(1, order) > 0
        )

    def _tried_split(self, programs: Programs, subdomains: Subdomains) -> Subdomains:
        """The children of each subdomain at the unit whose two sides gain most.

        What splits of a unit gained before, for each unit of its gap, says what one will gain.
        Where too few were seen, both sides of the widest gaps are put to the solver, in as many
        subdomains as it takes to believe them.
        """
        best = subdomains.scores.topk(min(self.candidates, len(self.units)), dim=1)
        root = subdomains.root.unsqueeze(1).expand_as(best.indices)
        unknown = (best.values > self.tuning.least_gap) & ~self.costs.known(root, best.indices)
        unknown &= unknown.cumsum(1) <= self.tuning.program_candidates
        part, place = unknown.nonzero().T
        some = self.costs.first(subdomains.root[part], best.indices[part, place])
        part, place = part[some], place[some]
        seen = best.values.new_zeros(2, len(part))
        if len(part):
            units = best.indices[part, place]
            children = subdomains[part].split(units)
            signs = signs_of(children.lower, children.upper)
            found = programs.solve(children.root, children.lower, children.upper, signs)
            seen = found.value.clamp_max(0.0).unflatten(0, (2, -1)) - subdomains.value[part]
            seen = seen.clamp_min(0.0)
            self.costs.learn(subdomains.root[part], units, best.values[part, place], seen)
        gains = self.costs.gains(root, best.indices, best.values)
        gains[:, part, place] = seen
        gains = torch.minimum(gains, -subdomains.value.unsqueeze(1)).clamp_min(1e-9)
        score = torch.where(best.values > 0, gains.prod(0) * (1 + 1e-6 * best.values), -math.inf)
        order = score.argmax(1, keepdim=True)
        return children_of(
            subdomains, best.indices.gather(1, order), best.values.gather(1, order) > 0
        )

    def _costliest_split(self, subdomains: Subdomains) -> Subdomains:
        """The children of each subdomain at the units that cost most, none of them tried before."""
        best = subdomains.scores.topk(self._depth(subdomains, self.tuning.costliest_units), dim=1)
        return children_of(subdomains, best.indices, best.values > 0)

    def _depth(self, subdomains: Subdomains, most: int) -> int:
        """How many units of each subdomain are split at once: a batch holds its children."""
        return min(most, len(self.units), int(math.log2(max(2, self.width // len(subdomains)))))

    def _promise(self, subdomains: Subdomains, units: Tensor) -> Tensor:
        """How good the worse side of a split at each of these units is, [n, candidates]."""
        count = units.shape[1]
        relaxed = self._relaxed(subdomains)
        view = relaxed.view(self.guide, subdomains.alpha)
        signed = self.units.spread((subdomains.signs * subdomains.beta).to(self.guide))
        rows = self.roots.rows[subdomains.root].to(self.guide).expand(-1, 2 * count, -1)
        found = backward(
            view,
            self.start,
            rows,
            multipliers={name: value.unsqueeze(1) for name, value in signed.items()},
            fixed=self._sides(units),
            rigorous=False,
        )
        sides = (found.value + self.roots.offsets[subdomains.root].unsqueeze(1)).clamp_max(0.0)
        sides = sides.unflatten(1, (2, count))
        promise: Tensor = sides.amin(1) + 1e-3 * sides.amax(1)
        return promise

    def _sides(self, units: Tensor) -> dict[str, Fixed]:
        """Both sides of splits at units [n, candidates], as rows: nonnegative ones first."""
        problems, count = units.shape
        problem = torch.arange(problems, device=units.device).unsqueeze(1).expand(-1, 2 * count)
        row = torch.arange(2 * count, device=units.device).expand(problems, -1)
        unit = units.repeat(1, 2)
        slope = torch.where(row < count, 1.0, self.units.leaks[unit])
        sides = {}
        start = 0
        for name, columns in self.units.columns.items():
            own = (unit >= start) & (unit < start + len(columns))
            if bool(own.any()):
                sides[name] = Fixed(problem[own], row[own], columns[unit[own] - start], slope[own])
            start += len(columns)
        return sides

    def _bound(self, subdomains: Subdomains) -> list[Subdomains] | None:
        """Bound the subdomains; those still open, or None when a witness was found."""
        self.subdomains += len(subdomains)
        self.deadline.spend(len(subdomains))
        survivors: list[Subdomains] = []
        for some in batches(len(subdomains), self.width):
            batch = subdomains[some]
            relaxed, choice, left = self._bounded(batch)
            if len(left) and self.steps > self.tuning.steps:
                batch = left
                relaxed, choice, left = self._bounded(batch, self.steps - self.tuning.steps)
            if not len(left):
                continue
            low = choice.found.value[:, 0] + self.roots.offsets[batch.root] < 0
            low = low.nonzero().flatten()
            corners = {
                name: relaxed.region.corner(name, reached[:, 0].double())[low]
                for name, reached in choice.found.inputs.items()
            }
            if self.attempt(corners, self.roots.problems[batch.root[low]]):
                return None
            if self.programs is not None and self.subdomains > self.tuning.every_program_after:
                found = self._solved(self.programs, left)
                if found is None:
                    return None
                left = found
            survivors.append(left)
        return survivors

    # --- linear programs -------------------------------------------------------------------------

    @cached_property
    def _programmable(self) -> bool:
        return self.small and has_programs(self.roots.bounds, self.units)

    def _solve_roots(self) -> bool:
        """Begin anew from roots whose bounds linear programs tightened; whether refuted."""
        waiting = self._queue.root
        roots = self._root_parts()
        self.programs = Programs(self.roots, self.units, self.deadline)
        self.costs = PseudoCosts(len(roots), len(self.units), self.structure.device, self.tuning)
        lower, upper = self.programs.sharpen(roots.lower, roots.upper)
        self.roots = replace(
            self.roots, bounds=self._enclosed(replace(roots, lower=lower, upper=upper))
        )
        self.whole = Relaxed.whole(self.roots.bounds, self.units)
        roots = self._root_parts()
        self._reached = math.inf
        self._close.clear()
        survivors = self._bound(roots[torch.isin(roots.root, waiting)])
        if survivors is None:
            return True
        self._queue = Subdomains.joined([roots[:0], *survivors])
        return False

    def _solved(self, programs: Programs, subdomains: Subdomains) -> Subdomains | None:
        """What the duals of their linear programs leave of some subdomains; None if refuted."""
        found = programs.solve(
            subdomains.root, subdomains.lower, subdomains.upper, subdomains.signs
        )
        if self.attempt(found.points, self.roots.problems[subdomains.root]):
            return None
        alpha = programs.alpha(found.alpha, subdomains.alpha)
        relaxed = self._relaxed(subdomains)
        rows, offsets = self.roots.rows[subdomains.root], self.roots.offsets[subdomains.root]
        choice = optimise(
            relaxed, self.start, rows, offsets, alpha, subdomains.signs, found.beta, steps=0
        )
        value = choice.found.value[:, 0]
        reached = value + offsets - rounding_slack(value, offsets)
        done = reached >= 0
        if bool(done.any()):
            self._reached = min(self._reached, float(reached[done].min()))
        scores = torch.where(subdomains.scores > 0, found.gaps + self.tuning.least_gap * 1e-3, 0.0)
        subdomains = replace(
            subdomains, value=torch.maximum(subdomains.value, reached), scores=scores
        )
        return subdomains[(~done).nonzero().flatten()]

    def _bounded(
        self, batch: Subdomains, steps: int | None = None
    ) -> tuple[Relaxed, Choice, Subdomains]:
        """Bound a batch of subdomains: with which lines, by which choice, and what stays open."""
        relaxed, empty = self._closer(batch)
        signs, beta = batch.signed(relaxed.lower, relaxed.upper, self.units.leaks)
        choice = optimise(
            relaxed,
            self.start,
            self.roots.rows[batch.root],
            self.roots.offsets[batch.root],
            batch.alpha,
            signs,
            beta,
            self.tuning.steps if steps is None else steps,
        )
        return relaxed, choice, self._survivors(batch, relaxed, empty, choice, signs)

    def _leaf(self, part: Subdomains) -> Outcome:
        """Close a subdomain without unstable units: proved, refuted or close."""
        self.deadline.spend(1)
        _, bounds = self._refined(part)
        rows, offsets = self.roots.rows[part.root], self.roots.offsets[part.root]
        signs = self.units.spread(part.signs)
        answer = solve_leaf(bounds, self.start, rows, signs, self.deadline)
        if answer.point is not None and self.attempt(answer.point, self.roots.problems[part.root]):
            return Outcome.REFUTED
        signed = {n: (signs[n] * d).unsqueeze(1) for n, d in answer.multipliers.items()}
        value = bounds.backward(self.start, rows, multipliers=signed).value[:, 0]
        reached = value + offsets - rounding_slack(value, offsets)
        if bool(((reached >= 0) | bounds.empty).all()):
            self._reached = min(self._reached, max(float(reached.min()), 0.0))
            return Outcome.PROVED
        self.deadline.check()
        self._reached = min(self._reached, float(reached.min()))
        return Outcome.CLOSE
