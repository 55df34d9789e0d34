"""Redundant removals: questions whose answer is known, because the removal changes nothing.

Let C be a circuit for which the claim was proved. Removing v from C changes no output that the
claim looks at, anywhere in the domain of an input, if

    every unit of v already has its patch value everywhere in that domain (a ReLU that never opens,
    patched with zero), by the enclosures computed for C; or
    v belongs to the output layer and the specification's rows have a zero at its outputs.

Then what was proved for C on that domain holds for C without v. Several such removals add up: each
leaves all values as they were, so each is judged by the same enclosures.
"""

from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component, Site
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.encoding.encoder import Encoder


class RedundantRemoval:
    """Tells what may go from a proved circuit without a question."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._site_of = {c.name: site for site in encoder.components.sites for c in site.components}

    def settled(self, known: Known | None, circuit: Circuit) -> Tensor:
        """For each input of the claim, whether the circuit is proved because ``known`` is."""
        if known is None or not circuit <= known.circuit:
            return torch.zeros(self.encoder.count, dtype=torch.bool)
        same = torch.ones(self.encoder.count, dtype=torch.bool)
        for component in known.circuit - circuit:
            same &= self._idle(known, component)
        return same

    def _idle(self, known: Known, component: Component) -> Tensor:
        """For each input, whether the component can go from the proved circuit without a trace."""
        site = self._site_of[component.name]
        units = site.labels.expand(site.layer.shape) == component.index
        return self._unread(site, units) | self._still(known, site, units)

    def _unread(self, site: Site, units: Tensor) -> Tensor:
        encoder = self.encoder
        rows = encoder.specification.rows
        if site.tensor != encoder.network.outputs[0] or rows.shape[2] != units.numel():
            return torch.zeros(encoder.count, dtype=torch.bool)
        return ~(rows[:, :, units] != 0).flatten(1).any(1)

    def _still(self, known: Known, site: Site, units: Tensor) -> Tensor:
        encoder = self.encoder
        ends = known.tensor_bounds(encoder, site.tensor)
        if not encoder.claim.patching.is_fixed or ends is None:
            return torch.zeros(encoder.count, dtype=torch.bool)
        lower, upper = ends
        patch = encoder.fixed[site.tensor][0]
        still = ((lower == patch) & (upper == patch))[:, units].all(1)
        return still.expand(encoder.count)
