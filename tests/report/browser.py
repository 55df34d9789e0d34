"""A real browser without a window: Chromium, a fresh profile each time, no network needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.base import AXE_SCRIPT
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement


class Browser:
    """What the tests do with a browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, *, dark: bool = False) -> None:
        """Open a page in a window of some width, by a reader who prefers light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme], media="screen")
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.as_uri())

    def print_preview(self) -> None:
        """Look at the page as it is printed."""
        self._command("Emulation.setEmulatedMedia", media="print", features=[])

    def scripts(self, allowed: bool) -> None:
        """Let pages run scripts, or not."""
        self._command("Emulation.setScriptExecutionDisabled", value=not allowed)

    def complaints(self) -> list[str]:
        """What the browser wrote to its console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def all(self, selector: str) -> list[WebElement]:
        """Every element that a CSS selector names."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The only element that a CSS selector names."""
        (element,) = self.all(selector)
        return element

    def component(self, name: str) -> WebElement:
        """A component of the drawing."""
        return self.one(f"svg [data-component='{name}']")

    def shown(self) -> list[WebElement]:
        """The panels that can be seen."""
        return [panel for panel in self.all(".component-panel") if panel.is_displayed()]

    def status(self) -> str:
        """The line below the drawing."""
        return self.one("#status-line").text

    def run(self, script: str) -> Any:
        """The value of a piece of JavaScript."""
        return self.driver.execute_script(f"return {script}")

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.run("document.documentElement.scrollWidth - window.innerWidth"))

    def barriers(self) -> list[str]:
        """What an automated check finds that keeps people out, with the elements it is about."""
        self.driver.execute_script(AXE_SCRIPT)
        found = self.driver.execute_async_script(
            "axe.run({resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
        )
        return [
            f"{rule['id']}: {rule['help']}: {[node['html'] for node in rule['nodes'][:3]]}"
            for rule in found["violations"]
        ]

    def _command(self, name: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(name, parameters)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where none is installed."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("no browser: install chromium and chromium-driver (Debian's packages)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--force-color-profile=srgb",
        "--hide-scrollbars",
    ]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
