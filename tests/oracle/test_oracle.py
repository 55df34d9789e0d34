"""The oracle is judged first: its parts against each other, and against points tried at random."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.oracle.cases import Case, draw
from tests.oracle.milp import Question, solve
from tests.oracle.network import exact
from tests.oracle.random_networks import graph_of
from tests.oracle.regions import Region

import provable_circuits as pc


@pytest.mark.parametrize("seed", range(40))
def test_steps_compute_what_the_torch_module_computes(seed: int) -> None:
    net = draw(seed).net
    dice = np.random.default_rng(seed)
    points = dice.normal(size=(4, net.inputs))
    module = net.module.eval().double()
    with torch.no_grad():
        wanted = module(torch.from_numpy(points.reshape(4, *net.shape)))
    module.float()
    got = [net.run(x)[-1] for x in points]
    np.testing.assert_allclose(got, wanted.flatten(1).numpy(), rtol=1e-12, atol=1e-12)
    exactly = np.array([[float(v) for v in net.run(exact(x))[-1]] for x in points[:1]])
    np.testing.assert_allclose(exactly, wanted.flatten(1).numpy()[:1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 8, 16, 24, 32, 40, 48, 56])
def test_graphs_written_by_hand_are_those_read_from_torch(seed: int) -> None:
    case = draw(seed)
    written, read = graph_of(case.net), case.graph
    for graph in (written, read):
        assert graph.components(case.granularity).names == tuple(case.net.names)
    x = torch.rand(3, *case.net.shape, dtype=torch.float64)
    kept = written.components(case.granularity).circuit(case.kept), case.circuit
    assert torch.equal(written.run(x), read.run(x))
    assert torch.equal(kept[0].run(x), kept[1].run(x))


def _points(case: Case, j: int, count: int) -> list[float]:
    """The metric at random points of the case."""
    dice = np.random.default_rng(case.seed)
    given = case.patches[j]
    inputs = case.regions[j].sample(count, dice)
    found = []
    for z in inputs:
        source = next(iter(given.sample(1, dice))) if isinstance(given, Region) else None
        patch = {}
        if not isinstance(given, Region):
            for step, value in given.items():
                if isinstance(value, tuple):
                    share = np.round(dice.random(len(value[0])))
                    patch[step] = value[0] + share * (value[1] - value[0])
        found.append(float(case.value(j, z, source, patch)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_point_exceeds_the_optimum(seed: int) -> None:
    case = draw(seed)
    truth = case.truth()
    assert truth is not None, f"{case}: no exact optimum"
    for j, optimum in enumerate(truth.optima):
        assert max(_points(case, j, 40)) <= optimum.bound + 1e-6 * (1 + abs(optimum.bound))


def test_a_tent_is_maximal_at_its_top() -> None:
    """relu(x) - 2 relu(x - 1) on [0, 4] against the same without the second ReLU."""
    case = draw(0)
    net = type(case.net)((1,))
    from tests.oracle.network import Cut, Step

    one = np.array([[1.0], [1.0]])
    net.steps = [
        Step("affine", (-1,), 2, one, np.array([0.0, -1.0])),
        Step("relu", (0,), 2),
        Step("affine", (1,), 1, np.array([[1.0, -2.0]]), np.array([0.0])),
    ]
    net.cuts = [Cut("fc", 1, np.array([0, 1]))]
    region = Region(np.array([2.0]), np.array([0.0]), np.array([4.0]))
    removed = net.removed(["fc/0"])
    patch = {1: np.zeros(2)}
    rows = ("rows", np.array([[1.0], [-1.0]]))
    found = solve(Question(net, removed, region, patch, rows))
    assert found is not None
    assert found.attained == pytest.approx(6.0)
    assert found.z == pytest.approx([4.0])
    ball = Region(np.array([2.0]), np.array([-9.0]), np.array([9.0]), p=1, eps=0.5)
    found = solve(Question(net, removed, ball, patch, rows))
    assert found is not None
    assert found.attained == pytest.approx(3.0)


def test_regions_are_exact_at_their_edges() -> None:
    center = np.array([0.1, 0.2])
    ball = Region(center, np.full(2, -9.0), np.full(2, 9.0), p=1, eps=0.3)
    assert ball.contains(center)
    assert not ball.contains(center + np.array([0.2, math.nextafter(0.2, 1)]))
    disc = Region(center, np.full(2, -9.0), np.full(2, 9.0), p=2, eps=0.5)
    assert disc.contains(center + np.array([0.29, 0.39]))
    assert not disc.contains(center + np.array([0.31, 0.41]))
    assert isinstance(draw(3).claim(0.5), pc.Claim)
