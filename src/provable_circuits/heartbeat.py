"""Heartbeats of worker processes: a sign of life each second, by which one that is stuck is known.

A process that was stopped, or swapped out, still exists, and whoever waits for it waits for ever.
Here each worker writes the time into memory that it shares with its parent; the parent ends one
that has been silent for too long, by its id. A worker that computes without pause, so that its own
thread for this has no turn, is seen at work by the system and left alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.context import SpawnContext
from pathlib import Path

SLOTS = 4096
"""Workers whose signs are kept; after that the oldest places are taken again."""

PAUSE = 1.0
"""Seconds between two signs."""

SILENCE = 10.0
"""Seconds of silence after which a worker is taken to be stuck."""

START = 120.0
"""Seconds that a worker may take before its first sign: it imports a good deal."""


class Heartbeats:
    """Signs of life in shared memory: the worker's id, and when it was last heard of."""

    def __init__(self, context: SpawnContext) -> None:
        self._signs = context.RawArray("d", 2 * SLOTS)
        self._taken = context.Value("i", 0)

    def begin(self) -> None:
        """In a worker: give signs from now on."""
        with self._taken.get_lock():
            slot = self._taken.value % SLOTS
            self._taken.value += 1
        self._signs[2 * slot + 1] = time.monotonic()
        self._signs[2 * slot] = os.getpid()
        threading.Thread(target=self._beat, args=(slot,), daemon=True).start()

    def _beat(self, slot: int) -> None:
        while True:
            self._signs[2 * slot + 1] = time.monotonic()
            time.sleep(PAUSE)

    def heard(self) -> dict[int, float]:
        """When each worker was last heard of, on the monotonic clock."""
        count = min(self._taken.value, SLOTS)
        return {int(self._signs[2 * i]): self._signs[2 * i + 1] for i in range(count)}


class Watch:
    """Finds stuck workers among some processes."""

    def __init__(self, beats: Heartbeats) -> None:
        self._beats = beats
        self._met: dict[int, float] = {}

    def stuck(self, pids: Iterable[int]) -> list[int]:
        """Those that have been silent for too long, and are not seen at work."""
        now = time.monotonic()
        heard = self._beats.heard()
        found = []
        for pid in pids:
            met = self._met.setdefault(pid, now)
            last = heard.get(pid)
            silent = now - met > START if last is None else now - last > SILENCE
            if silent and not at_work(pid):
                found.append(pid)
        return found


def at_work(pid: int) -> bool:
    """Whether the system says that a process computes; not known everywhere."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rsplit(")", 1)[1].split()[0] == "R"
    return False
