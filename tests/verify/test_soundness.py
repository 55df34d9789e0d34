"""Attacks on rounding: networks on which plain floating-point bounds are wrong; fractions judge.

Along a segment of inputs the exact maximum is known (``tests/oracle/line.py``), so a tolerance can
be set one unit in the last place from it. Proved must mean that the exact maximum is at or below
the tolerance, Refuted that it is above. Nobody promises more than Undecided this close.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.clock import Clock
from tests.oracle.line import maximum
from tests.oracle.network import INPUT, Network, Writer, exact
from tests.oracle.random_networks import graph_of
from torch import nn

import provable_circuits as pc
from provable_circuits.verify.attacking.replay import Candidate
from provable_circuits.zoo.toy import counterexample_network

Floats = NDArray[np.float64]


def network(layers: list[tuple[Floats, Floats]], slope: float = 0.0) -> Network:
    """A network of float64 layers exactly as given, ReLUs between them."""
    writer, value = Writer((layers[0][0].shape[1],)), INPUT
    for i, (weight, bias) in enumerate(layers):
        layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        value = writer.layer(f"fc{i}", layer, value, keep_double=True)
        if i < len(layers) - 1:
            value = writer.relu(value, slope)
    return writer.net


def ask(net: Network, kept: list[str], claim: pc.Claim, max_nodes: int = 2000) -> pc.Verdict:
    """The verdict about the circuit that keeps the named components."""
    graph = graph_of(net)
    return pc.verify(
        graph, graph.components("neuron").circuit(kept), claim, max_nodes=max_nodes, certify=False
    )


def judge(verdict: pc.Verdict, largest: Fraction, tolerance: float) -> None:
    """The verdict must not contradict the exact maximum."""
    if verdict.proved:
        assert largest <= Fraction(tolerance), (
            f"proved, and exceeded by {float(largest) - tolerance}"
        )
    if isinstance(verdict, pc.Refuted):
        assert largest > Fraction(tolerance), f"refuted, and kept by {tolerance - float(largest)}"
        assert 0 < verdict.witness.excess <= largest - Fraction(tolerance)


def near(value: Fraction) -> list[float]:
    """Tolerances at, and ever further from, the exact maximum."""
    try:
        middle = float(value)
    except OverflowError:
        return [1e300]
    found = [middle, math.nextafter(middle, math.inf), math.nextafter(middle, 0.0)]
    found += [middle * (1 + s * 10.0**-k) for k in (3, 12, 14, 15) for s in (1, -1)]
    return [t for t in found if 0 <= t < math.inf]


SCALES = {
    "ordinary": [1.0],
    "alternating": [1e8, 1e-8],
    "large and small": [1e8, 1e-8, 1.0, 1e4, 1e-4],
    "cancelling": [1e16, 1.0, 1e16],
    "tiny": [1e-150, 1e-160, 1e-5],
    "subnormal": [1e-310, 5e-324, 1e-300],
    "huge": [1e150, 1e153, 1e100],
    "overflowing": [1e300, 1e200, 1.0],
    "mixed extremes": [1e-300, 1e300, 1e-160, 1e160],
}


def wild(dice: np.random.Generator, scales: list[float], sizes: list[int]) -> Network:
    """Layers whose entries jump between scales, and nearly cancel each other in the next layer."""
    layers = []
    for before, after in itertools.pairwise(sizes):
        weight = dice.normal(size=(after, before)) * dice.choice(scales, (after, before))
        if before > 1 and dice.random() < 0.6:  # opposite neighbours, off by a few last bits
            weight[:, 1] = -weight[:, 0] * (1 + dice.choice([0, 1e-15, -1e-15, 1e-12], after))
        bias = dice.normal(size=after) * dice.choice(scales, after) * dice.choice([0, 1, 1], after)
        layers.append((weight, bias))
    return network(layers, slope=float(dice.choice([0.0, 0.0, 0.1])))


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("seed", range(6))
def test_verdicts_next_to_the_exact_maximum(kind: str, seed: int) -> None:
    dice = np.random.default_rng([seed, *kind.encode()])
    scales = SCALES[kind]
    inputs = int(dice.integers(1, 4))
    sizes = [inputs, *(int(n) for n in dice.integers(2, 5, int(dice.integers(1, 3)))), 2]
    net = wild(dice, scales, sizes)
    kept = [name for name in net.names if dice.random() < 0.6]
    removed = net.removed(kept)
    middle = dice.normal(size=inputs) * dice.choice([1.0, 1e3, 1e-3])
    lower, upper = middle.copy(), middle.copy()
    upper[0] = lower[0] + abs(dice.normal()) * dice.choice([1.0, 1e-9, 1e6])
    number = float(dice.choice([0.0, 0.0, 0.7, 1e8, 1e-9]))
    patch = {cut.step: np.full(net.steps[cut.step].size, number) for cut in net.cuts}
    patching: pc.Patching = pc.Constant(number) if number else pc.Zero()
    eye = np.eye(2)
    largest = maximum(net, removed, patch, lower, upper, np.concatenate([eye, -eye]))
    for tolerance in near(largest):
        claim = pc.Claim(pc.Box(lower, upper), patching, pc.MaxAbs(tolerance))
        judge(ask(net, kept, claim, 500), largest, tolerance)


@pytest.mark.parametrize("p", [math.inf, 1, 2])
@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e150])
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_many_terms(p: float, scale: float, seed: int) -> None:
    """A linear network of many inputs: the largest output over a ball is a dual norm."""
    dice = np.random.default_rng(seed)
    count = 100
    weight = dice.normal(size=(1, count)) * dice.choice([1e8, 1e-8, 1.0], (1, count)) * scale
    net = network([(weight, np.zeros(1))])
    eps = float(dice.choice([0.1, 1e5, 1e-5])) / scale
    center = np.zeros(count)
    if seed % 2:  # large terms that nearly cancel at the centre
        center = dice.normal(size=count) * 1e3 * eps
        center[-1] = -float(weight[0, :-1] @ center[:-1]) / weight[0, -1]
    row = exact(weight)
    at_center = abs(sum(row * exact(center)))
    row = abs(row)
    if p == 2:
        squared = sum(v * v for v in row) * Fraction(eps) ** 2
        largest = at_center + Fraction(math.isqrt(int(squared * 2**2000))) / 2**1000  # from below
        tolerances = [float(largest) * (1 + s * 10.0**-k) for k in (3, 13) for s in (1, -1)]
    else:
        largest = at_center + (sum(row) if p == math.inf else max(row)) * Fraction(eps)
        tolerances = near(largest)
    for tolerance in tolerances:
        claim = pc.Claim(pc.Ball(center, eps, p), pc.Zero(), pc.LogitDifference(tolerance, 0))
        limit = 500 if p == 2 else 2000  # balls of the 2-norm may stay undecided: no use to wait
        judge(ask(net, [], claim, limit), largest, tolerance)


def test_products_that_underflow_are_not_forgotten() -> None:
    """1e-200 squared is nothing in float64, but times an input of 1e306 it is 1e-94."""
    tiny = np.array([[1e-200]])
    net = network([(tiny, np.zeros(1)), (tiny, np.zeros(1))])
    lower, upper = np.array([1e300]), np.array([1e306])
    patch = {1: np.zeros(1), 2: np.zeros(1)}
    for kept in (["fc0/0"], ["fc1/0"]):
        rows = np.array([[1.0], [-1.0]])
        largest = maximum(net, net.removed(kept), patch, lower, upper, rows)
        assert float(largest) == pytest.approx(1e-94)
        for tolerance in (1e-97, 1e-95, 1e-93):
            claim = pc.Claim(pc.Box(lower, upper), pc.Zero(), pc.LogitDifference(tolerance, 0))
            judge(ask(net, kept, claim), largest, tolerance)


@pytest.mark.parametrize("scale", [1e-30, 1e-42, 1.0, 1e30])
@pytest.mark.parametrize("seed", range(2))
def test_wide_networks_that_are_bounded_in_single_precision(scale: float, seed: int) -> None:
    """Wide tensors take another arithmetic; weights there leave the range of float32, or cancel."""
    dice = np.random.default_rng(seed)
    width = 1100
    first = dice.normal(size=(3, width)) * scale
    second = np.array([[1.0, -1.0, 1e-3], [1e4, -1e4 * (1 + 1e-6), 1.0]]) * scale
    first[1] = first[0] * (1 + 1e-7)
    last = np.array([[1.0, -1.0], [2.0, 1.0]])
    net = network([(first, np.zeros(3)), (second, np.zeros(2)), (last, np.zeros(2))])
    size = min(1 / scale**2, 1e60)
    lower = dice.normal(size=width) * size
    upper = lower.copy()
    upper[0] += abs(dice.normal()) * size * 30
    kept = [name for name in net.names if name != f"fc1/{seed}"]
    patch = {c.step: np.zeros(net.steps[c.step].size) for c in net.cuts}
    eye = np.eye(2)
    rows = np.concatenate([eye, -eye])
    largest = maximum(net, net.removed(kept), patch, lower, upper, rows)
    for tolerance in [float(largest) * share for share in (0.5, 1 - 1e-6, 1 + 1e-6, 2.0)]:
        claim = pc.Claim(pc.Box(lower, upper), pc.Zero(), pc.MaxAbs(tolerance))
        judge(ask(net, kept, claim), largest, tolerance)


def test_overflow_is_never_proved() -> None:
    huge = np.array([[1e308, 1e308]])
    net = network([(huge.T, np.zeros(2)), (huge, np.zeros(1))])
    for metric in (
        pc.LogitDifference(1e308, 0),
        pc.MaxAbs(1e308),
        pc.Norm(1e308, 1),
        pc.Norm(1e308),
    ):
        for patching in (pc.Zero(), pc.Reachable(eps=1.0), pc.IntervalHull(eps=1.0)):
            claim = pc.Claim(pc.Ball([2.0], 1.0), patching, metric)
            assert not ask(net, ["fc0/0"], claim).proved


def test_a_network_equal_to_its_circuit_up_to_cancellation() -> None:
    """1e16 + 1 - 1e16: what a naive sum calls zero is one."""
    weight = np.array([[1e16], [1.0], [1e16]])
    net = network([(weight, np.zeros(3)), (np.array([[1.0, 1.0, -1.0]]), np.zeros(1))])
    box = pc.Box([1.0], [1.0 + 2.0**-40])
    for kept, wrong in ((["fc1/0", "fc0/0", "fc0/2"], 1.0), (["fc1/0", "fc0/1"], 0.0)):
        largest = maximum(
            net,
            net.removed(kept),
            {1: np.zeros(3), 2: np.zeros(1)},
            np.array([1.0]),
            np.array([1.0 + 2.0**-40]),
            np.array([[1.0], [-1.0]]),
        )
        assert float(largest) == pytest.approx(wrong, abs=1e-9)
        for tolerance in (0.25, 0.5, 0.999, 1.001, 4.0):
            claim = pc.Claim(box, pc.Zero(), pc.MaxAbs(tolerance))
            judge(ask(net, kept, claim), largest, tolerance)


@pytest.mark.parametrize("metric", ["logit", "winner", "all", "max", "norm1", "norm2"])
@pytest.mark.parametrize("kind", ["zero", "reachable", "hull"])
def test_replay_believes_what_plain_evaluation_shows(metric: str, kind: str) -> None:
    """A candidate is a witness just where the metric's own excess is positive, beyond rounding."""
    dice = np.random.default_rng(5)
    net = network(
        [(dice.normal(size=(5, 3)), dice.normal(size=5)), (dice.normal(size=(3, 5)), np.zeros(3))]
    )
    graph = graph_of(net)
    components = graph.components("neuron")
    judged: pc.Metric = {
        "logit": pc.LogitDifference(0.6, 1),
        "winner": pc.WinnerMargin(0.5),
        "all": pc.WinnerMargin(0.0, "all"),
        "max": pc.MaxAbs(0.9),
        "norm1": pc.Norm(1.5, 1),
        "norm2": pc.Norm(1.0),
    }[metric]
    patching: pc.Patching = {
        "zero": pc.Zero(),
        "reachable": pc.Reachable(eps=0.5),
        "hull": pc.IntervalHull(eps=0.5),
    }[kind]
    centers = torch.from_numpy(dice.normal(size=(2, 3)))
    claim = pc.Claim([pc.Ball(x, 0.7) for x in centers], patching, judged)
    verifier = pc.Verifier(components, claim)
    seen = set()
    for trial in range(60):
        circuit = components.circuit([n for n in components.names if dice.random() < 0.7])
        j = trial % 2
        z = centers[j] + torch.from_numpy(dice.uniform(-0.7, 0.7, 3))
        source = centers[j] + torch.from_numpy(dice.uniform(-0.5, 0.5, 3))
        values = graph.activations(source.unsqueeze(0)) if kind != "zero" else {}
        patch_values = (
            {site.tensor: values[site.tensor][0] for site in components.sites} if values else {}
        )
        found = verifier.replay.witness(Candidate(circuit, j, z, source, patch_values))
        given = {name: v.unsqueeze(0) for name, v in patch_values.items()} or None
        output = circuit.run(z.unsqueeze(0), given)
        anchor, reference = graph.run(centers[j : j + 1]), graph.run(z.unsqueeze(0))
        excess = float(judged.excess(anchor, reference, output))
        if abs(excess) > 1e-9:  # outputs that are patched alike tie exactly
            assert (found is not None) == (excess > 0)
            seen.add(excess > 0)
    assert seen == {True, False}


@pytest.mark.parametrize(("p", "norm"), [(1, 7.0), (2, 5.0), (math.inf, 4.0)])
@pytest.mark.parametrize("scale", [1.0, 2.0**-30, 2.0**40, 3.0])
def test_a_norm_that_is_exactly_the_tolerance_is_not_exceeded(
    p: float, norm: float, scale: float
) -> None:
    """3, 4, 5: the circuit without the hidden unit is off by (3, 4) everywhere."""
    net = network(
        [(np.zeros((1, 1)), np.ones(1)), (np.array([[3.0], [-4.0]]) * scale, np.zeros(2))]
    )
    box = pc.Box([0.0], [1.0])
    for tolerance, never in [
        (norm * scale, "refuted"),
        (math.nextafter(norm * scale, math.inf), "refuted"),
        (math.nextafter(norm * scale, 0.0), "proved"),
    ]:
        claim = pc.Claim(box, pc.Zero(), pc.Norm(tolerance, p))
        assert ask(net, ["fc1/0", "fc1/1"], claim).kind != never
    for share, wanted in [(1 - 1e-9, "refuted"), (1 + 1e-9, "proved")]:
        claim = pc.Claim(box, pc.Zero(), pc.Norm(norm * scale * share, p))
        assert ask(net, ["fc1/0", "fc1/1"], claim).kind == wanted


def test_equality_is_not_refuted_where_it_holds() -> None:
    """Tolerance zero, on networks whose circuits equal them or differ by whole numbers."""
    toy = counterexample_network(2)
    box = pc.Box([0.0], [1.0])
    names = list(toy.components.names)
    for gone, equal in [([], True), (["p/0", "q/0"], True), (["p/0"], False), (["v3/0"], False)]:
        circuit = toy.components.circuit([name for name in names if name not in gone])
        verdict = pc.verify(
            toy.graph, circuit, pc.Claim(box, pc.Zero(), pc.MaxAbs(0.0)), certify=False
        )
        assert verdict.kind != ("refuted" if equal else "proved")


@pytest.mark.parametrize("seed", range(4))
def test_interval_hull_patching_is_monotone(seed: int) -> None:
    """What holds of a circuit holds of every larger one: the boxes are part of the claim."""
    dice = np.random.default_rng(seed)
    sizes = [3, 5, 4, 2]
    layers = [
        (dice.normal(size=(after, before)), dice.normal(size=after) * 0.3)
        for before, after in pairwise(sizes)
    ]
    graph = graph_of(network(layers))
    components = graph.components("neuron")
    center = dice.normal(size=3)
    for tolerance in (0.3, 1.0, 3.0):
        claim = pc.Claim(
            pc.Ball(center, 0.1), pc.IntervalHull(eps=0.15), pc.LogitDifference(tolerance, 0)
        )
        verifier = pc.Verifier(components, claim)
        for _ in range(6):
            order = dice.permutation(components.names).tolist()
            kinds = [
                verifier.ask(components.circuit(order[:count])).kind
                for count in (*range(0, len(order), 2), len(order))
            ]
            first = kinds.index("proved")
            assert "refuted" not in kinds[first:]
            assert kinds[-1] == "proved"


# --- what else a verdict promises ---------------------------------------------------------------


def hard_question() -> tuple[pc.Graph, pc.Circuit, pc.Claim]:
    """A question that takes long: many units, a wide ball, a tolerance near the truth."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for before, after in [(16, 40), (40, 40), (40, 40), (40, 3)]:
        layers += [nn.Linear(before, after), nn.ReLU()]
    graph = pc.Graph.from_torch(nn.Sequential(*layers[:-1]), torch.zeros(1, 16))
    components = graph.components("neuron")
    circuit = components.circuit(components.names[3:])
    claim = pc.Claim(pc.Ball(torch.zeros(16), 1.0), pc.Reachable(eps=1.0), pc.MaxAbs(0.35))
    return graph, circuit, claim


def test_a_verdict_is_no_boolean() -> None:
    graph, circuit, claim = hard_question()
    verdict = pc.verify(graph, circuit.components.full(), claim, certify=False)
    assert verdict.proved
    with pytest.raises(TypeError, match="not a boolean"):
        bool(verdict)
    with pytest.raises(TypeError, match="not a boolean"):
        assert not verdict


@pytest.mark.parametrize("limit", [1.5, 50.5, 300.5])
def test_the_time_limit_is_honoured(limit: float, clock: Clock) -> None:
    """Looking at the clock takes a second: few looks follow the one that finds the time over."""
    graph, circuit, claim = hard_question()
    clock.step = 1.0
    began = clock.now
    verdict = pc.verify(graph, circuit, claim, limit, certify=False)
    assert isinstance(verdict, pc.Undecided)
    assert verdict.reason == "time"
    assert limit < clock.now - began <= limit + 6


def test_the_same_seed_gives_the_same_verdict() -> None:
    dice = np.random.default_rng(3)
    net = network(
        [(dice.normal(size=(6, 4)), dice.normal(size=6)), (dice.normal(size=(2, 6)), np.zeros(2))]
    )
    kept = net.names[2:]
    for tolerance in (0.05, 1.5, 4.0, 30.0):
        claim = pc.Claim(pc.Ball(np.zeros(4), 0.5), pc.Reachable(eps=0.5), pc.MaxAbs(tolerance))
        first, second = (ask(net, kept, claim) for _ in range(2))
        assert (first.kind, first.stage) == (second.kind, second.stage)
        if isinstance(first, pc.Refuted) and isinstance(second, pc.Refuted):
            assert torch.equal(first.witness.z, second.witness.z)
            assert first.witness.excess == second.witness.excess


def test_nan_and_infinite_weights_are_refused() -> None:
    for value in (math.nan, math.inf):
        layer = nn.Linear(1, 1)
        with torch.no_grad():
            layer.weight.fill_(value)
        with pytest.raises(pc.ProvableCircuitsError, match="NaN or infinite"):
            pc.Graph.from_torch(nn.Sequential(layer), torch.zeros(1, 1))
