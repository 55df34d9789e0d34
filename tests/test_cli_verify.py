"""``provable-circuits verify``: the first line, the counterexample, the exit codes, the errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.clock import Clock

import provable_circuits as pc
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, program: Run, tmp_path: Path) -> Run:
    """Calls the command line; gives its exit code and what it wrote to both streams."""
    monkeypatch.chdir(tmp_path)
    builder = GraphBuilder()
    hidden = builder.add("fc1", Linear(torch.eye(2), torch.ones(2)), builder.input("x", (2,)))
    relu = builder.add("relu", ReLU(), hidden)
    graph = builder.build([builder.add("fc2", Linear(torch.tensor([[1.0, -1.0]])), relu)])
    graph.to_onnx("net.onnx")
    return partial(program, "verify")


def write(body: str, name: str = "p.vnnlib") -> str:
    declared = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0"))
    box = "".join(f"(assert (>= X_{i} -0.5))(assert (<= X_{i} 0.5))" for i in (0, 1))
    Path(name).write_text(declared + box + body)
    return name


def test_a_property_that_holds(run: Run) -> None:
    code, out, err = run("net.onnx", write("(assert (>= Y_0 1.5))"))
    assert (code, out, err) == (0, "unsat\n", "")


def test_a_property_that_is_violated(run: Run) -> None:
    code, out, err = run("net.onnx", write("(assert (>= Y_0 0.5))"))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "sat"
    assert lines[1].startswith("((X_0 ")
    assert lines[-1].endswith("))")
    values = {name: float(value) for name, value in re.findall(r"\((\w+) (\S+?)\)", out)}
    assert list(values) == ["X_0", "X_1", "Y_0"]
    x = torch.tensor([values["X_0"], values["X_1"]], dtype=torch.float64)
    assert bool((x.abs() <= 0.5).all())
    assert float(pc.Graph.from_onnx("net.onnx").run(x)) == values["Y_0"] >= 0.5


def test_a_property_that_is_reached_exactly(run: Run) -> None:
    code, out, _ = run("net.onnx", write("(assert (>= Y_0 1.0))"))
    assert code == 1
    assert out.startswith("sat\n")


def test_a_property_for_which_there_is_no_time(run: Run, clock: Clock) -> None:
    clock.step = 1.0
    code, out, _ = run("net.onnx", write("(assert (>= Y_0 0.99))"), "--timeout", "0.5")
    assert (code, out) == (3, "timeout\n")


@pytest.mark.parametrize(
    ("body", "code", "result", "status"),
    [
        ("(assert (>= Y_0 1.5))", 0, "unsat", "holds"),
        ("(assert (>= Y_0 0.5))", 1, "sat", "violated"),
    ],
)
def test_json(run: Run, body: str, code: int, result: str, status: str) -> None:
    got, out, _ = run("net.onnx", write(body), "--json", "--seed", "3")
    document = json.loads(out)
    assert got == code
    assert (document["result"], document["status"]) == (result, status)
    assert document["version"] == pc.__version__
    assert document["settings"] == {
        "network": "net.onnx",
        "property": "p.vnnlib",
        "timeout": 60.0,
        "max_nodes": None,
        "seed": 3,
    }
    assert document["seconds"] >= 0
    if status == "violated":
        assert {k: len(v) for k, v in document["counterexample"].items()} == {"x": 2, "y": 1}
    else:
        assert document["counterexample"] is None


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        (("no.onnx", "p.vnnlib"), "", "Error: There is no file 'no.onnx'"),
        (("p.vnnlib", "p.vnnlib"), "", "Error: The file 'p.vnnlib' is not an ONNX model"),
        (("net.onnx", "no.vnnlib"), "", "Error: There is no file 'no.vnnlib'"),
        (("net.onnx", "net.onnx"), "", "Error: "),
        (("net.onnx", "p.vnnlib"), "(assert (<= Y_0", "Error: p.vnnlib, line 1, column "),
        (("net.onnx", "p.vnnlib"), "(assert (<= X_0 -1))", "bounds of X_0 contradict"),
        (("net.onnx", "p.vnnlib"), "(declare-const X_2 Real)", "X_2 no lower bound"),
        (("net.onnx", "p.vnnlib"), "(declare-const Y_1 Real)", "2 outputs, the network has 1"),
        (("net.onnx",), "", "Missing argument 'PROPERTY'"),
        (("net.onnx", "p.vnnlib", "--timeout", "0"), "", "Invalid value for '--timeout'"),
    ],
)
def test_what_is_wrong_is_said_and_is_no_verdict(
    run: Run, arguments: tuple[str, ...], body: str, message: str
) -> None:
    write(body)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_damaged_network(run: Run) -> None:
    data = Path("net.onnx").read_bytes()
    Path("net.onnx").write_bytes(data[: len(data) // 2])
    code, out, err = run("net.onnx", write("(assert (>= Y_0 1.5))"))
    assert (code, out) == (2, "")
    assert "cut short or damaged" in err


def test_the_program_itself(run: Run) -> None:
    """Once as a process of its own: the streams and the exit code are those of the system."""
    program = [sys.executable, "-c", "from provable_circuits.cli import main; main()", "verify"]
    asked = [*program, "net.onnx", write("(assert (>= Y_0 0.5))")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout.startswith("sat\n((X_0 ")
    assert done.stderr == ""
