"""What every test may rely on: repeatable numerics, time that stands still, the data pack, and the
command line in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tests.clock import LIMITED, Clock

PROJECT = Path(__file__).resolve().parents[1]

# Workers share the machine's cores, and one thread sums in one order.
torch.set_num_threads(1)

# How long an example takes depends on what else the machine does, so no deadline. CI draws the
# same examples every time; elsewhere each run looks at new ones.
settings.register_profile("local", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True, scope="session")
def _no_time_passes() -> Iterator[None]:
    """For the verifier in this process time stands still, so no limit in seconds is ever reached.

    Tests of questions that would take too long limit them in nodes; those of limits in seconds take
    the fixture ``clock`` and move it.
    """
    with pytest.MonkeyPatch.context() as patch:
        Clock().install(patch, "verify.deadline")
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of everything that has a limit in seconds: it moves when the test moves it."""
    clock = Clock()
    clock.install(monkeypatch, *LIMITED)
    return clock


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of benchmark networks and images, which is not part of the repository.

    ``PROVABLE_CIRCUITS_DATA`` names it; without that, ``../shared/data`` beside the project.
    Tests that ask for it are skipped where there is none.
    """
    named = os.environ.get("PROVABLE_CIRCUITS_DATA")
    folder = Path(named) if named else PROJECT.parent / "shared" / "data"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"PROVABLE_CIRCUITS_DATA must name a folder. Got {named!r} instead.")
    pytest.skip("no data pack: set PROVABLE_CIRCUITS_DATA to the folder that holds it")


@pytest.fixture
def program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Calls the command line with some arguments: its exit code, and what both streams got."""
    from provable_circuits.cli import main

    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["provable-circuits", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return (code, *capsys.readouterr())

    return call
