"""How the package is laid out: one word, one meaning; nobody reaches back; tests stand alone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import provable_circuits

SOURCE = Path(provable_circuits.__file__).parent
TESTS = Path(__file__).parent
TREES = {path.relative_to(SOURCE): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}

TWICE = {"Constant", "Mean"}
"""Operations of a network, and patchings of that name that users know."""


def test_no_two_classes_have_one_name() -> None:
    """But for the checker, which shares nothing with the package, its words included."""
    places = defaultdict(set)
    for path, tree in TREES.items():
        if not path.is_relative_to("proof/checker"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].add(str(path))
    assert len(places) > 200
    assert {name for name, files in places.items() if len(files) > 1} == TWICE


def test_nothing_in_the_verifier_knows_its_maker() -> None:
    """Imports for types alone would hide a cycle from the contracts."""
    guarded = {
        str(path)
        for path, tree in TREES.items()
        if any(isinstance(n, ast.Name) and n.id == "TYPE_CHECKING" for n in ast.walk(tree))
    }
    assert "network/graph.py" in guarded
    assert {path for path in guarded if path.startswith("verify/")} == set()


def test_no_test_imports_from_another() -> None:
    found = re.compile(r"^(?:from|import) tests\.[\w.]*\btest_", re.MULTILINE)
    assert found.search("import os\nfrom tests.verify.test_verifier import dense\n")
    assert [str(p) for p in TESTS.rglob("*.py") if found.search(p.read_text())] == []


def test_no_test_is_longer_than_500_lines() -> None:
    lengths = {
        str(path.relative_to(TESTS)): path.read_text().count("\n")
        for path in TESTS.rglob("test_*.py")
    }
    assert len(lengths) > 60
    assert {name: length for name, length in lengths.items() if length > 500} == {}
