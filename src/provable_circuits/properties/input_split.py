"""Input split of properties: halve a box of few inputs until every subdomain is decided.

    queue <- the box, with every case open
    while there are boxes:
        take some; enclose the network over each; bound every constraint backward
        a case is closed on a box when one of its constraints is violated all over it
        try the corners that the bounds point to as candidates
        halve each box that has open cases across the input that its bounds depend on most

The halves share the cut exactly, so that together they are the box. As boxes shrink, bounds become
exact and constraints nearly constant: where no case is met, and by some margin, this ends. With
five inputs it needs far fewer subdomains than splitting ReLUs does, with fifty far more. It also
serves activations that have no two pieces to split.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from provable_circuits.properties.constraints import Constraints
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.query import InputRange
from provable_circuits.verify.outcome import Outcome


class Bisection:
    """Decides the cases of one box.

    Args:
        structure: the network, of one input and one vector of outputs.
        box: the box, [1, *shape].
        constraints: the cases.
        attempt: tries candidate points [n, *shape]; true when one was a counterexample.
        deadline: when to stop.
        most: how many boxes may be bounded.
    """

    def __init__(
        self,
        structure: Structure,
        box: InputRange,
        constraints: Constraints,
        attempt: Callable[[Tensor], bool],
        deadline: Deadline,
        most: int,
    ) -> None:
        self.structure = structure
        self.constraints = constraints
        self.attempt = attempt
        self.deadline = deadline
        self.most = most
        self.subdomains = 0
        self.input = structure.graph.inputs[0]
        self.lower, self.upper = box.lower, box.upper
        self.open = torch.ones(1, len(constraints.cases), dtype=torch.bool)
        configuration = structure.configuration
        self.few_boxes = configuration.bounding.few_boxes
        room = configuration.branching.batch_elements
        room //= max(structure.largest * max(len(constraints), 1), 1)
        self.width = max(1, min(configuration.properties.box_width, room))

    def run(self) -> str:
        """``proved``, ``refuted``, or ``open`` when it gave up."""
        while len(self.lower):
            if self.subdomains > self.most:
                return Outcome.OPEN
            some = slice(-self.width, None)
            lower, upper, open_ = self.lower[some], self.upper[some], self.open[some]
            rest = slice(None, len(self.lower) - len(lower))
            self.lower, self.upper, self.open = self.lower[rest], self.upper[rest], self.open[rest]
            self.subdomains += len(lower)
            self.deadline.spend(len(lower))
            region = Region({self.input: InputRange(lower, upper)}, self.few_boxes)
            bounds = Bounds(self.structure, region, len(lower), deadline=self.deadline)
            bounds.compute()
            rows = self.constraints.rows.expand(len(lower), *self.constraints.rows.shape)
            found = bounds.backward(self.structure.graph.outputs[0], rows)
            open_ = open_ & ~self.constraints.excluded(found.value)
            left = open_.any(1)
            if not bool(left.any()):
                continue
            lower, upper, open_ = lower[left], upper[left], open_[left]
            reached = found.inputs.get(self.input)
            if reached is None:
                return Outcome.OPEN  # the outputs are constant, and no case was excluded
            alpha = reached[left] * _column(open_[:, self.constraints.owners], reached)
            if self.attempt(_corners(lower, upper, alpha)):
                return Outcome.REFUTED
            if not self._halve(lower, upper, open_, alpha):
                return Outcome.OPEN
        return Outcome.PROVED

    def _halve(self, lower: Tensor, upper: Tensor, open_: Tensor, alpha: Tensor) -> bool:
        """Put both halves of each box into the queue; false where a box is a single point."""
        width = (upper - lower).flatten(1)
        # Where the bounds depend on no input, the widest is halved.
        influence = (alpha.abs().sum(1).flatten(1) + 1e-9) * width
        place = influence.argmax(1, keepdim=True)
        low, high = (end.flatten(1).gather(1, place) for end in (lower, upper))
        middle = low + (high - low) * 0.5
        if not bool(((low < middle) & (middle < high)).all()):
            return False
        below = upper.flatten(1).scatter(1, place, middle).reshape(upper.shape)
        above = lower.flatten(1).scatter(1, place, middle).reshape(lower.shape)
        self.lower = torch.cat([self.lower, lower, above])
        self.upper = torch.cat([self.upper, below, upper])
        self.open = torch.cat([self.open, open_, open_])
        return True


def _column(flags: Tensor, like: Tensor) -> Tensor:
    """Flags [boxes, rows] against rows [boxes, rows, *shape]."""
    return flags.reshape(*flags.shape, *([1] * (like.ndim - 2)))


def _corners(lower: Tensor, upper: Tensor, alpha: Tensor) -> Tensor:
    """For each box, where the sum of its open rows is least by their slopes."""
    total = alpha.sum(1)
    return torch.where(total > 0, lower, upper)
