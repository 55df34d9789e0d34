"""The checker by itself: without PyTorch, without the rest of the package, and its command line."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.proof.models import perceptron

import provable_circuits as pc
from provable_circuits.proof import checker
from provable_circuits.proof.certify import certify
from provable_circuits.proof.checker.__main__ import main
from provable_circuits.verify.deadline import Deadline

FOLDER = Path(checker.__file__ or "").parent
MODULES = sorted(FOLDER.glob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """The packages that a file imports, "" for its own."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = node.level == 1 and (node.module or "").split(".")[0]
            known = {path.stem for path in MODULES}
            found.add("" if inner in known else (node.module or "?").split(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_imports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert imported(tree) <= {"", "numpy", "safetensors"} | set(sys.stdlib_module_names)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "__import__", "compile", "pickle", "importlib"}


def test_imports_are_seen() -> None:
    assert imported(ast.parse("import torch.nn\nfrom ..prover import x\nfrom .rules import y")) == {
        "torch",
        "prover",
        "",
    }


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = perceptron(3, (3, 4, 4, 2))
    components = graph.components("neuron")
    circuit = components.circuit(components.names[1:])
    domain = pc.Ball([0.25, -0.5, 0.125], 0.0625)
    claim = pc.Claim([domain], pc.Zero(), pc.MaxAbs(50.0))
    folder = tmp_path_factory.mktemp("certificate")
    certify(claim, circuit, Deadline(max_nodes=100)).save(folder)
    return folder


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checker, NumPy and safetensors, and nothing else."""
    folder = tmp_path_factory.mktemp("island")
    shutil.copytree(FOLDER, folder / "checker", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("numpy", "safetensors"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        (folder / name).symlink_to(package)
        libraries = package.with_name(f"{name}.libs")
        if libraries.is_dir():
            (folder / libraries.name).symlink_to(libraries)
    return folder


RUN = """
import sys
sys.path.append(sys.argv.pop(1))
for name in ("torch", "provable_circuits", "onnx"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(f"{name} is there")
import runpy
runpy.run_module("checker", run_name="__main__", alter_sys=True)
"""


def alone(island: Path, *arguments: str) -> tuple[int, str]:
    """Run the checker in a process that sees the island and the standard library."""
    command = [sys.executable, "-I", "-S", "-c", RUN, str(island), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    return done.returncode, done.stdout + done.stderr


def test_the_checker_alone_accepts_and_refuses(
    island: Path, certificate: Path, tmp_path: Path
) -> None:
    code, said = alone(island, str(certificate), "--json")
    assert code == 0, said
    found = json.loads(said)
    assert found["holds"] is True
    assert [row["holds"] for row in found["statements"]] == [True]
    broken = shutil.copytree(certificate, tmp_path / "broken")
    (broken / "proof.safetensors").write_bytes(b"")
    code, said = alone(island, str(broken))
    assert code == 1
    assert said.startswith("REFUSED")
    assert said.count("\n") == 1


def lines(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


def test_the_table(certificate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = lines(capsys, certificate)
    assert code == 0
    assert said.startswith("holds          the circuit of 9 components is faithful  ")
    assert "every rounding error enclosed" in said
    code, said = lines(capsys, certificate, "--exact")
    assert code == 0
    assert "rational arithmetic" in said


def test_statements_that_do_not_hold(
    certificate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from provable_circuits.proof.checker.certificate import section_digest

    folder = shutil.copytree(certificate, tmp_path / "false")
    manifest = json.loads((folder / "certificate.json").read_text())
    manifest["claim"]["metric"]["tolerance"] = 1e-6
    manifest["digests"]["claim"] = section_digest(manifest["claim"])
    (folder / "certificate.json").write_text(json.dumps(manifest))
    code, said = lines(capsys, folder)
    assert code == 1
    assert said.startswith("DOES NOT HOLD  the circuit of 9 components is faithful  A leaf is not")
    code, said = lines(capsys, folder, "--json")
    assert code == 1
    assert json.loads(said)["holds"] is False
    manifest["statements"] = []
    manifest["digests"]["statements"] = section_digest([])
    (folder / "certificate.json").write_text(json.dumps(manifest))
    assert lines(capsys, folder) == (1, "REFUSED  The certificate states nothing.\n")
    code, said = lines(capsys, tmp_path / "nowhere")
    assert code == 1
    assert said.startswith("REFUSED  The file certificate.json is missing")
    code, said = lines(capsys, tmp_path / "nowhere", "--json")
    assert "missing" in json.loads(said)["refused"]
