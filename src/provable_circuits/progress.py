"""Progress: what a long search tells while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands, after an answer.

    Attributes:
        seconds: since the search began.
        doing: what it is at: a component, or a phase.
        size: how many components the smallest circuit shown to be faithful keeps so far.
        of: how many components there are.
        lower: no faithful circuit is smaller, as far as shown; None where nothing is claimed.
        queries: how many questions were answered how, by kind of verdict.
        done: how many questions of this phase are answered.
        total: how many it has, if that is known.
        left: seconds that the whole search has left, if it has a limit.
    """

    seconds: float
    doing: str
    size: int
    of: int
    lower: int | None
    queries: Mapping[str, int]
    done: int
    total: int | None
    left: float | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds left in this phase if the rest goes as fast as what was done.

        No more than the search has left; where the phase tells nothing, what the search has left.
        """
        if self.total is None or self.done == 0:
            return self.left
        rest = self.seconds / self.done * (self.total - self.done)
        return rest if self.left is None else min(rest, self.left)


Listener = Callable[[Progress], None]
"""Called with the progress after each answer."""
