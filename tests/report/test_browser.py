"""The report page in a real browser: it is quiet, does what it says, and keeps nobody out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys
from tests.report.browser import Browser, chromium
from tests.report.runs import HOSTILE, digits, hostile, network, search

from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.build import report_page

PAGES = ("one", "two", "hostile", "vectors")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of one run, of two, of one with hostile names, and of one without pictures."""
    folder = tmp_path_factory.mktemp("pages")
    vectors = search(network(("first", "last"))).record()
    two = Comparison(digits(), digits("sampling", "greedy"), ("proved", "sampled"))
    written = {}
    for name, page in zip(
        PAGES,
        [
            report_page(digits(), "digits"),
            report_page(two),
            report_page(hostile(), HOSTILE),
            report_page(vectors),
        ],
        strict=True,
    ):
        written[name] = folder / f"{name}.html"
        written[name].write_text(page, encoding="utf-8")
    return written


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_without_a_complaint_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    assert browser.complaints() == []
    asked = [address for address in browser.requests() if not address.startswith("data:")]
    assert asked == [pages[name].as_uri()]
    images = browser.run("Array.from(document.images).map(i => i.complete && i.naturalWidth)")
    assert all(images)
    assert len(images) > 0 or name in ("hostile", "vectors")


def test_the_policy_stops_what_the_page_does_not_hold(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["one"])
    browser.driver.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'window.hacked = 1'; document.body.append(script);"
        "const image = new Image(); image.src = 'http://127.0.0.1:9/x.png';"
        "document.body.append(image);"
    )
    assert browser.run("typeof window.hacked") == "undefined"
    assert sum("Content Security Policy" in line for line in browser.complaints()) == 2


def test_hovering_tells_the_status(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    kept, removed = digits().kept[-1], "fc1/0"
    before = browser.status()
    ActionChains(browser.driver).move_to_element(browser.component(kept)).perform()
    assert browser.status() == f"{kept}: kept, and necessary"
    ActionChains(browser.driver).move_to_element(browser.component(removed)).perform()
    assert browser.status() == f"{removed}: removed, by proof"
    ActionChains(browser.driver).move_to_element(browser.one("h2#circuit-title")).perform()
    assert browser.status() == before


def test_texts_of_pictures_have_their_own_size(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"])
    sizes = browser.run(
        "[...document.querySelectorAll('svg text')].map("
        "t => [t.getAttribute('font-size'), getComputedStyle(t).fontSize])"
    )
    assert len(sizes) > 40
    assert all(f"{float(own):g}px" == shown for own, shown in sizes)


def test_the_keyboard_reaches_every_component(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    reachable = browser.all(".drawing [tabindex='0']")
    assert len(reachable) == 1
    begin = reachable[0].get_attribute("data-component")
    assert begin == digits().kept[0]
    link = browser.all("nav a")[-1]
    link.send_keys(Keys.TAB)
    assert browser.run("document.activeElement.dataset.component") == begin
    assert browser.status() == f"{begin}: kept, and necessary"
    assert reachable[0].accessible_name == browser.status()

    def press(key: str) -> str:
        browser.driver.switch_to.active_element.send_keys(key)
        found: str = browser.run("document.activeElement.dataset.component")
        assert browser.status().startswith(f"{found}: ")
        return found

    assert press(Keys.HOME) == "fc1/0"
    assert press(Keys.ARROW_UP) == "fc1/0"
    assert [press(Keys.ARROW_DOWN) for _ in range(2)] == ["fc1/1", "fc1/2"]
    assert press(Keys.ARROW_RIGHT).startswith("fc2/")
    assert press(Keys.ARROW_LEFT).startswith("fc1/")
    assert press(Keys.END) == "fc3/9"
    visited = {press(Keys.HOME)}
    for _ in range(12):
        visited.add(press(Keys.ARROW_DOWN))
    assert visited == {f"fc1/{i}" for i in range(13)}


@pytest.mark.parametrize("how", ["mouse", "Enter", "Space"])
def test_selecting_shows_the_witness(browser: Browser, pages: dict[str, Path], how: str) -> None:
    browser.open(pages["one"])
    run = digits()
    name = run.kept[2]
    component = browser.component(name)
    if how == "mouse":
        component.click()
    else:
        component.send_keys({"Enter": Keys.ENTER, "Space": Keys.SPACE}[how])
    (panel,) = browser.shown()
    told = run.document["witnesses"][name]
    assert panel.text.startswith(f"{name}\nkept, and necessary\n")
    assert told["in_words"] in panel.text
    assert f"near input {told['input']}" in panel.text
    captions = [element.text for element in panel.find_elements("css selector", "figcaption")]
    assert captions == ["Clean input", "Perturbed input", "Difference, at most 0.01"]
    place = told["matters"][0]
    row = panel.find_element("css selector", ".outputs .matters").text.split()
    numbers = [f"{v:.4g}" for v in (told["reference"][place], told["output"][place])]
    assert row[0] == str(place)
    assert row[-2:] == numbers
    assert component.get_attribute("aria-pressed") == "true"
    assert browser.run("document.querySelectorAll('[aria-pressed=true]').length") == 1
    announced = browser.run("document.getElementById('announcement').textContent")
    assert announced == f"Selected {name}: kept, and necessary."


def test_a_removed_component_says_how(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    browser.component("fc3/0").click()
    (panel,) = browser.shown()
    assert "Removed by proof" in panel.text
    assert "In its place: zero." in panel.text


def test_two_runs_are_compared(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"])
    first, second = digits(), digits("sampling", "greedy")
    only = [name for name in second.kept if name not in first.kept]
    found = browser.run(
        "Array.from(document.querySelectorAll('.component.second-only'))"
        ".map(c => c.dataset.component)"
    )
    assert found == only
    colours = browser.run(
        "['kept', 'second-only', 'removed'].map(kind => getComputedStyle("
        "document.querySelector(`.component.${kind} .shape`)).fill)"
    )
    assert len(set(colours)) == 3
    browser.component(only[0]).click()
    (panel,) = browser.shown()
    assert [h.text for h in panel.find_elements("css selector", "h4")] == ["proved", "sampled"]
    assert "removed, by proof" in panel.text
    facts = browser.one(".facts-table").text
    assert f"Kept {len(first.kept)} of 34 {len(second.kept)} of 34" in facts
    assert "Faithful certified at points only" in facts


def test_hostile_names_are_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.run("typeof window.hacked") == "undefined"
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.all("main b, header b") == []
    for component in browser.all("svg .component"):
        component.click()
        (panel,) = browser.shown()
        name = component.get_attribute("data-component")
        assert name is not None
        assert HOSTILE in name
        assert panel.text.startswith(name)
    assert f"{HOSTILE}.onnx" in browser.one("#settings").text
    assert browser.run("typeof window.hacked") == "undefined"


def test_inputs_that_are_no_pictures_are_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["vectors"])
    (panel,) = browser.shown()
    assert "the values that moved most" in panel.text
    assert "0.1, 0.3667, 0.6333, 0.9" in browser.one("#inputs").text


def test_light_and_dark_follow_the_reader(browser: Browser, pages: dict[str, Path]) -> None:
    seen = []
    for dark in (False, True):
        browser.open(pages["one"], dark=dark)
        colour = browser.run("getComputedStyle(document.body).backgroundColor")
        shape = browser.run("getComputedStyle(document.querySelector('.necessary .shape')).fill")
        seen.append((colour, shape))
    assert seen[0][0] == "rgb(255, 255, 255)"
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_window(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width)
    assert browser.overflow() <= 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("name", "width"), [("one", 1280), ("one", 320), ("two", 1280), ("vectors", 320)]
)
def test_an_automated_check_finds_no_barrier(
    browser: Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.open(pages[name], width, dark=dark)
    assert browser.barriers() == []


def test_the_automated_check_finds_barriers_where_there_are_some(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["vectors"])
    browser.driver.execute_script(
        "document.querySelector('main').append(new Image());"
        "document.querySelector('.lead').style.color = 'lightgrey';"
    )
    assert {line.split(":")[0] for line in browser.barriers()} == {"image-alt", "color-contrast"}


def test_print_leaves_out_what_paper_cannot_do(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    browser.print_preview()
    assert not browser.one("nav").is_displayed()
    assert not browser.one("#status-line").is_displayed()
    assert browser.one(".drawing svg").is_displayed()
    assert len(browser.shown()) == 1
    assert browser.overflow() <= 0


def test_without_scripts_everything_is_shown(browser: Browser, pages: dict[str, Path]) -> None:
    browser.scripts(allowed=False)
    try:
        browser.open(pages["one"])
        shown = browser.shown()
    finally:
        browser.scripts(allowed=True)
    assert len(shown) == 34
