"""The faults themselves: what is planted where, and that planting changes what everybody calls."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.mutants.__main__ import EXPLAINED, every_fault, explained
from tests.mutants.operators import KINDS, Fault, faults, spread
from tests.mutants.planting import graft
from tests.mutants.targets import TARGETS, judges_of

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''\
"""A docstring with a - b."""
from functools import cached_property, lru_cache

LIMIT = 2.5


def enclose(lower: int | None, upper, error=3, *, rigorous=True):
    """Text with 1 + 1."""
    if lower > upper:
        raise ValueError(f"{lower - upper}")
    if rigorous and not error < 0:
        lower, upper = down(lower - error), up(upper + error)
    total = lower[0] if isinstance(lower, list | tuple) else lower.sum(1)
    note(total)
    return lower, upper


@lru_cache(maxsize=8)
def cached(x):
    return x + 1


class Held:
    factor: float = 2.0

    def __repr__(self):
        return str(1 + 1)

    @property
    def twice(self):
        return LIMIT * 2

    @cached_property
    def late(self):
        return max(LIMIT, 1)

    @staticmethod
    def plain(x):
        return -x
'''


def changes(kind: str) -> set[tuple[str, str]]:
    return {(f.before, f.after) for f in faults("file.py", SOURCE) if f.kind == kind}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("sign", "return x + 1", "return (x - 1)"),
        ("sign", "return -x", "return x"),
        ("comparison", "if lower > upper:", "if (lower >= upper):"),
        ("comparison", "if lower > upper:", "if (lower < upper):"),
        (
            "condition",
            "if rigorous and not error < 0:",
            "if (rigorous or not error < 0):",
        ),
        ("condition", "if rigorous and not error < 0:", "if rigorous:"),
        ("condition", "if rigorous and not error < 0:", "if rigorous and (error < 0):"),
        (
            "condition",
            "total = lower[0] if isinstance(lower, list | tuple) else lower.sum(1)",
            "total = lower[0] if isinstance(lower, list) else lower.sum(1)",
        ),
        (
            "index",
            "total = lower[0] if isinstance(lower, list | tuple) else lower.sum(1)",
            "total = lower[1] if isinstance(lower, list | tuple) else lower.sum(1)",
        ),
        (
            "index",
            "total = lower[0] if isinstance(lower, list | tuple) else lower.sum(1)",
            "total = lower[0] if isinstance(lower, list | tuple) else lower.sum(0)",
        ),
        ("constant", "LIMIT = 2.5", "LIMIT = 0.0"),
        ("constant", "return LIMIT * 2", "return LIMIT * 0"),
        ("dropped", "return x + 1", "return x"),
        ("dropped", "note(total)", "pass"),
        ("dropped", "return max(LIMIT, 1)", "return LIMIT"),
        (
            "dropped",
            "lower, upper = down(lower - error), up(upper + error)",
            "lower, upper = (lower - error), up(upper + error)",
        ),
        (
            "swapped",
            "lower, upper = down(lower - error), up(upper + error)",
            "lower, upper = up(lower - error), up(upper + error)",
        ),
        (
            "swapped",
            "lower, upper = down(lower - error), up(upper + error)",
            "upper, lower = down(lower - error), up(upper + error)",
        ),
        ("swapped", "return lower, upper", "return upper, lower"),
        ("swapped", "return lower, upper", "return upper, upper"),
        ("swapped", "return max(LIMIT, 1)", "return min(LIMIT, 1)"),
    ],
)
def test_faults_of_each_kind(kind: str, before: str, after: str) -> None:
    plain = {(b, a.replace("(upper, lower)", "upper, lower")) for b, a in changes(kind)}
    assert (before, after) in {(b, a) for b, a in plain} | changes(kind)


def test_texts_annotations_decorators_and_prints_are_left_alone() -> None:
    found = faults("file.py", SOURCE)
    for fault in found:
        assert fault.scope != "Held.__repr__"
        assert fault.before.startswith("raise") == (fault.after == "pass" and fault.line == 10)
        for line in ('"""', "@lru_cache", "factor"):
            assert line not in fault.before
        assert "int | None" not in fault.before or "int | None" in fault.after


def test_names_of_types_are_left_alone() -> None:
    assert not faults("file.py", "Both = Held | Mapping[str, Held] | Other\n")
    for line in ("MASK = LEFT | RIGHT", "Mask = Left | {1}", "mask = left | Right", "A = 1 + 2"):
        assert faults("file.py", f"{line}\n")
    assert faults("file.py", "def f():\n    return Left | Right\n")


def test_every_fault_is_another_program_that_can_be_read() -> None:
    found = every_fault()
    assert {fault.file for fault in found} == set(TARGETS)
    assert {fault.kind for fault in found} == set(KINDS)
    assert len({(fault.file, fault.source) for fault in found}) == len(found) > 800
    originals = {
        file: ast.dump(ast.parse((ROOT / "src/provable_circuits" / file).read_text()))
        for file in TARGETS
    }
    for fault in found[::7]:
        assert ast.dump(ast.parse(fault.source)) != originals[fault.file], fault


def test_a_key_survives_that_lines_move() -> None:
    moved = faults("file.py", SOURCE.replace("LIMIT", "\n\nLIMIT", 1))
    here = faults("file.py", SOURCE)
    assert [fault.key for fault in moved] == [fault.key for fault in here]
    assert [fault.line for fault in moved] != [fault.line for fault in here]


def test_a_sample_has_something_of_everything() -> None:
    found = every_fault()
    groups = len({(fault.file, fault.kind) for fault in found})
    small = list(spread(found, groups, seed=3))
    assert set(Counter((f.file, f.kind) for f in small).values()) == {1}
    larger = list(spread(found, 100, seed=3))
    assert larger[:groups] == small
    assert list(spread(found, 100, seed=3)) == larger
    assert list(spread(found, 100, seed=4)) != larger
    assert len(list(spread(found, 10**6, seed=0))) == len(found)
    with pytest.raises(ValueError, match="count"):
        list(spread(found, 0, seed=0))


def test_planting_changes_what_everybody_holds(tmp_path: Path) -> None:
    """Functions, defaults, methods, properties, cached ones, and constants that were imported."""
    path = tmp_path / "planted.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("planted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["planted"] = module
    try:
        cached, plain, held = module.cached, module.Held.plain, module.Held()
        assert (cached(1), plain(1), held.twice) == (2, -1, 5.0)
        changed = SOURCE.replace("x + 1", "x + 7").replace("LIMIT = 2.5", "LIMIT = 4.0")
        changed = changed.replace("return -x", "return 9").replace("error=3", "error=8")
        graft(module, changed.replace("LIMIT, 1", "LIMIT, 6"))
        assert (cached(2), plain(1), held.twice, held.late) == (9, 9, 8.0, 6)
        assert module.enclose.__defaults__ == (8,)
        assert path.read_text() == SOURCE, "nothing is written"
    finally:
        del sys.modules["planted"]


def test_what_is_explained_is_there() -> None:
    """Each entry is about a fault that can be planted today, and says why in a sentence."""
    keys = {fault.key for fault in every_fault()}
    reasons = explained()
    assert set(reasons) <= keys
    assert all(len(reason) > 20 for reason in reasons.values())
    assert EXPLAINED.read_text().count("[[survivor]]") == len(reasons)


@pytest.mark.parametrize("file", TARGETS)
def test_the_tests_of_a_file_are_there(file: str) -> None:
    for name in judges_of(file, oracle=True):
        assert (ROOT / name.partition("::")[0]).is_file()


def test_faults_say_where_they_are() -> None:
    fault: Fault = next(f for f in faults("file.py", SOURCE) if f.scope == "Held.late")
    assert str(fault).startswith(f"file.py:{fault.line} (")
    assert fault.first <= fault.line <= fault.last
