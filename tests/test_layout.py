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


LABELS = re.compile(r"patch:|at:|.*[~^]")
"""What the labels of nodes that encoding and lowering add look like."""


def test_names_of_nodes_are_not_parsed() -> None:
    """What a node of a merged graph stands for is its role; names are labels for people."""
    found = {str(path): _parsed(tree) for path, tree in TREES.items()}
    assert _parsed(ast.parse("name.startswith('patch:')"))
    assert _parsed(ast.parse("if '~' in name: pass"))
    assert _parsed(ast.parse("known.get(f'patch:{name}')"))
    assert _parsed(ast.parse("points['patch:input']"))
    assert not _parsed(ast.parse("builder.add(f'{name}~', op)"))
    assert {path for path, lines in found.items() if lines} == set()


def _parsed(tree: ast.AST) -> list[int]:
    """Lines where such a label is looked for, or looked up."""
    lines = []
    for node in ast.walk(tree):
        looked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parsing = ("startswith", "endswith", "removeprefix", "removesuffix", "get")
            if node.func.attr in (*parsing, "split", "rsplit", "partition", "rpartition", "find"):
                looked = list(node.args)
        elif isinstance(node, ast.Compare):
            looked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            looked = [node.slice]
        for expression in looked:
            for part in ast.walk(expression):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and LABELS.match(part.value)
                    and len(part.value) < 16
                ):
                    lines.append(part.lineno)
    return lines


def test_kinds_of_patching_are_asked_for_in_few_files() -> None:
    """What callers want of a patching is a method or a property of it."""
    kinds = {"Patching", "FixedPatching", "RangingPatching", "Zero", "Mean", "Constant"}
    kinds |= {"Reachable", "IntervalHull"}
    assert _asks(ast.parse("isinstance(claim.patching, Reachable | pc.IntervalHull)"), kinds)
    assert not _asks(ast.parse("isinstance(node.op, ops.Constant)"), kinds)
    found = {str(path) for path, tree in TREES.items() if _asks(tree, kinds)}
    assert len(found) <= 3, found


def _asks(tree: ast.AST, kinds: set[str]) -> bool:
    """Whether something called a patch or patching is asked for its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            names = set(re.findall(r"\w+", ast.unparse(node.args[1])))
            if "patch" in ast.unparse(node.args[0]).lower() and names & kinds:
                return True
    return False


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


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, a tuple of numbers, or made of numbers by operators."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(_is_number(part) for part in node.elts)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _numeric_constants(tree: ast.Module) -> set[str]:
    """Names in capitals that are given a number at the top of a module, alone or in a tuple."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_number(node.value):
            targets = [part for target in node.targets for part in ast.walk(target)]
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _is_number(node.value):
            targets = [node.target]
        else:
            continue
        found |= {part.id for part in targets if isinstance(part, ast.Name) and part.id.isupper()}
    return found


SOUNDNESS = {
    "verify/bounding/crown.py": {"TINY_SINGLE"},
    "verify/bounding/relaxation.py": {"SLACK"},
}
"""Constants that a proof rests on: with other values a bound could be false."""

LAYOUT_OF_DATA = {
    "proof/prover.py": {"LEVELS"},
    "verify/neuron_hull/proof_reuse.py": {"POSITIONS"},
    "verify/neuron_hull/saved_tree.py": {"PLACES"},
    "verify/neuron_hull/subdomains.py": {"UNIT_NUMBERS"},
}
"""Constants that say how data is laid out: how it is numbered or written, how much it takes."""

TUNED = (
    "discover/confirmation.py",
    "proof/prover.py",
    "properties/confirm.py",
    "properties/exact.py",
    "properties/verify.py",
)
"""Files outside the verifier whose tuning is in its configuration."""


def test_tuning_is_in_the_configuration_alone() -> None:
    """A number that may be changed without making an answer false has a field, not a module."""
    written = "STEPS = 4\nNEAR: float = 1e-12\nA, B = 2**20, -1\nCPU = f(1)\nstep = 3\n"
    assert _numeric_constants(ast.parse(written)) == {"STEPS", "NEAR", "A", "B"}
    watched = {str(p): t for p, t in TREES.items() if str(p).startswith("verify/")}
    watched |= {name: TREES[Path(name)] for name in TUNED}
    assert len(watched) > 50
    found = {name: _numeric_constants(tree) for name, tree in watched.items()}
    assert {name: names for name, names in found.items() if names} == SOUNDNESS | LAYOUT_OF_DATA
