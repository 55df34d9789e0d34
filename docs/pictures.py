"""The pictures of the documentation, made by the software: run the tutorial, keep what it wrote.

    make pictures

A picture of the report page takes a browser, Debian's ``chromium``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
DRAWN = ("circuit.svg", "compared.svg", "witness.svg")
"""Files that the tutorial itself writes."""
REPORT = "report.png"
WIDTH, HEIGHT = 1200, 1500


def main() -> None:
    """Run the tutorial in an empty folder and copy its pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        run_tutorial((HERE / "tutorial.md").read_text())
        for picture in DRAWN:
            shutil.copyfile(folder / picture, PICTURES / picture)
        photograph(folder / "run" / "report.html", PICTURES / REPORT)


def run_tutorial(page: str) -> None:
    """Run the blocks of Python and the commands of a page, from top to bottom."""
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    for language, text in re.findall(r"^```(python|console)\n(.*?)^```$", page, re.M | re.S):
        if language == "python":
            exec(compile(text, "tutorial.md", "exec", dont_inherit=True), namespace)
        else:
            for command in re.findall(r"^\$ provable-circuits (.*)$", text, re.M):
                words = command.split()
                subprocess.run([sys.executable, "-m", "provable_circuits.cli", *words], check=True)


def photograph(page: Path, picture: Path) -> None:
    """A picture of the top of a page, as a browser shows it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("A picture of the report page takes a browser: install chromium.")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = f"--window-size={WIDTH},{HEIGHT}"
    target = f"--screenshot={picture}"
    command = [browser, *options, size, target, page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
