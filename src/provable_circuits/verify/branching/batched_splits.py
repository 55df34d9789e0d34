"""Splitting: a shallow branch and bound of many circuits at once.

What a linear bound leaves open of a batch of circuits, one row for each constraint of each problem,
goes through a few rounds of splits together. Most circuits that one bound does not decide need no
more than that, and a batch of them costs little more than one; the others are left to the search of
a single question. Where inputs range far nothing is that close: what proves nothing is tried less
and less often.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from provable_circuits.verify.bounding.alpha import optimise
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.batched import BatchedProblem


@dataclass(slots=True)
class Backoff:
    """Says when to try something: the more often it failed in a row, the longer it is left out.

    Attributes:
        failures: how often it failed since it last succeeded, up to ``most_failures``.
        pause: how often it is left out before it is tried again.
        most_failures: with so many the pause stays.
    """

    failures: int = 0
    pause: int = 0
    most_failures: int = DEFAULT.branching.most_failures

    def tries(self) -> bool:
        """Whether it is due."""
        self.pause -= 1
        return self.pause < 0

    def learn(self, succeeded: bool) -> None:
        """Take note of how a try ended."""
        self.failures = 0 if succeeded else min(self.failures + 1, self.most_failures)
        self.pause = 2**self.failures - 1


def split_rows(
    batched: BatchedProblem, bounds: Bounds, open_: Tensor, deadline: Deadline
) -> Tensor:
    """Which of the open rows are proved, [n].

    Args:
        batched: the circuits.
        bounds: enclosures of their tensors.
        open_: the open rows, [n, 2]: problem and constraint.
        deadline: when to give up.
    """
    problems, constraints = open_.T
    start = batched.graph.outputs[0]
    rows = -batched.rows[problems, constraints].unsqueeze(1)
    offsets = -batched.offsets[problems, constraints]
    roots = RootProblems(bounds.select(problems), problems, rows, offsets)
    search = BranchAndBound(roots, _no_attempt, deadline)
    choice = optimise(search.whole, start, rows, offsets, search.whole.alpha, steps=0)
    tuning = search.tuning
    return ~search.shallow(choice, tuning.batched_rounds, tuning.batched_subdomains)


def _no_attempt(points: object, problems: object) -> bool:
    """Witnesses are looked for elsewhere."""
    return False
