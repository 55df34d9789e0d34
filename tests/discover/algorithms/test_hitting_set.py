"""The implicit hitting set under undecided answers, budgets and interrupts; its dual."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from tests.clock import Clock
from tests.discover.searching import MONOTONE, Given, Logged

from provable_circuits.discover.algorithms.dual import SmallestBlockingSet
from provable_circuits.discover.algorithms.hitting_set import hitting_set
from provable_circuits.discover.search import BudgetSpent
from provable_circuits.network.components import Components
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear


def wide(count: int) -> Components:
    builder = GraphBuilder()
    layer = builder.add("fc", Linear(torch.ones(count, 1)), builder.input("x", (1,)))
    return builder.build([layer]).components("neuron")


class Required:
    """Faithful: holds one of some required sets. Monotone; some answers may be withheld."""

    def __init__(self, seed: int, components: Components, withheld: float) -> None:
        chance = random.Random(seed)
        self.required = [
            frozenset(chance.sample(components.names, chance.randint(2, 5))) for _ in range(3)
        ]
        self.withheld = withheld
        self.seed = seed

    def truth(self, names: frozenset[str]) -> bool:
        return any(need <= names for need in self.required)

    def __call__(self, names: frozenset[str]) -> bool | None:
        chance = random.Random(f"{self.seed} {sorted(names)}")
        return None if chance.random() < self.withheld else self.truth(names)


@pytest.mark.parametrize("withheld", [0.0, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("seed", range(25))
def test_bounds_are_true_whatever_stays_undecided(seed: int, withheld: float) -> None:
    components = wide(8)
    answer = Required(seed, components, withheld)
    smallest = min(len(need) for need in answer.required)
    search = Logged(Given(components, answer), monotone=MONOTONE)
    hitting_set(search)
    assert search.lower <= smallest
    if search.best is not None:
        assert answer.truth(frozenset(search.best.names))
        assert len(search.best) >= smallest
    if withheld == 0.0:
        assert search.best is not None
        assert len(search.best) == search.lower == smallest
    lowers = [moment.lower or 0 for moment in search.timeline]
    assert lowers == sorted(lowers)


@pytest.mark.parametrize("withheld", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(15))
def test_the_smallest_blocking_set_and_its_bound(seed: int, withheld: float) -> None:
    components = wide(8)
    answer = Required(seed, components, withheld)
    everything = frozenset(components.names)
    names = components.names
    true = min(
        bits.bit_count()
        for bits in range(2**8)
        if not answer.truth(everything - {names[i] for i in range(8) if bits >> i & 1})
    )
    search = Logged(Given(components, answer), monotone=MONOTONE)
    dual = SmallestBlockingSet(search)
    dual.run()
    found = None if dual.found is None else dual.found[0]
    assert search.lower <= true
    if found is not None:
        assert not answer.truth(everything - frozenset(found.names))
        assert len(found) >= true
    if withheld == 0.0:
        assert found is not None
        assert len(found) == search.lower == true


def test_an_undecided_candidate_is_refuted_by_a_refuted_superset() -> None:
    components = wide(6)
    names: Sequence[str] = components.names

    def answer(kept: frozenset[str]) -> bool | None:
        if kept == frozenset(names[:1]):
            return None
        return names[0] in kept and names[1] in kept and names[2] in kept

    search = Logged(Given(components, answer), monotone=MONOTONE)
    hitting_set(search)
    assert search.lower == 3


def test_the_time_of_a_search_is_limited(clock: Clock) -> None:
    components = wide(8)
    search = Logged(Given(components, Required(0, components, 0.0)), monotone=MONOTONE, budget=1.0)
    clock.now += 1.0
    with pytest.raises(BudgetSpent):
        hitting_set(search)
