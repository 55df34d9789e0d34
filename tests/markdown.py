"""The code blocks of a Markdown page as steps, and what they print."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text and the line its text starts at."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Step:
    """Something to run, and what it is said to print; None where the page does not say."""

    language: str
    source: str
    printed: str | None
    line: int


def blocks(page: str) -> list[Block]:
    return [
        Block(match[1].strip(), match[2], page.count("\n", 0, match.start()) + 2)
        for match in FENCE.finditer(page)
    ]


def steps(page: str) -> Iterator[Step]:
    """What to run, in order, with the output that the page shows for it."""
    found = blocks(page)
    for block, after in itertools.zip_longest(found, found[1:]):
        if block.language == "console":
            yield from _commands(block)
        elif block.language in ("python", "bash"):
            end = block.line + block.text.count("\n")
            between = page.splitlines()[end : after.line - 2] if after else ["no block follows"]
            printed = None
            if after is not None and after.language == "text" and not any(between):
                printed = after.text
            yield Step(block.language, block.text, printed, block.line)
        elif block.language != "text":
            raise ValueError(f"line {block.line}: a block of {block.language!r} is run by no test")


def _commands(block: Block) -> Iterator[Step]:
    """The commands of a console block: after ``$``, continued by a backslash."""
    parts = re.split(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n", block.text, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"line {block.line}: a console block starts with a command after '$ '")
    for command, printed in zip(parts[1::2], parts[2::2], strict=True):
        yield Step("bash", command, printed if printed.strip() else None, block.line)


def run(step: Step, namespace: dict[str, Any], page: Path) -> str:
    """Run one step in the current directory and return what it printed."""
    if step.language == "python":
        # Empty lines in front make a traceback point at the line of the page.
        source = "\n" * (step.line - 1) + step.source
        code = compile(source, str(page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        return printed.getvalue()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", step.source],
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        pytest.fail(
            f"{page.name}, line {step.line}: {step.source.strip()!r} ended with exit code "
            f"{done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout
