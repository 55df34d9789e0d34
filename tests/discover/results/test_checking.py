"""A saved run is not checked until it is checked; what was changed is caught then or before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.discover.results.saved import edited, result

import provable_circuits as pc
from provable_circuits.discover.results.checking import check_run
from provable_circuits.errors import CertificateError, DataError
from provable_circuits.proof.checker.certificate import section_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result().save(tmp_path / "run")
    return tmp_path / "run"


def test_the_certificate_is_saved_with_the_run(folder: Path) -> None:
    saved = {path.name: path.read_bytes() for path in (folder / "certificate").iterdir()}
    assert result().certificate is not None
    assert saved == dict(result().certificate.files)  # type: ignore[union-attr]


def test_a_run_is_not_checked_until_it_is_checked(folder: Path) -> None:
    fresh = result().record()
    assert fresh.checked
    assert "Faithful: certified for every input" in str(fresh)
    run = pc.Run.load(folder)
    assert not run.checked
    assert "Faithful: proved for every input" in str(run)
    assert "NOT CHECKED since it was loaded" in str(run)
    found, checked = check_run(run)
    assert found.holds
    assert checked.checked
    assert "Faithful: certified for every input" in str(checked)
    assert "NOT CHECKED" not in str(checked)


def test_a_folder_of_a_run_is_checked_like_a_certificate(folder: Path) -> None:
    assert pc.check(folder) == pc.check(folder / "certificate")
    assert pc.check(folder, exact=True).holds


def test_a_run_without_a_certificate_says_why(tmp_path: Path) -> None:
    result(certify=False).save(tmp_path)
    with pytest.raises(CertificateError, match="no certificate: none was asked for"):
        pc.check(tmp_path)


def test_a_run_that_replaces_a_certified_one_takes_its_certificate_away(folder: Path) -> None:
    result(certify=False).save(folder)
    assert not (folder / "certificate").exists()
    assert pc.Run.load(folder).certificate is None


def resealed(folder: Path, section: str, change: Callable[[Any], None]) -> None:
    """Change a section of the certificate, and make every digest anew, the run's too."""
    import hashlib

    path = folder / "certificate" / "certificate.json"
    manifest = json.loads(path.read_text())
    change(manifest[section])
    manifest["digests"][section] = section_digest(manifest[section])
    path.write_text(json.dumps(manifest))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    def renew(document: Any) -> None:
        document["certification"]["digest"] = digest

    edited(folder / "result.json", renew, digests=False)


def test_a_claim_that_was_not_proved_is_caught_by_the_check(folder: Path) -> None:
    resealed(folder, "claim", lambda claim: claim["metric"].update(tolerance=1e-4))
    assert not pc.check(folder).holds


def test_a_stolen_witness_is_caught_by_the_check(folder: Path) -> None:
    def swap(statements: Any) -> None:
        own = [s for s in statements if s["kind"] == "necessary"]
        own[0]["witness"] = own[1]["witness"]

    resealed(folder, "statements", swap)
    found = pc.check(folder)
    assert [f.holds for f in found.findings if "necessary" in f.statement].count(False) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(faithful="undecided"),
        lambda d: d["circuit"]["components"].pop(),
        lambda d: d["minimality"].update(lower=1),
        lambda d: d["claim"].update(metric="MaxAbs(tolerance=0.001)"),
        lambda d: d["queries"].update(total=5),
        lambda d: d["witnesses"][next(iter(d["witnesses"]))].update(excess=9.0),
        lambda d: d.update(seconds=0.001),
        lambda d: d["certification"]["statements"].pop(),
    ],
    ids=["verdict", "circuit", "bound", "claim", "count", "witness", "time", "statement"],
)
def test_an_edited_document_is_refused(folder: Path, change: Callable[[Any], Any]) -> None:
    edited(folder / "result.json", change)
    with pytest.raises(DataError):
        pc.Run.load(folder)


def test_an_edited_witness_is_refused(folder: Path) -> None:
    with np.load(folder / "witnesses.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = next(name for name in arrays if name.endswith(":z"))
    arrays[name] = arrays[name] + 0.01
    np.savez_compressed(folder / "witnesses.npz", **arrays)
    with pytest.raises(DataError, match=r"witnesses\.npz' was changed after"):
        pc.Run.load(folder)


def test_a_missing_or_changed_certificate_is_refused(folder: Path) -> None:
    proof = folder / "certificate" / "proof.safetensors"
    data = proof.read_bytes()
    proof.write_bytes(data + b" ")
    with pytest.raises(DataError, match=r"is refused: The file proof\.safetensors is another"):
        pc.Run.load(folder)
    proof.unlink()
    with pytest.raises(DataError, match="cannot be read: No such file"):
        pc.Run.load(folder)


def test_another_certificate_is_refused(folder: Path, tmp_path: Path) -> None:
    result("greedy").save(tmp_path / "other")
    for path in (tmp_path / "other" / "certificate").iterdir():
        (folder / "certificate" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="is another than that of the run"):
        pc.Run.load(folder)
