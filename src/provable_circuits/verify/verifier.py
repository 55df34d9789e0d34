"""The verifier: cheap answers first, rigorous ones only.

    inert removals -> pool of earlier witnesses -> backward linear bounds -> corners the bounds
    point to -> gradient attack -> optimised slopes -> branch and bound

A stage either answers or hands on what it learnt. Everything that does not depend on the circuit is
prepared once; enclosures of tensors that a later query shares with an earlier one are found again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.encoding import Encoder, InputRange, Query
from provable_circuits.claims.patching import IntervalHull
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.rounding import Interval
from provable_circuits.verify.attack import climb, excess_at, random_points
from provable_circuits.verify.backward import Pass
from provable_circuits.verify.bounds import Bounds, Structure
from provable_circuits.verify.branching import SMALL, BranchAndBound, Roots
from provable_circuits.verify.costs import costliest, relaxation_costs
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.difference import Difference, Known
from provable_circuits.verify.inert import Inert
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import Lines
from provable_circuits.verify.relaxed import Relaxed
from provable_circuits.verify.replay import Replay
from provable_circuits.verify.slopes import optimise
from provable_circuits.verify.units import Units
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness

SHARES = (0.8, 1.0)
"""Shares of the relaxation's costs that are refined, one after the other, where that is dear."""

POOL = 64
"""How many witnesses are kept to be tried on later circuits."""


@dataclass(slots=True, eq=False)
class _Memory:
    """Enclosures met earlier: of the network's tensors, and of circuits' cut tensors."""

    whole: dict[str, Interval] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    cut: dict[str, tuple[Tensor | None, Interval]] = field(default_factory=dict)


class Verifier:
    """Decides circuits of one network under one claim.

    Args:
        components: the components that circuits are sets of.
        claim: the claim.
        seed: the seed of random starts.
        attack_steps: steps of the gradient attack.
        attack_starts: random starts of the gradient attack for each input.
    """

    def __init__(
        self,
        components: Components,
        claim: Claim,
        *,
        seed: int = 0,
        attack_steps: int = 20,
        attack_starts: int = 4,
    ) -> None:
        self.components = components
        self.claim = claim
        self.encoder = Encoder(components, claim)
        self.replay = Replay(self.encoder)
        self.memory = _Memory()
        self.pool: list[Witness] = []
        self.inert = Inert(self.encoder)
        self.difference = Difference(self.encoder)
        self.last: Known | None = None
        self.seed = seed
        self.attack_steps = attack_steps
        self.attack_starts = attack_starts

    def ask(self, circuit: Circuit, timeout: float = 45.0) -> Verdict:
        """Prove or refute the claim of ``circuit``, within ``timeout`` seconds."""
        if circuit.components is not self.components and circuit.components != self.components:
            circuit = self.components.circuit(circuit.names)
        deadline = Deadline.after(timeout)
        settled = self.inert.settled(self.last, circuit)
        if self.last is not None and bool(settled.all()):
            self.last = replace(self.last, circuit=circuit)
            return Proved(0.0, "inert")
        question = _Question(self, self.encoder.encode(circuit), settled, deadline)
        try:
            return question.answer()
        except OutOfTime:
            return Undecided("time", question.stage)

    def remember(self, witness: Witness) -> None:
        """Keep a witness for later circuits."""
        self.pool.append(witness)
        del self.pool[:-POOL]


class _Question:
    """One query on its way through the stages."""

    def __init__(
        self, verifier: Verifier, query: Query, settled: Tensor, deadline: Deadline
    ) -> None:
        self.verifier = verifier
        self.query = query
        self.settled = settled
        self.deadline = deadline
        self.structure = Structure(query.graph, torch.device("cpu"))
        self.region = Region(query.ranges)
        self.count = query.rows.shape[0]
        self.found: Witness | None = None
        units = sum(math.prod(node.shape) for node in self.structure.activations)
        self.small = units <= SMALL
        self.stage = "linear"

    def answer(self) -> Verdict:
        if self._pool():
            return self._refuted("pool")
        last = self.verifier.last
        quick = not self.small and last is not None and self.query.circuit <= last.circuit
        bounds = self._bounds(refine=not quick)
        first, open_ = self._linear(bounds)
        if not len(open_):
            return self._proved(bounds, "difference" if quick else "linear")
        problems, constraints = open_.T
        corners = {
            name: self.region.select(problems).corner(name, reached[problems, constraints])
            for name, reached in first.inputs.items()
        }
        if self._try(corners, problems):
            return self._refuted("corner")
        if self._attack(problems, constraints, corners):
            return self._refuted("attack")
        for share in SHARES if quick else ():
            bounds = self._sharpen(bounds, first, open_, share)
            first, open_ = self._linear(bounds)
            if not len(open_):
                return self._proved(bounds, "linear")
        return self._search(bounds, *open_.T)

    def _sharpen(self, bounds: Bounds, found: Pass, open_: Tensor, share: float) -> Bounds:
        """Refine, for inputs still open, the units that make up a share of their bounds' costs."""
        structure, common = self.structure, self.query.common
        problems = open_[:, 0].unique()
        counts = torch.zeros(found.value.shape, dtype=torch.bool)
        counts[open_[:, 0], open_[:, 1]] = True
        costs: dict[str, Tensor] = {}
        for name, cost in relaxation_costs(bounds, found).items():
            source = structure.graph[name].inputs[0]
            if source not in common:
                mask = counts.reshape(*counts.shape, *([1] * (cost.ndim - 2)))
                costs[source] = (cost * mask).amax(1)[problems]
        sources = {node.inputs[0] for node in structure.activations}
        before = {name: _expanded(bounds.ends[name], self.count) for name in sources}
        closer = Bounds(
            structure,
            self.region.select(problems),
            len(problems),
            known={n: _rows(e, problems) for n, e in bounds.ends.items() if n in common},
            prior={n: _rows(e, problems) for n, e in before.items() if n not in common},
            deadline=self.deadline,
            targets=costliest(costs, share),
        )
        closer.compute(refine=True)
        prior = {
            name: (
                before[name][0].index_copy(0, problems, closer.ends[name][0]),
                before[name][1].index_copy(0, problems, closer.ends[name][1]),
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
            self.verifier.memory.lines,
            self.deadline,
        )
        sharper.compute(refine=False)
        return sharper

    def _linear(self, bounds: Bounds) -> tuple[Pass, Tensor]:
        """One backward pass for the whole specification; what it leaves open, [n, 2]."""
        offsets = -self.query.offsets
        found = bounds.backward(
            self.query.graph.outputs[0], -self.query.rows, keep_rows=not self.small
        )
        slip = (found.value.abs() + offsets.abs()) * 2.0**-52
        open_ = (found.value + offsets - slip < 0) & ~self.settled.unsqueeze(1)
        return found, open_.nonzero()

    def _search(self, bounds: Bounds, problems: Tensor, constraints: Tensor) -> Verdict:
        """Optimised slopes, then branch and bound, for all open rows together."""
        start = self.query.graph.outputs[0]
        rows = -self.query.rows[problems, constraints].unsqueeze(1)
        offsets = -self.query.offsets[problems, constraints]
        self.stage = "slopes"
        picked = _pick(self.structure, self.region, bounds, problems)
        picked.deadline = self.deadline
        steps = 4 if self.small else 20
        relaxed = Relaxed.whole(picked, Units(picked))
        choice = optimise(relaxed, start, rows, offsets, relaxed.slopes, steps=steps)
        value = choice.found.value[:, 0]
        if bool((value + offsets - (value.abs() + offsets.abs()) * 2.0**-52 >= 0).all()):
            return self._proved(bounds, "slopes")
        self.stage = "branching"
        search = BranchAndBound(
            self.structure,
            self.region,
            Roots(picked, problems, rows, offsets),
            start,
            self._try,
            self.deadline,
        )
        outcome = search.run(choice)
        if outcome.status == "refuted":
            return self._refuted("branching")
        if outcome.status == "close":
            return Undecided("numerically too close to call", "branching")
        return self._proved(bounds, "branching")

    def _proved(self, bounds: Bounds, stage: str) -> Verdict:
        self.verifier.last = Known(self.query.circuit, self.query, bounds)
        return Proved(0.0, stage)

    def _refuted(self, stage: str) -> Verdict:
        if self.found is None:
            raise RuntimeError("a refutation without a witness")
        self.verifier.remember(self.found)
        return Refuted(self.found, stage)

    # --- stages ---------------------------------------------------------------------------------

    def _pool(self) -> bool:
        """Earlier witnesses, latest first."""
        verifier = self.verifier
        if not verifier.pool:
            return False
        points = _pool_points(self.query, verifier.pool)
        problems = torch.tensor([witness.index for witness in verifier.pool])
        return self._try(points, problems)

    def _bounds(self, refine: bool) -> Bounds:
        """Enclosures of every tensor: remembered, derived from the last proof's, or computed."""
        last = self.verifier.last
        prior: dict[str, Interval] = {}
        if not self.small and last is not None and self.query.circuit <= last.circuit:
            prior = self.verifier.difference.enclosures(last, self.query)
        memory = self.verifier.memory
        known: dict[str, Interval] = {}
        for node in self.query.graph.nodes:
            ends = self._recall(node.name)
            if ends is not None:
                known[node.name] = ends
        bounds = Bounds(
            self.structure,
            self.region,
            self.count,
            known,
            prior,
            memory.lines,
            self.deadline,
        )
        bounds.compute(refine)
        if not refine:
            return bounds
        sources = {node.inputs[0] for node in self.structure.activations}
        for name, ends in bounds.ends.items():
            if name in known or name in self.query.ranges:
                continue
            if name in self.query.common:
                memory.whole[name] = ends
            elif name in sources and name in self.query.lasting:
                memory.cut[name] = (self.query.cut.get(name), ends)
        for name, line in bounds.lines.items():
            if name in self.query.common:
                memory.lines[name] = line
        return bounds

    def _recall(self, name: str) -> Interval | None:
        memory = self.verifier.memory
        if name in memory.whole:
            return memory.whole[name]
        if name not in memory.cut:
            return None
        had, (lower, upper) = memory.cut[name]
        want = self.query.cut.get(name)
        if had is None and want is None:
            return lower, upper
        if want is None:
            return None
        if had is None:
            return lower[:, want], upper[:, want]
        place = torch.searchsorted(had, want).clamp_max(len(had) - 1)
        if not bool((had[place] == want).all()):
            return None
        return lower[:, place], upper[:, place]

    def _attack(self, problems: Tensor, constraints: Tensor, corners: Mapping[str, Tensor]) -> bool:
        verifier, query = self.verifier, self.query
        generator = torch.Generator().manual_seed(verifier.seed)
        starts_each = verifier.attack_starts if self.small else 1
        copies = problems.repeat(starts_each)
        starts = random_points(self.region, copies, generator)
        for name, corner in corners.items():
            starts[name] = torch.cat([corner, starts[name]])
        for name in starts:
            if name not in corners:
                box = self.region.ranges[name]
                middle = ((box.lower + box.upper) * 0.5)[problems]
                starts[name] = torch.cat([middle, starts[name]])
        everyone = torch.cat([problems, copies])
        which = constraints.repeat(starts_each + 1)
        rows = query.rows[everyone, which].unsqueeze(1)
        offsets = query.offsets[everyone, which].unsqueeze(1)
        steps = verifier.attack_steps if self.small else verifier.attack_steps // 3
        best = climb(query.graph, self.region, everyone, starts, rows, offsets, steps)
        if not bool((best.excess > 0).any()):
            return False
        return self._try(best.points, everyone)

    def _try(self, points: Mapping[str, Tensor], problems: Tensor) -> bool:
        """Evaluate candidate points; replay those that seem to violate the claim."""
        query = self.query
        missing = [name for name in query.graph.inputs if name not in points]
        if missing:
            points = dict(points)
            for name in missing:
                box = query.ranges[name]
                points[name] = ((box.lower + box.upper) * 0.5)[problems]
        excess = excess_at(query.graph, points, query.rows[problems], query.offsets[problems])
        worst = excess.amax(1)
        for i in worst.argsort(descending=True).tolist()[:4]:
            if not float(worst[i]) > 0:
                return False
            self.found = self._replay(points, i, int(problems[i]))
            if self.found is not None:
                return True
        return False

    def _replay(self, points: Mapping[str, Tensor], i: int, index: int) -> Witness | None:
        encoder, circuit = self.verifier.encoder, self.query.circuit
        z = points[encoder.z][i] if encoder.z in points else encoder.claim.inputs[index].center
        patch_input = points.get("patch:input")
        if patch_input is None:
            patch_input = _centers(encoder.patch_range)
            patch_input = None if patch_input is None else patch_input[index]
        else:
            patch_input = patch_input[i]
        values: dict[str, Tensor] = {}
        if isinstance(encoder.claim.patching, IntervalHull):
            values = _hull_values(encoder, circuit, points, i, index)
        return self.verifier.replay.witness(circuit, index, z, patch_input, values)


def _pick(structure: Structure, region: Region, bounds: Bounds, problems: Tensor) -> Bounds:
    """The bounds of some problems, possibly repeated."""
    known = {name: _rows(ends, problems) for name, ends in bounds.ends.items()}
    picked = Bounds(structure, region.select(problems), len(problems), known)
    picked.compute(refine=False)
    return picked


def _rows(ends: Interval, problems: Tensor) -> Interval:
    """The ends of some problems; those of constants are the same for all."""
    lower, upper = ends
    return (lower[problems], upper[problems]) if len(lower) > 1 else ends


def _expanded(ends: Interval, count: int) -> Interval:
    lower, upper = ends
    return lower.expand(count, *lower.shape[1:]), upper.expand(count, *upper.shape[1:])


def _centers(box: InputRange | None) -> Tensor | None:
    return None if box is None else (box.lower + box.upper) * 0.5


def _pool_points(query: Query, pool: Sequence[Witness]) -> dict[str, Tensor]:
    """The pool's witnesses as points of the merged graph's inputs."""
    points: dict[str, Tensor] = {}
    problems = torch.tensor([witness.index for witness in pool])
    for name, box in query.ranges.items():
        if name == "patch:input":
            given = [w.patch_input for w in pool]
            if all(value is not None for value in given):
                points[name] = torch.stack([v for v in given if v is not None])
        elif name.startswith("patch:"):
            site = name.removeprefix("patch:")
            removed = query.removed_units[site]
            given = [None if w.patch_values is None else w.patch_values.get(site) for w in pool]
            if all(value is not None for value in given):
                points[name] = torch.stack([v.flatten()[removed] for v in given if v is not None])
        elif name.startswith("at:"):
            points[name] = ((box.lower + box.upper) * 0.5)[problems]
        else:
            points[name] = torch.stack([w.z for w in pool])
    return points


def _hull_values(
    encoder: Encoder, circuit: Circuit, points: Mapping[str, Tensor], i: int, index: int
) -> dict[str, Tensor]:
    """Patch values by site from the removed units' inputs of the merged graph."""
    keep = encoder.components.masks([circuit])
    values = {}
    for site in encoder.components.sites:
        given = points.get(f"patch:{site.tensor}")
        if given is None:
            continue
        lower, upper = encoder.hull_at(site.tensor, index)
        value = (lower + (upper - lower) * 0.5).flatten().clone()
        gone = (~site.unit_mask(keep)[0].expand(site.layer.shape)).flatten()
        value[gone] = given[i]
        values[site.tensor] = value.reshape(site.layer.shape)
    return values
