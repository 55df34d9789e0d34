"""Certificates made by ``pc.verify(..., certify=True)``: what is covered, and what is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import provable_circuits as pc
from provable_circuits.cli import app
from provable_circuits.errors import CertificateError, DataError
from provable_circuits.proof.checker.certificate import MANIFEST
from provable_circuits.zoo.mnist import mnist_network

NODES = 400


class Everything(nn.Module):
    """Convolutions, pooling of both kinds, normalisation, a residual sum and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.head = nn.Linear(4 * 4 + 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(self.norm(self.first(x)), 0.1), 2)
        x = self.second(x).relu() + x
        mean = nn.functional.avg_pool2d(x, 4).flatten(1)
        pooled = nn.functional.avg_pool2d(x, 2).flatten(1)
        return self.head(torch.cat([pooled, mean], 1))  # type: ignore[no-any-return]


def dense(activation: type[nn.Module] = nn.ReLU, seed: int = 0) -> pc.Graph:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(4, 8), activation(), nn.Linear(8, 6), activation(), nn.Linear(6, 3)
    )
    return pc.Graph.from_torch(net, torch.zeros(1, 4))


def everything() -> pc.Graph:
    torch.manual_seed(3)
    return pc.Graph.from_torch(Everything().eval(), torch.zeros(1, 1, 8, 8))


X = torch.tensor([0.3, 0.7, 0.2, 0.9])
DOMAINS = {
    "ball": pc.Ball(X, 0.05),
    "clipped": pc.Ball(X, 0.05, clip=(0, 1), mask=[1, 0, 1, 1]),
    "point": pc.Point(X),
    "box": pc.Box(X - 0.05, X + 0.02),
    "one": pc.Ball(X, 0.1, p=1),
    "two": pc.Ball(X, 0.1, p=2),
}
PATCHINGS = {
    "zero": pc.Zero(),
    "constant": pc.Constant(0.1),
    "reachable": pc.Reachable(0.1),
    "hull": pc.IntervalHull(0.05),
}
METRICS = {
    "logit": pc.LogitDifference(0.2),
    "max": pc.MaxAbs(0.2),
    "one": pc.Norm(0.4, 1),
    "two": pc.Norm(0.3, 2),
    "inf": pc.Norm(0.2, float("inf")),
    "winner": pc.WinnerMargin(0.3),
    "all": pc.WinnerMargin(0.3, against="all"),
}


def shown(graph: pc.Graph, claim: pc.Claim, removed: int) -> None:
    """Verify circuits that lack some components; every answer must be certified."""
    full = graph.components("neuron").full()
    circuit = full.remove(*full.names[:: max(1, len(full) // removed)][:removed])
    verdict = pc.verify(graph, circuit, claim, max_nodes=NODES, certify=True)
    assert isinstance(verdict, pc.Proved | pc.Refuted), "choose a case that is decided"
    assert verdict.certificate is not None, verdict.uncertified
    (finding,) = verdict.certificate.findings
    assert finding.holds
    assert ("not faithful" in finding.statement) == verdict.refuted


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("patching", PATCHINGS)
def test_every_metric_and_patching_is_certified(metric: str, patching: str) -> None:
    for removed in (1, 6):
        claim = pc.Claim(DOMAINS["ball"], PATCHINGS[patching], METRICS[metric])
        shown(dense(), claim, removed)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh])
def test_every_domain_and_activation_is_certified(domain: str, activation: type) -> None:
    for patching in ("zero", "reachable"):
        claim = pc.Claim(DOMAINS[domain], PATCHINGS[patching], METRICS["logit"])
        shown(dense(activation), claim, 2)


@pytest.mark.parametrize("patching", PATCHINGS)
def test_a_network_of_many_operations_is_certified(patching: str) -> None:
    graph = everything()
    ball = pc.Ball(torch.rand(1, 8, 8), 0.01)
    full = graph.components("filter").full()
    for tolerance in (3.0, 1e-3):
        claim = pc.Claim([ball], PATCHINGS[patching], pc.MaxAbs(tolerance))
        circuit = full.remove(full.names[1])
        verdict = pc.verify(graph, circuit, claim, max_nodes=NODES, certify=True)
        assert isinstance(verdict, pc.Proved | pc.Refuted)
        assert verdict.certificate is not None, verdict.uncertified


def test_a_certificate_is_saved_and_checked(tmp_path: Path) -> None:
    claim = pc.Claim([DOMAINS["ball"], DOMAINS["box"]], pc.Zero(), pc.MaxAbs(0.2))
    graph = dense()
    circuit = pc.discover(graph, claim, max_nodes=NODES, certify=False).circuit
    verdict = pc.verify(graph, circuit, claim, max_nodes=NODES, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is not None
    verdict.certificate.save(tmp_path / "certificate")
    for exact in (False, True):
        checked = pc.check(tmp_path / "certificate", exact=exact)
        assert checked.holds
        assert "2 inputs" in str(checked)
    ran = CliRunner().invoke(app, ["check", str(tmp_path / "certificate")])
    assert ran.exit_code == 0
    assert "holds" in ran.stdout
    ran = CliRunner().invoke(app, ["check", str(tmp_path / "certificate"), "--exact", "--json"])
    assert json.loads(ran.stdout)["holds"]


def test_another_tolerance_than_was_proved_is_refused(tmp_path: Path) -> None:
    """The digests tell; and with digests made anew, the bounds do."""
    from provable_circuits.proof.checker.certificate import section_digest

    graph, claim = dense(), pc.Claim([DOMAINS["ball"]], pc.Zero(), pc.MaxAbs(0.2))
    circuit = pc.discover(graph, claim, max_nodes=NODES, certify=False).circuit
    verdict = pc.verify(graph, circuit, claim, max_nodes=NODES, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is not None
    verdict.certificate.save(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest["claim"]["metric"]["tolerance"] = 1e-3
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CertificateError, match="'claim' is another"):
        pc.check(tmp_path)
    manifest["digests"]["claim"] = section_digest(manifest["claim"])
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    assert not pc.check(tmp_path).holds
    ran = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert ran.exit_code == 1
    assert "not closed" in " ".join(ran.stdout.split())


def wide() -> tuple[pc.Graph, pc.Circuit, pc.Claim]:
    """A circuit that is faithful by a bound that takes some splits."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 6))
    claim = pc.Claim([pc.Ball(torch.zeros(6), 1.0)], pc.Zero(), pc.MaxAbs(0.3))
    return graph, graph.components("neuron").empty(), claim


def test_a_proof_with_splits_is_certified(tmp_path: Path) -> None:
    verdict = pc.verify(*wide(), max_nodes=3000, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is not None, verdict.uncertified
    verdict.certificate.save(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    nodes = [node for tree in manifest["proof"][0]["trees"] for node in tree["nodes"]]
    assert sum("split" in node for node in nodes) > 4
    assert any("beta" in node.get("close", {}) for node in nodes)
    assert pc.check(tmp_path).holds


def test_what_the_limit_stops_stays_uncertified_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Certification has the same limit as the question, and its own count of nodes."""
    api = sys.modules["provable_circuits.verify.api"]
    monkeypatch.setattr(api, "certification_limit", lambda *_: (float("inf"), 5))
    verdict = pc.verify(*wide(), max_nodes=3000, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is None
    assert verdict.uncertified == "No proof was found within 5 nodes."


def test_a_tie_is_certified_in_rational_arithmetic(tmp_path: Path) -> None:
    """relu(x) - relu(x - 1) on [0, 1] differs from nothing by exactly 1: no float bound closes."""
    first, second = nn.Linear(1, 2), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [1.0]]))
        first.bias.copy_(torch.tensor([0.0, -1.0]))
        second.weight.copy_(torch.tensor([[1.0, -1.0]]))
        second.bias.zero_()
    net = nn.Sequential(first, nn.ReLU(), second)
    graph = pc.Graph.from_torch(net, torch.zeros(1, 1))
    components = graph.components("neuron")
    claim = pc.Claim([pc.Box([0.0], [1.0])], pc.Zero(), pc.MaxAbs(1.0))
    verdict = pc.verify(graph, components.circuit(["0/1", "2/0"]), claim, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is not None, verdict.uncertified
    verdict.certificate.save(tmp_path)
    assert '"exact":true' in (tmp_path / MANIFEST).read_text()
    assert pc.check(tmp_path, exact=True).holds


def test_a_proof_of_mnist_is_small() -> None:
    graph = mnist_network()
    x = np.random.default_rng(0).random(784) * 0.5
    ball = pc.Ball(x, 0.01, clip=(0, 1))
    claim = pc.Claim([ball], pc.Reachable(0.01), pc.LogitDifference(0.5))
    circuit = pc.discover(graph, claim, max_nodes=NODES, certify=False).circuit
    verdict = pc.verify(graph, circuit, claim, max_nodes=NODES, certify=True)
    assert isinstance(verdict, pc.Proved)
    assert verdict.certificate is not None
    assert verdict.certificate.size < 200_000


def test_no_folder_and_no_certificate(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["check", str(tmp_path / "none")])
    assert isinstance(ran.exception, DataError)
    with pytest.raises(CertificateError, match=r"certificate\.json is missing"):
        pc.check(tmp_path)
