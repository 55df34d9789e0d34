"""The command line as a program: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.cli import main

COMMANDS = ["demo", "components", "discover", "show", "verify", "export", "reproduce"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "provable_circuits.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """The same in this process: exit code and both streams."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["provable-circuits", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return (code, *capsys.readouterr())


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"provable-circuits {pc.__version__}"


def test_help_names_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, "--help")
    assert code == 0
    assert all(f" {command} " in out for command in [*COMMANDS, "--debug"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_on_lines_of_their_own(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, command, "--help")
    assert code == 0
    examples = out[out.index("Examples:") :].splitlines()[1:]
    shown = [line.strip() for line in examples if line.strip().startswith("provable-circuits")]
    assert len(shown) >= 2
    assert all(line.startswith(f"provable-circuits {command}") for line in shown)
    assert "--json" in out


def test_the_shell_completes_choices() -> None:
    program = (
        "import sys; sys.argv = ['provable-circuits']\n"
        "from provable_circuits.cli import main; main()"
    )
    words = {"COMP_WORDS": "provable-circuits discover --norm ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **words, "_PROVABLE_CIRCUITS_COMPLETE": "complete_bash"},
    )
    assert (done.stdout.split(), done.stderr) == (["inf", "2", "1"], "")


def test_a_wrong_option_ends_with_code_2_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(monkeypatch, capsys, "demo", "--digit", "11")
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize("where", [["--debug", "components"], ["components", "--debug"]])
def test_debug_shows_where_an_error_came_from(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(monkeypatch, capsys, *where, "no.onnx")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("Error: There is no file 'no.onnx'; give the path of an ONNX model.\n")


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (KeyError("odd"), 70, "something went wrong that should not have (KeyError: 'odd')"),
        (MemoryError(), 3, "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"), 3, "fewer inputs"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_happens_is_told_in_one_sentence(
    raised: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(path: object) -> None:
        raise raised

    monkeypatch.setattr(pc.Graph, "from_onnx", fail)
    ended, out, err = call(monkeypatch, capsys, "components", "net.onnx")
    assert (ended, out) == (code, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_reader_that_has_gone_is_no_refutation(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    pc.Graph.from_torch(net, torch.zeros(1, 2)).to_onnx(tmp_path / "net.onnx")
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [sys.executable, "-m", "provable_circuits.cli", "components"]
    done = subprocess.run(
        [*arguments, str(tmp_path / "net.onnx")],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_saves_and_prints_the_best_circuit_so_far(
    tmp_path: Path, number: signal.Signals
) -> None:
    torch.manual_seed(0)
    sizes = [nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 4)]
    pc.Graph.from_torch(nn.Sequential(*sizes), torch.zeros(1, 10)).to_onnx(tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((3, 10)))
    program = (
        "import provable_circuits.report.live as live; live.EVERY = 0\n"
        "from provable_circuits.cli import main; main()"
    )
    arguments = ["discover", "net.onnx", "--data", "data.npz", "--eps", "0.3", "--delta", "0.3"]
    arguments += ["--patching", "reachable", "--out", "run"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()  # an answer is there, and the search goes on
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
    assert "104 of 104 kept | 1 proved |" in first
    assert "Traceback" not in err
    assert process.returncode == 0
    assert "Stopped early: interrupted" in out
    assert "Written to run" in out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["stopped"], result["faithful"]) == ("interrupted", "proved")


def test_the_demo_has_a_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(monkeypatch, capsys, "demo", "--json", "--seed", "3")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["proved"]["faithful"] == "proved"
    assert document["sampled_verdict"] == "refuted"
    assert document["settings"] == {"digit": 9, "eps": 0.01, "delta": 2.0, "seed": 3}
