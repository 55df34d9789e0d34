"""Chains: bounds over the cube, raised by what its coordinates stand for.

A certificate ends in a linear function of the cube, taken to be least where every coordinate is at
its worst. But the coordinates of units further down are not free: each is what its ReLU leaves over
its chord. So the function is one of those units again, a problem with a first layer and no second,
and has a certificate of its own, over the inputs and the units still further down. One layer after
the other is treated like this, from above.
"""

from __future__ import annotations

from functools import cached_property

import torch

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.ascent import Ascent, Start, hope
from provable_circuits.verify.hull.certificate import Certified, Signs, certify
from provable_circuits.verify.hull.condense import Condenser
from provable_circuits.verify.hull.condensed import Below
from provable_circuits.verify.hull.transport import MOST_ENTRIES


class Chain:
    """The layers of a condensed problem that have gaps, one below the other."""

    def __init__(self, condenser: Condenser, dtype: torch.dtype, deadline: Deadline) -> None:
        self.condenser = condenser
        self.dtype = dtype
        self.deadline = deadline

    @cached_property
    def layers(self) -> list[tuple[Below, Ascent]]:
        """The layers, with what chooses multipliers for them."""
        return [
            (layer, Ascent(layer.problem, self.dtype, self.deadline))
            for layer in self.condenser.below()
        ]

    def raised(self, found: Certified, inputs: int, steps: int, rounds: int) -> Certified:
        """The same bounds, or better ones where they may come to reach zero.

        Args:
            found: the bounds.
            inputs: how many coordinates of the cube are inputs.
            steps: steps of ascent for each layer.
            rounds: rounds of transport for each layer.
        """
        some = (found.value < 0) & (found.value + hope(found.cube, inputs) >= 0)
        if not bool(some.any()):
            return found
        now = Certified(found.value[some], found.base[some], found.cube[some])
        for layer, ascent in self.layers:
            now = self._stepped(layer, ascent, now, steps, rounds)
        return found.replaced(some, now)

    def _stepped(
        self, layer: Below, ascent: Ascent, found: Certified, steps: int, rounds: int
    ) -> Certified:
        """One layer's units in place of their coordinates."""
        goal = layer.goal(found.base, found.cube)
        size = max(1, MOST_ENTRIES // max(layer.problem.sparse.values.numel(), 1))
        parts = []
        for some in torch.arange(len(goal), device=found.value.device).split(size):
            own = goal[some]
            none = torch.zeros_like(own.first)
            signs = Signs(none, own.second)
            start = Start(own.second, layer.slopes.expand(len(own), -1), none)
            chosen = ascent.choose(own, signs, start, steps, rounds)
            parts.append(certify(layer.problem, own, signs, chosen))
        return Certified(
            torch.cat([part.value for part in parts]),
            torch.cat([part.base for part in parts]),
            torch.cat([part.cube for part in parts]),
        )
