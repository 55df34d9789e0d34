"""Running another program within a time limit: no shell, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.errors import ArgumentError

MOST_OUTPUT = 2**24
"""Bytes of a program's output that are read."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: its exit code (None if it was stopped), its output, its time."""

    code: int | None
    output: str
    errors: str
    seconds: float

    @property
    def complaint(self) -> str:
        """One line on what went wrong."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        last = f": {lines[-1][:200]}" if lines else ""
        return f"it ended with exit code {self.code}{last}"


def run_limited(words: Sequence[str], timeout: float) -> Finished:
    """Run a program; after ``timeout`` seconds it is killed, with every process it started.

    Raises:
        ArgumentError: the program cannot be started.
    """
    started = time.monotonic()
    # Files, not pipes: a pipe that nobody drains would block the program, and one that a stray
    # child holds open would block us.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ArgumentError(f"The command {words[0]!r} cannot be started: {error}.") from None
        code: int | None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                _kill_group(process)
        seconds = time.monotonic() - started
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read(MOST_OUTPUT).decode(errors="replace"))
    return Finished(code, texts[0], texts[1], seconds)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not been waited for, and its group, which is its own."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
