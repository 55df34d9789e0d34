"""What is known of a predicate by its patching."""

from __future__ import annotations

import pytest
import torch

import provable_circuits as pc
from provable_circuits.discover.predicates.monotonicity import monotonicity

CENTERS = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))


def claim(patching: pc.Patching, eps: float = 0.1, p: float = float("inf")) -> pc.Claim:
    balls = [pc.Ball(x, eps, p, clip=(0, 1)) for x in CENTERS]
    return pc.Claim(balls, patching, pc.MaxAbs(1.0))


@pytest.mark.parametrize("eps", [0.1, 0.2])
@pytest.mark.parametrize("p", [1, 2, float("inf")])
def test_interval_hulls_around_the_inputs_are_monotone(eps: float, p: float) -> None:
    known = monotonicity(claim(pc.IntervalHull(eps=eps), p=p))
    assert known.known
    assert known.usable
    assert "by construction" in known.reason


def test_inputs_outside_the_hull_are_refused_with_the_reason() -> None:
    domains = [pc.Ball(CENTERS[0], 0.2), pc.Ball(CENTERS[1], 0.05)]
    known = monotonicity(claim(pc.IntervalHull(domains=domains)))
    assert not known.usable
    assert "the domain of input 1 reaches outside" in known.reason
    assert "make the patching domain at least as large" in known.reason


def test_a_hull_that_is_too_small_gives_no_bound() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    small = pc.Claim(
        [pc.Ball(x, 0.1) for x in CENTERS], pc.IntervalHull(eps=0.05), pc.LogitDifference(0.05)
    )
    result = pc.discover(graph, small, algorithm="hitting-set", certify=False)
    assert result.lower is None
    assert result.minimality.notion != "cardinal" or len(result.circuit) <= 1
    assert "reaches outside" in result.monotone


def test_reachable_patches_rest_on_an_assumption() -> None:
    known = monotonicity(claim(pc.Reachable(eps=0.2)))
    assert (known.known, known.assumed, known.usable) == (False, True, True)
    assert known.reason.startswith("assumed")


@pytest.mark.parametrize("patching", [pc.Zero(), pc.Constant(1.0), pc.Mean(CENTERS)], ids=repr)
def test_fixed_patches_are_not_monotone_unless_one_assumes_it(patching: pc.Patching) -> None:
    assert not monotonicity(claim(patching)).usable
    assumed = monotonicity(claim(patching), assume=True)
    assert (assumed.known, assumed.assumed) == (False, True)
