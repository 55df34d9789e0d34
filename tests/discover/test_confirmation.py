"""What a search returns is proved once more, by a verifier that reuses nothing."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.errors import DataError
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.redundant import RedundantRemoval

SIDE = 16


def emptied() -> tuple[pc.Graph, pc.Claim]:
    """A convolution whose filters count together, and a claim that holds without the first."""
    first, second, last = (
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Linear(3 * SIDE * SIDE, 2),
        nn.Linear(2, 2),
    )
    shares = torch.tensor([0.5, 0.1, 0.4]).double().repeat_interleave(SIDE * SIDE) / SIDE**2
    net = nn.Sequential(first, nn.ReLU(), nn.Flatten(), second, nn.ReLU(), last).double()
    with torch.no_grad():
        for layer, weight, bias in (
            (first, torch.full_like(first.weight, 0.001), 1.0),
            (second, torch.stack([6 * shares, 3.6 * shares]), -1.0),
            (last, torch.tensor([[1.8, -3.0], [0.0, 0.0]]), 0.0),
        ):
            layer.weight.copy_(weight)
            if layer.bias is not None:
                layer.bias.fill_(bias)
    x = torch.full((1, 1, SIDE, SIDE), 0.5).double()
    claim = pc.Claim([pc.Ball(x[0], eps=0.1)], pc.Zero(), pc.LogitDifference(0.3, 0))
    return pc.Graph.from_torch(net, x), claim


def test_a_layer_that_is_emptied_early() -> None:
    """Two filters go, the third must stay: without all three the outputs differ by 1.2."""
    graph, claim = emptied()
    result = pc.discover(graph, claim, "filter", order=["0/0", "0/1", "0/2"], certify=False)
    assert result.faithful == "proved"
    z = claim.centers
    with torch.no_grad():
        apart = (result.circuit.run(z, pc.Zero().values(result.circuit.components)) - graph.run(z))[
            0, 0
        ]
    assert abs(float(apart)) <= 0.3
    assert pc.verify(graph, result.circuit, claim, certify=False).proved


def test_a_confirmed_circuit_says_so() -> None:
    graph, claim = emptied()
    result = pc.discover(graph, claim, "filter", certify=False)
    assert result.confirmation is not None
    assert result.confirmation.verdict.proved
    told = result.document()["confirmation"]
    assert told["verdict"] == "proved"
    assert told["seconds"] == result.confirmation.seconds > 0
    assert "confirmed in" in str(result)


def test_sampling_has_nothing_to_confirm() -> None:
    graph, claim = emptied()
    result = pc.discover(graph, claim, "filter", method="sampling")
    assert result.confirmation is None
    assert result.faithful == "sampled"
    assert "confirmed" not in str(result)


@pytest.fixture
def gullible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that takes every removal from a proved circuit for redundant."""

    def every(self: RedundantRemoval, known: object, circuit: object) -> torch.Tensor:
        return torch.ones(self.encoder.count, dtype=torch.bool) & (known is not None)

    monkeypatch.setattr(RedundantRemoval, "settled", every)


@pytest.mark.usefixtures("gullible")
def test_a_false_proof_is_not_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    graph, claim = emptied()
    with caplog.at_level(logging.ERROR):
        result = pc.discover(graph, claim, "filter", certify=False)
    assert result.verdict is not None
    assert result.verdict.proved
    assert result.faithful == "undecided"
    assert result.confirmation is not None
    assert result.confirmation.verdict.refuted
    assert result.minimality.notion == "none"
    assert "REFUTED by a verifier that reuses nothing" in str(result)
    assert "refuted by a new verifier" in caplog.text


@pytest.mark.usefixtures("gullible")
def test_both_answers_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    graph, claim = emptied()
    plain = pc.Verifier.ask

    def slow(self: pc.Verifier, *args: object, **settings: object) -> pc.Verdict:
        if not self.reuse:
            return pc.Undecided("time", "branching")
        return plain(self, *args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(pc.Verifier, "ask", slow)
    result = pc.discover(graph, claim, "filter", certify=False)
    assert result.faithful == "undecided"
    assert "not confirmed" in str(result)
    result.save(f"{tmp_path}/run")
    run = pc.Run.load(f"{tmp_path}/run")
    assert run.document["confirmation"]["verdict"] == "undecided"
    assert run.document["confirmation"]["reason"] == "time"


def test_a_run_that_contradicts_itself_is_refused(tmp_path: object) -> None:
    graph, claim = emptied()
    pc.discover(graph, claim, "filter", certify=False).save(f"{tmp_path}/run")
    with open(f"{tmp_path}/run/result.json") as file:  # noqa: PTH123
        document = json.load(file)
    document["confirmation"]["verdict"] = "undecided"
    with open(f"{tmp_path}/run/result.json", "w") as file:  # noqa: PTH123
        json.dump(document, file)
    with pytest.raises(DataError, match="its confirmation undecided"):
        pc.Run.load(f"{tmp_path}/run")


def test_the_network_itself_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is bounded to tell that a network equals itself."""
    graph, claim = emptied()

    def bounded(*_: object, **__: object) -> None:
        raise RuntimeError("something was bounded")

    monkeypatch.setattr(Bounds, "compute", bounded)
    verdict = pc.verify(graph, graph.components("filter").full(), claim, certify=False)
    assert isinstance(verdict, pc.Proved)
    assert verdict.stage == "identical"


def test_shared_work_is_a_phase_of_its_own() -> None:
    graph, claim = emptied()
    heard: list[str] = []
    pc.discover(
        graph, claim, "filter", listener=lambda told: heard.append(told.doing), certify=False
    )
    assert "bounding the network" in heard
    assert "confirming the circuit" in heard
