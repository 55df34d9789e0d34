"""Orders in which components are tried."""

from __future__ import annotations

import pytest
import torch
from tests.network.networks import constant_graph
from torch import nn

import provable_circuits as pc
from provable_circuits.claims.patching import FixedPatching
from provable_circuits.discover.algorithms.orders import attribution, ordered
from provable_circuits.network.ops import Linear


def graph() -> pc.Graph:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    return pc.Graph.from_torch(net, torch.zeros(1, 4))


X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def claim(patching: pc.Patching, metric: pc.Metric | None = None) -> pc.Claim:
    return pc.Claim([pc.Ball(x, 0.01) for x in X], patching, metric or pc.LogitDifference(1.0, 2))


@pytest.mark.parametrize(
    "patching", [pc.Zero(), pc.Constant(0.3), pc.Mean(torch.rand(9, 4))], ids=repr
)
def test_scores_are_effects_where_the_network_is_linear(patching: FixedPatching) -> None:
    """A removed unit of the last hidden layer moves outputs by exactly gradient times change."""
    components = graph().components()
    scores = attribution(components, claim(patching))
    reference = components.graph.run(X)
    large = 0
    for name in [n for n in components.names if n.startswith("0/")]:
        circuit = components.full().remove(name)
        moved = circuit.run(X, patching, torch.float64) - reference
        expected = float(moved[:, 2].abs().sum())
        large += expected > 1e-3
        assert float(scores[components.index_of(name)]) == pytest.approx(expected, abs=1e-9)
    assert large >= 2


@pytest.mark.parametrize("inputs", [1, 2])
def test_scores_do_not_depend_on_how_many_inputs_there_are(inputs: int) -> None:
    """A score is a sum over inputs; that of one input alone is not zero."""
    components = graph().components()
    domains = [pc.Ball(x, 0.01) for x in X[:inputs]]
    own = pc.Claim(domains, pc.Zero(), pc.LogitDifference(1.0, 2))
    scores = attribution(components, own)
    assert float(scores.sum()) > 0.1
    alone = [
        attribution(components, pc.Claim([domain], pc.Zero(), pc.LogitDifference(1.0, 2)))
        for domain in domains
    ]
    assert torch.allclose(scores, sum(alone, torch.zeros_like(scores)))
    for name in ("0/0", "0/4"):
        moved = components.full().remove(name).run(X[:inputs], pc.Zero(), torch.float64)
        effect = float((moved - components.graph.run(X[:inputs]))[:, 2].abs().sum())
        assert float(scores[components.index_of(name)]) == pytest.approx(effect, abs=1e-9)


def test_a_layer_of_constants_has_scores_too() -> None:
    """Its components move the output when they are patched, whatever the input is."""
    components = constant_graph().components("neuron")
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for count in (1, 2):
        own = pc.Claim([pc.Point(v) for v in x[:count]], pc.Zero(), pc.MaxAbs(1.0))
        scores = attribution(components, own)
        for name in components.names:
            moved = components.full().remove(name).run(x[:count], pc.Zero(), torch.float64)
            effect = float((moved - components.graph.run(x[:count])).abs().sum())
            assert effect > 0.01
            assert float(scores[components.index_of(name)]) == pytest.approx(effect, abs=1e-9)


def test_outputs_that_the_metric_does_not_look_at_score_nothing() -> None:
    components = graph().components()
    scores = attribution(components, claim(pc.Zero()))
    assert float(scores[components.index_of("2/0")]) == 0.0
    assert float(scores[components.index_of("2/2")]) > 0.0
    everywhere = attribution(components, claim(pc.Zero(), pc.MaxAbs(1.0)))
    assert float(everywhere[components.index_of("2/0")]) > 0.0
    winner = attribution(components, claim(pc.Zero(), pc.WinnerMargin()))
    assert int((winner[-3:] > 0).sum()) == 2


def test_patches_that_range_score_by_their_width() -> None:
    components = graph().components()
    narrow = attribution(components, claim(pc.IntervalHull(eps=0.01)))
    wide = attribution(components, claim(pc.Reachable(eps=0.1)))
    assert bool((wide >= narrow).all())
    assert float(wide.sum()) > 5 * float(narrow.sum())


@pytest.mark.parametrize("patching", [pc.IntervalHull(eps=1.0), pc.Reachable(eps=1.0)], ids=repr)
def test_half_the_width_of_a_patch_times_the_gradient(patching: pc.Patching) -> None:
    """By hand for the hidden layer: ranges of ReLUs of a box, and the weights behind them."""
    components = graph().components()
    hidden, output = components.graph["0"].op, components.graph["2"].op
    assert isinstance(hidden, Linear)
    assert isinstance(output, Linear)
    assert hidden.bias is not None
    first, bias, last = (part.double() for part in (hidden.weight, hidden.bias, output.weight))
    scores = attribution(components, claim(patching))
    wanted = torch.zeros(5, dtype=torch.float64)
    for x in X:
        middle, reach = first @ x + bias, first.abs().sum(1)
        width = (middle + reach).clamp_min(0) - (middle - reach).clamp_min(0)
        wanted += (last[2] * width / 2).abs()
    assert int((wanted > 1e-3).sum()) >= 3
    found = scores[[components.index_of(f"0/{i}") for i in range(5)]]
    assert torch.allclose(found, wanted, atol=1e-9)


def test_the_least_important_component_comes_first() -> None:
    components = graph().components()
    scores = attribution(components, claim(pc.Zero()))
    found = [
        components.index_of(c.name) for c in ordered(components, claim(pc.Zero()), "attribution")
    ]
    assert [float(scores[i]) for i in found] == sorted(scores.tolist())


def test_random_orders_follow_the_seed() -> None:
    components = graph().components()
    one = ordered(components, claim(pc.Zero()), "random", 1)
    assert one == ordered(components, claim(pc.Zero()), "random", 1)
    assert one != ordered(components, claim(pc.Zero()), "random", 2)
    assert set(one) == set(components)


@pytest.mark.parametrize("order", ["attribution", "random", "paper"])
def test_a_circuit_is_faithful_whatever_the_order(order: str) -> None:
    network = graph()
    result = pc.discover(network, claim(pc.Zero()), order=order, certify=False)
    assert result.faithful == "proved"
    assert result.settings["order"] == order
