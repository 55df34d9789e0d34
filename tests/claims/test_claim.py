"""The claim, but for the circuit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Point
from provable_circuits.claims.metrics import LogitDifference, MaxAbs
from provable_circuits.claims.patching import Zero
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Conv2d, Linear


def network() -> Graph:
    builder = GraphBuilder()
    return builder.build([builder.add("fc", Linear(torch.ones(2, 3)), builder.input("x", (3,)))])


def test_one_domain_or_several() -> None:
    ball = Ball([0.0, 0.5, 1.0], 0.1)
    one = Claim(ball, Zero(), MaxAbs(1.0))
    assert one.inputs == (ball,)
    several = Claim((domain for domain in [ball, Point([1, 2, 3])]), Zero(), MaxAbs(1.0))
    assert len(several.inputs) == 2
    assert several.centers.tolist() == [[0.0, 0.5, 1.0], [1.0, 2.0, 3.0]]
    assert several.centers.dtype == torch.float64
    several.check(network())


def test_claims_cannot_be_changed() -> None:
    claim = Claim(Point([0.0]), Zero(), MaxAbs(1.0))
    with pytest.raises(AttributeError):
        claim.metric = MaxAbs(2.0)  # type: ignore[misc]


def test_claims_are_equal_when_their_parts_are() -> None:
    ball = Ball([0.0], 0.1)
    assert Claim(ball, Zero(), MaxAbs(1.0)) == Claim([ball], Zero(), MaxAbs(1.0))
    assert Claim(ball, Zero(), MaxAbs(1.0)) != Claim([ball], Zero(), MaxAbs(2.0))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], Zero(), MaxAbs(1.0)), "'inputs' parameter of Claim must hold at least one domain"),
        ((3, Zero(), MaxAbs(1.0)), "must be a Domain such as Ball or Box, or several. Got 3"),
        (
            (torch.zeros(2, 3), Zero(), MaxAbs(1.0)),
            "Item 0 of the 'inputs' parameter of Claim must be a Domain .* Got Tensor",
        ),
        (
            (Point([0.0]), "zero", MaxAbs(1.0)),
            r"'patching' parameter of Claim must be a Patching such as Zero\(\). Got 'zero'",
        ),
        (
            (Point([0.0]), Zero, MaxAbs(1.0)),
            r"Got the class Zero instead: make one of it, as in Zero\(...\)",
        ),
        (
            (Point([0.0]), Zero(), 2.0),
            "'metric' parameter of Claim must be a Metric such as .* Got 2.0",
        ),
    ],
)
def test_wrong_parts(arguments: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Claim(*arguments)


def test_a_claim_must_fit_its_network() -> None:
    metric = LogitDifference(1.0, target=5)
    with pytest.raises(ArgumentError, match=r"inputs have shape \[4\], the network takes \[3\]"):
        Claim([Point([0, 0, 0]), Point([0, 0, 0, 0])], Zero(), MaxAbs(1.0)).check(network())
    with pytest.raises(ArgumentError, match="Got 5 instead"):
        Claim(Point([0, 0, 0]), Zero(), metric).check(network())
    builder = GraphBuilder()
    maps = builder.add("conv", Conv2d(torch.ones(1, 1, 1, 1)), builder.input("x", (1, 2, 2)))
    with pytest.raises(ArgumentError, match=r"one vector of outputs.* shape \[1, 2, 2\]"):
        Claim(Point([[[0, 0], [0, 0]]]), Zero(), MaxAbs(1.0)).check(builder.build([maps]))
