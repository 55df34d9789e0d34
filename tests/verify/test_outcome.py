"""Outcomes and reasons are enums that carry their explanations; no verdict has a bare text."""

from __future__ import annotations

import ast
from pathlib import Path

import provable_circuits
from provable_circuits.verify.outcome import Outcome, Reason, reason_named

SOURCE = Path(provable_circuits.__file__).parent


def _reasons(source: str) -> list[ast.expr]:
    """What verdicts that are undecided are given as their reason."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call.args[0] for call in calls if call.args and getattr(call.func, "id", "") == "Undecided"
    ]


def test_no_reason_is_a_bare_text() -> None:
    assert isinstance(_reasons('Undecided("time", stage)')[0], ast.Constant)
    found = {path: _reasons(path.read_text()) for path in SOURCE.rglob("*.py")}
    assert sum(map(len, found.values())) > 5
    assert [
        p for p, given in found.items() if any(isinstance(g, ast.Constant) for g in given)
    ] == []


def test_each_is_its_text_and_has_an_explanation() -> None:
    assert f"{Reason.TIME} {[Outcome.MORE]}" == "time ['more']"
    for member in (*Outcome, *Reason):
        assert member.explanation.strip()
        assert member.explanation != member.value


def test_a_reason_is_found_by_its_text() -> None:
    assert reason_named("memory") is Reason.MEMORY
    assert reason_named("it crashed") == "it crashed"
