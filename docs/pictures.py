"""Makes the pictures of the documentation again: ``make pictures``.

Drawings are what the tutorial writes when it is run. Pictures of pages need chromium and
chromium-driver (Debian's packages) besides the extra ``test``.
"""

from __future__ import annotations

import base64
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver

import provable_circuits as pc
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.build import report_page
from provable_circuits.zoo.digits import load_digits
from provable_circuits.zoo.mnist import mnist_network

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
DRAWINGS = ("circuit.svg", "compared.svg", "witness.svg")
"""Files that the tutorial writes."""
PAGES = ("tutorial.png", "report.png", "comparison.png")
BY_HAND = ("stages.svg",)
"""Files that are written by hand and left alone here."""
WIDTH, HEIGHT = 1280, 1400


def run_tutorial(folder: Path) -> None:
    """Run the tutorial's Python and its commands in a folder, from top to bottom."""
    page = (DOCS / "tutorial.md").read_text()
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    with contextlib.chdir(folder):
        for language, text in re.findall(r"^```(python|console)\n(.*?)^```$", page, re.M | re.S):
            if language == "python":
                exec(compile(text, "tutorial.md", "exec", dont_inherit=True), namespace)
                continue
            for words in re.findall(r"^\$ provable-circuits (.*)$", text, re.M):
                command = [sys.executable, "-m", "provable_circuits.cli", *words.split()]
                subprocess.run(command, check=True)


def digits_run(method: str) -> pc.Run:
    """What is enough of the network for digits to read three sevens."""
    graph, digits = mnist_network(), load_digits()
    images = digits.images[digits.labels == 7][:3]
    claim = pc.Claim(
        inputs=[pc.Ball(image, eps=0.03, clip=(0, 1)) for image in images],
        patching=pc.Zero(),
        metric=pc.LogitDifference(tolerance=2.0),
    )
    return pc.discover(graph, claim, method=method, algorithm="exhaustive").record()


def photograph(pages: dict[str, tuple[str, bool]]) -> None:
    """Write the upper part of each page as an image, in light or in dark."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for name, (page, dark) in pages.items():
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "page.html"
                file.write_text(page, encoding="utf-8")
                driver.get(file.as_uri())
                taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (IMAGES / name).write_bytes(base64.b64decode(taken["data"]))
    finally:
        driver.quit()


def main() -> None:
    """Make every picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_tutorial(folder)
        for drawing in DRAWINGS:
            shutil.copyfile(folder / drawing, IMAGES / drawing)
        tutorial = (folder / "run" / "report.html").read_text(encoding="utf-8")
    proved, sampled = digits_run("proof"), digits_run("sampling")
    compared = report_page(Comparison(proved, sampled, ("proved", "sampled")))
    shown = ((tutorial, False), (report_page(proved), False), (compared, True))
    photograph(dict(zip(PAGES, shown, strict=True)))


if __name__ == "__main__":
    main()
