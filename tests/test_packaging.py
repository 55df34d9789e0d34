"""What is shipped is whole, and its several descriptions agree."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import provable_circuits

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(shipped: set[str]) -> None:
    source = PROJECT / "src"
    here = {
        path.relative_to(source).as_posix()
        for path in (source / "provable_circuits").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert here <= shipped
    assert "provable_circuits/py.typed" in shipped


def test_the_wheel_holds_the_licence_and_nothing_but_the_package(shipped: set[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in shipped)
    tops = {name.split("/")[0] for name in shipped}
    version = provable_circuits.__version__
    assert tops == {"provable_circuits", f"provable_circuits-{version}.dist-info"}


def test_the_changelog_and_the_citation_name_this_version() -> None:
    version = re.escape(provable_circuits.__version__)
    changelog = (PROJECT / "CHANGELOG.md").read_text()
    citation = (PROJECT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{version}\]", changelog, re.MULTILINE)
    assert re.search(rf"^version: {version}$", citation, re.MULTILINE)


def test_pins_name_versions_only() -> None:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)
