"""Every example runs, in a few seconds, and prints what it is an example of."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = EXAMPLES / "reading_a_circuit.ipynb"

SAYS = {
    "transformer.py": [
        r"Circuit: \d+ of 28 components\n  attn +\d of 4",
        r"inputs    Tokens\(36 inputs of shape \[3\]\)",
        r"Minimal: local\n  because every component is necessary",
    ],
    "own_model.py": [
        r"accuracy [89]\d%",
        r"Circuit: \d+ of 20 components",
        r"Faithful: certified for every input in 3 domain",
        r"from scratch: proved",
    ],
    "onnx_model.py": [
        r"Components\(34: fc1 13, fc2 11, fc3 10\)",
        r"read back: True",
        r"query-1\.onnx with query-1\.vnnlib",
    ],
    "patching_claims.py": [
        r"patches are zero: \d+ of 34\n.*Zero patching is not monotone",
        r"patches reachable: \d+ of 34\n  subset \(assumed\)",
        r"in intervals: \d+ of 34\n  subset \(unconditional\): .* by construction",
    ],
    "smallest_circuit.py": [
        r"smallest: (\d+) components, none has fewer than \1\n  cardinal, unconditional",
        r"Blocking set: .*\n.*\n.*no smaller set does so",
    ],
    "sampled_and_proved.py": [
        r"pixels moved by 0\.0\d turn .* into .* \(refuted\)",
        r"[1-5] of 5 sampled circuits are refuted",
    ],
}
"""What each script prints, as patterns."""


WRITES = {"own_model.py": {"circuit.svg", "run"}}


def test_every_script_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_a_script_runs_and_says_what_it_found(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for pattern in SAYS[name]:
        assert re.search(pattern, done.stdout), f"{pattern!r} is not in\n{done.stdout}"
    assert {path.name for path in tmp_path.iterdir()} == WRITES.get(name, set())


@pytest.mark.parametrize("name", SAYS)
def test_a_script_is_short_and_says_what_it_is_for(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "outputs are made by running it, not stored"
    assert sum(len(cell.source.splitlines()) for cell in cells) < 60
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.text for cell in cells for output in cell.outputs if output.output_type == "stream"
    )
    assert "Faithful: certified for every input in 3 domain" in printed
    assert "the smaller one is refuted" in printed
    shown = [output.data for cell in cells for output in cell.outputs if "data" in output]
    assert any("<svg" in data.get("text/html", "") for data in shown), "the result shows itself"
    assert sum("image/svg+xml" in data for data in shown) == 2
    assert "<html" in (tmp_path / "report.html").read_text()
