"""The question behind an encoded problem, as it is defined.

Stages work on a ``Problem``. Three things need the question itself, and claims and properties
differ in them: how a candidate point is replayed, how rational arithmetic decides, and what earlier
questions have left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.deadline import Deadline

Found = TypeVar("Found", covariant=True)

ClauseKey = tuple[int, int]
"""Which input of the batch, and which clause."""


class Definition(Protocol[Found]):
    """What is asked; ``Found`` is what a witness is for it."""

    def replay(
        self, points: Mapping[str, Tensor], problems: Tensor, clauses: Tensor
    ) -> Found | None:
        """The witness at the first of some candidates that is one beyond doubt.

        Args:
            points: the candidates, by input of the graph, [n, *shape].
            problems: which input of the batch each belongs to, [n].
            clauses: which clause each seems to break, [n].
        """

    def exactly(
        self, clauses: Sequence[ClauseKey], deadline: Deadline
    ) -> tuple[frozenset[ClauseKey], Found | None]:
        """Which of some clauses rational arithmetic proves, or a witness.

        Raises:
            OutOfTime: the deadline has passed.
        """

    def earlier(
        self, problems: Collection[int] | None = None, most: int | None = None
    ) -> tuple[dict[str, Tensor], list[int]]:
        """Witnesses of earlier questions as points, latest last, and the input that each is of.

        Args:
            problems: for which inputs of the batch; None for all.
            most: how many of the latest; None for all.
        """

    def derived(self) -> Mapping[str, Interval] | None:
        """Bounds of tensors that an earlier proof gives; None if there is none to build on."""
