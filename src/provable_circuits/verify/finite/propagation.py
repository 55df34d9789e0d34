"""Enclosures of a circuit's tensors at many inputs, node by node.

At a site the units of removed components take their patch. Tensors that are handed over as
``held`` are not computed again; of a site's tensor that is its value before patching.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.network.components import Components
from provable_circuits.network.execution import operations
from provable_circuits.network.ops import Input, LinearOp, Op
from provable_circuits.rounding import Interval

Patches = Mapping[str, Interval]
"""By the name of a site's tensor, ends of the patch, that broadcast to [inputs, *shape]."""


class Propagation:
    """The network and its circuits, with one patching."""

    def __init__(self, components: Components, patches: Patches) -> None:
        self.components = components
        self.graph = components.graph
        self.patches = patches
        self.ops = operations(self.graph, torch.float64, torch.device("cpu"))
        self.varying = set(self.graph.inputs)
        for node in self.graph.nodes:
            if self.varying.intersection(node.inputs):
                self.varying.add(node.name)

    def masks(self, bits: int) -> dict[str, Tensor]:
        """For each site at which a circuit removes something, which units are kept.

        Sites that are never read may be missing here; components keep their places among all.
        """
        count = max((s.start + len(s.components) for s in self.components.sites), default=0)
        keep = torch.tensor([[bool(bits >> i & 1) for i in range(count)]])
        masks = {site.tensor: site.unit_mask(keep) for site in self.components.sites}
        return {name: mask for name, mask in masks.items() if not bool(mask.all())}

    def run(
        self,
        points: Tensor | None,
        masks: Mapping[str, Tensor],
        wanted: Iterable[str],
        held: Mapping[str, Interval] | None = None,
        careful: bool = False,
    ) -> dict[str, Interval]:
        """Enclosures of the wanted tensors; of sites before patching.

        Args:
            points: inputs [n, *shape]; None if ``held`` has all that is needed.
            masks: which units of which sites are kept.
            wanted: names of tensors.
            held: enclosures that are known.
            careful: whether zeros that are exact stay exact, see ``enclose``.
        """
        wanted = list(wanted)
        found: dict[str, Interval] = dict(held or {})
        last, needed = self._plan(wanted, found)
        kept = set(wanted)
        patched: dict[str, Interval] = {}

        def read(name: str) -> Interval:
            if name not in masks:
                return found[name]
            if name not in patched:
                low, high = self.patches[name]
                mask, (lower, upper) = masks[name], found[name]
                patched[name] = torch.where(mask, lower, low), torch.where(mask, upper, high)
            return patched[name]

        for node in self.graph.nodes:
            if node.name not in needed or node.name in found:
                continue
            if isinstance(node.op, Input):
                if points is None:
                    raise ValueError("inputs are needed and were not given")
                found[node.name] = (points, points)
            else:
                sources = [read(name) for name in node.inputs]
                found[node.name] = enclose(self.ops[node.name], sources, careful)
            for name in node.inputs:
                if last.get(name) == node.name and name not in kept:
                    found.pop(name, None)
                    patched.pop(name, None)
        output = self.graph.outputs[0]
        if output in kept and output in masks:
            found[output] = read(output)
        return {name: found[name] for name in wanted}

    def _plan(
        self, wanted: list[str], held: Mapping[str, Interval]
    ) -> tuple[dict[str, str], set[str]]:
        """The last reader of each tensor, and all tensors that have to be computed."""
        needed = set(wanted)
        for node in reversed(self.graph.nodes):
            if node.name in needed and node.name not in held:
                needed.update(node.inputs)
        last = {
            source: node.name
            for node in self.graph.nodes
            if node.name in needed and node.name not in held
            for source in node.inputs
        }
        return last, needed

    @cached_property
    def downstream(self) -> dict[str, set[str]]:
        """For each site's tensor, all that depends on it, itself included."""
        found = {}
        for site in self.components.sites:
            reached = {site.tensor}
            for node in self.graph.nodes:
                if reached.intersection(node.inputs):
                    reached.add(node.name)
            found[site.tensor] = reached
        return found

    @cached_property
    def frontier(self) -> tuple[str, ...]:
        """Tensors that a change at some site reads but does not change; sites themselves too."""
        found: set[str] = set()
        for tensor, reached in self.downstream.items():
            found.add(tensor)
            for node in self.graph.nodes:
                if node.name in reached and node.name != tensor:
                    found.update(name for name in node.inputs if name not in reached)
        return tuple(n.name for n in self.graph.nodes if n.name in found and n.name in self.varying)


def enclose(op: Op, sources: list[Interval], careful: bool) -> Interval:
    """An operation's enclosure; if ``careful``, zeros that are exact stay exact.

    A linear operation that reads nothing but zeros gives its offset, without any rounding. Ties of
    outputs that are all zero are decided by that.
    """
    lower, upper = op.interval(*sources)
    if not careful or not isinstance(op, LinearOp):
        return lower, upper
    touched = op.spread(*(((low != 0) | (high != 0)).double() for low, high in sources)) > 0
    offset = op.offset()
    exact = torch.zeros_like(lower) if offset is None else offset.expand_as(lower)
    return torch.where(touched, lower, exact), torch.where(touched, upper, exact)
