"""The certificate of a run on the report's page, and on a sheet of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.runs import HOSTILE, digits, hostile

import provable_circuits as pc
from provable_circuits.errors import CertificateError
from provable_circuits.report.page.build import certificate_page, report_page
from provable_circuits.report.page.certificate import certificate_view

Program = Callable[..., tuple[int, str, str]]


def test_the_panel_tells_statements_times_digests_and_commands() -> None:
    run = digits()
    view = certificate_view(run, "run")
    assert view is not None
    assert (view.answer, view.firmness) == ("certified", "shown")
    assert run.checked in view.words
    assert f"provable-circuits {pc.__version__}" in view.words
    assert view.statements[0][0].endswith("components is faithful")
    assert len(view.statements) == len(run.document["certification"]["statements"]) > 3
    assert dict(view.digests)["certificate"] == run.document["certification"]["digest"]
    assert view.commands[0] == "provable-circuits check run"
    page = report_page(run, "run")
    for text in (*view.commands, *(digest for _, digest in view.digests), view.statements[1][0]):
        assert text in page
    assert 'id="certificate"' in page


def test_a_run_that_was_not_checked_says_so() -> None:
    view = certificate_view(replace(digits(), checked=""), "run")
    assert view is not None
    assert (view.answer, view.firmness) == ("not checked", "open")
    assert "Not checked for this page" in view.words
    page = report_page(replace(digits(), checked=""), "run")
    assert "<strong>not checked</strong>" in page
    assert "<strong>proved, not checked</strong>" in page
    assert "<strong>certified</strong>" not in page


def test_a_run_without_a_certificate_says_why() -> None:
    run = digits()
    told = {**run.document["certification"], "reason": "No proof was found within 10 seconds."}
    document = {**run.document, "certified": False, "certification": told}
    view = certificate_view(replace(run, document=document, certificate=None), "run")
    assert view is not None
    assert (view.answer, view.words) == ("not certified", "No proof was found within 10 seconds.")
    document = {**run.document, "certified": False, "certification": None}
    view = certificate_view(replace(run, document=document, certificate=None), "run")
    assert view is not None
    assert view.words == "No certificate was asked for."


def test_sampling_has_no_panel() -> None:
    run = digits("sampling", "greedy")
    assert certificate_view(run, "run") is None
    assert 'id="certificate"' not in report_page(run)
    with pytest.raises(CertificateError, match="no certificate that a page could show"):
        certificate_page(run)


def test_the_sheet_has_claim_picture_digests_and_commands() -> None:
    run = digits()
    page = certificate_page(run, "run")
    assert run.document["claim"]["metric"].replace("'", "&#39;") in page
    assert "<svg" in page
    assert run.document["certification"]["digest"] in page
    assert "python -m provable_circuits.proof.checker run/certificate" in page
    assert "<strong>certified</strong>" in page
    assert "Signature" in page
    assert "<script" not in page
    assert "<strong>not checked</strong>" in certificate_page(replace(run, checked=""))


def test_names_stay_texts_on_the_sheet() -> None:
    page = certificate_page(hostile())
    assert HOSTILE not in page
    assert "<script>window" not in page


def test_check_writes_the_sheet_of_a_run(program: Program, tmp_path: Path) -> None:
    digits().save(tmp_path / "run")
    page = tmp_path / "certificate.html"
    code, out, _ = program("check", str(tmp_path / "run"), "--page", str(page))
    assert code == 0
    assert "holds" in out
    assert "<strong>certified</strong>" in page.read_text()
    folder = str(tmp_path / "run" / "certificate")
    code, _, err = program("check", folder, "--page", str(page))
    assert code == 2
    assert "A page is about a run" in err


def test_show_checks_if_it_is_told_to(program: Program, tmp_path: Path) -> None:
    digits().save(tmp_path)
    code, out, _ = program("show", str(tmp_path))
    assert code == 0
    assert "NOT CHECKED since it was loaded" in out
    code, out, _ = program("show", str(tmp_path), "--check")
    assert code == 0
    assert "Faithful: certified for every input" in out
    assert "NOT CHECKED" not in out
