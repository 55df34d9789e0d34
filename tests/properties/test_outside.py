"""Outside verifiers: commands that tell the truth, lie, crash and hang; and Marabou."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.clock import Clock
from tests.oracle.cases import draw
from tests.processes import PATIENCE, alive, wait_for
from tests.verify.around import around

import provable_circuits as pc
from provable_circuits.errors import (
    ArgumentError,
    MissingExtraError,
    ModelFileError,
    PropertyError,
    UnsupportedOperationError,
)
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import LeakyReLU, Linear, Op, ReLU, Tanh
from provable_circuits.properties.outside.base import OutsideAnswer, Vouched, verify_outside
from provable_circuits.properties.outside.command import Command, parse_answer
from provable_circuits.properties.outside.marabou import Marabou
from provable_circuits.properties.status import PropertyStatus
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import Case, Property, write_property

needs_marabou = pytest.mark.skipif(
    importlib.util.find_spec("maraboupy") is None,
    reason="maraboupy is not installed: pip install 'provable-circuits[marabou]'",
)

LONG = 7200.0
"""Seconds that no question here takes."""

Files = tuple[Path, Path]
Fake = Callable[..., Command]


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def network(*operations: Op) -> pc.Graph:
    builder = GraphBuilder()
    value = builder.input("x", (2,))
    for op in operations:
        value = builder.add(op.name.lower(), op, value)
    return builder.build([value])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Is x + y >= 1.5 possible for x and y in [0, 1]? It is, near (1, 1)."""
    graph = network(Linear(f64([[1.0, 1.0]])), ReLU())
    case = Case.exact(f64([0.0, 0.0]), f64([1.0, 1.0]), f64([[-1.0]]), f64([-1.5]))
    graph.to_onnx(tmp_path / "net.onnx")
    write_property(Property(2, 1, (case,)), tmp_path / "p.vnnlib")
    return tmp_path / "net.onnx", tmp_path / "p.vnnlib"


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """A verifier of one's own: a Python program with ``onnx, vnnlib, seconds, result`` at hand."""

    def make(body: str, result: bool = False) -> Command:
        script = tmp_path / "tool.py"
        script.write_text(
            "import os, subprocess, sys, time\nonnx, vnnlib, seconds, *result = sys.argv[1:]\n"
            + body
        )
        words = [sys.executable, str(script), "{onnx}", "{vnnlib}", "{timeout}"]
        return Command([*words, *(["{result}"] if result else [])], name="fake")

    return make


# --- commands -----------------------------------------------------------------------------------


def test_a_command_gets_what_it_needs(fake: Fake, files: Files) -> None:
    body = (
        "assert open(onnx, 'rb').read(1) == b'\\x08'\n"
        "assert '(assert (>= Y_0 1.5))' in open(vnnlib).read()\n"
        "assert seconds == '7201', seconds\n"
        "assert sys.stdin.read() == ''\n"
        "open(result[0], 'w').write('unsat\\n')\nprint('sat')\n"
    )
    answer = fake(body, result=True).decide(*files, timeout=7200.5)
    assert (answer.status, answer.name, answer.counterexample) == ("holds", "fake", None)
    assert 0 < answer.seconds < 7200


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("unsat", "holds"),
        ("Holds\n", "holds"),
        ("starting ...\nsolver for sat problems\nunsat\n", "holds"),
        ("unknown\n", "unknown"),
        ("timeout", "timeout"),
        ("all is well\n", "unknown"),
        ("", "unknown"),
        ("unsatisfied\n", "unknown"),
        ("sat", "unknown"),
        ("sat\n((X_0 0.5))", "unknown"),
        ("sat\n((X_0 0.5) (X_1 0.5) (Y_0 9.0))", "unknown"),
        ("sat\n((X_0 nan) (X_1 1))", "unknown"),
        ("sat\n((X_0 one) (X_1 1))", "unknown"),
        ("sat\n((X_0 1) (X_0 1) (X_1 1))", "unknown"),
        ("sat\n((X_0 1.0)\n (X_1 9e-1)\n (Y_0 1.9))", "violated"),
        ("violated ((X_1 1.0000001)(X_0 1))", "violated"),
    ],
)
def test_what_a_command_prints(text: str, status: str, fake: Fake, files: Files) -> None:
    answer = fake(f"print({text!r})").decide(*files)
    assert answer.status == status
    if status == "violated":
        assert answer.counterexample is not None
        assert bool((answer.counterexample <= 1).all()), "moved into the box"
    else:
        assert answer.counterexample is None
    if status == "unknown":
        assert "fake" in answer.reason


def test_a_lie_is_not_believed(fake: Fake, files: Files) -> None:
    answer = fake("print('sat\\n((X_0 0.1) (X_1 0.1))')").decide(*files)
    assert answer.status == "unknown"
    assert answer.reason == (
        "fake claims a violation and its counterexample did not stand up to replay"
    )
    answer = fake("print('sat')").decide(*files)
    assert answer.reason == "fake claims a violation without a counterexample"


def test_only_the_first_line_of_a_result_file_counts(fake: Fake, files: Files) -> None:
    for text, status in (("unsat", "holds"), ("note\nunsat", "unknown"), ("a b\nunsat", "unknown")):
        body = f"open(result[0], 'w').write({text!r})"
        assert fake(body, result=True).decide(*files).status == status
    assert fake("print('unsat')", result=True).decide(*files).status == "unknown"


def test_a_command_that_fails(fake: Fake, files: Files) -> None:
    answer = fake("sys.exit('no licence')").decide(*files)
    assert answer.status == "unknown"
    assert answer.reason == "fake gave no answer: it ended with exit code 1: no licence"
    killed = "print('unsat', flush=True)\nos.kill(os.getpid(), 9)"
    assert fake(killed).decide(*files).status == "unknown", "killed: its word is not taken"


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[Path]:
    """Programs take all the time they are given, and end in none.

    Each is waited for until it has written the next of these files; then its time is over.
    """
    signs: list[Path] = []

    class Process(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            wait_for(lambda: signs[0].exists() and signs[0].read_text().endswith("."))
            signs.pop(0)
            clock.now += timeout
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Process)
    return signs


def test_a_command_that_hangs_is_killed_with_its_children(
    fake: Fake, files: Files, tmp_path: Path, hanging: list[Path]
) -> None:
    hanging.append(tmp_path / "pids")
    body = (
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({PATIENCE})'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}.')\n"
        f"time.sleep({PATIENCE})"
    )
    answer = fake(body).decide(*files, timeout=1.0)
    assert answer.status == "timeout"
    assert not hanging
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().rstrip(".").split()]
    assert len(pids) == 2
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_great_deal_of_output_does_no_harm(fake: Fake, files: Files) -> None:
    answer = fake("print('x ' * 10**6)\nprint('unsat')").decide(*files)
    assert answer.status == "holds"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("tool {onnx}", r"with \{onnx\} and \{vnnlib\} in it"),
        ("", r"with \{onnx\} and \{vnnlib\} in it"),
        ("tool {onnx} {vnnlib} {gpu}", r"may use \{timeout\} and \{result\}"),
        ("tool '{onnx} {vnnlib}", "No closing quotation"),
    ],
)
def test_templates_that_are_wrong(template: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Command(template)


def test_a_template_is_no_shell_script(files: Files, tmp_path: Path) -> None:
    proof = tmp_path / "shell was here"
    command = f"{sys.executable} -c 'print(\"unsat\")' {{onnx}} {{vnnlib}} ; touch '{proof}'"
    assert Command(command).decide(*files).status == "holds"
    assert not proof.exists()
    assert Command(command).name == Path(sys.executable).name


def test_calls_that_are_wrong(fake: Fake, files: Files, tmp_path: Path) -> None:
    onnx, vnnlib = files
    tool = fake("print('unsat')")
    with pytest.raises(ArgumentError, match="cannot be started"):
        Command(f"{tmp_path}/nothing {{onnx}} {{vnnlib}}").decide(onnx, vnnlib)
    with pytest.raises(ArgumentError, match="'timeout' parameter"):
        tool.decide(onnx, vnnlib, timeout=-1)
    with pytest.raises(ModelFileError):
        tool.decide(vnnlib, vnnlib)
    with pytest.raises(PropertyError):
        tool.decide(onnx, onnx)
    network(ReLU()).to_onnx(onnx)
    with pytest.raises(PropertyError, match="about 1 outputs, the network has 2"):
        tool.decide(onnx, vnnlib)


def test_answers_are_no_booleans() -> None:
    with pytest.raises(TypeError, match="not a boolean"):
        bool(OutsideAnswer(PropertyStatus.HOLDS, None, "fake", 0.0))
    with pytest.raises(TypeError, match="not a boolean"):
        bool(Vouched("fake", 0.0))


def test_answers_are_read_as_vnn_comp_writes_them() -> None:
    assert parse_answer("  sat\n  ( (X_0 -1.5e-3)\n(Y_0 2) )\n", first_line=True)[0] == "violated"
    status, x = parse_answer("sat\n((X_1 2.0) (X_0 -1.5e-3) (Y_0 2))", first_line=False)
    assert status == "violated"
    assert x is not None
    assert x.tolist() == [-1.5e-3, 2.0]
    assert parse_answer("((X_0 1))", first_line=True) == (None, None)


# --- circuits -----------------------------------------------------------------------------------


def claim_about(tolerance: float, patching: pc.Patching) -> tuple[pc.Circuit, pc.Claim]:
    """|relu(x)| <= 1 is what is lost when the only hidden neuron of relu(x) is removed."""
    builder = GraphBuilder()
    hidden = builder.add("fc1", Linear(f64([[1.0]])), builder.input("x", (1,)), layer="fc1")
    relu = builder.add("relu", ReLU(), hidden)
    graph = builder.build([builder.add("fc2", Linear(f64([[1.0]])), relu, layer="fc2")])
    components = graph.components("neuron", outputs=False)
    claim = pc.Claim([pc.Box([0.0], [1.0])] * 2, patching, pc.MaxAbs(tolerance=tolerance))
    return components.empty(), claim


@pytest.mark.parametrize(
    "patching", [pc.Zero(), pc.Reachable(eps=0.5), pc.IntervalHull(eps=0.5)], ids=repr
)
def test_a_commands_word_about_a_circuit(patching: pc.Patching, fake: Fake) -> None:
    circuit, claim = claim_about(0.25, patching)
    graph = circuit.components.graph
    vouched = verify_outside(fake("print('unsat')"), graph, circuit, claim)
    assert isinstance(vouched, Vouched), "a lie; but the tool's, and marked as such"
    assert not vouched.proved
    assert (vouched.by, vouched.kind) == ("fake", "vouched")
    # z = 1 and the patch (at 0, or taken at 0) is a violation by 0.75.
    count = 1 if isinstance(patching, pc.Zero) else 2
    point = " ".join(f"(X_{i} {1.0 - i})" for i in range(count))
    refuted = verify_outside(fake(f"print('sat\\n({point})')"), graph, circuit, claim)
    assert isinstance(refuted, pc.Refuted)
    assert refuted.witness.excess == pytest.approx(0.75)
    assert refuted.stage == "fake"
    for text, reason in (("sat", "without"), ("unknown", "not know"), ("timeout", "time")):
        open_ = verify_outside(fake(f"print({text!r})"), graph, circuit, claim)
        assert isinstance(open_, pc.Undecided)
        assert reason in open_.reason


def test_a_false_counterexample_of_a_circuit_is_not_believed(fake: Fake) -> None:
    circuit, claim = claim_about(2.0, pc.Zero())
    tool = fake("print('sat\\n((X_0 1.0))')")
    verdict = verify_outside(tool, circuit.components.graph, circuit, claim)
    assert isinstance(verdict, pc.Undecided)
    assert "did not stand up" in verdict.reason


def test_the_time_limit_covers_all_inputs_of_a_claim(
    fake: Fake, hanging: list[Path], tmp_path: Path
) -> None:
    """The claim is about two inputs; what hangs at the first takes the time of both."""
    circuit, claim = claim_about(2.0, pc.Zero())
    first, second = tmp_path / "begun 0", tmp_path / "begun 1"
    hanging += [first, second]
    body = (
        f"sign = {str(first)!r} if not os.path.exists({str(first)!r}) else {str(second)!r}\n"
        f"open(sign, 'w').write('.')\ntime.sleep({PATIENCE})"
    )
    verdict = verify_outside(fake(body), circuit.components.graph, circuit, claim, timeout=1.0)
    assert isinstance(verdict, pc.Undecided)
    assert (verdict.reason, verdict.stage) == ("time", "fake")
    assert hanging == [second], "nothing is asked about the second"


def test_circuits_of_other_networks_and_balls_are_refused(fake: Fake) -> None:
    circuit, claim = claim_about(2.0, pc.Zero())
    tool = fake("print('unsat')")
    with pytest.raises(ArgumentError, match="another network"):
        verify_outside(tool, network(ReLU()), circuit, claim)
    ball = pc.Claim([pc.Ball([0.5], eps=0.1, p=2)], pc.Zero(), pc.MaxAbs(tolerance=1.0))
    with pytest.raises(ArgumentError, match="boxes only"):
        verify_outside(tool, circuit.components.graph, circuit, ball)


# --- Marabou ------------------------------------------------------------------------------------


def test_marabou_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"provable-circuits\[marabou\]"):
        Marabou()


@needs_marabou
def test_marabou_on_a_plain_property(files: Files, tmp_path: Path) -> None:
    onnx, vnnlib = files
    answer = Marabou().decide(onnx, vnnlib, LONG)
    assert (answer.status, answer.name) == ("violated", "Marabou")
    assert answer.counterexample is not None
    assert float(answer.counterexample.sum()) >= 1.5
    case = Case.exact(f64([0.0, 0.0]), f64([1.0, 1.0]), f64([[-1.0]]), f64([-2.5]))
    write_property(Property(2, 1, (case,)), vnnlib)
    assert Marabou().decide(onnx, vnnlib, LONG).status == "holds"


@needs_marabou
@pytest.mark.parametrize("seed", range(6))
def test_marabou_agrees_on_conjunctions_and_alternatives(seed: int, tmp_path: Path) -> None:
    dice = torch.Generator().manual_seed(seed)

    def layer(inputs: int, outputs: int) -> Linear:
        weight = torch.randn(outputs, inputs, generator=dice).double()
        return Linear(weight, torch.randn(outputs, generator=dice).double() * 0.3)

    curve = LeakyReLU(0.125) if seed % 2 else ReLU()
    graph = network(layer(2, 5), curve, layer(5, 4), ReLU(), layer(4, 3))
    box = (f64([-1.0, -0.5]), f64([0.5, 1.0]))
    x = box[0] + torch.rand(5000, 2, generator=dice).double() * (box[1] - box[0])
    y = graph.run(x, torch.float64)
    cases = []
    for i in range(2):
        rows = torch.randn(2, 3, generator=dice).double()
        values = y @ rows.T - (y @ rows.T).quantile(0.3, 0)
        gap = 0.1 if (seed + i) % 3 else -0.1
        cases.append(
            Case.exact(*box, rows, (y @ rows.T).quantile(0.3, 0) + values.amax(1).min() - gap)
        )
    question = Property(2, 3, tuple(cases))
    graph.to_onnx(tmp_path / "net.onnx", torch.float64)
    write_property(question, tmp_path / "p.vnnlib.gz")
    answer = Marabou().decide(tmp_path / "net.onnx", tmp_path / "p.vnnlib.gz", LONG)
    ours = decide(graph, question)
    assert ours.status in ("holds", "violated")
    assert answer.status in (ours.status, "unknown")
    assert answer.status != "unknown" or "did not stand up" in answer.reason


@needs_marabou
def test_marabou_agrees_on_circuits() -> None:
    """Random claims of every kind that boxes can express, just above and below the optimum."""
    agreed = refuted = 0
    for seed in range(34):
        case = draw(seed)
        if any(getattr(d, "p", torch.inf) != torch.inf for d in case.claim(1.0).inputs):
            continue
        truth = case.truth()
        for tolerance, wanted in [] if truth is None else around(case, truth):
            try:
                claim = case.claim(tolerance)
                verdict = verify_outside(Marabou(), case.graph, case.circuit, claim, 20)
            except (ArgumentError, UnsupportedOperationError):
                continue
            told = f"{case}, tolerance {tolerance!r}: {verdict} and not {wanted}"
            if wanted == "proved":
                assert isinstance(verdict, Vouched), told
            else:
                assert not isinstance(verdict, Vouched), told
                refuted += verdict.refuted
            agreed += 1
    assert agreed >= 20
    assert refuted >= 5


@needs_marabou
def test_marabou_keeps_the_time_limit(
    files: Files, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process gets what reading left of the time, and is ended when that is over."""
    words: list[list[str]] = []

    class Process(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            words.append(list(self.args))  # type: ignore[arg-type]
            assert float(words[-1][-1]) == timeout
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Process)
    clock.step = 1.0
    answer = Marabou().decide(*files, 10.0)
    assert answer.status == "timeout"
    assert [float(asked[-1]) for asked in words] == [9.0]
    assert Marabou().decide(*files, 0.5).status == "timeout"
    assert len(words) == 1, "there was no time to begin"


@needs_marabou
def test_marabou_says_what_it_does_not_know(files: Files) -> None:
    onnx, vnnlib = files
    network(Linear(f64([[1.0, 1.0]])), Tanh()).to_onnx(onnx)
    with pytest.raises(UnsupportedOperationError, match="Got Tanh 'tanh' instead"):
        Marabou().decide(onnx, vnnlib)


@needs_marabou
def test_marabous_own_program_reads_our_files(tmp_path: Path) -> None:
    """Marabou's readers of ONNX and VNN-LIB, through the adapter for commands."""
    template = f"{sys.executable} -m maraboupy {{onnx}} {{vnnlib}} --timeout {{timeout}}"
    tool = Command(template, "marabou", dense=True, dtype=torch.float32)
    circuit, claim = claim_about(1.5, pc.Zero())
    graph = circuit.components.graph
    assert isinstance(verify_outside(tool, graph, circuit, claim), Vouched)
    circuit, claim = claim_about(0.5, pc.Zero())
    verdict = verify_outside(tool, graph, circuit, claim)
    assert isinstance(verdict, pc.Undecided), "its counterexample is not in the form of VNN-COMP"
    assert verdict.reason == "marabou claims a violation without a counterexample"
