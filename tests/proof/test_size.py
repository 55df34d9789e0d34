"""The kernel and the reader of network files stay small enough to be read in one sitting."""

from __future__ import annotations

import ast
import io
import tokenize
from importlib.resources import files

import pytest

CHECKER = files("provable_circuits.proof.checker")
KERNEL = ("arithmetic", "operations", "problem", "rules", "covering")
READERS = ("protobuf", "network")
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines that hold code: without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_lines_are_counted_without_remarks() -> None:
    assert code_lines('"""What it is."""\n\nx = 1  # one\n# two\ny = [\n    2,\n]\n') == 4


@pytest.mark.parametrize(
    ("names", "most"), [(KERNEL, 640), (READERS, 600)], ids=["kernel", "readers"]
)
def test_few_lines(names: tuple[str, ...], most: int) -> None:
    """600 for bounds of networks; 40 more for the covering, by which sizes are bounded."""
    sources = [CHECKER.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in names]
    assert sum(map(code_lines, sources)) <= most
