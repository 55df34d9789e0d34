"""Markdown: tables, how they were made, and their place in a page."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import provable_circuits as pc


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column reads from the left, numbers from the right."""
    marks = ["---" if not _numeric(column) else "---:" for column in zip(*rows, strict=True)]
    lines = [heads, marks or ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _numeric(column: Sequence[str]) -> bool:
    return all(re.match(r"[\d.,]+", cell) for cell in column)


def made_with(script: str) -> str:
    """The command that was given, and what it ran on.

    A folder given by hand is left out, since it is another one elsewhere.
    """
    words = list(sys.argv[1:])
    for i, word in enumerate(words):
        if i and words[i - 1] == "--data":
            words[i] = "FOLDER"
        elif word.startswith("--data="):
            words[i] = "--data=FOLDER"
    command = " ".join(["python", f"benchmarks/{script}", *words])
    return (
        f"`{command}`: Python {platform.python_version()}, PyTorch {torch.__version__}, "
        f"provable-circuits {pc.__version__}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores."
    )


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the two markers of ``name`` in a page.

    Raises:
        SystemExit: the page is missing, or has no such markers.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    try:
        before, rest = page.read_text().split(begin)
        _, after = rest.split(end)
    except (OSError, ValueError):
        sys.exit(f"The page '{page}' must have the lines '{begin}' and '{end}', once each.")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
