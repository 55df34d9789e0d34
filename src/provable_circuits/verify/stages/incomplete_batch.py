"""Incomplete batches: many circuits of a small network through the cheap stages, in one pass each.

    pool of earlier witnesses -> backward linear bounds -> corners

On small networks a question costs what its many small operations cost, whatever they work on; a
batch of circuits costs little more than one. Circuits are bounded together that remove from the
same sites, because those share the same tensors with the network. What the bounds leave open is
kept, to be split a few times as soon as someone asks about it: many never are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.verify.attacking.candidates import candidate_at, middles
from provable_circuits.verify.attacking.pgd import ascend_once, excess_at
from provable_circuits.verify.attacking.replay import Candidate
from provable_circuits.verify.bounding.bounds import Bounds, picked_all
from provable_circuits.verify.bounding.relaxed import picked_lines
from provable_circuits.verify.bounding.root_problems import rounding_slack
from provable_circuits.verify.branching.batched_splits import Backoff, split_rows
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.encoding.batched import BatchedProblem, encode_batch
from provable_circuits.verify.encoding.roles import by_name
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.context import Context
from provable_circuits.verify.stages.preparation import common_bounds
from provable_circuits.verify.verdict import Proved, Refuted, Verdict

Likely = dict[int, tuple[Candidate, str]]
"""By circuit, a candidate that plain runs make look like a witness, and the stage it is from."""


@dataclass(slots=True, eq=False)
class OpenBatch:
    """Circuits that were bounded together, some of which were left open.

    Attributes:
        together: the circuits.
        bounds: enclosures of their tensors.
        value: what the specification's rows reach at least, [problems, constraints].
        open: the places of those that are open and were not split yet.
        proved: by place, those that splitting has proved.
    """

    batched: BatchedProblem
    bounds: Bounds
    value: Tensor
    open: list[int]
    proved: dict[int, Proved] = field(default_factory=dict)


class IncompleteBatch:
    """Gives cheap answers about many circuits of one verifier."""

    def __init__(self, context: Context) -> None:
        self.context = context
        most = context.configuration.branching.most_failures
        self._splitting = Backoff(most_failures=most)
        self._left: dict[int, tuple[OpenBatch, int]] = {}
        """By the bits of a circuit that the last incomplete batch left open, where it is."""

    def answers(self, circuits: Sequence[Circuit], deadline: Deadline) -> list[Verdict | None]:
        """A verdict for each circuit that the cheap stages decide."""
        found: list[Verdict | None] = [None] * len(circuits)
        self.forget()
        if not self.context.batches or not circuits:
            return found
        likely = self._broken(circuits)
        try:
            for group in self._groups(
                circuits, [i for i in range(len(circuits)) if i not in likely]
            ):
                deadline.check()
                batched = encode_batch(self.context.encoder, [circuits[i] for i in group])
                self._bound(batched, group, found, likely, deadline)
        except OutOfTime:
            pass
        for i, refuted in self._replayed(likely).items():
            found[i] = refuted
        return found

    def forget(self) -> None:
        """Forget what the last incomplete batch left open."""
        self._left.clear()

    def split(self, circuit: Circuit, deadline: Deadline) -> Proved | None:
        """A proof by a few splits, of a circuit that the last incomplete batch left open.

        As long as that goes well, all that were bounded together with it are split as well.
        """
        batch, place = self._left.pop(circuit.bits, (None, 0))
        if batch is None:
            return None
        if place in batch.open and self._splitting.tries():
            some = batch.open if self._splitting.failures == 0 else [place]
            self._split(batch, some, deadline)
            batch.open = [other for other in batch.open if other not in some]
            self._splitting.learn(place in batch.proved)
        return batch.proved.get(place)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        """Which circuits an earlier witness seems to break."""
        likely = self._broken(circuits) if self.context.batches and circuits else {}
        return [i in likely for i in range(len(circuits))]

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        """Which circuits seem to be broken: by an earlier witness, or by one step of an attack."""
        if not self.context.batches or not circuits:
            return [False] * len(circuits)
        likely = self._broken(circuits)
        attacked: Likely = {}
        for group in self._groups(circuits, [i for i in range(len(circuits)) if i not in likely]):
            batched = encode_batch(self.context.encoder, [circuits[i] for i in group])
            self._step(batched, group, attacked)
        self._replayed(attacked)
        return [i in likely or i in attacked for i in range(len(circuits))]

    def _groups(self, circuits: Sequence[Circuit], which: Sequence[int]) -> list[list[int]]:
        """Circuits by the sites that they remove from; the network itself is left out."""
        sites = self.context.encoder.components.sites
        spans = [((1 << len(site.components)) - 1) << site.start for site in sites]
        groups: dict[tuple[bool, ...], list[int]] = {}
        for i in which:
            removed = (~circuits[i]).bits
            if removed:
                groups.setdefault(tuple(bool(removed & s) for s in spans), []).append(i)
        most = self.context.configuration.stages.together
        return [
            group[start : start + most]
            for group in groups.values()
            for start in range(0, len(group), most)
        ]

    def _broken(self, circuits: Sequence[Circuit]) -> Likely:
        """Circuits that exceed the metric at an earlier witness, by plain runs."""
        context = self.context
        components, patching = context.encoder.components, context.encoder.claim.patching
        hull = patching.has_boxes
        pool = [w for w in context.knowledge.pool if not hull or w.patch_values is not None]
        if not pool:
            return {}
        z = torch.stack([witness.z for witness in pool]).double()
        patches: dict[str, Tensor]
        if patching.is_fixed:
            patches = dict(context.encoder.fixed)
        elif patching.has_boxes:
            values = [w.patch_values or {} for w in pool]
            patches = {
                site.tensor: torch.stack([v[site.tensor] for v in values])
                for site in components.sites
            }
        else:
            source = torch.stack([w.z if w.patch_input is None else w.patch_input for w in pool])
            run = components.graph.activations(source.double())
            patches = {site.tensor: run[site.tensor] for site in components.sites}
        outputs = components.run(circuits, z, patches)
        reference = torch.stack([witness.reference for witness in pool]).double()
        index = torch.tensor([witness.index for witness in pool])
        y = context.replay.compared(reference.expand(outputs.shape), outputs)
        specification = context.encoder.specification
        rows, offsets = specification.rows[index], specification.offsets[index]
        excess = ((rows @ y.unsqueeze(3)).squeeze(3) + offsets).amax(2)
        worst, place = excess.max(1)
        found: Likely = {}
        for i, (by, w) in enumerate(zip(worst.tolist(), place.tolist(), strict=True)):
            if by > 0:
                old = pool[w]
                candidate = Candidate(
                    circuits[i], old.index, old.z, old.patch_input, old.patch_values
                )
                found[i] = (candidate, Stage.POOL)
        return found

    def _replayed(self, likely: Likely) -> dict[int, Refuted]:
        """Those of the candidates, by circuit, that are witnesses; new ones are remembered."""
        if not likely:
            return {}
        found = {}
        witnesses = self.context.replay.witnesses([candidate for candidate, _ in likely.values()])
        for (i, (_, stage)), witness in zip(likely.items(), witnesses, strict=True):
            if witness is not None:
                found[i] = Refuted(witness, stage)
                if stage != "pool":
                    self.context.knowledge.remember(witness)
        return found

    def _bound(
        self,
        batched: BatchedProblem,
        group: list[int],
        found: list[Verdict | None],
        likely: Likely,
        deadline: Deadline,
    ) -> None:
        """Linear bounds of a group, and the corners that they point to."""
        context = self.context
        self._prepare(batched, deadline)
        memory = context.knowledge.memory
        graph, region = batched.graph, context.region(batched.ranges)
        roles = {node.name: batched.roles[node.name] for node in graph.nodes}
        lines = by_name(memory.lines, roles)
        bounds = Bounds(
            context.structure(graph),
            region,
            len(batched.rows),
            picked_all(by_name(memory.whole, roles), batched.inputs),
            known_lines={name: picked_lines(line, batched.inputs) for name, line in lines.items()},
            deadline=deadline,
        )
        bounds.compute()
        passed = bounds.backward(graph.outputs[0], -batched.rows)
        offsets = -batched.offsets
        value = passed.value + offsets - rounding_slack(passed.value, offsets)
        least = value.unflatten(0, (len(group), -1)).flatten(1).amin(1).tolist()
        for i, reached in zip(group, least, strict=True):
            if reached >= 0:
                found[i] = Proved(context.encoder.specification.at_most(-reached), Stage.LINEAR)
        if min(least) >= 0:
            return
        row = value.argmin(1)
        everyone = torch.arange(len(row), device=row.device)
        points = {
            name: region.corner(name, reached[everyone, row])
            for name, reached in passed.inputs.items()
        }
        self._note(batched, group, points, likely, Stage.CORNER, found)
        open_ = [c for c, i in enumerate(group) if found[i] is None and i not in likely]
        batch = OpenBatch(batched, bounds, value, open_)
        self._left |= {batched.circuits[c].bits: (batch, c) for c in open_}

    def _split(self, batch: OpenBatch, some: Sequence[int], deadline: Deadline) -> None:
        """Split the problems of some circuits."""
        batched, value = batch.batched, batch.value
        batch.bounds.deadline = deadline
        size = len(batched.circuits)
        wanted = torch.zeros(size, dtype=torch.bool)
        wanted[list(some)] = True
        each = wanted.repeat_interleave(self.context.encoder.count).unsqueeze(1)
        rows = (~(value >= 0) & each.to(value.device)).nonzero()
        problems, constraints = rows[split_rows(batched, batch.bounds, rows, deadline)].T
        settled = value.clone()
        settled[problems, constraints] = 0.0
        least = settled.unflatten(0, (size, -1)).flatten(1).amin(1).tolist()
        for c in some:
            if least[c] >= 0:
                bound = self.context.encoder.specification.at_most(-least[c])
                batch.proved[c] = Proved(bound, Stage.SPLITTING)

    def _step(self, batched: BatchedProblem, group: list[int], likely: Likely) -> None:
        """One step of an attack on every circuit: the corner that gradients at the middle name."""
        region = self.context.region(batched.ranges)
        everyone = torch.arange(len(batched.rows), device=batched.rows.device)
        points = ascend_once(batched.graph, region, everyone, batched.rows, batched.offsets)
        self._note(batched, group, points, likely, Stage.ATTACK)

    def _prepare(self, batched: BatchedProblem, deadline: Deadline) -> None:
        """Bound the tensors that all circuits have in common, unless that was done before."""
        context, graph, whole = self.context, batched.graph, self.context.knowledge.memory.whole
        inner = [node for node in graph.nodes if batched.roles[node.name].common]
        roles = {node.name: batched.roles[node.name] for node in inner}
        if all(roles[n.name] in whole or n.name in graph.inputs for n in inner):
            return
        inputs = [node.name for node in inner if node.name in graph.inputs]
        first = torch.arange(context.encoder.count)
        ranges = context.region({name: batched.ranges[name] for name in inputs}).select(first)
        common_bounds(context, Graph(inner, inputs, [inner[-1].name]), roles, ranges, deadline)

    def _note(
        self,
        batched: BatchedProblem,
        group: list[int],
        points: Mapping[str, Tensor],
        likely: Likely,
        stage: str,
        found: Sequence[Verdict | None] = (),
    ) -> None:
        """Evaluate a point for every problem; note the worst of each circuit still open."""
        encoder = self.context.encoder
        everyone = torch.arange(len(batched.rows), device=batched.rows.device)
        missing = [name for name in batched.graph.inputs if name not in points]
        points = {**points, **middles(batched.ranges, everyone, missing)}
        excess = excess_at(batched.graph, points, batched.rows, batched.offsets).amax(1)
        worst, place = excess.unflatten(0, (len(group), -1)).max(1)
        for c, (i, by, k) in enumerate(zip(group, worst.tolist(), place.tolist(), strict=True)):
            if by > 0 and i not in likely and not (found and found[i] is not None):
                problem = c * encoder.count + k
                index = int(batched.inputs[problem])
                candidate = candidate_at(
                    encoder, batched.circuits[c], batched.roles, points, problem, index
                )
                likely[i] = (candidate, stage)
