"""Tables of rows worked out by hand: the paper's figures stand only where it has them."""

from __future__ import annotations

from typing import Any

import pytest

from provable_circuits.experiments.published import COVERAGE, INPUT, PATCHING, PUBLISHED
from provable_circuits.experiments.reproduce import Request
from provable_circuits.experiments.tables import (
    Table,
    as_csv,
    coverage_table,
    markdown,
    qualitative_table,
    robustness_table,
    runtime_table,
)

OTHERS = ("taxinet", "tinytaxinet", "gtsrb", "cifar10")


def cell(*components: str, of: int = 10, robust: str = "proved") -> dict[str, Any]:
    return {
        "size": len(components),
        "of": of,
        "components": list(components),
        "seconds": 2.0,
        "seconds_undecided": 0.0,
        "queries": {"proved": 3, "refuted": 1},
        "robust": robust,
    }


def row(eps: float = 0.01, delta: float = 2.0, metric: str = "logit-difference") -> dict[str, Any]:
    return {
        "batch": 0,
        "label": 7,
        "metric": metric,
        "eps": eps,
        "delta": delta,
        "sampling": cell("a", "b", "d", robust="refuted"),
        "provable": cell("a", "b", "c", "e", "f"),
        "zero": cell("a"),
        "mean": cell("b"),
    }


def columns(table: Table) -> list[dict[str, str]]:
    """The lines of a table by the names of columns."""
    return [dict(zip(table[0], line, strict=True)) for line in table[1]]


def of_the_paper(table: Table) -> list[list[str]]:
    return [[v for k, v in line.items() if k.startswith("paper")] for line in columns(table)]


def test_coverage_of_mnist_stands_beside_the_papers() -> None:
    (line,) = columns(coverage_table("mnist", [row()]))
    assert (line["paper: provable only"], line["paper: sampled only"]) == ("4.1", "0.81")
    assert (line["both"], line["provable only"], line["sampled only"]) == ("2.00", "3.00", "1.00")
    assert (line["IoU"], line["Dice"], line["batches"]) == ("0.333", "0.500", "1")


@pytest.mark.parametrize("benchmark", OTHERS)
def test_the_paper_has_no_coverage_of_other_benchmarks(benchmark: str) -> None:
    for job in Request("coverage", benchmark, 1).jobs(1):
        table = coverage_table(benchmark, [row(job.eps, job.delta)])
        assert of_the_paper(table) == [["-", "-"]]
    assert of_the_paper(coverage_table(benchmark, [row()])) == [["-", "-"]]


@pytest.mark.parametrize(
    "other", [row(0.01, 0.5), row(0.01, 4.0, "max-abs"), row(0.011), row(metric="winner-margin")]
)
def test_coverage_at_another_setting_has_no_published_figure(other: dict[str, Any]) -> None:
    assert of_the_paper(coverage_table("mnist", [other])) == [["-", "-"]]


def test_every_radius_of_the_papers_coverage_is_run() -> None:
    jobs = Request("coverage", "mnist", 1).jobs(1)
    assert {("mnist", job.metric, job.eps, job.delta) for job in jobs} == set(COVERAGE)


@pytest.mark.parametrize("experiment", ["input-robustness", "patching-robustness"])
@pytest.mark.parametrize("benchmark", ["mnist", *OTHERS])
@pytest.mark.parametrize("metric", ["logit-difference", "winner-margin", "max-abs"])
def test_robustness_quotes_its_own_setting(experiment: str, benchmark: str, metric: str) -> None:
    """Each figure is that of the same experiment, benchmark, metric, radius and tolerance."""
    settings: list[tuple[float, float]] = [*INPUT.values(), *PATCHING.values()]
    settings += [(job.eps, job.delta) for job in Request(experiment, benchmark, 1, metric).jobs(1)]
    for eps, delta in settings:
        table = robustness_table(experiment, benchmark, [row(eps, delta, metric)])
        published = PUBLISHED.get((experiment, benchmark, metric, eps, delta))
        for line in columns(table):
            quoted = [line[name] for name in ("paper: s", "paper: size", "paper: robust %")]
            if published is None:
                assert quoted == ["-", "-", "-"]
            else:
                assert quoted == [f"{value:g}" for value in published[line["method"]]]


def test_published_figures_of_several_benchmarks() -> None:
    """Some as the paper prints them, so that a wrong key is seen."""
    for benchmark, eps, delta, expected in [
        ("mnist", 0.01, 2.0, ["611.93", "15.84", "100"]),
        ("taxinet", 0.005, 0.92, ["180", "6.82", "100"]),
        ("cifar10", 0.015, 2.0, ["2970.85", "19.18", "100"]),
        ("gtsrb", 0.001, 5.0, ["991.08", "29.59", "100"]),
        ("tinytaxinet", 0.005, 0.92, ["-", "-", "-"]),
    ]:
        table = robustness_table("input-robustness", benchmark, [row(eps, delta)])
        assert of_the_paper(table)[1] == expected


def test_rows_that_the_network_fails_are_counted_and_not_averaged() -> None:
    failed = {"metric": "max-abs", "eps": 0.01, "delta": 4.0, "network_fails": True}
    own = row(0.01, 4.0, "max-abs")
    for table in (coverage_table("mnist", [own, failed]), runtime_table([own, failed])):
        (line,) = columns(table)
        assert line["batches"] == "1 (+1 the network fails)"
    assert coverage_table("mnist", [failed])[1] == runtime_table([failed])[1] == []
    assert len(qualitative_table([own, failed])[1]) == 1


def test_minimality_is_asked_at_each_benchmarks_own_setting() -> None:
    for benchmark, (eps, delta) in INPUT.items():
        for job in Request("minimality", benchmark, 1).jobs(1):
            assert (job.eps, job.delta) == (eps, delta)
            assert job.patch_eps == pytest.approx(1.2 * eps)
    assert Request("minimality", "mnist", 1).jobs(1)[0].patch_eps == 0.012


def test_every_number_of_the_coverage_table() -> None:
    """Five of ten beside three, two of them the same; the smaller radius comes first."""
    table = coverage_table("mnist", [row(0.02), row(0.01), row(0.01)])
    ours = ["2.00", "3.00", "30.00", "1.00", "10.00", "0.333", "0.500", "0.667", "0.667", "0.400"]
    assert [line[:12] for line in table[1]] == [["0.01", "2", *ours], ["0.02", "1", *ours]]


def test_every_number_of_a_robustness_and_a_runtime_table() -> None:
    slow = cell("a", "b", "c")
    slow |= {"seconds": 4.0, "seconds_undecided": 1.5, "robust": "undecided"}
    slow["queries"] = {"proved": 3, "undecided": 1}
    rows = [row(), row() | {"provable": slow}]
    line = columns(robustness_table("input-robustness", "mnist", rows))[1]
    ours = [line[name] for name in line if not name.startswith("paper")]
    assert ours[4:] == [
        "2",
        "3.000 ± 1.414",
        "2.250",
        "1.5",
        "4.00 ± 1.41 of 10",
        "100.0 ± 0.0",
        "50.0",
        "1",
        "1 of 8 (12.5%)",
    ]
    wanted = ["0.01", "2", "4.00 ± 1.41 of 10", "3.000 ± 1.414", "1 of 8 (12.5%)"]
    assert runtime_table(rows)[1] == [wanted]
    idle = row() | {"provable": cell("a") | {"queries": {}}}
    assert runtime_table([idle])[1][0][-1] == "0 of 0 (0.0%)"


def test_a_table_as_markdown_and_as_csv() -> None:
    outputs = {"network": [1.0, 2.0], "provable": [1.25, 2.5], "sampling": [0.5, -3.0]}
    table = qualitative_table([row() | {"witness": {"outputs": outputs}}, row()])
    text = markdown(table).splitlines()
    assert text[1] == "|" + " --- |" * 8
    assert text[2:] == [
        "| 0 | 7 | 5 | 3 | refuted | 1.00, 2.00 | 1.25, 2.50 | 0.50, -3.00 |",
        "| 0 | 7 | 5 | 3 | refuted | - | - | - |",
    ]
    assert as_csv(table).splitlines()[2] == "0,7,5,3,refuted,-,-,-"
