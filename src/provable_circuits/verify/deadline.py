"""The limit of a question, in seconds or in nodes, checked wherever work comes in pieces.

A limit in seconds makes an answer depend on the machine. A limit in nodes does not: the subdomains
that branch and bound, neuron hulls, input splits and exact search bound are counted, the work
before them is always the same, so the answer is repeatable.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from provable_circuits.arguments import time_limit, whole
from provable_circuits.verify.outcome import Reason


class OutOfTime(Exception):  # noqa: N818 - not an error: the question stays undecided
    """Raised inside a stage when the limit is reached; the verifier turns it into Undecided."""

    reason = Reason.TIME


class OutOfNodes(OutOfTime):
    """Raised when the limit in nodes is reached."""

    reason = Reason.NODES


class Deadline:
    """A moment on the monotonic clock, and a number of nodes; each may be infinite.

    Args:
        moment: when to stop.
        max_nodes: how many nodes may be bounded; None for no limit.
        latest: when to stop even what other questions will share (``shared``); None for ``moment``.
    """

    __slots__ = ("_latest", "_nodes", "moment", "spent")

    def __init__(
        self, moment: float = math.inf, max_nodes: int | None = None, latest: float | None = None
    ) -> None:
        self.moment = moment
        self._nodes = math.inf if max_nodes is None else max_nodes
        self._latest = moment if latest is None else max(latest, moment)
        self.spent = 0
        """How many nodes were bounded so far."""

    @classmethod
    def after(
        cls, seconds: float, max_nodes: int | None = None, budget: float | None = None
    ) -> Deadline:
        """So many seconds from now, or so many nodes, whichever comes first.

        Args:
            seconds: the seconds.
            max_nodes: the nodes.
            budget: seconds after which even shared work stops; None for ``seconds``.
        """
        now = time.monotonic()
        return cls(now + seconds, max_nodes, None if budget is None else now + budget)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Work that other questions share: its time is not taken from this one's."""
        began, own = time.monotonic(), self.moment
        self.moment = self._latest
        try:
            yield
        finally:
            self.moment = min(own + time.monotonic() - began, self._latest)

    @property
    def left(self) -> float:
        """Seconds that are left, negative when the moment has passed."""
        return self.moment - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether the moment has passed, or the nodes are spent."""
        return self._nodes < 0 or (self.moment < math.inf and time.monotonic() > self.moment)

    def check(self) -> None:
        """Stop the stage if the limit is reached."""
        if self._nodes < 0:
            raise OutOfNodes
        if self.passed:
            raise OutOfTime

    def spend(self, nodes: int) -> None:
        """Count nodes that are about to be bounded; stop if there are not that many left."""
        self._nodes -= nodes
        self.spent += nodes
        self.check()


def limits(timeout: float | None, max_nodes: int | None, usual: float) -> tuple[float, int | None]:
    """The seconds and the nodes that a question is given.

    Args:
        timeout: seconds; None for ``usual``, or for no limit in seconds if there is one in nodes.
        max_nodes: nodes; None for no such limit.
        usual: the seconds of a question that was given neither.
    """
    if max_nodes is not None:
        max_nodes = whole("max_nodes", max_nodes, least=1)
    if timeout is None:
        return (usual if max_nodes is None else math.inf), max_nodes
    return time_limit("timeout", timeout), max_nodes
