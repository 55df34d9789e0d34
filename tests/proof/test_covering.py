"""Lower bounds of hitting sets: the checker's rule by hand, and against all subsets."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest

from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.covering import check_covering
from provable_circuits.proof.covering import covering

TRIANGLE = [{"a", "b"}, {"b", "c"}, {"a", "c"}]
HALVES = {0: Fraction(1, 2), 1: Fraction(1, 2), 2: Fraction(1, 2)}


def truth(family: list[frozenset[str]]) -> int:
    """The least size of a hitting set, by trying all."""
    elements = sorted(frozenset().union(*family))
    return next(
        size
        for size in range(len(elements) + 1)
        if any(
            all(one & set(chosen) for one in family)
            for chosen in itertools.combinations(elements, size)
        )
    )


def drawn(seed: int) -> list[frozenset[str]]:
    dice = random.Random(seed)
    count = dice.randrange(1, 12)
    return [frozenset(dice.sample("abcdefgh", dice.randrange(1, 5))) for _ in range(count)]


def test_a_triangle_takes_two_by_weights_of_a_half() -> None:
    assert check_covering(TRIANGLE, 2, [HALVES]) == 1
    with pytest.raises(RefusedError, match="do not add up"):
        check_covering(TRIANGLE, 3, [HALVES])


def test_a_tree_says_what_one_packing_cannot() -> None:
    """The Fano plane: weights add up to 7/3, so 3; a tree must say so too."""
    lines = ["abc", "ade", "afg", "bdf", "beg", "cdg", "cef"]
    family = [frozenset(line) for line in lines]
    third = dict.fromkeys(range(7), Fraction(1, 3))
    assert check_covering(family, 3, [third]) == 1
    left = {i: Fraction(1, 2) for i in (3, 4, 5, 6)}
    dropped = {0: Fraction(1), 1: Fraction(1), 2: Fraction(1)}
    assert check_covering(family, 3, ["a", left, dropped]) == 2
    with pytest.raises(RefusedError, match="hit already"):
        check_covering(family, 3, ["a", {0: Fraction(1), 3: Fraction(1)}, dropped])


def test_a_set_that_cannot_be_hit_excludes_its_branch() -> None:
    family = [frozenset("a"), frozenset("bc")]
    tree: list[Any] = ["a", {1: Fraction(1)}, {0: Fraction(2)}]
    assert check_covering(family, 2, tree) == 2


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "without both halves"),
        (["a", HALVES], "hit already"),
        (["a", {1: Fraction(1)}], "without both halves"),
        ([HALVES, HALVES], "more nodes"),
        ([{0: Fraction(1), 1: Fraction(1)}], "exceed 1"),
        ([{0: Fraction(3), 1: Fraction(-1), 2: Fraction(-1)}], "negative"),
        ([{0: Fraction(1)}], "do not add up"),
        ([{}], "do not add up"),
    ],
)
def test_what_proves_nothing_is_refused(nodes: list[Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        check_covering(TRIANGLE, 2, nodes)


@pytest.mark.parametrize("seed", range(60))
def test_the_least_size_is_proved_and_no_more(seed: int) -> None:
    family = drawn(seed)
    least = truth(family)
    found = covering(family, least)
    assert found is not None
    used = [family[place] for place in found.used]
    assert check_covering(used, least, found.nodes) > 0
    beyond = covering(family, least + 1)
    if beyond is not None:
        with pytest.raises(RefusedError):
            check_covering([family[p] for p in beyond.used], least + 1, beyond.nodes)


@pytest.mark.parametrize("seed", range(200))
def test_no_wrong_tree_is_accepted(seed: int) -> None:
    """Trees with changed weights, branches, order and bound: what is accepted is true."""
    dice = random.Random(seed)
    family = drawn(seed)
    least = truth(family)
    found = covering(family, least)
    assert found is not None
    used, nodes = [family[place] for place in found.used], list(found.nodes)
    for _ in range(20):
        changed: list[Any] = [dict(n) if isinstance(n, dict) else n for n in nodes]
        place = dice.randrange(len(changed))
        if isinstance(changed[place], dict):
            changed[place][dice.randrange(len(used))] = Fraction(dice.randrange(-2, 7), 2)
        else:
            changed[place] = dice.choice("abcdefgh")
        if dice.random() < 0.3:
            dice.shuffle(changed)
        size = least + dice.choice([0, 1, 1, 2])
        try:
            check_covering(used, size, changed)
        except RefusedError:
            continue
        assert size <= least
