"""A crew of workers: what travels, who dies, what comes back.

What the processes run is in this file, which they import; so the project is put on their path.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.clock import Clock
from tests.processes import PATIENCE, alive, wait_for

from provable_circuits import heartbeat, parallel
from provable_circuits.parallel import (
    ClosedError,
    Crew,
    NoWorkersError,
    OverdueError,
    WorkerDiedError,
)


class Thing:
    """What workers hold in these tests: a number, and a folder in which they leave traces."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number

    def trace(self, what: str) -> None:
        (self.folder / f"{what} {uuid4()}").touch()

    def plus(self, x: int) -> int:
        return self.number + x

    def who(self) -> tuple[int, int]:
        return os.getpid(), threading.get_ident()

    def hold(self, sign: str) -> str:
        """Wait until a file is there."""
        self.trace("holding")
        wait_for((self.folder / sign).exists)
        self.trace("done")
        return sign

    def work(self) -> None:
        """Say who this is, and work on for as long as nobody ends it."""
        written = self.folder / "pid of the worker.part"
        written.write_text(str(os.getpid()))
        written.rename(self.folder / "pid of the worker")
        self.hold("never")

    def meet(self, count: int, place: str) -> tuple[int, int]:
        """Wait until so many workers are here at once."""
        self.trace(place)
        wait_for(lambda: traces(self.folder, place) >= count)
        return self.who()

    def die_once(self, x: int) -> int:
        """The first that comes here dies."""
        try:
            (self.folder / "died").touch(exist_ok=False)
        except FileExistsError:
            return x
        os._exit(1)

    def die(self) -> None:
        self.trace("tried")
        if os.getpid() == int((self.folder / "pid of the tests").read_text()):
            raise AssertionError("what kills workers must not be tried in the process of the tests")
        os._exit(1)

    def fail(self) -> None:
        self.trace("failed")
        raise LookupError("the work itself failed")


def build(data: bytes) -> Thing:
    given = json.loads(data)
    thing = Thing(Path(given["folder"]), given["number"])
    thing.trace("built")
    return thing


def build_other(data: bytes) -> Thing:
    return Thing(Path(json.loads(data)["folder"]), -1)


def build_nothing(data: bytes) -> Thing:
    raise LookupError("this cannot be built")


def lead(data: bytes) -> None:
    """In a process: be the parent of a worker that works."""
    Crew(1, build, data).submit("work").result()


def die_early(*_arguments: Any) -> None:
    os._exit(1)


def traces(folder: Path, what: str) -> int:
    return len(list(folder.glob(f"{what} *-*")))


def data_for(folder: Path) -> bytes:
    (folder / "pid of the tests").write_text(str(os.getpid()))
    return json.dumps({"folder": str(folder), "number": 100, "padding": 5000 * "x"}).encode()


@pytest.fixture(autouse=True, scope="module")
def _importable() -> Iterator[None]:
    """Processes import this file by its name, from wherever the tests were started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local")


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[Crew]:
    """Two processes; tests that kill some leave new ones."""
    crew = Crew(2, build, data_for(folder))
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """Two processes of somebody's own, until a test kills them."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


class Watched(Executor):
    """Another executor's door, with a record of the arguments that went through it."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.sent: list[tuple[Any, ...]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sent.append(args)
        return self.inner.submit(fn, *args, **kwargs)

    def carrying(self, data: bytes) -> int:
        """How many calls carried the data with them."""
        return sum(data in arguments for arguments in self.sent)


def test_processes_build_once_and_are_then_sent_calls_alone(
    local: Crew, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(local._executor)
    monkeypatch.setattr(local, "_executor", watched)
    workers = set(local.answers("meet", [(2, "first")] * 2))
    assert len(workers) == 2
    assert os.getpid() not in {pid for pid, _ in workers}
    assert list(local.answers("plus", [(x,) for x in range(20)])) == list(range(100, 120))
    assert set(local.answers("who", [()] * 10)) <= workers
    assert traces(folder, "built") == 2
    assert len(watched.sent) == 32
    assert watched.carrying(local._data) == 0


@pytest.mark.parametrize("kind", ["threads", "pool"])
def test_workers_of_an_executor_are_each_sent_what_they_hold_about_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    executor = request.getfixturevalue(kind)
    watched = Watched(executor)
    data = data_for(tmp_path)
    crew = Crew(watched, build, data)
    assert not crew.local
    # Both are answered only while both are at work: what the second worker lacks must be sent
    # before the first is done.
    workers = set(crew.answers("meet", [(2, "first")] * 2))
    assert len(workers) == 2
    carrying = watched.carrying(data)
    assert carrying <= 4
    assert list(crew.answers("plus", [(x,) for x in range(20)])) == list(range(100, 120))
    assert set(crew.answers("meet", [(2, "second")] * 2)) == workers
    assert watched.carrying(data) == carrying
    assert traces(tmp_path, "built") == 2
    crew.close()
    assert executor.submit(int, "3").result() == 3


def test_many_first_calls_to_an_executor_do_not_all_carry_the_data(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        watched = Watched(executor)
        data = data_for(tmp_path)
        crew = Crew(watched, build, data)
        calls = [crew.submit("plus", x) for x in range(10)]
        wait_for(lambda: all(call.done for call in calls))  # with word that all is missing
        assert [crew.first(calls[i:]) for i in range(10)] == list(range(100, 110))
        assert watched.carrying(data) == 1
        assert traces(tmp_path, "built") == 1


def test_two_crews_on_one_executor_do_not_take_each_others_things(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        data = data_for(tmp_path)
        crews = [Crew(executor, build, data), Crew(executor, build_other, data)]
        found = [crew.submit("plus", 1).result() for crew in crews * 2]
    assert found == [101, 0, 101, 0]


def test_errors_of_the_work_come_through_at_once(local: Crew, folder: Path) -> None:
    with pytest.raises(LookupError, match="the work itself failed"):
        local.submit("fail").result()
    assert traces(folder, "failed") == 1
    answers = local.answers("fail", [()] * 2)
    with pytest.raises(LookupError, match="the work itself failed"):
        next(answers)
    with pytest.raises(AttributeError, match="no attribute 'unheard'"):
        local.submit("unheard").result()
    assert local.submit("plus", 1).result() == 101


@pytest.mark.parametrize("kind", ["local", "threads"])
def test_a_call_that_takes_too_long_is_reported_and_those_before_it_are_answered(
    kind: str, request: pytest.FixtureRequest, folder: Path, clock: Clock
) -> None:
    given = request.getfixturevalue(kind)
    crew = given if isinstance(given, Crew) else Crew(given, build, data_for(folder))
    (folder / f"now {kind}").touch()
    limit = 2 * PATIENCE
    answers = crew.answers("hold", [(f"now {kind}",), *[(f"later {kind}",)] * 2], limit)
    try:
        assert next(answers) == f"now {kind}"
        clock.now += limit
        assert [type(error) for error in answers] == [OverdueError, OverdueError]
    finally:
        (folder / f"later {kind}").touch()


def test_a_worker_that_dies_once_changes_no_answer(local: Crew, folder: Path) -> None:
    assert list(local.answers("die_once", [(x,) for x in range(10)])) == list(range(10))
    assert (folder / "died").exists()


def test_a_call_that_kills_every_worker_is_given_up_and_the_others_are_answered(
    local: Crew, folder: Path
) -> None:
    before = local.submit("plus", 1)
    deadly = local.submit("die")
    after = [local.submit("plus", x) for x in range(4)]
    assert before.result() == 101
    with pytest.raises(WorkerDiedError, match="given up after 3 workers that took it had died"):
        deadly.result()
    assert traces(folder, "tried") == 3
    assert [call.result() for call in after] == [100, 101, 102, 103]
    # Both workers come to what was asked later, so nothing is left that would try once more.
    assert len(set(local.answers("meet", [(2, "after")] * 2))) == 2
    assert traces(folder, "tried") == 3
    assert local.submit("plus", 1).result() == 101


def test_processes_that_work_are_ended_promptly(local: Crew, folder: Path) -> None:
    before, done = traces(folder, "holding"), traces(folder, "done")
    for _ in range(6):
        local.submit("hold", "never")
    wait_for(lambda: traces(folder, "holding") > before)  # one is at work, another may be starting
    processes = list(local._executor._processes.values())  # type: ignore[attr-defined]
    assert len(processes) == 2
    local.close()
    wait_for(lambda: not any(process.is_alive() for process in processes))
    assert traces(folder, "done") == done
    local.close()  # once more does no harm


def test_a_call_that_waits_is_not_made_again_when_its_workers_are_ended(tmp_path: Path) -> None:
    """Whether it had begun or not: nobody wants its answer any more."""
    crew = Crew(1, build, data_for(tmp_path))
    calls = [crew.submit("hold", "never") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(call.result) for call in calls]
        wait_for(lambda: traces(tmp_path, "holding") == 1)
        crew.close()
        for one in waiting:
            with pytest.raises(ClosedError, match="waiting when its workers were ended"):
                one.result()
    assert traces(tmp_path, "holding") == 1
    assert traces(tmp_path, "done") == 0


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """A parent that is killed can tell its workers nothing; they are not left to work on."""
    parent = multiprocessing.get_context("spawn").Process(target=lead, args=(data_for(tmp_path),))
    parent.start()
    named = tmp_path / "pid of the worker"
    wait_for(named.exists)
    worker = int(named.read_text())
    assert alive(worker)
    parent.kill()
    parent.join()
    wait_for(lambda: not alive(worker))
    assert traces(tmp_path, "done") == 0


def test_what_kills_the_workers_of_an_executor_is_not_tried_in_this_process(
    pool: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "TRIES", 2)
    crew = Crew(pool, build, data_for(tmp_path))
    try:
        deadly = crew.submit("die")
        others = [crew.submit("plus", x) for x in range(4)]
        assert [crew.first([call, deadly]) for call in others] == [100, 101, 102, 103]
        with pytest.raises(WorkerDiedError):
            deadly.result()
        assert crew.local
    finally:
        crew.close()
    assert traces(tmp_path, "tried") == 2
    with pytest.raises(BrokenExecutor):
        pool.submit(int, "3")


def test_an_executor_that_was_shut_down_is_replaced_by_this_process(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(1)
    crew = Crew(executor, build, data_for(tmp_path))
    here = os.getpid(), threading.get_ident()
    assert crew.submit("who").result() != here
    running, waiting = crew.submit("hold", "shut down"), crew.submit("plus", 1)
    wait_for(lambda: traces(tmp_path, "holding") == 1)
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "shut down").touch()
    assert running.result() == "shut down"
    assert waiting.result() == 101
    assert list(crew.answers("who", [()] * 3)) == [here] * 3
    with pytest.raises(LookupError):
        crew.submit("fail").result()
    assert traces(tmp_path, "failed") == 1
    assert traces(tmp_path, "built") == 2


class KilledWorker(Exception):  # noqa: N818  (so it is called in the cluster software)
    """As a cluster tells that a worker died."""


class Cluster(Executor):
    """Calls run here; some are lost on the way, without the end of the cluster."""

    def __init__(self, *losses: Exception) -> None:
        self.losses = list(losses)
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.losses:
            future.set_exception(self.losses.pop(0))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize(
    "loss",
    [KilledWorker(), ConnectionResetError(), EOFError()],
    ids=lambda loss: type(loss).__name__,
)
def test_calls_that_a_cluster_loses_are_made_again_there(loss: Exception, tmp_path: Path) -> None:
    cluster = Cluster(loss, loss)
    crew = Crew(cluster, build, data_for(tmp_path))
    assert crew.submit("plus", 1).result() == 101
    assert cluster.calls == 3
    cluster.losses = [loss] * 4  # the second call is lost once, the first for good
    lost, found = crew.answers("plus", [(1,), (2,)])
    assert isinstance(lost, WorkerDiedError)
    assert found == 102


def test_a_worker_that_dies_while_it_builds_is_replaced_as_well(tmp_path: Path) -> None:
    class Late(Cluster):
        """Loses the call that carries the data."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if crew._data in args and not self.calls:
                self.losses.append(KilledWorker())
                return super().submit(fn, *args, **kwargs)
            future: Future[Any] = Future()
            future.set_result(fn(*args, **kwargs))
            return future

    crew = Crew(Late(), build, data_for(tmp_path))
    assert crew.submit("plus", 1).result() == 101


def test_what_cannot_be_built_is_said_and_not_tried_for_ever() -> None:
    with ThreadPoolExecutor(1) as executor:
        crew = Crew(executor, build_nothing, b"")
        with pytest.raises(LookupError, match="this cannot be built"):
            crew.submit("plus", 1).result()


def test_processes_that_cannot_build_and_processes_that_cannot_begin_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    willing = Crew(1, build_nothing, b"")
    unbuilt = willing.submit("plus", 1)
    monkeypatch.setattr(parallel, "_start", die_early)
    dead = Crew(1, build, b"")
    never = dead.answers("plus", [(1,)])
    try:
        with pytest.raises(NoWorkersError, match="below 'if __name__ == \"__main__\":'"):
            next(never)
        with pytest.raises(LookupError, match="this cannot be built"):
            unbuilt.result()
    finally:
        willing.close()
        dead.close()


def test_processes_that_may_not_be_started_are_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Forbidden(Executor):
        """As where a process is still importing the script that it runs."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("not now")

    monkeypatch.setattr(Crew, "_started", lambda crew: Forbidden())
    with pytest.raises(RuntimeError, match="not now"):
        Crew(1, build, b"").submit("plus", 1)


def test_a_stopped_worker_is_ended_and_its_call_made_again(
    local: Crew, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for the clock: silence counts from the first second."""
    stopped = local.submit("who").result()[0]
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(heartbeat, "SILENCE", 0.5)
    answers = list(local.answers("plus", [(x,) for x in range(8)]))
    assert answers == [local.submit("plus", x).result() for x in range(8)]
    wait_for(lambda: not alive(stopped))


def test_a_stopped_worker_does_not_hold_up_the_end(tmp_path: Path) -> None:
    crew = Crew(2, build, json.dumps({"folder": str(tmp_path), "number": 1}).encode())
    stopped = crew.submit("who").result()[0]
    os.kill(stopped, signal.SIGSTOP)
    crew.close()
    wait_for(lambda: not alive(stopped))


def test_a_call_that_is_late_twice_is_lost(local: Crew, folder: Path, clock: Clock) -> None:
    before = traces(folder, "holding")
    call = local.submit("hold", "never")
    wait_for(lambda: traces(folder, "holding") > before)
    clock.step = 4.0
    with pytest.raises(OverdueError):
        local.first([call], patience=10.0)
    assert local.submit("plus", 1).result() == 101
