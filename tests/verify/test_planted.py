"""Planted counterexamples: violations in a tiny region that gradients do not lead to.

Each network is built so that removing one component changes its output only inside a needle, a
corner or one tooth of many, and is flat or slopes away everywhere else. The largest change is
known exactly. A tolerance below it must never be Proved, one above it never Refuted; and since the
networks are piecewise linear and small, the verifier is held to Refuted and Proved.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.oracle.line import maximum
from tests.oracle.network import INPUT, Network, Writer, exact
from tests.oracle.random_networks import graph_of
from torch import nn

import provable_circuits as pc

Floats = NDArray[np.float64]
TIMEOUT = 40.0


def network(layers: list[tuple[Floats, Floats]]) -> Network:
    """Linear layers exactly as given, in float64, ReLUs between them."""
    writer, value = Writer((layers[0][0].shape[1],)), INPUT
    for i, (weight, bias) in enumerate(layers):
        layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        value = writer.layer(f"fc{i}", layer, value, keep_double=True)
        if i < len(layers) - 1:
            value = writer.relu(value)
    return writer.net


def verdict_of(net: Network, kept: list[str], claim: pc.Claim) -> pc.Verdict:
    graph = graph_of(net)
    return pc.verify(graph, graph.components("neuron").circuit(kept), claim, TIMEOUT, certify=False)


def hold(verdict: pc.Verdict, wanted: str) -> None:
    """Never the opposite; and decided."""
    assert {"proved": not verdict.refuted, "refuted": not verdict.proved}[wanted]
    assert verdict.kind == wanted, f"{verdict} and not {wanted}"


def needle(center: Floats, steepness: float, height: float, slope: Floats) -> Network:
    """Two outputs: height * relu(1 - steepness * |x - center|_1) + slope . x, and slope . x.

    The needle is one hidden unit, ``fc1/0``; the others carry the slope past it.
    """
    count = len(center)
    eye = np.eye(count)
    sides = np.concatenate([eye, -eye])
    offsets = np.concatenate([-center, center])
    middle = np.zeros((1 + 2 * count, 2 * count))
    middle[0] = -steepness
    middle[1:] = np.eye(2 * count)
    bias = np.zeros(1 + 2 * count)
    bias[0] = 1.0
    carried = np.concatenate([slope, -slope])
    last = np.stack([np.concatenate([[height], carried]), np.concatenate([[0.0], carried])])
    return network([(sides, offsets), (middle, bias), (last, np.zeros(2))])


def claims(
    net: Network, box: pc.Domain, center: Floats, height: float
) -> list[tuple[pc.Claim, str]]:
    """Claims about the circuit without the needle, on both sides of what it adds."""
    away = pc.Point(center + 0.25)  # the patch alone may come from where the needle is
    made: list[tuple[pc.Claim, str]] = []
    for share, wanted in [(0.999, "refuted"), (1.001, "proved")]:
        tolerance = height * share
        made.append((pc.Claim(box, pc.Zero(), pc.LogitDifference(tolerance, 0)), wanted))
        made.append((pc.Claim(box, pc.Zero(), pc.Norm(tolerance, 1)), wanted))
        source = pc.Reachable(domains=box)
        made.append((pc.Claim(away, source, pc.MaxAbs(tolerance)), wanted))
    return made


@pytest.mark.parametrize(
    ("count", "steepness"), [(1, 10.0), (1, 1e5), (2, 10.0), (2, 1e3), (2, 1e5), (3, 1e3)]
)
def test_a_needle_in_a_box(count: int, steepness: float) -> None:
    dice = np.random.default_rng([count, int(steepness)])
    center = np.round(dice.random(count), 6)
    height = float(dice.choice([0.01, 1.0, 30.0]))
    net = needle(center, steepness, height, slope=dice.normal(size=count) * 0.1)
    kept = [name for name in net.names if name != "fc1/0"]
    at_top = net.run(exact(center))[-1]
    assert at_top[0] - at_top[1] == Fraction(height)
    box = pc.Box(np.full(count, -1.0), np.full(count, 2.0))
    for claim, wanted in claims(net, box, center, height):
        hold(verdict_of(net, kept, claim), wanted)


@pytest.mark.parametrize("steepness", [1e8, 1e12])
def test_a_needle_thinner_than_a_solver_can_aim(steepness: float) -> None:
    center = np.array([0.3, 0.7])
    net = needle(center, steepness, 1.0, slope=np.array([0.1, -0.1]))
    kept = [name for name in net.names if name != "fc1/0"]
    for claim, wanted in claims(net, pc.Box(np.full(2, -1.0), np.full(2, 2.0)), center, 1.0):
        verdict = verdict_of(net, kept, claim)
        assert {"proved": not verdict.refuted, "refuted": not verdict.proved}[wanted]


@pytest.mark.parametrize("margin", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_a_corner_that_everything_slopes_away_from(seed: int, margin: float) -> None:
    """relu(s . x - (|s|_1 - margin)) / margin is 1 at one corner of [-1, 1]^n, else mostly 0."""
    dice = np.random.default_rng(seed)
    count = int(dice.integers(2, 6))
    signs = dice.choice([-1.0, 1.0], count)
    first = np.concatenate([signs[None], -signs[None], np.eye(count)])
    bias = np.concatenate([[margin - count], [0.0], np.zeros(count)])
    last = np.zeros((2, count + 2))
    last[:, 1:] = dice.normal(size=(1, count + 1)) * 0.1
    last[0, 0] = 1 / margin
    net = network([(first, bias), (last, np.zeros(2))])
    corner = net.run(exact(signs))[-1]
    height = corner[0] - corner[1]
    assert abs(height - 1) < 1e-9
    kept = [name for name in net.names if name != "fc0/0"]
    cube = pc.Ball(np.zeros(count), 1.0)
    for tolerance, wanted in [(0.999, "refuted"), (1 - 1e-5, "refuted"), (1.001, "proved")]:
        for metric in (
            pc.LogitDifference(tolerance, 0),
            pc.Norm(tolerance, 1),
            pc.MaxAbs(tolerance),
        ):
            hold(verdict_of(net, kept, pc.Claim(cube, pc.Zero(), metric)), wanted)


def sawtooth(depth: int, lean: float, threshold: float, height: float) -> Network:
    """relu(tooth(x) + lean x - threshold) * height, for a tooth of 2^(depth - 1) peaks of height 1.

    Each layer folds the last one, t -> 1 - |1 - 2 t|, written as 2 relu(t) - 4 relu(t - 1/2); x is
    carried along. Of all peaks only the last reaches the threshold.
    """
    layers = [(np.array([[1.0], [1.0], [1.0]]), np.array([0.0, -0.5, 0.0]))]
    fold = np.array([[2.0, -4.0, 0.0], [2.0, -4.0, 0.0], [0.0, 0.0, 1.0]])
    layers += [(fold, np.array([0.0, -0.5, 0.0]))] * (depth - 1)
    layers.append((np.array([[2.0, -4.0, lean], [2.0, -4.0, 0.0]]), np.array([-threshold, 0.0])))
    layers.append((np.array([[height, 1.0], [0.0, 1.0]]), np.zeros(2)))
    return network(layers)


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_one_tooth_of_many(depth: int) -> None:
    lean = 0.01
    last_peak = 1 - 2.0**-depth
    before = 1 - 3 * 2.0**-depth
    threshold = 1 + lean * (0.25 * before + 0.75 * last_peak)
    net = sawtooth(depth, lean, threshold, height=100.0)
    dent = f"fc{depth}/0"
    kept = [name for name in net.names if name != dent]
    patch = {c.step: np.zeros(net.steps[c.step].size) for c in net.cuts}
    lower, upper = np.zeros(1), np.ones(1)
    rows = np.array([[1.0, 0.0], [-1.0, 0.0]])
    largest = float(maximum(net, net.removed(kept), patch, lower, upper, rows))
    assert largest > 0
    for share, wanted in [(0.999, "refuted"), (0.5, "refuted"), (1.001, "proved")]:
        metric = pc.LogitDifference(largest * share, 0)
        hold(verdict_of(net, kept, pc.Claim(pc.Box(lower, upper), pc.Zero(), metric)), wanted)


@pytest.mark.parametrize("seed", range(6))
def test_random_tolerances_around_the_exact_maximum(seed: int) -> None:
    """Random narrow networks of one input, at random distances from their exact maximum."""
    dice = np.random.default_rng(seed)
    sizes = [1, *(int(n) for n in dice.integers(3, 6, 3)), 2]
    layers = [
        (dice.normal(size=(after, before)) * 1.5, dice.normal(size=after))
        for before, after in itertools.pairwise(sizes)
    ]
    net = network(layers)
    kept = [name for name in net.names if dice.random() < 0.7]
    patch = {c.step: np.zeros(net.steps[c.step].size) for c in net.cuts}
    lower, upper = np.array([-2.0]), np.array([2.0])
    eye = np.eye(2)
    rows = np.concatenate([eye, -eye])
    largest = float(maximum(net, net.removed(kept), patch, lower, upper, rows))
    if largest == 0:
        pytest.skip("nothing changes")
    for _ in range(3):
        distance = 10.0 ** dice.uniform(-7, -0.5)
        for sign, wanted in ((1, "proved"), (-1, "refuted")):
            metric = pc.MaxAbs(largest * (1 + sign * distance))
            hold(verdict_of(net, kept, pc.Claim(pc.Box(lower, upper), pc.Zero(), metric)), wanted)
