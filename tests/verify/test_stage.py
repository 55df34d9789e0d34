"""Every stage of a verdict is a member of ``Stage``: read from the source, not from a list."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import provable_circuits
from provable_circuits.verify.stage import Stage, described

SOURCE = Path(provable_circuits.__file__).parent
FOREIGN = {"name"}
"""Attributes that stand for the name of an outside verifier."""


class Stages:
    """The stages that the source names, and expressions for stages that are not understood."""

    def __init__(self) -> None:
        self.trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
        takers = {path: _takers(tree) for path, tree in self.trees.items()}
        everywhere = {
            name: place
            for own in takers.values()
            for name, place in own.items()
            if not name.startswith("_")
        }
        self.found: set[Stage] = set()
        self.seen: set[str] = set()
        self.unknown: list[str] = []
        for path, tree in self.trees.items():
            self.takers = {**everywhere, **takers[path]}
            self.seen |= set(self.takers)
            carried = any(_binds_stage(node) for node in ast.walk(tree))
            for node in ast.walk(tree):
                for value in self._values(node, carried):
                    self._take(value, f"{path.relative_to(SOURCE)}:{value.lineno}")

    def _values(self, node: ast.AST, carried: bool) -> Iterator[ast.expr]:
        """Expressions whose value is a stage."""
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            place = self.takers.get(name)
            if place is not None and place < len(node.args):
                yield node.args[place]
            if place is not None:
                yield from (k.value for k in node.keywords if k.arg == "stage")
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
            # What a loop takes apart as (..., stage) was put together as a pair somewhere.
            if carried and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
                last = node.value.elts[1]
                if isinstance(last, ast.Attribute) and getattr(last.value, "id", "") == "Stage":
                    yield last
        if isinstance(node, ast.AnnAssign) and _is_stage(node.target) and node.value is not None:
            yield node.value

    def _take(self, value: ast.expr, where: str) -> None:
        if isinstance(value, ast.IfExp):
            self._take(value.body, where)
            self._take(value.orelse, where)
        elif isinstance(value, ast.Attribute) and getattr(value.value, "id", "") == "Stage":
            self.found.add(Stage[value.attr])
        elif not _is_stage(value) and getattr(value, "attr", "") not in FOREIGN:
            self.unknown.append(f"{where}: {ast.unparse(value)}")


def _takers(tree: ast.Module) -> dict[str, int]:
    """Functions and verdicts that are given a stage, and at which place."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in node.args.args if a.arg != "self"]
            if "stage" in names and node.name != "described":
                found[node.name] = names.index("stage")
        if isinstance(node, ast.ClassDef) and any(
            getattr(base, "id", "") == "Verdict" for base in node.bases
        ):
            fields = [
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and "ClassVar" not in ast.unparse(item.annotation)
            ]
            if "stage" in fields:
                found[node.name] = fields.index("stage")
    return found


def _is_stage(node: ast.AST) -> bool:
    name = getattr(node, "id", getattr(node, "attr", ""))
    return name in ("stage", "STAGE")


def _binds_stage(node: ast.AST) -> bool:
    return isinstance(node, ast.For) and any(_is_stage(n) for n in ast.walk(node.target))


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if _is_stage(target):
        yield value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, other)


def test_every_stage_of_the_source_has_a_description() -> None:
    stages = Stages()
    assert stages.unknown == []
    assert {"Proved", "Refuted", "Undecided", "Held", "_refuted", "_note"} <= stages.seen
    assert {"tightening", "linear", "pool", "corner", "sampling", "exact", "worker"} <= stages.found
    assert all(stage.description and stage.description.strip() for stage in Stage)


def test_no_stage_is_there_that_nothing_names() -> None:
    assert set(Stage) - Stages().found == set()


def test_an_outside_verifier_is_called_by_its_name() -> None:
    assert described("Marabou") == "the outside verifier Marabou"
    assert "linear bounds" in described("tightening")


def test_a_stage_is_its_name() -> None:
    """In saved runs, in JSON and in what is printed."""
    assert json.dumps({Stage.LINEAR: [Stage.POOL]}) == '{"linear": ["pool"]}'
    assert f"{Stage.EXACT} {[Stage.NEURON_HULL]}" == "exact ['neuron-hull']"
