"""The command line as a program: what it prints, and how it ends."""

from __future__ import annotations

import subprocess
import sys

import provable_circuits as pc


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "provable_circuits.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"provable-circuits {pc.__version__}"


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_a_wrong_option_ends_with_code_2_and_no_traceback() -> None:
    done = run("demo", "--digit", "11")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
