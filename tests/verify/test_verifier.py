"""One verifier asked many questions: what it remembers must not change any answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from tests.verify.networks import PATCHINGS, claim_for, dense, residual
from torch import nn

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.differential import DifferentialBounds, Known
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.encoding.roles import by_role

CPU = torch.device("cpu")


@pytest.fixture(params=["small", "large"])
def as_size(request: pytest.FixtureRequest) -> Configuration:
    """Small networks as they are, and as if they were large: differences, float32, few units."""
    if request.param == "small":
        return DEFAULT
    return DEFAULT.changed(bounding={"small_units": 0, "single_from": 0})


@pytest.mark.parametrize("patching", PATCHINGS)
@pytest.mark.parametrize("tolerance", [0.003, 0.1])
@pytest.mark.parametrize("build", [dense, residual])
def test_a_greedy_chain_gets_the_answers_that_single_questions_get(
    as_size: Configuration, build: Callable[[int], pc.Graph], patching: str, tolerance: float
) -> None:
    graph = build(3)
    components = graph.components("auto")
    claim = claim_for(graph, patching, tolerance)
    chain = pc.Verifier(components, claim, configuration=as_size)
    circuit = components.full()
    order = list(components.names)
    random.Random(5).shuffle(order)
    verdicts = []
    for name in order:
        candidate = circuit.remove(name)
        verdict = chain.ask(candidate)
        fresh = pc.Verifier(components, claim, configuration=as_size).ask(candidate)
        assert {verdict.kind, fresh.kind} != {"proved", "refuted"}
        assert not verdict.undecided
        verdicts.append(verdict.kind)
        if verdict.proved:
            circuit = candidate
    if tolerance < 0.01 and patching != "reachable":
        assert "refuted" in verdicts


@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("patching", PATCHINGS)
def test_enclosures_by_difference_contain_what_the_smaller_circuit_computes(
    patching: str, point: bool
) -> None:
    graph = residual(7)
    components = graph.components("filter")
    verifier = pc.Verifier(components, claim_for(graph, patching, 100.0, point))
    dice = random.Random(2)
    checked = 0
    for trial in range(6):
        names = [n for n in components.names if dice.random() < 0.7]
        large = components.circuit(names)
        small = large.remove(*dice.sample(names, 2))
        query = verifier.encoder.encode(large)
        bounds = Bounds(Structure(query.graph, CPU), Region(query.ranges), 2)
        bounds.compute()
        smaller = verifier.encoder.encode(small)
        found = DifferentialBounds(verifier.encoder).enclosures(
            Known(large, query, by_role(bounds.ends, query.roles)), smaller
        )
        generator = torch.Generator().manual_seed(trial)
        for _ in range(20):
            feeds = {}
            for name, box in smaller.ranges.items():
                share = torch.rand(box.lower.shape, generator=generator, dtype=torch.float64)
                feeds[name] = box.lower + share.round() * (box.upper - box.lower)
            values = evaluate(smaller.graph, feeds, [n for n in found if n in smaller.graph])
            for name, value in values.items():
                lower, upper = found[name]
                assert bool((value >= lower - 1e-12).all())
                assert bool((value <= upper + 1e-12).all())
                checked += 1
    assert checked > 0


def test_an_output_that_the_claim_does_not_read_is_removed_without_work() -> None:
    graph = dense(0)
    components = graph.components("neuron")
    verifier = pc.Verifier(components, claim_for(graph, "zero", 5.0))
    assert verifier.ask(components.full()).proved
    verdict = verifier.ask(components.full().remove("4/0"))
    assert verdict.proved
    assert verdict.stage == "redundant"
    verdict = verifier.ask(components.full().remove("4/1"))
    assert verdict.stage != "redundant"


def test_a_neuron_that_never_opens_is_removed_without_work() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    net[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    net[0].bias.data = torch.tensor([0.0, 0.0, -1.0])
    graph = pc.Graph.from_torch(net, torch.zeros(1, 2))
    components = graph.components("neuron")
    claim = pc.Claim(
        [pc.Ball(torch.tensor([0.5, 0.5]), 0.1)], pc.Zero(), pc.LogitDifference(0.1, 0)
    )
    verifier = pc.Verifier(components, claim)
    assert verifier.ask(components.full()).proved
    assert verifier.ask(components.full().remove("0/2")).stage == "redundant"


def test_witnesses_are_tried_on_later_circuits() -> None:
    graph = dense(1)
    components = graph.components("neuron")
    verifier = pc.Verifier(components, claim_for(graph, "zero", 0.01))
    first = verifier.ask(components.empty())
    assert first.refuted
    second = verifier.ask(components.circuit(["0/0"]))
    assert second.refuted
    assert second.stage == "pool"


def test_the_same_seed_gives_the_same_answers() -> None:
    graph = dense(4)
    components = graph.components("neuron")
    claim = claim_for(graph, "reachable", 0.2)

    def answers() -> list[tuple[str, str]]:
        verifier = pc.Verifier(components, claim, seed=3)
        asked = [verifier.ask(components.full().remove(name)) for name in components.names]
        return [(verdict.kind, verdict.stage) for verdict in asked]

    assert answers() == answers()


def test_verify_refuses_a_circuit_of_another_network() -> None:
    circuit = dense(0).components("neuron").full()
    with pytest.raises(pc.ProvableCircuitsError, match="belongs to another network"):
        pc.verify(dense(1), circuit, claim_for(dense(1), "zero", 1.0), certify=False)


def test_sampling_metrics_cannot_be_proved() -> None:
    graph = dense(0)
    claim = pc.Claim([pc.Point(torch.zeros(5))], pc.Zero(), pc.MeanSquaredError(1.0))
    with pytest.raises(pc.ProvableCircuitsError, match="serves sampling alone"):
        pc.verify(graph, graph.components("neuron").full(), claim, certify=False)
