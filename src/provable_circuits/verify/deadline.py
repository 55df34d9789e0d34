"""The time limit of a question, checked wherever work comes in pieces."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 - not an error: the question stays undecided
    """Raised inside a stage when the limit is reached; the verifier turns it into Undecided."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock."""

    moment: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, negative when it has passed."""
        return self.moment - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() > self.moment

    def check(self) -> None:
        """Stop the stage if the moment has passed."""
        if self.passed:
            raise OutOfTime
