"""A crew of workers that each hold the same thing, and answer calls of its methods.

What the workers hold travels once to each of them, as bytes, and is built there; after that only
calls travel. A worker may be a process started here, or anything behind an ``Executor`` of
``concurrent.futures``: threads, a cluster. An executor offers no way to reach each of its workers,
so a call names what it needs by a key, and a worker that lacks it says so and is sent it.

A worker that dies takes its calls with it. They are made again elsewhere, a few times, before they
are given up. An executor that broke because a worker died is replaced by processes started here, an
executor that was shut down by this process.
"""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from provable_circuits.errors import ProvableCircuitsError
from provable_circuits.heartbeat import Heartbeats, Watch

TRIES = 3
"""How often a call is made before it is given up."""

DEATHS = ("KilledWorker", "CommClosedError")
"""Names of errors by which cluster software tells that a worker died."""

TEND = 1.0
"""Seconds after which processes started here are looked after again."""

CLOSING = 1.0
"""Seconds to wait for a process that was killed."""

LOOK = 0.1
"""Seconds after which calls on their way to somebody's executor are looked after again."""

Build = Callable[[bytes], Any]
"""Makes what workers hold of the bytes that were sent."""


class WorkerDiedError(ProvableCircuitsError):
    """A call was given up because every worker that took it died."""


class OverdueError(ProvableCircuitsError):
    """A call was not answered in time."""


class ClosedError(ProvableCircuitsError):
    """A call was waiting when its workers were ended."""


class NoWorkersError(ProvableCircuitsError):
    """Processes that were started here died before they could take a call."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Word of a worker that it lacks what a call needs."""

    worker: str


_held = threading.local()
"""In a worker: what it holds, one thing for each thread."""


def _call(
    key: str, build: Build, data: bytes | None, method: str, arguments: tuple[Any, ...]
) -> Any:
    """In a worker: a method of what it holds, or word that it does not hold it yet."""
    if getattr(_held, "key", None) != key:
        if data is None:
            return Missing(f"{platform.node()} {os.getpid()} {threading.get_ident()}")
        _held.key, _held.thing = key, build(data)
    return getattr(_held.thing, method)(*arguments)


def _start(key: str, build: Build, data: bytes, began: Any, beats: Heartbeats) -> None:
    """In a process started here: one thread for its arithmetic, interrupts left to its parent."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    beats.begin()
    torch.set_num_threads(1)
    with suppress(Exception):  # the first call will build it again, and tell what is wrong
        _held.key, _held.thing = key, build(data)
    began.value = True


def _end_with_parent() -> None:
    """In a process started here: end when its parent has, which may have been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Crew:
    """Workers that hold what ``build`` makes of ``data``.

    Args:
        workers: how many processes to start, or an executor to use.
        build: a module's function that makes what the workers hold.
        data: what it is given.
    """

    def __init__(self, workers: int | Executor, build: Build, data: bytes) -> None:
        self._build = build
        self._data = data
        name = f"{build.__module__}.{build.__qualname__}\0"
        self._key = hashlib.sha256(name.encode() + data).hexdigest()
        self._supplied: set[str] = set()
        self._context = multiprocessing.get_context("spawn")
        self._began = self._context.RawValue("b", False)
        self._beats = Heartbeats(self._context)
        self._watch = Watch(self._beats)
        self._processes = workers if isinstance(workers, int) else None
        self._executor = self._started() if isinstance(workers, int) else workers
        self._ended: Executor | None = None
        """The executor that was ended here; no worker of it died."""

    @property
    def local(self) -> bool:
        """Whether the workers are processes started here."""
        return self._processes is not None

    def submit(self, method: str, *arguments: Any) -> Call:
        """Begin a call of a method of what the workers hold."""
        return Call(self, method, arguments)

    def answers(
        self,
        method: str,
        calls: Sequence[tuple[Any, ...]],
        limit: float = math.inf,
        patience: float = math.inf,
    ) -> Iterator[Any]:
        """The answers of several calls, in their order; an error in place of one that was lost.

        Those that are not there after ``limit`` seconds are lost as well, and so is one that takes
        a worker more than ``patience`` seconds by itself, twice.
        """
        ends = time.monotonic() + limit
        pending = [self.submit(method, *arguments) for arguments in calls]
        try:
            for i in range(len(pending)):
                try:
                    yield self.first(pending[i:], ends, patience)
                except (WorkerDiedError, OverdueError) as error:
                    yield error
        finally:
            for call in pending:
                call.cancel()

    def first(
        self, calls: Sequence[Call], ends: float = math.inf, patience: float = math.inf
    ) -> Any:
        """The answer of the first of some calls; see ``Call.result``.

        Meanwhile the others are seen to, if they came to workers that lack what they need, and
        workers that are stuck are ended and replaced. Calls are taken in their order: the first of
        them is with a worker by now, and that one has ``patience`` seconds.
        """
        late, again = time.monotonic() + patience, False
        while self.local:
            now = time.monotonic()
            try:
                return calls[0].result(min(ends, late, now + TEND))
            except OverdueError:
                now = time.monotonic()
                if now >= ends or (now >= late and again):
                    self._end_workers(everyone=now >= late)
                    raise
                self._end_workers(everyone=now >= late)
                if now >= late:
                    late, again = now + patience, True
        while not self.local:
            for call in calls:
                call.supply()
            try:
                return calls[0].result(min(ends, time.monotonic() + LOOK))
            except OverdueError:
                if time.monotonic() >= ends:
                    raise
        return calls[0].result(ends)

    def _end_workers(self, everyone: bool) -> None:
        """End workers that are stuck, or all of them; the executor notices, and is replaced.

        Its other workers are ended with them, as the executor would do less firmly: one that is
        stopped obeys nothing but the kernel.
        """
        executor = self._executor
        if not isinstance(executor, ProcessPoolExecutor):
            return
        processes = list((getattr(executor, "_processes", None) or {}).values())
        pids = [process.pid for process in processes if process.pid is not None]
        if everyone or self._watch.stuck(pids):
            for process in processes:
                process.kill()

    def close(self) -> None:
        """End the processes started here, whatever they are at; leave a given executor alone.

        Calls that another thread waits for end with ``ClosedError``.
        """
        executor = self._executor
        if self.local and isinstance(executor, ProcessPoolExecutor):
            self._ended = executor
            processes = list((getattr(executor, "_processes", None) or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # one that is stopped would not hear anything else
            for process in processes:
                process.join(CLOSING)

    def _started(self) -> Executor:
        return ProcessPoolExecutor(
            self._processes,
            mp_context=self._context,
            initializer=_start,
            initargs=(self._key, self._build, self._data, self._began, self._beats),
        )

    def begin(
        self, method: str, arguments: tuple[Any, ...], whole: bool
    ) -> tuple[Executor, Future[Any]]:
        """Hand a call to the executor; ``whole`` sends along what workers hold."""
        data = self._data if whole else None
        fresh = None
        while True:
            executor = self._executor
            try:
                return executor, executor.submit(
                    _call, self._key, self._build, data, method, arguments
                )
            except RuntimeError as error:
                if executor is fresh:
                    raise
                self._replace(executor, isinstance(error, BrokenExecutor))
                fresh = self._executor
                data = self._data

    def owes(self, worker: str) -> bool:
        """Whether nothing was sent yet on behalf of a worker that said what it lacks."""
        new = worker not in self._supplied
        self._supplied.add(worker)
        return new

    def bury(self, executor: Executor, error: Exception) -> None:
        """Note that a worker of an executor died, which may have been the end of it.

        Raises:
            ClosedError: it was ended here.
            NoWorkersError: processes started here never came to life.
        """
        if executor is self._ended:
            raise ClosedError("A question was waiting when its workers were ended.") from None
        if not isinstance(error, BrokenExecutor):
            return
        if self.local and not self._began.value:
            raise NoWorkersError(
                "The worker processes ended before they could begin. A script that uses workers "
                "must do so below 'if __name__ == \"__main__\":', because each of them imports it."
            ) from error
        self._replace(executor, died=True)

    def _replace(self, gone: Executor, died: bool) -> None:
        """Take another executor in place of one that is gone, unless that was done already.

        What killed a worker of somebody's executor must not be tried in this very process.
        """
        if self._executor is not gone:
            return
        if self.local:
            gone.shutdown(wait=False, cancel_futures=True)
        elif died:
            self._processes = getattr(gone, "_max_workers", 1)
        self._executor = self._started() if self.local else _Here()


class Call:
    """A call on its way."""

    def __init__(self, crew: Crew, method: str, arguments: tuple[Any, ...]) -> None:
        self._crew = crew
        self._method = method
        self._arguments = arguments
        self._deaths = 0
        self._executor, self._future = crew.begin(method, arguments, whole=False)

    @property
    def done(self) -> bool:
        """Whether the worker that took it is free again."""
        return self._future.done()

    def result(self, ends: float = math.inf) -> Any:
        """Wait for the answer, until a moment on the monotonic clock.

        Raises:
            WorkerDiedError: every worker that took the call died.
            OverdueError: there is no answer yet.
            ClosedError: the crew was closed meanwhile.
        """
        while True:
            try:
                answer = self._answer(ends)
            except Exception as error:
                if not _is_death(error):
                    raise
                self._crew.bury(self._executor, error)
                self._deaths += 1
                if self._deaths == TRIES:
                    raise WorkerDiedError(
                        f"A question was given up after {TRIES} workers that took it had died: it "
                        "may need more memory than they have."
                    ) from None
            else:
                if not isinstance(answer, Missing):
                    return answer
                self._crew.owes(answer.worker)
            self._again(whole=True)

    def _answer(self, ends: float) -> Any:
        try:
            left = None if ends == math.inf else max(ends - time.monotonic(), 0)
            return self._future.result(left)
        except TimeoutError:
            if self._future.done():
                return self._future.result()
            raise OverdueError("A question was not answered in time.") from None

    def supply(self) -> None:
        """Make the call again if it came to a worker that lacks what it needs."""
        future = self._future
        if future.done() and not future.cancelled() and future.exception() is None:
            answer = future.result()
            if isinstance(answer, Missing):
                self._again(whole=self._crew.owes(answer.worker))

    def cancel(self) -> None:
        """Forget the call, if it has not begun."""
        self._future.cancel()

    def _again(self, whole: bool) -> None:
        self._executor, self._future = self._crew.begin(self._method, self._arguments, whole)


class _Here(Executor):
    """Runs calls in this process, where an executor was lost for good."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _is_death(error: BaseException) -> bool:
    """Whether a worker died, rather than its work failing."""
    kinds = (BrokenExecutor, CancelledError, ConnectionError, EOFError)
    return isinstance(error, kinds) or type(error).__name__ in DEATHS
