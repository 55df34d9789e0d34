"""Processes that tests wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 600.0
"""Seconds after which what should have happened is taken not to happen: a test that hangs fails."""


def wait_for(condition: Callable[[], bool]) -> None:
    """Return as soon as something is so."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet collected by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
