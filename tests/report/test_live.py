"""The live line: what it says, on a terminal and in a log."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from provable_circuits.progress import Progress
from provable_circuits.report import live
from provable_circuits.report.live import LiveLine, progress_text

AT = Progress(
    seconds=30,
    doing="fc[/]1/3",
    size=12,
    of=34,
    lower=4,
    queries={"refuted": 2, "proved": 7, "undecided": 1},
    done=10,
    total=20,
)


def test_it_tells_all_that_matters() -> None:
    assert progress_text(AT) == (
        "fc[/]1/3 | 10/20 | 12 of 34 kept, at least 4 needed | "
        "7 proved, 2 refuted, 1 undecided | 30 s | about 30 s left"
    )


def test_the_clock_goes_on_between_answers() -> None:
    assert progress_text(AT, 9.6).endswith("| 40 s | about 20 s left")
    assert progress_text(AT, 99).endswith("| 129 s | about 0 s left")


def test_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    with LiveLine(Console(file=screen, width=40)) as line:
        line(AT)
        assert screen.getvalue() == ""
        monkeypatch.setattr(live, "EVERY", 0)
        line(AT)
    assert screen.getvalue() == progress_text(AT) + "\n"


def test_one_line_that_changes_on_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=200, force_terminal=True)
    with LiveLine(console) as line:
        line(AT)
    assert "fc[/]1/3 | 10/20 | 12 of 34 kept" in screen.getvalue()


def test_nothing_if_asked_to_be_quiet() -> None:
    screen = io.StringIO()
    with LiveLine(Console(file=screen, force_terminal=True), quiet=True) as line:
        line(AT)
    assert screen.getvalue() == ""
