"""What a search returns is certified: proved as data, and accepted by the checker."""

from __future__ import annotations

import pytest
import torch
from tests.clock import Clock
from torch import nn

import provable_circuits as pc
from provable_circuits.proof import certify as certify_module
from provable_circuits.proof.checker.check import Finding
from provable_circuits.proof.prover import Prover
from provable_circuits.verify.certification import certification_limit
from provable_circuits.verify.configuration import DEFAULT

NODES = 200
USUAL = DEFAULT.limits.certificate_nodes


def dense() -> pc.Graph:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    return pc.Graph.from_torch(net, torch.zeros(1, 4))


def claim(tolerance: float = 0.2, patching: pc.Patching | None = None) -> pc.Claim:
    balls = [pc.Ball([0.1, 0.2, 0.3, 0.4], 0.05), pc.Ball([0.4, 0.1, 0.2, 0.3], 0.05)]
    return pc.Claim(balls, patching or pc.Zero(), pc.MaxAbs(tolerance))


def test_what_is_returned_is_certified_by_default() -> None:
    result = pc.discover(dense(), claim(), max_nodes=NODES)
    assert result.certified
    assert result.faithful == "proved"
    assert result.certificate is not None
    assert all(finding.holds for finding in result.certificate.findings)
    assert result.confirmation is None, "the checker needs no second verifier beside it"
    stated = [finding.statement for finding in result.certificate.findings]
    necessary = [name for name, kept in result.kept.items() if kept.status == "necessary"]
    assert stated[0].endswith("is faithful")
    assert [f"{name} is necessary" for name in necessary] == stated[1 : len(necessary) + 1]
    assert len(necessary) > 2


def test_text_and_json_say_which_of_the_two_it_is() -> None:
    certified = pc.discover(dense(), claim(), max_nodes=NODES)
    text, told = str(certified), certified.document()
    assert "Faithful: certified for every input in 2 domain(s)" in text
    assert "proved in 0." in text
    assert "checked in 0." in text
    assert told["certified"] is True
    assert told["certification"]["prove_seconds"] > 0
    assert told["certification"]["check_seconds"] > 0
    assert told["certification"]["digest"] == certified.certificate.digest  # type: ignore[union-attr]
    assert told["certification"]["version"] == pc.__version__
    plain = pc.discover(dense(), claim(), max_nodes=NODES, certify=False)
    assert plain.circuit == certified.circuit
    assert not plain.certified
    assert plain.certification is None
    assert plain.confirmation is not None
    assert "Faithful: proved for every input in 2 domain(s)" in str(plain)
    assert "certif" not in str(plain)
    assert plain.document()["certified"] is False
    assert plain.document()["certification"] is None


def test_where_there_is_no_certificate_a_fresh_verifier_confirms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(self: Prover) -> None:
        self.limit.spend(10**9)

    monkeypatch.setattr(Prover, "plan", exhausted)
    result = pc.discover(dense(), claim(), max_nodes=NODES)
    assert not result.certified
    assert result.faithful == "proved"
    assert result.confirmation is not None
    assert result.confirmation.verdict.proved
    assert result.certification is not None
    assert result.certification.reason == "No proof was found within 200 nodes."
    text = str(result)
    assert "Faithful: proved for every input" in text
    assert "not certified: No proof was found within 200 nodes." in text
    assert "confirmed in" in text
    assert result.document()["certification"]["reason"] == result.certification.reason


def test_an_interrupt_ends_the_certificate_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Prover) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Prover, "plan", interrupted)
    result = pc.discover(dense(), claim(), max_nodes=NODES)
    assert not result.certified
    assert result.faithful == "proved"
    assert "not certified: It was interrupted." in str(result)


def test_the_limit_in_seconds_is_honoured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two bounds of the proof the limit is looked at."""
    plan = Prover.plan

    def late(self: Prover) -> object:
        clock.now += 8
        return plan(self)

    monkeypatch.setattr(Prover, "plan", late)
    result = pc.discover(dense(), claim(), certify_timeout=7)
    assert not result.certified
    assert "not certified: No proof was found within 7 seconds." in str(result)
    assert pc.discover(dense(), claim(), certify_timeout=17).certified
    verdict = pc.verify(dense(), result.circuit, claim(), certify_timeout=7)
    assert verdict.proved
    assert not verdict.certified


@pytest.mark.parametrize(
    ("asked", "nodes", "took", "limit"),
    [
        (None, None, 3.0, (10.0, USUAL)),
        (None, None, 30.0, (30.0, USUAL)),
        (2.5, None, 30.0, (2.5, USUAL)),
        (None, 40, 30.0, (float("inf"), 40)),
        (2.5, 40, 30.0, (2.5, 40)),
    ],
)
def test_how_long_a_certificate_may_take(
    asked: float | None, nodes: int | None, took: float, limit: tuple[float, int | None]
) -> None:
    assert certification_limit(asked, nodes, took) == limit


def test_a_statement_that_the_checker_does_not_accept_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A witness within rounding errors costs its own statement and no other."""
    check, doubted = certify_module.check_files, "4/1 is necessary"

    def strict(files: dict[str, bytes]) -> list[Finding]:
        found = check(files)
        return [Finding(f.statement, f.statement != doubted, f.reason) for f in found]

    full = pc.discover(dense(), claim(), max_nodes=NODES)
    assert full.certificate is not None
    assert doubted in [f.statement for f in full.certificate.findings]
    monkeypatch.setattr(certify_module, "check_files", strict)
    result = pc.discover(dense(), claim(), max_nodes=NODES)
    assert result.certificate is not None
    stated = [f.statement for f in result.certificate.findings]
    assert doubted not in stated
    assert len(stated) == len(full.certificate.findings) - 1
    assert [f.statement for f in result.certificate.left_out] == [doubted]
    assert f"not in it: {doubted}" in str(result)


def test_sampling_has_nothing_to_certify() -> None:
    result = pc.discover(dense(), claim(), method="sampling")
    assert result.certification is None
    assert not result.certified
