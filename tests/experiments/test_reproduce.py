"""Every experiment at a tiny scale: rows, tables, figures, going on, workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.clock import Clock

from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.discover.search import Search
from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.experiments.kinds import ROWS
from provable_circuits.experiments.published import INPUT, PATCHING, PUBLISHED, SWEEPS
from provable_circuits.experiments.reproduce import Request, reproduce
from provable_circuits.progress import Progress

Run = Callable[..., tuple[int, str, str]]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()][1:]


def test_input_robustness(tmp_path: Path) -> None:
    heard: list[Progress] = []
    page = reproduce(Request("input-robustness", "mnist", 3), tmp_path, listener=heard.append)
    found = rows(tmp_path)
    assert [row["batch"] for row in found] == [0, 1, 2]
    for row in found:
        assert row["provable"]["robust"] == "proved"
        assert row["provable"]["faithful"] == "proved"
        assert row["sampling"]["faithful"] == "sampled"
        assert row["sampling"]["size"] <= row["provable"]["size"] + 3
    assert "100.0 ± 0.0" in page
    assert "| 611.93 | 15.84 | 100 |" in page
    assert "not the paper's own" in page
    assert (tmp_path / "table.md").read_text() == page
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3
    assert [progress.done for progress in heard] == [1, 2, 3]
    assert heard[-1].total == 3


def test_the_page_says_how_to_run_it_again(tmp_path: Path) -> None:
    request = Request("input-robustness", "mnist", 1, timeout=20.0, check_timeout=30.0, seed=3)
    page = reproduce(request, tmp_path)
    command = next(line for line in page.splitlines() if line.startswith("`provable-circuits"))
    assert "--timeout 20 --check-timeout 30 --seed 3" in command
    assert "20 s for each question of a search, 30 s for each check" in page
    (row,) = rows(tmp_path)
    assert f"at most {row['peak_gb']:.2f} GB each" in page
    assert 0.05 < row["peak_gb"] < 6


def test_a_final_check_has_a_limit_of_its_own(tmp_path: Path, clock: Clock) -> None:
    """Looking at the clock takes a millisecond, of which a search has thousands."""
    clock.step = 1e-3
    reproduce(Request("input-robustness", "mnist", 1, check_timeout=1e-4), tmp_path)
    (row,) = rows(tmp_path)
    assert row["provable"]["faithful"] == "proved"
    assert row["provable"]["robust"] == "undecided"


def test_a_run_of_other_batches_is_another_run(tmp_path: Path) -> None:
    reproduce(Request("input-robustness", "mnist", 1), tmp_path)
    with pytest.raises(DataError, match="is of another run"):
        reproduce(Request("input-robustness", "mnist", 2), tmp_path)


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    request = Request("coverage", "mnist", 1)

    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(request, tmp_path, listener=stop)
    before = (tmp_path / "rows.jsonl").read_text()
    assert len(rows(tmp_path)) == 3
    so_far = "3 of 7 rows so far: the same command goes on."
    assert so_far in (tmp_path / "table.md").read_text()
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 4
    heard: list[Progress] = []
    page = reproduce(request, tmp_path, listener=heard.append)
    assert "so far" not in page
    after = (tmp_path / "rows.jsonl").read_text()
    assert after.startswith(before)
    assert len(rows(tmp_path)) == 7
    assert heard[-1].total == 4
    assert len({row["key"] for row in rows(tmp_path)}) == 7


def test_a_search_that_was_interrupted_makes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its best circuit so far is proved, and not what the whole search finds."""
    request = Request("input-robustness", "mnist", 2)
    honest, left = Search.record, [0]

    def interrupted(search: Search, *arguments: Any) -> None:
        left[0] -= isinstance(search.predicate, Decided)
        if left[0] < 0:
            raise KeyboardInterrupt
        honest(search, *arguments)

    monkeypatch.setattr(Search, "record", interrupted)
    for answers in (0, 20):
        left[0] = answers
        with pytest.raises(KeyboardInterrupt):
            reproduce(request, tmp_path)
        assert rows(tmp_path) == []
    monkeypatch.undo()
    reproduce(request, tmp_path)
    assert [row["batch"] for row in rows(tmp_path)] == [0, 1]


def test_coverage_grows_with_the_radius(tmp_path: Path) -> None:
    page = reproduce(Request("coverage", "mnist", 2), tmp_path)
    sizes = {
        eps: sum(r["provable"]["size"] for r in rows(tmp_path) if r["eps"] == eps)
        for eps in (0.005, 0.05)
    }
    assert sizes[0.005] < sizes[0.05]
    assert "paper: provable only" in page
    assert page.endswith("\n\n![coverage](coverage.png)\n")
    for kind in ("png", "svg"):
        assert (tmp_path / f"coverage.{kind}").stat().st_size > 1000


def test_patching_robustness(tmp_path: Path) -> None:
    page = reproduce(Request("patching-robustness", "mnist", 2), tmp_path)
    for row in rows(tmp_path):
        assert row["provable"]["robust"] == "proved"
        assert {"zero", "mean", "provable"} <= set(row)
    assert "Means over 100 training inputs." in page


@pytest.mark.usefixtures("clock")
def test_minimality(tmp_path: Path) -> None:
    reproduce(Request("minimality", "mnist", 1), tmp_path)
    found = rows(tmp_path)
    assert [row["patching"] for row in found] == ["reachable", "interval"]
    for row in found:
        assert len(row["inputs"]) == 1
        assert row["hitting-set"]["size"] <= row["greedy"]["size"] <= row["binary-search"]["size"]
        assert (row["blocking-sets"]["lower"] or 0) <= (row["hitting-set"]["lower"] or 0)
    assert found[1]["hitting-set"]["notion"] == "cardinal"
    assert found[1]["hitting-set"]["holds"] == "unconditional"
    assert found[0]["hitting-set"]["holds"] == "assumed" or found[0]["greedy"]["size"] == 0
    for name in ("hitting_sets", "over_time"):
        assert (tmp_path / f"{name}.png").exists()


def test_runtime(tmp_path: Path) -> None:
    reproduce(Request("runtime", "mnist", 1), tmp_path)
    for row in rows(tmp_path):
        timeline = row["provable"]["timeline"]
        assert timeline[-1]["size"] == row["provable"]["size"]
        assert [m["size"] for m in timeline] == sorted((m["size"] for m in timeline), reverse=True)
    assert (tmp_path / "over_time.svg").exists()


def test_qualitative(tmp_path: Path) -> None:
    page = reproduce(Request("qualitative", "mnist", 3), tmp_path)
    broken = [row for row in rows(tmp_path) if "witness" in row]
    assert broken
    for row in broken:
        witness = row["witness"]
        clean, moved = np.array(witness["clean"]), np.array(witness["moved"])
        assert 0 < np.abs(moved - clean).max() <= 0.01 + 1e-4
        network, sampled = witness["outputs"]["network"][1], witness["outputs"]["sampling"][1]
        assert abs(network - sampled) == pytest.approx(2.0 + witness["excess"], abs=1e-6)
        assert abs(network - witness["outputs"]["provable"][1]) <= 2.0
        assert "cam" not in witness
        assert (tmp_path / f"batch_{row['batch']}.png").stat().st_size > 5000
        assert f"![batch {row['batch']}](batch_{row['batch']}.png)" in page
    assert "refuted" in page


@pytest.mark.parametrize("metric", ["winner-margin", "max-abs"])
def test_other_metrics(tmp_path: Path, metric: str) -> None:
    page = reproduce(Request("input-robustness", "mnist", 2, metric=metric), tmp_path)
    assert metric in page
    for row in rows(tmp_path):
        assert row.get("network_fails") or row["provable"]["robust"] == "proved"


@pytest.mark.parametrize("experiment", ["input-robustness", "patching-robustness"])
@pytest.mark.parametrize("sweep", ["eps", "delta"])
def test_sweeps_are_the_papers(experiment: str, sweep: str) -> None:
    request = Request(experiment, "mnist", 1, sweep=sweep)
    jobs = request.jobs(1)
    assert tuple(getattr(job, sweep) for job in jobs) == SWEEPS[experiment, "mnist", sweep]
    for job in jobs:
        assert (experiment, "mnist", job.metric, job.eps, job.delta) in PUBLISHED


def test_every_main_setting_has_published_figures() -> None:
    for experiment, settings in (("input-robustness", INPUT), ("patching-robustness", PATCHING)):
        for name, (eps, delta) in settings.items():
            known = (experiment, name, "logit-difference", eps, delta) in PUBLISHED
            assert known == (name != "tinytaxinet")


def test_workers_find_the_same(tmp_path: Path) -> None:
    reproduce(Request("input-robustness", "mnist", 4), tmp_path / "one")
    reproduce(Request("input-robustness", "mnist", 4), tmp_path / "two", workers=2)

    def circuits(folder: str) -> dict[str, Any]:
        return {r["key"]: r["provable"]["components"] for r in rows(tmp_path / folder)}

    assert circuits("one") == circuits("two")


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="The experiment must be one of input-robustness"):
        reproduce(Request("magic", "mnist", 1), tmp_path)
    with pytest.raises(ArgumentError, match="The metric must be one of"):
        reproduce(Request("coverage", "mnist", 1, metric="magic"), tmp_path)
    with pytest.raises(ArgumentError, match="no sweep over delta of input-robustness on gtsrb"):
        Request("input-robustness", "gtsrb", 1, sweep="delta").jobs(1)


@pytest.mark.parametrize("benchmark", ["taxinet", "gtsrb", "cifar10", "tinytaxinet"])
def test_the_other_benchmarks(benchmark: str, shared_data: Path, tmp_path: Path) -> None:
    """With a short limit, so that what stays undecided is seen to be counted."""
    request = Request("input-robustness", benchmark, 1, folder=str(shared_data), max_nodes=16)
    page = reproduce(request, tmp_path)
    (row,) = rows(tmp_path)
    assert row["provable"]["faithful"] == "proved"
    assert row["provable"]["robust"] in ("proved", "undecided")
    assert row["provable"]["size"] <= row["provable"]["of"]
    assert "--data DIR" in page
    assert str(shared_data) not in page + (tmp_path / "rows.jsonl").read_text()


def test_coverage_of_taxinet_quotes_nobody(shared_data: Path, tmp_path: Path) -> None:
    """The paper has the coverage of MNIST alone, at the same radius too."""
    request = Request("coverage", "taxinet", 1, folder=str(shared_data), max_nodes=16)
    page = reproduce(request, tmp_path)
    (line,) = (line for line in page.splitlines() if line.startswith("| 0.005 |"))
    assert line.endswith("| - | - |")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, program: Run, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROVABLE_CIRCUITS_DATA", raising=False)
    return partial(program, "reproduce")


def test_the_command_prints_the_page(run: Run) -> None:
    code, out, err = run("input-robustness", "--batches", "1", "--out", "a")
    assert (code, err) == (0, "")
    assert out.startswith("# input-robustness on MNIST")
    code, out, _ = run("input-robustness", "--batches", "1", "--out", "a", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["request"]["experiment"] == "input-robustness"
    assert len(document["rows"]) == 1


def test_the_command_says_what_is_missing(run: Run) -> None:
    code, _, err = run("coverage", "--benchmark", "gtsrb", "--out", "b")
    assert code == 2
    assert "needs a folder with 'gtsrb_cnn.onnx' and 'gtsrb_test.npz'" in " ".join(err.split())
    assert set(ROWS) >= {"coverage", "minimality"}
