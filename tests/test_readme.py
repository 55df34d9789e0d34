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

import doctest
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock
from tests.markdown import Step, blocks, run, steps

PROJECT = Path(__file__).resolve().parents[1]
PAGES = [page for page in sorted(PROJECT.glob("*.md")) if page.name != "CHANGELOG.md"]
PAGES += sorted(PROJECT.glob("docs/**/*.md"))
SET_UP = ("make", "pip", "git")


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
