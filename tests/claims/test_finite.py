"""Finite domains, and claims about them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import provable_circuits as pc
from provable_circuits.errors import ArgumentError


def test_tokens_are_all_combinations_or_those_allowed() -> None:
    every = pc.Tokens([range(2), [5], (1, 3)])
    assert every.inputs.tolist() == [[0, 5, 1], [0, 5, 3], [1, 5, 1], [1, 5, 3]]
    some = pc.Tokens([range(3)] * 2, condition=lambda x: x[:, 0] < x[:, 1])
    assert some.inputs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert repr(some) == "Tokens(3 inputs of shape [2])"
    assert pc.Tokens([[7]]).inputs.tolist() == [[7]]


def test_a_finite_domain_has_its_inputs_and_no_others() -> None:
    domain = pc.Finite([[1, 2], [3, 4], [0, 9]])
    assert len(domain) == 3
    assert domain.shape == (2,)
    assert domain.points(1, 3).tolist() == [[3.0, 4.0], [0.0, 9.0]]
    points = torch.tensor([[3.0, 4.0], [1.0, 4.0]], dtype=torch.float64)
    assert domain.contains(points).tolist() == [True, False]
    assert domain.project(points + 0.1).tolist()[0] == [3.0, 4.0]
    lower, upper = domain.bounds()
    assert (lower.tolist(), upper.tolist()) == ([0.0, 2.0], [3.0, 9.0])
    drawn = domain.sample(20, torch.Generator().manual_seed(0))
    assert bool(domain.contains(drawn).all())
    assert len(drawn.unique(dim=0)) > 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pc.Finite([1.0, 2.0]), "behind a leading dimension. Got shape [2]"),
        (lambda: pc.Finite(torch.zeros(0, 3)), "at least one number"),
        (lambda: pc.Tokens([]), "a set of tokens for each position"),
        (lambda: pc.Tokens([[0], [-1]]), "Item 1 of the 'sets' parameter"),
        (lambda: pc.Tokens([range(1000)] * 4), "1,000,000,000,000 combinations"),
        (lambda: pc.Tokens([[0, 1]], condition=lambda x: x), "one truth value for each"),
        (lambda: pc.Claim([pc.Finite([[0.0]]), pc.Point([0.0])], pc.Zero(), pc.MaxAbs(1)), "both"),
        (lambda: claim(positions=[1, 1]), "distinct positions"),
        (lambda: claim(positions=[-1]), "positions"),
    ],
)
def test_wrong_calls_are_refused_in_words(make: Any, says: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert says in str(error.value)


def claim(**settings: Any) -> pc.Claim:
    return pc.Claim(pc.Finite([[0.0, 1.0], [2.0, 3.0]]), pc.Zero(), pc.MaxAbs(1.0), **settings)


def test_inputs_of_several_finite_domains_are_counted_through() -> None:
    first, second = pc.Finite([[0.0], [1.0]]), pc.Finite([[5.0]])
    both = pc.Claim([first, second], pc.Zero(), pc.MaxAbs(1.0))
    assert both.finite
    assert both.count == 3
    assert both.centers.flatten().tolist() == [0.0, 1.0, 5.0]
    assert [both.domain(i) for i in range(3)] == [first, first, second]
    with pytest.raises(ArgumentError, match="no such input"):
        both.domain(3)


def test_the_same_answer_is_strictly_larger() -> None:
    metric = pc.SameAnswer()
    network = torch.tensor([[0.0, 2.0, 1.0]])
    outputs = torch.tensor([[[0.0, 1.0, 0.5]], [[1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]])
    assert metric.excess(network, network, outputs).flatten().tolist() == [-0.5, 0.0, 0.0]
    assert metric.strict
    named = pc.SameAnswer(0.25, target=2)
    assert named.excess(network, network, outputs[0]).tolist() == [0.75]
    with pytest.raises(ArgumentError, match="at least two outputs"):
        metric.check(1, 1)
    with pytest.raises(ArgumentError, match=r"0 to 2\. Got 3"):
        pc.SameAnswer(target=[3]).check(1, 3)
