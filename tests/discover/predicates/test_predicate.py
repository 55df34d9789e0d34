"""Faithfulness by sampling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.claims.metrics import (
    KLDivergence,
    LogitDifference,
    MaxAbs,
    MeanSquaredError,
    Metric,
    Norm,
    WinnerMargin,
)
from provable_circuits.claims.patching import Constant, Mean, Reachable, Zero
from provable_circuits.discover.predicates.predicate import Sampled
from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.verify.verdict import Held, Refuted


def network(seed: int = 0) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    builder = GraphBuilder()
    hidden = builder.add(
        "fc1", Linear(torch.randn(5, 3, generator=generator)), builder.input("x", (3,))
    )
    active = builder.add("relu", ReLU(), hidden)
    fc2 = builder.add("fc2", Linear(torch.randn(3, 5, generator=generator)), active)
    return builder.build([fc2])


def components() -> Components:
    return network().components()


BALLS = [Ball([0.1, 0.2, 0.3], 0.5), Ball([1.0, -1.0, 0.5], 0.5, 2), Box([0, 0, 0], [1, 1, 1])]
METRICS: list[Metric] = [
    LogitDifference(0.4),
    LogitDifference(0.4, target=[0, 2, 1]),
    WinnerMargin(),
    WinnerMargin(0.3, "all"),
    MaxAbs(0.7),
    Norm(1.0, 1),
    MeanSquaredError(0.3),
    KLDivergence(0.2),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: repr(metric)[:40])
@pytest.mark.parametrize("points", [0, 3])
@pytest.mark.parametrize("patching", [Zero(), Constant(0.3)], ids=["zero", "constant"])
def test_every_circuit_is_judged_at_every_point(metric: Metric, points: int, patching: Any) -> None:
    """One circuit, one input and one point at a time give the same verdicts."""
    whole = components()
    graph, predicate = whole.graph, Sampled(whole, Claim(BALLS, patching, metric), points, seed=4)
    names = whole.names
    circuits = [whole.full(), whole.empty(), *(whole.full().remove(name) for name in names)]
    verdicts = predicate.ask(circuits)
    tried = _points(BALLS, points, seed=4)
    assert predicate.point_count == 3 * (points + 1)
    for circuit, verdict in zip(circuits, verdicts, strict=True):
        worst = -math.inf
        for i, own in enumerate(tried):
            for z in own:
                anchors = torch.stack([graph.run(domain.center)[0] for domain in BALLS])
                reference, output = anchors.clone(), anchors.clone()
                reference[i] = graph.run(z)[0]
                output[i] = circuit.run(z, patching)[0]
                worst = max(worst, float(metric.excess(anchors, reference, output)[i]))
        if worst > 0:
            assert isinstance(verdict, Refuted)
            assert verdict.witness.excess == pytest.approx(worst)
        else:
            assert isinstance(verdict, Held)
            assert verdict.worst == pytest.approx(worst, abs=1e-12)
            assert verdict.points == 3 * (points + 1)


def _points(domains: list[Any], points: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [domain.sample(points, generator) for domain in domains]
    return [
        torch.cat([domain.center.unsqueeze(0), own])
        for domain, own in zip(domains, drawn, strict=True)
    ]


def test_a_witness_is_a_point_of_its_domain_and_can_be_replayed() -> None:
    whole = components()
    claim = Claim(BALLS, Zero(), LogitDifference(0.0, target=[1, 1, 0]))
    predicate = Sampled(whole, claim, points=20)
    seen = set()
    for name in whole.names:
        circuit = whole.full().remove(name)
        (verdict,) = predicate.ask([circuit])
        if not isinstance(verdict, Refuted):
            continue
        witness = verdict.witness
        seen.add(witness.index)
        target = (1, 1, 0)[witness.index]
        assert claim.inputs[witness.index].contains(witness.z.unsqueeze(0)).all()
        reference, output = whole.graph.run(witness.z)[0], circuit.run(witness.z)[0]
        torch.testing.assert_close(witness.reference, reference)
        torch.testing.assert_close(witness.output, output)
        assert witness.excess == pytest.approx(float((output - reference).abs()[target]))
        assert witness.z.dtype == torch.float64
        assert verdict.stage == "sampling"
    assert len(seen) > 1


def test_the_baseline_looks_at_the_inputs_alone() -> None:
    whole = components()
    claim = Claim([Ball([0.1, 0.2, 0.3], 100.0)], Zero(), LogitDifference(1e-9))
    unused = [
        name
        for name in whole.names
        if torch.equal(whole.full().remove(name).run(claim.centers), whole.graph.run(claim.centers))
    ]
    assert unused
    circuit = whole.full().remove(unused[0])
    assert Sampled(whole, claim).ask([circuit])[0].held
    if unused[0].startswith("fc1"):
        assert Sampled(whole, claim, points=100).ask([circuit])[0].refuted


def test_sampling_is_repeatable_and_moves_with_the_seed() -> None:
    whole = components()
    claim = Claim(BALLS, Mean(torch.randn(10, 3)), MaxAbs(0.0))
    first, again, other = (
        Sampled(whole, claim, points=5, seed=seed).excess([whole.empty()])[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_circuits_no_verdicts() -> None:
    assert Sampled(components(), Claim(BALLS, Zero(), MaxAbs(1.0))).ask([]) == []


def test_not_a_number_is_a_violation() -> None:
    builder = GraphBuilder()
    huge = builder.add(
        "huge", Linear(torch.full((2, 1), 1e308, dtype=torch.float64)), builder.input("x", (1,))
    )
    end = builder.add("fc", Linear(torch.tensor([[1e10, -1e10], [0.0, 0.0]])), huge)
    whole = builder.build([end]).components()
    predicate = Sampled(whole, Claim(Point([1.0]), Zero(), MaxAbs(1.0)))
    (verdict,) = predicate.ask([whole.full()])
    assert isinstance(verdict, Refuted)
    assert verdict.witness.excess == math.inf


@pytest.mark.parametrize(
    ("patching", "points", "says"),
    [
        (Reachable(eps=0.1), 0, r"fixed values: Zero, Mean or Constant. Got Reachable\(eps=0.1\)"),
        (Zero(), -1, "'points' parameter must be a whole number of at least 0. Got -1"),
        (Zero(), 0.5, "Got 0.5"),
    ],
)
def test_wrong_calls(patching: Any, points: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Sampled(components(), Claim(BALLS, patching, MaxAbs(1.0)), points)


def test_a_claim_that_does_not_fit_is_refused() -> None:
    domain: Domain = Point([0.0])
    with pytest.raises(ArgumentError, match="the network takes"):
        Sampled(components(), Claim(domain, Zero(), MaxAbs(1.0)))
