"""Differential bounds: of a circuit, from those of a larger one, without a backward pass.

Consecutive questions differ by a component. Let C be a circuit whose tensors are enclosed tightly,
and C' the same circuit without some components. Run both on the same input: at the site of a
removed component the value jumps from what it was to its patch, and from there on the two runs
differ by

    linear operation:     d_out = L(d_in)                       (the offset cancels)
    activation g:         d_out between min(0, d_in) and max(0, d_in), where g is nondecreasing and
                          no steeper than 1; exactly d_in where g is the identity on both runs; and
                          within [g(l') - g(u), g(u') - g(l)] for ends l, u before and l', u' after

The tensor of C' then lies in the tensor of C plus the difference. Where a removed component varies
little over the domain, however large it is, the enclosures of C' are nearly as tight as those of C.

Differential verification of two networks is known: Paulsen, Wang and Wang (2020), ReluDiff:
Differential Verification of Deep Neural Networks. Ours: the two are circuits of one network, and
the bounds of the one that was proved carry over to the other without a backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Site
from provable_circuits.network.graph import Node
from provable_circuits.network.ops import Affine, Conv2d, Linear, LinearOp, Op, ReLU
from provable_circuits.rounding import Interval, down, settle, up
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import Role


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A proved circuit, and a query and enclosures that are true of it.

    The query may be that of a larger circuit, if what was removed since changed nothing.
    Enclosures are by role: of the query's nodes, and of the network's and the patch source's.
    """

    circuit: Circuit
    query: Query
    ends: Mapping[Role, Interval]
    bound: float = 0.0
    """The upper bound of the excess that was proved."""

    def tensor_bounds(self, encoder: Encoder, tensor: str) -> Interval | None:
        """Enclosures of the circuit's version of a tensor, whole, before patching, if known.

        A tensor that the query does not list is the network's own.
        """
        held = self.query.tensors.get(tensor)
        if held is None:
            return self.ends.get(encoder.network_role(tensor))
        ends = self.ends.get(self.query.roles[held.node])
        return None if ends is None else held.tensor_bounds(ends, encoder.network[tensor].shape)


class DifferentialBounds:
    """Derives enclosures for smaller circuits of one claim."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._homogeneous = {name: _without_offset(op) for name, op in encoder.ops.items()}

    def enclosures(self, known: Known, query: Query) -> dict[str, Interval]:
        """Enclosures of what activations read in ``query``, by the names of its graph.

        ``query``'s circuit must be contained in ``known``'s.
        """
        encoder = self.encoder
        before = encoder.components.masks([known.query.circuit])
        after = encoder.components.masks([query.circuit])
        changes: dict[str, Interval] = {}
        derived: dict[str, Interval] = {}
        for node in encoder.network.nodes:
            change = self._change(known, node, changes)
            if change is not None:
                old = self._old(known, node)
                if old is not None:
                    new = (down(old[0] + change[0]), up(old[1] + change[1]))
                    self._offer(query, node.name, new, derived)
            site = encoder.sites.get(node.name)
            if site is not None:
                change = self._at_site(known, node, site, change, before, after)
            if change is not None:
                changes[node.name] = change
        return derived

    def _change(self, known: Known, node: Node, changes: dict[str, Interval]) -> Interval | None:
        """How far a tensor moves, before patching; None if it does not."""
        if not any(name in changes for name in node.inputs):
            return None
        op = self.encoder.ops[node.name]
        if isinstance(op, LinearOp):
            return self._homogeneous[node.name].interval(
                *(changes.get(name) or self._still(name) for name in node.inputs)
            )
        (source,) = node.inputs
        moved = changes[source]
        old = self._old(known, self.encoder.network[source])
        lower, upper = moved
        least, most = lower.clamp_max(0.0), upper.clamp_min(0.0)
        if old is None:
            return least, most
        new = (down(old[0] + lower), up(old[1] + upper))
        ends_old, ends_new = op.interval(old), op.interval(new)
        least = torch.maximum(least, down(ends_new[0] - ends_old[1]))
        most = torch.minimum(most, up(ends_new[1] - ends_old[0]))
        if isinstance(op, ReLU):
            active = (old[0] >= 0) & (new[0] >= 0)
            least, most = torch.where(active, lower, least), torch.where(active, upper, most)
        return settle(least, most)

    def _still(self, name: str) -> Interval:
        zero = torch.zeros(1, *self.encoder.network[name].shape, dtype=torch.float64)
        return zero, zero

    def _old(self, known: Known, node: Node) -> Interval | None:
        """Enclosures of the larger circuit's tensor, whole, before patching."""
        found = known.tensor_bounds(self.encoder, node.name)
        if found is not None:
            return found
        if node.name in known.query.tensors or not self.encoder.folded:
            return None
        return self.encoder.at_point[node.name]

    def _at_site(
        self,
        known: Known,
        node: Node,
        site: Site,
        change: Interval | None,
        before: Tensor,
        after: Tensor,
    ) -> Interval | None:
        """The change behind the patch: none where both are patched, a jump where one is."""
        had, has = site.unit_mask(before)[0], site.unit_mask(after)[0]
        gone = had & ~has
        if change is None and not bool(gone.any()):
            return None
        lower, upper = change if change is not None else self._still(node.name)
        zero = torch.zeros((), dtype=torch.float64)
        lower, upper = torch.where(has, lower, zero), torch.where(has, upper, zero)
        if not bool(gone.any()):
            return lower, upper
        old = self._old(known, node)
        patch = self._patch(known, node)
        if old is None or patch is None:
            wide = torch.full((), torch.inf, dtype=torch.float64)
            return torch.where(gone, -wide, lower), torch.where(gone, wide, upper)
        jump_low, jump_high = down(patch[0] - old[1]), up(patch[1] - old[0])
        return torch.where(gone, jump_low, lower), torch.where(gone, jump_high, upper)

    def _patch(self, known: Known, node: Node) -> Interval | None:
        encoder = self.encoder
        patching = encoder.claim.patching
        if patching.is_fixed:
            value = encoder.fixed[node.name]
            return value, value
        if patching.has_source:
            return known.ends.get(encoder.source_role(node.name))
        return encoder.hull[node.name]

    def _offer(self, query: Query, name: str, ends: Interval, derived: dict[str, Interval]) -> None:
        """Hand an enclosure to the node of the new query that it belongs to."""
        held = query.held(name)
        if name in query.tensors and held.node not in query.common:
            derived[held.node] = held.node_bounds(ends)


def _without_offset(op: Op) -> Op:
    if isinstance(op, Linear | Conv2d):
        return replace(op, bias=None)
    return replace(op, shift=None) if isinstance(op, Affine) else op
