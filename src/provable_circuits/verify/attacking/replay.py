"""Replay: a candidate witness is believed only after it was run through the original network.

The point must lie inside the exact domain. Network and circuit are evaluated there by interval
arithmetic on the network as given (no merging, no lowering), every rounding error enclosed, and the
metric must be exceeded at the lower end of the enclosure. Candidates of several circuits are
replayed in one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Domain
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.intervals import Intervals, propagate
from provable_circuits.network.semantics import CircuitMask, interpret
from provable_circuits.rounding import TINY, Interval
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.verdict import Witness


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A point that may violate the claim.

    Attributes:
        circuit: the circuit.
        index: which of the claim's inputs.
        z: the input, per sample; it is moved inside its domain if rounding put it outside.
        patch_input: for Reachable patching, the input that patches are taken at.
        patch_values: for IntervalHull patching, by site, values [*shape] of its units.
    """

    circuit: Circuit
    index: int
    z: Tensor
    patch_input: Tensor | None = None
    patch_values: Mapping[str, Tensor] | None = None


class Replay:
    """Replays candidate witnesses of one claim about one network."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.claim: Claim = encoder.claim
        self.graph = encoder.components.graph
        builder = GraphBuilder()
        size = self.graph.output_shape
        reference, output = builder.input("reference", size), builder.input("output", size)
        self._y = builder.build([encoder.specification.write(builder, reference, output)])

    def compared(self, reference: Tensor, output: Tensor) -> Tensor:
        """What the specification's rows are applied to, in plain floating point: [..., m]."""
        feeds = {"reference": reference.flatten(0, -2), "output": output.flatten(0, -2)}
        y = evaluate(self._y, {name: feeds[name] for name in self._y.inputs})[self._y.outputs[0]]
        compared: Tensor = y.unflatten(0, output.shape[:-1])
        return compared

    def witness(self, candidate: Candidate) -> Witness | None:
        """The witness, if the candidate is inside its domains and really violates the claim."""
        return self.witnesses([candidate])[0]

    def witnesses(self, candidates: Sequence[Candidate]) -> list[Witness | None]:
        """The same for several candidates, in one run."""
        claim, components = self.claim, self.encoder.components
        domains = [claim.inputs[candidate.index] for candidate in candidates]
        points, inside = _placed([candidate.z for candidate in candidates], domains)
        patches, sources, values = self._patches(candidates, inside)
        keep = components.masks([candidate.circuit for candidate in candidates])
        mask = CircuitMask.of_nodes(components, keep)
        reference = propagate(self.graph, {self.graph.inputs[0]: (points, points)})
        output, own = self._circuit(points, mask, patches)
        outputs = {"reference": reference[self.graph.outputs[0]], "output": output}
        feeds = {name: outputs[name] for name in self._y.inputs}
        low, high = propagate(self._y, feeds)[self._y.outputs[0]]
        index = torch.tensor([candidate.index for candidate in candidates])
        rows = self.encoder.specification.rows[index]
        offsets = self.encoder.specification.offsets[index]
        excess, row = _least(rows, offsets, low, high).max(1)
        if values is not None:
            values = self._values_of_the_run(candidates, mask, values, own)
        before, after = _middle(outputs["reference"]), _middle(output)
        found: list[Witness | None] = []
        for i, candidate in enumerate(candidates):
            by = self.encoder.specification.at_least(float(excess[i]))
            if not (inside[i] and by > 0):
                found.append(None)
                continue
            found.append(
                Witness(
                    index=candidate.index,
                    z=points[i],
                    excess=by,
                    constraint=int(row[i]),
                    reference=before[i],
                    output=after[i],
                    patch_input=None if sources is None else sources[i],
                    patch_values=(
                        None if values is None else {name: v[i] for name, v in values.items()}
                    ),
                )
            )
        return found

    def _patches(
        self, candidates: Sequence[Candidate], inside: list[bool]
    ) -> tuple[dict[str, Interval], Tensor | None, dict[str, Tensor] | None]:
        """The patches of every site, [n, *shape] or [1, *shape], and what they come from.

        A candidate whose patch input is missing or outside its domain is marked in ``inside``.
        """
        claim = self.claim
        patching = claim.patching
        if patching.is_fixed:
            return {name: (v, v) for name, v in self.encoder.fixed.items()}, None, None
        if patching.has_boxes:
            patches, values = self._hull_patches(candidates)
            return patches, None, values
        sources = {j: patching.domain(j, claim.inputs) for j in {c.index for c in candidates}}
        domains = [sources[candidate.index] for candidate in candidates]
        given = [candidate.patch_input for candidate in candidates]
        points = [d.center if p is None else p for d, p in zip(domains, given, strict=True)]
        found, there = _placed(points, domains)
        for i, point in enumerate(given):
            inside[i] &= point is not None and there[i]
        return propagate(self.graph, {self.graph.inputs[0]: (found, found)}), found, None

    def _hull_patches(
        self, candidates: Sequence[Candidate]
    ) -> tuple[dict[str, Interval], dict[str, Tensor]]:
        """Values clamped to their boxes; a site that was not given takes the middle of its box."""
        patches: dict[str, Interval] = {}
        kept: dict[str, Tensor] = {}
        for site in self.encoder.components.sites:
            points = []
            for candidate in candidates:
                lower, upper = self.encoder.hull_at(site.tensor, candidate.index)
                value = (candidate.patch_values or {}).get(site.tensor)
                middle = lower + (upper - lower) * 0.5
                point = middle if value is None else value.double().unsqueeze(0)
                points.append(torch.minimum(torch.maximum(point, lower), upper))
            kept[site.tensor] = torch.cat(points)
            patches[site.tensor] = (kept[site.tensor], kept[site.tensor])
        return patches, kept

    def _values_of_the_run(
        self,
        candidates: Sequence[Candidate],
        mask: CircuitMask,
        values: Mapping[str, Tensor],
        own: Mapping[str, Interval],
    ) -> dict[str, Tensor]:
        """Patch values, and for units that are kept what they computed.

        With those as patches a smaller circuit does what this one did: a witness that was found for
        a circuit is one for every circuit within it.
        """
        found = {}
        for name, given in values.items():
            ends = [self.encoder.hull_at(name, candidate.index) for candidate in candidates]
            lower, upper = (torch.cat(side) for side in zip(*ends, strict=True))
            computed = torch.minimum(torch.maximum(_middle(own[name]), lower), upper)
            kept = mask.seen_by(name, None)
            found[name] = computed if kept is None else torch.where(kept, computed, given)
        return found

    def _circuit(
        self, points: Tensor, mask: CircuitMask, patches: Mapping[str, Interval]
    ) -> tuple[Interval, dict[str, Interval]]:
        """The circuits' outputs, and the tensors of their runs at which components are cut."""
        graph, sites = self.graph, self.encoder.components.sites
        intervals = Intervals(graph, {graph.inputs[0]: (points, points)}, patches)
        wanted = [*(site.tensor for site in sites), graph.outputs[0]]
        found = interpret(graph, mask, intervals, wanted)
        lower, upper = found[graph.outputs[0]]
        return (lower.expand(len(points), -1), upper.expand(len(points), -1)), found


def _placed(points: Sequence[Tensor], domains: Sequence[Domain]) -> tuple[Tensor, list[bool]]:
    """Points moved into their domains, [n, *shape], and which of them certainly lie there."""
    placed = torch.stack([point.double() for point in points])
    inside = torch.zeros(len(placed), dtype=torch.bool)
    for domain in {id(domain): domain for domain in domains}.values():
        own = torch.tensor([i for i, other in enumerate(domains) if other is domain])
        placed[own] = domain.project(placed[own])
        inside[own] = domain.contains(placed[own])
    return placed, inside.tolist()


def _least(rows: Tensor, offsets: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Lower ends of rows . y + offsets, rounding taken off: [n, constraints]."""
    exact_low = torch.where(rows > 0, low.unsqueeze(1), high.unsqueeze(1))
    terms = torch.where(rows != 0, rows * exact_low, torch.zeros_like(rows))
    size = terms.abs().sum(2) + offsets.abs()
    count = rows.shape[2] + 4
    return terms.sum(2) + offsets - (size * (count * 2.0**-52) + count * TINY)


def _middle(ends: Interval) -> Tensor:
    return ends[0] + (ends[1] - ends[0]) * 0.5
