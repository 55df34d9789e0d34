"""A live line: what a long search is at, on a terminal or in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from provable_circuits.progress import Progress

EVERY = 10.0
"""Seconds between lines where the output is no terminal."""


class LiveLine:
    """Shows progress while it is open: one line that changes, or plain lines now and then."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._status: Status | None = None
        self._last = time.monotonic()

    def __enter__(self) -> LiveLine:
        if not self.quiet and self.console.is_terminal:
            self._status = self.console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, progress: Progress) -> None:
        """Show where a search stands."""
        if self._status is not None:
            self._status.update(_Ticking(progress))
        elif not self.quiet and time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            self.console.print(progress_text(progress), markup=False, soft_wrap=True)


class _Ticking:
    """A line whose clock goes on while a question takes its time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._since = time.monotonic()

    def __rich__(self) -> Text:
        return Text(progress_text(self._progress, time.monotonic() - self._since))


def progress_text(progress: Progress, waited: float = 0.0) -> str:
    """Where a search stands, in one line, some seconds after it was told."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(progress.queries.items()))
    size = f"{progress.size} of {progress.of} kept"
    if progress.lower:
        size += f", at least {progress.lower} needed"
    parts = [progress.doing, size, counts, f"{progress.seconds + waited:.0f} s"]
    if progress.total is not None:
        parts.insert(1, f"{progress.done}/{progress.total}")
    if progress.remaining is not None:
        parts.append(f"about {max(progress.remaining - waited, 0):.0f} s left")
    return " | ".join(part for part in parts if part)
