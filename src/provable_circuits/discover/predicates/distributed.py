"""A predicate whose questions are answered by several workers.

Each worker holds a verifier of its own, which is sent to it once. Where an answer comes from does
not matter: workers decide the same questions the same way, and answers are taken in the order of
the questions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from torch import Tensor

from provable_circuits.discover.predicates.predicate import Decided, Predicate
from provable_circuits.discover.predicates.transport import (
    pack_question,
    pack_verdicts,
    unpack_question,
    unpack_verdicts,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.parallel import Call, Crew, OverdueError, WorkerDiedError
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Refuted, Undecided, Verdict

CHUNK = 64
"""Circuits of a small network that travel in one call."""

LATE = 10.0
"""Seconds after its limit at which a worker that has not answered is ended."""

SHARED = 60.0
"""Seconds that a worker has for what all questions share, at least."""

SLOWER = 10.0
"""How much longer than here that may take with a worker."""

GRACE = 1.0
"""Seconds after a limit in which workers, who keep it as well, may still send what they have."""


class Distributed(Predicate):
    """What ``local`` decides, decided by workers where there is more than one question.

    Args:
        local: the predicate; its verifier answers single questions and guesses.
        workers: how many processes to start, or an executor.
    """

    def __init__(self, local: Decided, workers: int | Executor) -> None:
        if isinstance(workers, bool) or not (
            isinstance(workers, Executor) or (isinstance(workers, int) and workers >= 1)
        ):
            raise ArgumentError(
                "The 'workers' parameter must be a number of at least 1, or an Executor of "
                f"concurrent.futures. Got {workers!r} instead."
            )
        self.local = local
        self.components = local.components
        self.claim = local.claim
        size = workers if isinstance(workers, int) else _size(workers)
        self._small = local.together > 1
        self.together = local.together if self._small else size
        self.foresees = local.foresees
        self.wave = 16 * size * (CHUNK if self._small else 1)
        self._chunk = CHUNK if self._small else 1
        self._running: list[Call] = []
        self._prepared = 0.0
        settings = {
            "timeout": local.timeout if local.timeout < math.inf else None,
            "max_nodes": local.max_nodes,
            "seed": local.verifier.seed,
            "device": str(local.verifier.device),
            "configuration": local.verifier.configuration,
        }
        self._crew = Crew(
            workers, build_worker, pack_question(local.components, local.claim, settings)
        )

    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        if len(circuits) == 1:
            return self.local.ask(circuits, limit)
        return [verdict for part in self.stream(circuits, limit) for verdict in part]

    def prepare(self, limit: float = math.inf) -> None:
        began = time.monotonic()
        self.local.prepare(limit)
        self._prepared = time.monotonic() - began

    def stream(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> Iterator[list[Verdict]]:
        # All parts at once, so that no worker waits for another before the last part.
        ends = time.monotonic() + limit
        parts = [circuits[i : i + self._chunk] for i in range(0, len(circuits), self._chunk)]
        for part, answer in zip(parts, self._answers(parts, limit), strict=True):
            if isinstance(answer, WorkerDiedError) and len(part) > 1:
                # Whichever question it was that killed workers, the others are answered.
                parted = [[circuit] for circuit in part]
                left = max(ends - time.monotonic(), 0.001)
                yield [_verdicts(lost, 1)[0] for lost in self._answers(parted, left)]
            else:
                yield _verdicts(answer, len(part))

    def ahead(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> list[Callable[[], Verdict]]:
        if self._small or len(circuits) == 1:
            return self.local.ahead(circuits, limit)
        # Answers that nobody waits for any more keep their workers busy: none is to wait for them.
        self._running = [call for call in self._running if not call.done]
        free = max(self.together - len(self._running), 1)
        calls = [self._crew.submit("ask", [circuit.bits], limit) for circuit in circuits[:free]]
        self._running += calls
        ends = time.monotonic() + limit

        def answer(i: int) -> Verdict:
            if i >= len(calls):
                return self.local.ask([circuits[i]], max(ends - time.monotonic(), 0.001))[0]
            try:
                packed = self._crew.first(calls[i:], ends + GRACE, self._patience(1))
            except (WorkerDiedError, OverdueError) as error:
                packed = error
            return _verdicts(packed, 1)[0]

        return [partial(answer, i) for i in range(len(circuits))]

    def screen(self, circuits: Sequence[Circuit]) -> list[Verdict | None]:
        if not self._small or len(circuits) <= self._chunk:
            return self.local.screen(circuits)
        found: list[Verdict | None] = [None] * len(circuits)
        starts = range(0, len(circuits), self._chunk)
        calls = [([c.bits for c in circuits[i : i + self._chunk]],) for i in starts]
        answers = self._crew.answers("screen", calls, patience=self._patience(1))
        for start, answer in zip(starts, answers, strict=True):
            if not isinstance(answer, WorkerDiedError | OverdueError):
                places, packed = answer
                for place, verdict in zip(places, unpack_verdicts(packed), strict=True):
                    found[start + place] = verdict
        return found

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.local.broken(circuits)

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.local.suspects(circuits)

    def carried(
        self, circuits: Sequence[Circuit], refutations: Sequence[Refuted]
    ) -> list[Refuted | None]:
        return self.local.carried(circuits, refutations)

    def grown(
        self, circuit: Circuit, refuted: Refuted, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        return self.local.grown(circuit, refuted, favour)

    def close(self) -> None:
        self._crew.close()

    def _answers(self, parts: Sequence[Sequence[Circuit]], limit: float) -> Iterator[Any]:
        calls = [([circuit.bits for circuit in part], limit) for part in parts]
        most = max((len(part) for part in parts), default=1)
        return self._crew.answers("ask", calls, limit + GRACE, self._patience(most))

    def _patience(self, questions: int) -> float:
        """Seconds that a worker may take for some questions, before it is taken to be lost.

        Each has its own limit; a worker that begins also does the work that all questions share,
        as long as it took here, and perhaps with less of the machine.
        """
        shared = max(SHARED, SLOWER * self._prepared)
        return (questions + 1) * self.local.timeout + shared + LATE


class Worker:
    """What a worker holds: a predicate, asked by bits and answering in bytes."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate

    def ask(self, circuits: Sequence[int], limit: float) -> bytes:
        """Verdicts on circuits, given as bits."""
        components = self.predicate.components
        return pack_verdicts(self.predicate.ask([Circuit(components, b) for b in circuits], limit))

    def screen(self, circuits: Sequence[int]) -> tuple[list[int], bytes]:
        """Cheap verdicts on circuits: the places of those decided, and their verdicts."""
        components = self.predicate.components
        found = self.predicate.screen([Circuit(components, b) for b in circuits])
        decided = {i: verdict for i, verdict in enumerate(found) if verdict is not None}
        return list(decided), pack_verdicts(list(decided.values()))


def build_worker(data: bytes) -> Worker:
    """What a worker makes of what it was sent."""
    components, claim, settings = unpack_question(data)
    return Worker(Decided(components, claim, **settings))


def _verdicts(answer: Any, count: int) -> list[Verdict]:
    """The verdicts on ``count`` circuits of a worker's answer, or of the error in its place."""
    if isinstance(answer, WorkerDiedError | OverdueError):
        reason = Reason.TIME if isinstance(answer, OverdueError) else Reason.WORKER_DIED
        return [Undecided(reason, Stage.WORKER)] * count
    return unpack_verdicts(answer)


def _size(executor: Executor) -> int:
    """How many workers an executor has, as far as it tells."""
    size = getattr(executor, "_max_workers", None)
    if size is None:
        client = getattr(executor, "_client", None)
        size = sum(client.nthreads().values()) if client is not None else None
    return max(int(size or 2), 1)
