"""Replay: a candidate witness is believed only after it was run through the original network.

The point must lie inside the exact domain. Network and circuit are evaluated there by interval
arithmetic on the network as given (no merging, no lowering), every rounding error enclosed, and the
metric must be exceeded at the lower end of the enclosure.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.encoding import Encoder
from provable_circuits.claims.patching import FixedPatching, Reachable
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.execution import operations
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.intervals import propagate
from provable_circuits.network.ops import Input
from provable_circuits.rounding import TINY, Interval
from provable_circuits.verify.verdict import Witness


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

    def witness(
        self,
        circuit: Circuit,
        index: int,
        z: Tensor,
        patch_input: Tensor | None = None,
        patch_values: Mapping[str, Tensor] | None = None,
    ) -> Witness | None:
        """The witness, if the candidate is inside its domains and really violates the claim.

        Args:
            circuit: the circuit.
            index: which of the claim's inputs.
            z: the input, per sample; it is moved inside its domain if rounding put it outside.
            patch_input: for Reachable patching, the input that patches are taken at.
            patch_values: for IntervalHull patching, by site, values [*shape] of its units.
        """
        claim, components = self.claim, self.encoder.components
        domain = claim.inputs[index]
        point = domain.project(z.double().unsqueeze(0))
        if not bool(domain.contains(point).all()):
            return None
        patching = claim.patching
        patches: dict[str, Interval]
        if isinstance(patching, FixedPatching):
            patches = {name: (v, v) for name, v in self.encoder.fixed.items()}
        elif isinstance(patching, Reachable):
            source = patching.domain(index, claim.inputs)
            if patch_input is None:
                return None
            patch_point = source.project(patch_input.double().unsqueeze(0))
            if not bool(source.contains(patch_point).all()):
                return None
            patch_input = patch_point[0]
            patches = propagate(self.graph, {self.graph.inputs[0]: (patch_point, patch_point)})
        else:
            patches, patch_values = self._hull_patches(index, patch_values or {})
        keep = components.masks([circuit])
        masks = {site.tensor: site.unit_mask(keep) for site in components.sites}
        reference = propagate(self.graph, {self.graph.inputs[0]: (point, point)})
        output = self._circuit(point, masks, patches)
        outputs = {"reference": reference[self.graph.outputs[0]], "output": output}
        feeds = {name: outputs[name] for name in self._y.inputs}
        low, high = propagate(self._y, feeds)[self._y.outputs[0]]
        rows, offsets = (
            self.encoder.specification.rows[index],
            self.encoder.specification.offsets[index],
        )
        excess, row = _least(rows, offsets, low[0], high[0]).max(0)
        if not float(excess) > 0:
            return None
        return Witness(
            index=index,
            z=point[0],
            excess=float(excess),
            constraint=int(row),
            reference=_middle(outputs["reference"]),
            output=_middle(output),
            patch_input=patch_input,
            patch_values=patch_values,
        )

    def _hull_patches(
        self, index: int, values: Mapping[str, Tensor]
    ) -> tuple[dict[str, Interval], dict[str, Tensor]]:
        """Values clamped to their boxes; a site that was not given takes the middle of its box."""
        patches: dict[str, Interval] = {}
        kept: dict[str, Tensor] = {}
        for site in self.encoder.components.sites:
            lower, upper = self.encoder.hull_at(site.tensor, index)
            value = values.get(site.tensor)
            point = lower + (upper - lower) * 0.5 if value is None else value.double().unsqueeze(0)
            point = torch.minimum(torch.maximum(point, lower), upper)
            patches[site.tensor] = (point, point)
            kept[site.tensor] = point[0]
        return patches, kept

    def _circuit(
        self, point: Tensor, masks: Mapping[str, Tensor], patches: Mapping[str, Interval]
    ) -> Interval:
        ops = operations(self.graph, torch.float64, point.device)
        found: dict[str, Interval] = {}
        for node in self.graph.nodes:
            if isinstance(node.op, Input):
                ends = (point, point)
            else:
                ends = ops[node.name].interval(*(found[name] for name in node.inputs))
            mask = masks.get(node.name)
            if mask is not None and not bool(mask.all()):
                patch = patches[node.name]
                ends = (torch.where(mask, ends[0], patch[0]), torch.where(mask, ends[1], patch[1]))
            found[node.name] = ends
        return found[self.graph.outputs[0]]


def _least(rows: Tensor, offsets: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Lower ends of rows . y + offsets, rounding taken off."""
    exact_low = torch.where(rows > 0, low, high)
    terms = torch.where(rows != 0, rows * exact_low, torch.zeros_like(rows))
    size = terms.abs().sum(1) + offsets.abs()
    count = rows.shape[1] + 4
    return terms.sum(1) + offsets - (size * (count * 2.0**-52) + count * TINY)


def _middle(ends: Interval) -> Tensor:
    return (ends[0] + (ends[1] - ends[0]) * 0.5)[0]
