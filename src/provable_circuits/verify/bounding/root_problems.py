"""Root problems: the objectives that a search decides, and what every such search starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.deadline import Deadline

Try = Callable[[Mapping[str, Tensor], Tensor], bool]
"""Tries candidate points [n, *shape], by input, of problems [n]; true when one was a witness."""


@dataclass(frozen=True, slots=True, eq=False)
class RootProblems:
    """The rows to be decided, n of them.

    Attributes:
        bounds: enclosures for each, as a batch of n problems.
        problems: which of the query's inputs each belongs to, [n].
        rows: the rows, [n, 1, outputs].
        offsets: what is added to them, [n].
    """

    bounds: Bounds
    problems: Tensor
    rows: Tensor
    offsets: Tensor

    @property
    def start(self) -> str:
        """The tensor that the rows are of: the graph's output."""
        return self.bounds.structure.graph.outputs[0]


class RootSearch:
    """A search that decides the rows of its roots.

    Args:
        roots: the rows.
        attempt: tries candidate points.
        deadline: when to stop.
    """

    def __init__(self, roots: RootProblems, attempt: Try, deadline: Deadline) -> None:
        self.roots = roots
        self.attempt = attempt
        self.deadline = deadline
        self.structure = roots.bounds.structure
        self.region = roots.bounds.region
        self.start = roots.start


def rounding_slack(value: Tensor, offset: Tensor) -> Tensor:
    """How far the rounding of ``value + offset`` can reach."""
    return (value.abs() + offset.abs()) * 2.0**-52
