"""The documentation: built without a warning, its links lead somewhere, what it names exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.config.base import load_config
from mkdocs.config.defaults import MkDocsConfig
from tests.markdown import run, steps
from tests.network import contract
from tests.network.definitions import exact as known

import provable_circuits as pc
from provable_circuits.network.ops import Op

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
LOADS = {"audio", "embed", "iframe", "img", "input", "object", "script", "source", "video"}
"""Tags that load what they name, besides ``link``."""


@dataclass
class Page(HTMLParser):
    """What a built page offers to links, links to, and loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") != "canonical":
            self.loads.append(values["href"])
        elif tag in LOADS:
            self.loads += [values[name] for name in ("src", "srcset", "data") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Every built page by its path within the site."""
    found = {}
    for path in site.rglob("*.html"):
        page = Page()
        page.feed(path.read_text())
        found[path.relative_to(site).as_posix()] = page
    return found


def test_every_markdown_page_is_built(site: Path) -> None:
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert written <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_links_and_their_anchors_lead_somewhere(site: Path, pages: Mapping[str, Page]) -> None:
    checked = 0
    for here, page in pages.items():
        if here == "404.html":  # which is shown at any depth, so its links begin at the root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = here if not parts.path else _joined(here, unquote(parts.path))
            assert (site / there).is_file(), f"{here} links to {link}"
            if parts.fragment and there in pages:
                anchor = unquote(parts.fragment)
                assert anchor in pages[there].anchors, f"{here} links to {link}"
            checked += 1
    assert checked > 500


def _joined(here: str, link: str) -> str:
    place = os.path.normpath(Path(here).parent / link)
    return f"{place}/index.html" if link.endswith(("/", ".")) else Path(place).as_posix()


@pytest.mark.parametrize("page", sorted(PROJECT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        parts = urlsplit(link)
        assert parts.scheme or (PROJECT / parts.path).exists(), f"{page.name} links to {link}"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: Mapping[str, Page]) -> None:
    for here, page in pages.items():
        for source in page.loads:
            parts = urlsplit(source)
            assert parts.scheme in ("", "data"), f"{here} loads {source}"
            assert not parts.netloc, f"{here} loads {source}"
        # The theme fetches these from elsewhere where a page has them.
        assert not {"mermaid", "md-source"} & page.classes, here
    for sheet in site.rglob("*.css"):
        text = sheet.read_text()
        assert not re.search(r"url\(\s*[\"']?(https?:)?//|@import", text), sheet.name


def test_a_page_that_loads_from_elsewhere_would_be_found() -> None:
    page = Page()
    page.feed(
        '<link rel="stylesheet" href="https://fonts.example/a.css"><img src="//host/b.png">'
        '<link rel="canonical" href="https://here"><a href="https://there">there</a>'
    )
    assert page.loads == ["https://fonts.example/a.css", "//host/b.png"]
    assert page.links == ["https://there"]


def test_every_public_name_is_in_the_reference(pages: Mapping[str, Page]) -> None:
    anchors = set[str]().union(
        *(page.anchors for name, page in pages.items() if name.startswith("reference/"))
    )
    for name in pc.__all__:
        thing = getattr(pc, name)
        own = "" if isinstance(thing, ModuleType) else f"{thing.__module__}.{thing.__qualname__}"
        # A function that shares its name with a room is listed under its full name.
        rooms = (PROJECT / "src" / "provable_circuits" / name).is_dir()
        assert (own if rooms else f"provable_circuits.{name}") in anchors, name


def test_pages_of_results_are_in_the_navigation(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "results" / "deep").mkdir(parents=True)
    for name in ("index.md", "results/b.md", "results/a.md", "results/deep/c.md"):
        (docs / name).write_text("# Title\n")
    config = load_config(str(PROJECT / "mkdocs.yml"), docs_dir=str(docs), plugins=[])
    before = _results(config)
    after = _results(config.plugins.on_config(config))
    assert before
    assert after == [*before, "results/a.md", "results/b.md", "results/deep/c.md"]


def _results(config: MkDocsConfig) -> list[Any]:
    (section,) = [entry["Results"] for entry in config.nav or [] if "Results" in entry]
    return list(section)


def test_every_picture_is_made_by_the_script_or_listed_there() -> None:
    script = ast.parse((DOCS / "pictures.py").read_text())
    words = {node.value for node in ast.walk(script) if isinstance(node, ast.Constant)}
    pictures = {path.name for path in (DOCS / "images").iterdir()}
    assert pictures
    assert pictures <= words


# --- the glossary --------------------------------------------------------------------------------

GLOSSARY = (DOCS / "glossary.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in GLOSSARY.splitlines()
    if line.startswith("|") and "---" not in line and not line.startswith("| in the paper")
]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_the_glossary_names_is_there(row: list[str]) -> None:
    _, words, code, shown = row
    assert words
    assert quoted(code)
    assert quoted(shown)
    for name in quoted(code):
        assert _found(f"provable_circuits.{name}"), name


def _found(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, _, rest = name.rpartition(".")
    attributes = [rest]
    while module:
        try:
            thing: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, rest = module.rpartition(".")
            attributes.insert(0, rest)
            continue
        for attribute in attributes:
            if not hasattr(thing, attribute):
                return False
            thing = getattr(thing, attribute)
        return True
    return False


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(PROJECT).as_posix()
)
def test_every_test_and_source_file_that_a_page_names_exists(page: Path) -> None:
    for name in quoted(page.read_text()):
        path, _, test = name.partition("::")
        if path.startswith(("tests/", "src/", "benchmarks/", "examples/")) and " " not in path:
            assert (PROJECT / path).exists(), name
        if test:
            assert test in _tests(PROJECT / path), name


def _tests(path: Path) -> set[str]:
    """The tests of a file, those of a class as ``Class::test``."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + part.name for part in inner if isinstance(part, ast.FunctionDef)}
    return found


def test_the_glossary_has_every_numbered_statement() -> None:
    wanted = {"Definition": 9, "Proposition": 8, "Lemma": 2, "Algorithm": 4}
    for kind, count in wanted.items():
        numbers = [re.match(rf"{kind} (\d+)\b", row[0]) for row in ROWS]
        assert [int(n[1]) for n in numbers if n] == list(range(1, count + 1))


def test_names_that_are_not_there_are_noticed() -> None:
    assert _found("provable_circuits.discover.search.Search.raise_lower")
    assert not _found("provable_circuits.discover.search.Search.lower_raise")
    assert not _found("provable_circuits.nowhere.Search")


# --- the page on operations ----------------------------------------------------------------------


def _contract_modules() -> list[ModuleType]:
    """The modules that take every row of the contract through its tests."""
    files = sorted((PROJECT / "tests" / "network").glob("test_ops*.py"))
    return [importlib.import_module(f"tests.network.{file.stem}") for file in files]


def _contract_tests(*kinds: list[contract.Row]) -> list[Callable[..., None]]:
    """The tests of the contract that run for these rows and need nothing but a row."""
    tests = [
        thing
        for module in _contract_modules()
        for name, thing in vars(module).items()
        if name.startswith("test_")
    ]
    return [
        test
        for test in tests
        if list(inspect.signature(test).parameters) == ["row"]
        and any(mark.args[1] is rows for mark in test.pytestmark for rows in kinds)
    ]


def test_the_operation_of_the_page_keeps_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "operations.md"
    namespace: dict[str, Any] = {"__name__": "operations"}
    for step in steps(page.read_text()):
        run(step, namespace, page)

    def exact(op: Op, *inputs: Any) -> Any:
        if isinstance(op, namespace["CumulativeSum"]):
            return namespace["exact"](op, *inputs)
        return known(op, *inputs)

    for module in _contract_modules():
        monkeypatch.setattr(module, "exact", exact, raising=False)
    row = contract.Row(*namespace["row"])
    tests = _contract_tests(contract.ROWS, contract.COMPUTED, contract.LINEAR)
    assert len(tests) > 12
    for test in tests:
        test(row)
