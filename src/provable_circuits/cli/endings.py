"""How the program ends when a command does not: one sentence, an exit code, and no traceback.

The codes of verdicts (0 holds, 1 refuted, 3 undecided) are never used for anything else, so that a
script that reads them is not told of a refutation by a closed pipe.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from provable_circuits.errors import ProvableCircuitsError

WRONG_CALL = 2
UNDECIDED = 3
UNEXPECTED = 70
INTERRUPTED = 130
PIPE_CLOSED = 141

DEBUG = "--debug"


class Commands(TyperGroup):
    """The commands; ``--debug`` may stand anywhere among their options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = [DEBUG] if DEBUG in args else []
        return super().parse_args(ctx, given + [part for part in args if part != DEBUG])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has gone. Python would complain once more while it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None


ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end the program as Ctrl-C does: a search ends with the best circuit so far."""


def run(app: Callable[[], Any]) -> None:
    """Run the program; whatever it raises becomes a sentence and an exit code."""
    try:
        with interruptible():
            app()
    except Exception as error:
        _end(error)
    except KeyboardInterrupt:
        say("Interrupted.")
        sys.exit(INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, a request to end is an interrupt; a signal that nohup, say, ignores stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _end(error: Exception) -> NoReturn:
    if DEBUG in sys.argv:
        traceback.print_exception(error)
    if isinstance(error, ProvableCircuitsError):
        say(f"Error: {error}")
        sys.exit(error.exit_code)
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        say("Error: there is not enough memory for this: ask about fewer inputs at once.")
        sys.exit(UNDECIDED)
    if isinstance(error, OSError):
        say(f"Error: {error}.")
        sys.exit(WRONG_CALL)
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    say(
        f"Error: something went wrong that should not have ({what}): add --debug to see where, "
        "and please report it."
    )
    sys.exit(UNEXPECTED)


def say(sentence: str) -> None:
    """Print a sentence where errors go."""
    Console(stderr=True, highlight=False).print(sentence, markup=False, soft_wrap=True)
