"""Minimum hitting sets against brute force."""

from __future__ import annotations

import random

import pytest

from provable_circuits.discover.algorithms.sets import HittingSets, bits_of, elements


def test_bits_and_elements() -> None:
    assert elements(0b10110) == [1, 2, 4]
    assert bits_of([1, 2, 4]) == 0b10110
    assert elements(0) == []
    assert elements(1 << 200) == [200]


@pytest.mark.parametrize("seed", range(12))
def test_smallest_hitting_sets_while_sets_are_added_and_candidates_excluded(seed: int) -> None:
    chance, count = random.Random(seed), 10
    hits = HittingSets(count)
    sets: list[int] = []
    excluded: list[int] = []
    for _ in range(15):
        sets.append(bits_of(chance.sample(range(count), chance.randint(1, 4))))
        hits.add(sets[-1])
        if chance.random() < 0.3:
            candidate = hits.smallest()
            assert candidate is not None
            hits.exclude(candidate)
            excluded.append(candidate)
        found = hits.smallest()
        right = [
            bits
            for bits in range(2**count)
            if bits not in excluded and all(bits & known for known in sets)
        ]
        assert found in right
        assert found is not None
        assert found.bit_count() == min(bits.bit_count() for bits in right)
    hits.close()


def test_an_empty_set_cannot_be_hit() -> None:
    hits = HittingSets(3)
    assert hits.smallest() == 0
    for bits in range(8):
        hits.exclude(bits)
    assert hits.smallest() is None
