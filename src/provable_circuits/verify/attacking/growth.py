"""Growth: enlarge a refuted circuit as far as gradients still find a violation.

    from a circuit and its witness, until nothing can be added:
        climb from the witness
        add the components whose addition leaves a violation at the point as it is,
            those that leave most of it first, as many as go together
        if there is none, climb once with each of the others added, and take the best

The larger the circuit that is refuted, the smaller the set of components whose removal is thereby
known to break the network. What is found is replayed: an addition that was misjudged costs time,
never truth. Several growths, each favouring other components, go side by side in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.execution import Floats, evaluate
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.semantics import CircuitMask, interpret
from provable_circuits.verify.attacking.replay import Candidate, Replay
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.tuning.attacking import AttackingTuning
from provable_circuits.verify.verdict import Refuted, Witness

Point = dict[str, Tensor]
"""What a run depends on besides the circuit, [n, *shape]: the input ``z``, the input ``source``
that patches are taken at, or patch values by site."""


class Growth:
    """Grows refuted circuits of one claim about one network."""

    def __init__(self, encoder: Encoder, replay: Replay, tuning: AttackingTuning) -> None:
        self.encoder = encoder
        self.replay = replay
        self._steps = tuning.growth_steps
        self.components = encoder.components
        self.graph = encoder.components.graph
        claim = encoder.claim
        self._fixed = encoder.fixed if claim.patching.is_fixed else None

    def grown(
        self, circuit: Circuit, witness: Witness, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Refuted circuits that contain ``circuit``, each with its witness.

        Args:
            circuit: a refuted circuit.
            witness: its witness.
            favour: [growths, components]; how much excess an addition may cost more for being
                favoured, as a share of what there is at first.
        """
        count, index = len(favour), witness.index
        self._boxes = self._ranges(index)
        self._rows = self.encoder.specification.rows[index]
        self._offsets = self.encoder.specification.offsets[index]
        keep = self.components.masks([circuit]).repeat(count, 1)
        point = {
            name: value.double().unsqueeze(0).repeat(count, *[1] * value.ndim)
            for name, value in self._start(witness).items()
        }
        open_ = ~keep
        point, excess = self._climb(keep, point, self._steps)
        favour = favour * excess.clamp(min=0).unsqueeze(1)
        while bool(open_.any()):
            point, _ = self._climb(keep, point, self._steps)
            added = self._add_as_is(keep, point, open_, favour)
            stuck = ~added & open_.any(1)
            if bool(stuck.any()):
                self._add_one(stuck, keep, point, open_, favour)
        return self._replayed(keep, point, index)

    def _start(self, witness: Witness) -> Point:
        patching = self.encoder.claim.patching
        if patching.has_boxes:
            return {"z": witness.z, **(witness.patch_values or {})}
        if patching.has_source and witness.patch_input is not None:
            return {"z": witness.z, "source": witness.patch_input}
        return {"z": witness.z}

    def _ranges(self, index: int) -> dict[str, tuple[Tensor, Tensor]]:
        """The boxes that points range over."""
        encoder, patching = self.encoder, self.encoder.claim.patching
        inputs = encoder.claim.inputs
        boxes = {"z": inputs[index].bounds()}
        if patching.has_source:
            boxes["source"] = patching.domain(index, inputs).bounds()
        elif patching.has_boxes:
            for site in self.components.sites:
                lower, upper = encoder.hull_at(site.tensor, index)
                shape = site.layer.shape
                boxes[site.tensor] = (lower[0].expand(shape), upper[0].expand(shape))
        return boxes

    def _excess(self, keep: Tensor, point: Mapping[str, Tensor]) -> Tensor:
        """By how much each circuit exceeds the metric at its own point, in plain floating point."""
        graph = self.graph
        patches = self._fixed
        if "source" in point:
            names = [site.tensor for site in self.components.sites]
            patches = evaluate(graph, {graph.inputs[0]: point["source"]}, names)
        elif patches is None:
            patches = point
        mask = CircuitMask.of_nodes(self.components, keep)
        output, names = graph.outputs[0], [node.name for node in graph.nodes]
        network = evaluate(graph, {graph.inputs[0]: point["z"]}, names)
        rows = _Rows(graph, network, patches)
        after = interpret(graph, mask, rows, [output])[output]
        reference = network[output]
        y = self.replay.compared(reference, after.expand(reference.shape))
        return (y @ self._rows.T + self._offsets).amax(1)

    def _climb(self, keep: Tensor, point: Point, steps: int) -> tuple[Point, Tensor]:
        """Points at least as bad for the circuits: full steps to the corner that gradients name."""
        best = self._excess(keep, point)
        here = point
        for _ in range(steps):
            leaves = {name: value.detach().requires_grad_() for name, value in here.items()}
            with torch.enable_grad():
                total = self._excess(keep, leaves).sum()
                gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
            moved = {}
            for (name, value), gradient in zip(here.items(), gradients, strict=True):
                lower, upper = self._boxes[name]
                moved[name] = value
                if gradient is not None:
                    corner = torch.where(gradient > 0, upper, lower)
                    moved[name] = torch.where(gradient == 0, value, corner)
            excess = self._excess(keep, moved)
            better = excess > best
            if not bool(better.any()):
                break
            best = torch.where(better, excess, best)
            here = {n: _where(better, moved[n], value) for n, value in here.items()}
        return here, best

    def _add_as_is(self, keep: Tensor, point: Point, open_: Tensor, favour: Tensor) -> Tensor:
        """Add what leaves a violation at the point as it is; which growths added something."""
        chain, component = open_.nonzero(as_tuple=True)
        more = keep[chain].clone()
        more[torch.arange(len(chain)), component] = True
        excess = torch.full(keep.shape, -torch.inf, dtype=torch.float64)
        excess[chain, component] = self._excess(more, _pick(point, chain))
        welcome = excess > 0
        most = int(welcome.sum(1).max()) if len(chain) else 0
        if most == 0:
            return torch.zeros(len(keep), dtype=torch.bool)
        rank = torch.where(welcome, excess + favour, -torch.inf).argsort(1, descending=True)
        steps = torch.arange(most)
        # prefixes[c, k] keeps the k + 1 most welcome components besides.
        order = torch.zeros_like(keep, dtype=torch.long)
        order.scatter_(1, rank, torch.arange(keep.shape[1]).expand_as(rank))
        prefix = keep.unsqueeze(1) | (
            welcome.unsqueeze(1) & (order.unsqueeze(1) <= steps[None, :, None])
        )
        chains = torch.arange(len(keep)).repeat_interleave(most)
        after = self._excess(prefix.flatten(0, 1), _pick(point, chains)).unflatten(0, (-1, most))
        last = torch.where(after > 0, steps + 1, 0).amax(1)
        last = torch.minimum(last, welcome.sum(1))
        added = last > 0
        where = added.nonzero().squeeze(1)
        keep[where] = prefix[where, last[where] - 1]
        open_ &= ~keep
        return added

    def _add_one(
        self, stuck: Tensor, keep: Tensor, point: Point, open_: Tensor, favour: Tensor
    ) -> None:
        """Climb with each open component added; take the best, give up those that fail."""
        chain, component = (open_ & stuck.unsqueeze(1)).nonzero(as_tuple=True)
        more = keep[chain].clone()
        more[torch.arange(len(chain)), component] = True
        points, excess = self._climb(more, _pick(point, chain), self._steps)
        open_[chain, component] &= excess > 0
        score = torch.full(keep.shape, -torch.inf, dtype=torch.float64)
        score[chain, component] = torch.where(
            excess > 0, excess + favour[chain, component], -torch.inf
        )
        best, place = score.max(1)
        for c in (stuck & (best > -torch.inf)).nonzero().squeeze(1).tolist():
            at = int(((chain == c) & (component == place[c])).nonzero()[0])
            keep[c] = more[at]
            open_[c, place[c]] = False
            for name in point:
                point[name][c] = points[name][at]

    def _replayed(self, keep: Tensor, point: Point, index: int) -> list[tuple[Circuit, Refuted]]:
        circuits = {
            self.components.circuit_of(row): i for i, row in reversed(list(enumerate(keep)))
        }
        candidates = [
            Candidate(
                circuit,
                index,
                point["z"][i],
                point["source"][i] if "source" in point else None,
                {name: value[i] for name, value in point.items() if name not in ("z", "source")}
                or None,
            )
            for circuit, i in circuits.items()
        ]
        witnesses = self.replay.witnesses(candidates)
        return [
            (circuit, Refuted(witness, Stage.GROWTH))
            for circuit, witness in zip(circuits, witnesses, strict=True)
            if witness is not None
        ]


class _Rows(Floats):
    """Floating point in which each sample is a circuit of its own, and the network's run is known.

    Args:
        graph: the network.
        network: all of its tensors, [n, *shape].
        patch: by site, patch values that broadcast to [n, *shape].
    """

    shares = True

    def __init__(
        self, graph: Graph, network: Mapping[str, Tensor], patch: Mapping[str, Tensor]
    ) -> None:
        super().__init__(graph, {name: network[name] for name in graph.inputs}, patch=patch)
        self.network = network

    def own(self, node: Node) -> Tensor:
        return self.network[node.name]

    def patched(self, node: Node, value: Tensor, kept: Tensor) -> Tensor:
        return torch.where(kept, value, self.patch[node.name])


def _pick(point: Point, which: Tensor) -> Point:
    return {name: value[which] for name, value in point.items()}


def _where(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(mask.reshape(-1, *[1] * (no.ndim - 1)), yes, no)
