"""Every code block of the project's Markdown pages does what the page says.

The blocks of a page run from top to bottom in one empty directory, so a page reads like a session:

- ``python`` blocks share one namespace.
- ``console`` blocks hold commands after ``$``, and below each what it prints; ``bash`` blocks are
  scripts. Every command must end with exit code 0.
- A ``text`` block right after a ``python`` or ``bash`` block is what that block prints.
- In printed text, ``...`` stands for anything. Where a page shows no output, none is compared.
- Commands that set up a machine (``make``, ``pip``, ``git``) are not run here, and stand in blocks
  of their own. Instead, the make targets and the extras they name must exist.
- A block in any other language is an error, so that no code escapes this test.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock

PROJECT = Path(__file__).resolve().parents[1]
PAGES = [page for page in sorted(PROJECT.glob("*.md")) if page.name != "CHANGELOG.md"]
PAGES += sorted(PROJECT.glob("docs/**/*.md"))
SET_UP = ("make", "pip", "git")
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


def difference(step: Step, printed: str) -> str | None:
    """Where the output departs from the page, as a diff; None where it agrees."""
    if step.printed is None:
        return None
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    checker = doctest.OutputChecker()
    if checker.check_output(step.printed, printed, flags):
        return None
    return checker.output_difference(doctest.Example("", step.printed), printed, flags)


def sets_up_a_machine(step: Step) -> bool:
    """Whether a script's commands are all of those that are not run; some of them is an error."""
    if step.language != "bash":
        return False
    found = {command[0] in SET_UP for command in commands(step)}
    if len(found) == 2:
        raise ValueError(f"line {step.line}: set-up commands need a block of their own")
    return found == {True}


def commands(step: Step) -> list[list[str]]:
    """The words of each line of a script, without comments."""
    lines = step.source.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_every_block_does_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clock = Clock()
    clock.step = 1e-5  # a look takes ten microseconds: of those that a page gives, nothing is left
    clock.install(monkeypatch, "verify.deadline")
    namespace: dict[str, Any] = {"__name__": "readme"}
    for step in steps(page.read_text()):
        if not sets_up_a_machine(step):
            found = difference(step, run(step, namespace, page))
            assert found is None, f"{page.name}, line {step.line}\n{found}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_the_make_targets_and_extras_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    shell = [line for step in steps(text) if step.language == "bash" for line in commands(step)]
    shown = {word for line in shell if line[0] == "make" for word in line[1:]}
    shown |= set(re.findall(r"`make ([a-z]+)", text))
    groups = re.findall(r"(?:\.|provable-circuits)\[([a-z,]+)\]", text)
    extras = {name for group in groups for name in group.split(",")}
    assert {word for word in shown if "=" not in word} <= targets
    assert extras <= set(project["optional-dependencies"])


def test_the_two_commands_come_first_in_the_readme() -> None:
    first = blocks((PROJECT / "README.md").read_text())[0]
    commands = [line.split("#")[0].strip() for line in first.text.splitlines()]
    assert commands == ["make demo", "make test"]


PAGE = """\
```python
x = 2
print(x + 1, 0.25)
```

```text
3 0...
```

```console
$ echo one \\
    two
one two
$ true
```
"""


def test_a_page_becomes_steps_with_their_output() -> None:
    assert list(steps(PAGE)) == [
        Step("python", "x = 2\nprint(x + 1, 0.25)\n", "3 0...\n", 2),
        Step("bash", "echo one \\\n    two", "one two\n", 11),
        Step("bash", "true", None, 11),
    ]


def test_text_elsewhere_is_not_taken_for_output() -> None:
    page = "```python\nx = 2\n```\n\nA sentence.\n\n```text\nsomething\n```\n"
    assert [step.printed for step in steps(page)] == [None]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```pycon\n>>> 1\n```\n", "run by no test"),
        ("```\nx = 1\n```\n", "run by no test"),
        ("```console\nls\n```\n", "starts with a command"),
        ("```bash\nmake test\nls\n```\n", "a block of their own"),
    ],
)
def test_a_block_that_would_not_be_run_is_an_error(page: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        [sets_up_a_machine(step) for step in steps(page)]


def test_a_departure_from_the_shown_output_is_found() -> None:
    step = Step("python", "print(1)", "2\n", 1)
    assert difference(step, "1\n") is not None
    assert difference(step, "2\n") is None
    assert difference(Step("python", "print(1)", None, 1), "1\n") is None


def test_a_failing_command_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="exit code 1"):
        run(Step("bash", "false", None, 1), {}, tmp_path / "page.md")
