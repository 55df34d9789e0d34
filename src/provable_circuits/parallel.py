"""A crew of workers that each hold the same thing, and answer calls of its methods.

What the workers hold travels once to each of them, as bytes, and is built there; after that only
calls travel. A worker may be a process started here, or anything behind an ``Executor`` of
``concurrent.futures``: threads, a cluster. An executor offers no way to reach each of its workers,
so a call names what it needs by a key, and a worker that lacks it says so and is sent it.

A worker that dies takes its calls with it. They are made again elsewhere, a few times, before they
are given up; an executor that is gone for good is replaced by this process.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from typing import Any

from provable_circuits.errors import ProvableCircuitsError

TRIES = 3
"""How often a call is made before it is given up."""

DEATHS = ("KilledWorker", "CommClosedError")
"""Names of errors by which cluster software tells that a worker died."""

Build = Callable[[bytes], Any]
"""Makes what workers hold of the bytes that were sent."""

MISSING = "missing"


class WorkerDiedError(ProvableCircuitsError):
    """A call was given up because every worker that took it died."""


_held = threading.local()
"""In a worker: what it holds, one thing for each thread."""


def _call(
    key: str, build: Build, data: bytes | None, method: str, arguments: tuple[Any, ...]
) -> Any:
    """In a worker: a method of what it holds, or word that it does not hold it yet."""
    if getattr(_held, "key", None) != key:
        if data is None:
            return MISSING
        _held.key, _held.thing = key, build(data)
    return getattr(_held.thing, method)(*arguments)


def _start(key: str, build: Build, data: bytes) -> None:
    """In a process started here: one thread for its arithmetic, interrupts left to its parent."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _held.key, _held.thing = key, build(data)


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
        self._key = hashlib.sha256(data).hexdigest()
        self._processes = workers if isinstance(workers, int) else None
        self._executor = self._started() if isinstance(workers, int) else workers

    @property
    def local(self) -> bool:
        """Whether the workers are processes started here."""
        return self._processes is not None

    def submit(self, method: str, *arguments: Any) -> Call:
        """Begin a call of a method of what the workers hold."""
        return Call(self, method, arguments)

    def answers(self, method: str, calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The answers of several calls, in their order; an error in place of one that was lost."""
        pending = [self.submit(method, *arguments) for arguments in calls]
        try:
            for call in pending:
                try:
                    yield call.result()
                except WorkerDiedError as error:
                    yield error
        finally:
            for call in pending:
                call.cancel()

    def close(self) -> None:
        """End the processes started here, whatever they are at; leave a given executor alone."""
        executor = self._executor
        if self.local and isinstance(executor, ProcessPoolExecutor):
            processes = list((getattr(executor, "_processes", None) or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()

    def _started(self) -> Executor:
        return ProcessPoolExecutor(
            self._processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(self._key, self._build, self._data),
        )

    def begin(
        self, method: str, arguments: tuple[Any, ...], whole: bool
    ) -> tuple[Executor, Future[Any]]:
        """Hand a call to the executor; ``whole`` sends along what workers hold."""
        data = self._data if whole else None
        while True:
            executor = self._executor
            try:
                return executor, executor.submit(
                    _call, self._key, self._build, data, method, arguments
                )
            except (BrokenExecutor, RuntimeError):
                self.replace(executor)
                data = self._data

    def replace(self, broken: Executor) -> None:
        """Take another executor in place of one that broke, unless that was done already."""
        if self._executor is not broken:
            return
        if self.local:
            broken.shutdown(wait=False, cancel_futures=True)
            self._executor = self._started()
        else:
            self._executor = _Here()


class Call:
    """A call on its way."""

    def __init__(self, crew: Crew, method: str, arguments: tuple[Any, ...]) -> None:
        self._crew = crew
        self._method = method
        self._arguments = arguments
        self._executor, self._future = crew.begin(method, arguments, whole=False)

    def result(self) -> Any:
        """Wait for the answer.

        Raises:
            WorkerDiedError: every worker that took the call died.
        """
        for _ in range(TRIES):
            try:
                answer = self._future.result()
            except Exception as error:
                if not _is_death(error):
                    raise
                if isinstance(error, BrokenExecutor):
                    self._crew.replace(self._executor)
                self._again()
                continue
            if isinstance(answer, str) and answer == MISSING:
                self._again()
                answer = self._future.result()
            return answer
        raise WorkerDiedError(
            f"A question was given up after {TRIES} workers that took it had died: it may need "
            "more memory than they have."
        )

    def cancel(self) -> None:
        """Forget the call, if it has not begun."""
        self._future.cancel()

    def _again(self) -> None:
        self._executor, self._future = self._crew.begin(self._method, self._arguments, whole=True)


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
