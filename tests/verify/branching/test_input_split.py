"""Where ReLU splits cannot help: curved activations, the 2-norm, 2-balls; few inputs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.claims import decide_exactly

CURVED = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def network(activation: type[nn.Module], seed: int = 0) -> pc.Graph:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(3, 5), activation(), nn.Linear(5, 4), activation(), nn.Linear(4, 2)
    )
    for parameter in net.parameters():
        parameter.data *= 2
    return pc.Graph.from_torch(net, torch.zeros(1, 3))


def largest(graph: pc.Graph, circuit: pc.Circuit, claim: pc.Claim, count: int = 20_000) -> float:
    """The largest excess over a tolerance of zero at sampled points: at most the true one."""
    generator = torch.Generator().manual_seed(3)
    found = -math.inf
    for domain in claim.inputs:
        z = domain.sample(count, generator).double()
        anchor = graph.run(domain.center.double()[None])
        found = max(found, float(claim.metric.excess(anchor, graph.run(z), circuit.run(z)).max()))
    return found


@pytest.mark.parametrize("p", [math.inf, 2])
@pytest.mark.parametrize(
    ("activation", "metric"),
    [("tanh", "max"), ("sigmoid", "max"), ("tanh", "2-norm"), ("relu", "2-norm"), ("relu", "max")],
)
def test_few_inputs_are_decided_on_both_sides_of_the_threshold(
    activation: str, metric: str, p: float
) -> None:
    graph = network(CURVED.get(activation, nn.ReLU))
    components = graph.components()
    circuit = components.full().remove(components.names[1]).remove(components.names[6])
    x = torch.rand(3, generator=torch.Generator().manual_seed(1))

    def claim(tolerance: float) -> pc.Claim:
        judged = pc.MaxAbs(tolerance) if metric == "max" else pc.Norm(tolerance, p=2)
        return pc.Claim([pc.Ball(x, 0.4, p)], pc.Zero(), judged)

    most = largest(graph, circuit, claim(0.0))
    below = pc.verify(graph, circuit, claim(most * 0.98), certify=False)
    assert below.refuted
    above = pc.verify(graph, circuit, claim(most * 1.1), certify=False)
    assert above.proved, above


def test_a_2_norm_is_exceeded_in_its_own_units() -> None:
    graph = network(nn.ReLU)
    components = graph.components()
    x = torch.rand(3, generator=torch.Generator().manual_seed(1))
    circuit = components.empty()
    claim = pc.Claim([pc.Ball(x, 0.4)], pc.Zero(), pc.Norm(0.01, p=2))
    verdict = pc.verify(graph, circuit, claim, certify=False)
    assert isinstance(verdict, pc.Refuted)
    witness = verdict.witness
    norm = float((witness.reference - witness.output).norm())
    assert witness.excess == pytest.approx(norm - 0.01, rel=1e-6)
    assert witness.excess <= norm - 0.01


def test_at_a_point_too() -> None:
    """Points are decided in exact arithmetic where enclosures leave them open."""
    graph = network(nn.ReLU)
    components = graph.components()
    circuit = components.empty()
    claim = pc.Claim(pc.Point([0.1, 0.2, 0.3]), pc.Zero(), pc.Norm(0.01, p=2))
    verdict = decide_exactly(components, claim, circuit, Deadline())
    assert isinstance(verdict, pc.Refuted)
    witness = verdict.witness
    norm = float((witness.reference - witness.output).norm())
    assert witness.excess == pytest.approx(norm - 0.01, rel=1e-9)


def test_many_inputs_say_that_bounds_are_not_tight() -> None:
    torch.manual_seed(0)
    first, second, last = nn.Linear(30, 8), nn.Linear(8, 8), nn.Linear(8, 3)
    net = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)
    for parameter in net.parameters():
        parameter.data *= 3
    graph = pc.Graph.from_torch(net, torch.zeros(1, 30))
    components = graph.components()
    circuit = components.full().remove(components.names[0])
    x = torch.rand(30, generator=torch.Generator().manual_seed(1))
    reasons = set()
    for tolerance in torch.linspace(0.2, 6, 30).tolist():
        claim = pc.Claim([pc.Ball(x, 0.3)], pc.Zero(), pc.MaxAbs(tolerance))
        verdict = pc.verify(graph, circuit, claim, max_nodes=2000, certify=False)
        if isinstance(verdict, pc.Undecided):
            reasons.add(verdict.reason)
            assert verdict.bound > 0
    assert reasons == {"the bounds of what is curved are not tight enough"}
