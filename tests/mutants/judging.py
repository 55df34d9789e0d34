"""Judging faults by tests: one process that has collected them, and a fork of it for every fault.

First a fork runs all tests without a fault and notes which lines of the files each test reaches.
Then every fault has a fork of its own: the fault is planted, and the tests that reach its lines
run, the quickest first, until one fails. A fork that crashes is a caught fault; one that works for
much longer than the tests do without a fault is stopped, and counted apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from tests.mutants.operators import Fault
from tests.mutants.planting import PACKAGE, plant

CAUGHT, SURVIVED, STOPPED, UNREACHED = "caught", "survived", "stopped", "unreached"

SECONDS, TIMES = 20, 5
"""A fault may cost so many seconds of work, and so many times that of the tests without it."""

Lines = dict[str, list[int]]


class Judge:
    """A plugin of pytest that, in place of running the tests once, runs them for every fault.

    Args:
        source: the folder of the package.
        faults: what to plant.
        tests: those that may catch a fault, as files, functions or cases.
        tell: takes each fault's outcome, and the test that caught it.
    """

    def __init__(
        self,
        source: Path,
        faults: Iterable[Fault],
        tests: Callable[[Fault], tuple[str, ...]],
        tell: Callable[[Fault, str, str], None],
    ) -> None:
        self.source = source
        self.tests = tests
        self.faults = list(faults)
        self.tell = tell
        self.problem = ""

    def pytest_sessionstart(self) -> None:
        """No examples from a database, none at random, and no time for making them small."""
        import hypothesis  # not earlier: pytest wants to be there first

        hypothesis.settings.register_profile(
            "mutants",
            deadline=None,
            derandomize=True,
            database=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self.problem = "the tests could not be collected"
            return True
        for name, module in sys.modules.items():
            path = getattr(module, "__file__", None)
            if name.startswith(PACKAGE) and path and not Path(path).is_relative_to(self.source):
                self.problem = f"{name} was loaded from {path}"
                return True
        items = session.items
        paths = {str(self.source / fault.file): fault.file for fault in self.faults}
        began = time.monotonic()
        reached, status = _forked(lambda: _trace(items, paths))
        if status:
            self.problem = f"{items[len(reached)].nodeid} fails without a fault"
            return True
        seconds = sum(float(test["seconds"]) for test in reached)
        print(
            f"{len(items)} tests pass without a fault, {seconds:.0f} s of work "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        for fault in self.faults:
            lines = range(fault.first, fault.last + 1)
            chosen = [
                i
                for i, test in enumerate(reached)
                if _among(items[i].nodeid, self.tests(fault))
                and (
                    not fault.scope or not set(lines).isdisjoint(test["lines"].get(fault.file, ()))
                )
            ]
            chosen.sort(key=lambda i: float(reached[i]["seconds"]))
            work = sum(float(reached[i]["seconds"]) for i in chosen)
            limit = SECONDS + int(TIMES * work)
            outcome, by = _judged(fault, [items[i] for i in chosen], limit)
            self.tell(fault, outcome, by)
        return True


def _forked(work: Callable[[], Iterator[Any]]) -> tuple[list[Any], int]:
    """What a fork of this process yields until it ends, and how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _quiet()
        with contextlib.suppress(BaseException):
            for one in work():
                os.write(write, json.dumps(one).encode() + b"\n")
            os._exit(0)
        os._exit(1)
    os.close(write)
    with os.fdopen(read) as stream:
        said = [json.loads(line) for line in stream]
    return said, os.waitpid(child, 0)[1]


def _trace(items: list[pytest.Item], paths: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Run each test, and note its seconds of work and the lines that it reaches."""
    for i, item in enumerate(items):
        reached: dict[str, set[int]] = {file: set() for file in paths.values()}

        def local(frame: FrameType, event: str, _: object, reached=reached) -> Any:  # type: ignore[no-untyped-def]
            reached[paths[frame.f_code.co_filename]].add(frame.f_lineno)
            return local

        def call(frame: FrameType, event: str, _: object, local=local) -> Any:  # type: ignore[no-untyped-def]
            return local if frame.f_code.co_filename in paths else None

        began = time.process_time()
        sys.settrace(call)
        failed = _failed(item, items[i + 1] if i + 1 < len(items) else None)
        sys.settrace(None)
        if failed:
            raise RuntimeError(item.nodeid)
        found: Lines = {file: sorted(lines) for file, lines in reached.items() if lines}
        yield {"lines": found, "seconds": time.process_time() - began}


def _among(test: str, chosen: tuple[str, ...]) -> bool:
    """Whether a test is named by a choice of files, functions and cases."""
    return any(test == name or test.startswith((f"{name}::", f"{name}[")) for name in chosen)


def _failed(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(r.failed for r in runtestprotocol(item, log=False, nextitem=following))


def _judged(fault: Fault, items: list[pytest.Item], limit: int) -> tuple[str, str]:
    """The outcome of a fault, and the test that caught it."""
    if not items:
        return UNREACHED, ""

    def work() -> Iterator[str]:
        import resource  # there is none on Windows, nor a fork

        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        try:
            plant(fault)
        except BaseException:
            yield f"the file itself: {traceback.format_exc().splitlines()[-1]}"
            return
        for item, following in zip(items, [*items[1:], None], strict=True):
            if _failed(item, following):
                yield item.nodeid
                return

    said, status = _forked(work)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        stopped = number in (signal.SIGXCPU, signal.SIGKILL)
        return (STOPPED, "") if stopped else (CAUGHT, f"signal {number}")
    if os.WEXITSTATUS(status):
        return CAUGHT, "the process broke off"
    return (CAUGHT, said[0]) if said else (SURVIVED, "")


def _quiet() -> None:
    """Nothing that a test prints is seen."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def judge(
    root: Path,
    faults: list[Fault],
    tests: Callable[[Fault], tuple[str, ...]],
    tell: Callable[[Fault, str, str], None],
) -> str:
    """Judge faults by their tests; an empty text, or what went wrong."""
    plugin = Judge(root / "src" / PACKAGE, faults, tests, tell)
    wanted = dict.fromkeys(str(root / test) for fault in faults for test in tests(fault))
    os.environ["CI"] = "1"
    sys.path.insert(0, str(root / "src"))
    arguments = ["-qq", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider"]
    pytest.main([*arguments, f"--rootdir={root}", *wanted], [plugin])
    return plugin.problem
