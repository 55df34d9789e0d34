"""Greedy discovery against its definition, and against brute force on tiny networks."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from tests.discover.searching import MONOTONE, Given, Logged

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Metric, Norm, WinnerMargin
from provable_circuits.claims.patching import Zero
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.predicates.predicate import Sampled
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.progress import Progress


def network(seed: int) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    builder = GraphBuilder()
    hidden = builder.add(
        "fc1", Linear(torch.randn(4, 3, generator=generator)), builder.input("x", (3,))
    )
    active = builder.add("relu", ReLU(), hidden)
    middle = builder.add("fc2", Linear(torch.randn(3, 4, generator=generator)), active)
    active = builder.add("relu2", ReLU(), middle)
    return builder.build(
        [builder.add("fc3", Linear(torch.randn(2, 3, generator=generator)), active)]
    )


def naive(components: Components, metric: Metric, inputs: torch.Tensor) -> set[str]:
    """Algorithm 1 of the paper with sets of names and one forward pass at a time."""
    graph, kept = components.graph, set(components.names)
    layers = list(dict.fromkeys(component.layer for component in components))
    for layer in reversed(layers):
        for component in [c for c in components if c.layer == layer]:
            smaller = kept - {component.name}
            holds = True
            for i, x in enumerate(inputs):
                anchor = graph.run(inputs)
                output = anchor.clone()
                output[i] = components.circuit(smaller).run(x)[0]
                holds = holds and float(metric.excess(anchor, anchor, output)[i]) <= 0
            if holds:
                kept = smaller
    return kept


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "metric",
    [LogitDifference(0.5), LogitDifference(0.3, [0, 1, 0]), MaxAbs(0.4), WinnerMargin(), Norm(1.0)],
    ids=lambda metric: repr(metric)[:30],
)
def test_greedy_is_algorithm_one(seed: int, metric: Metric) -> None:
    components = network(seed).components()
    inputs = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    claim = Claim([Ball(x, 0.01) for x in inputs], Zero(), metric)
    search = Logged(Sampled(components, claim))
    circuit = greedy(search)
    verdicts = search.by_component
    assert set(circuit.names) == naive(components, metric, inputs)
    assert set(verdicts) == set(components.names)
    for name, verdict in verdicts.items():
        assert verdict.refuted if name in circuit else verdict.held


@pytest.mark.parametrize("seed", range(3))
def test_under_a_monotone_predicate_no_smaller_part_is_faithful(seed: int) -> None:
    """Faithful: holds one of some required sets. Brute force over all subsets of the result."""
    components = network(seed).components()
    generator = torch.Generator().manual_seed(seed)
    required = [
        frozenset(n for n in components.names if float(torch.rand((), generator=generator)) < 0.4)
        for _ in range(3)
    ]

    def faithful(names: frozenset[str]) -> bool:
        return any(need <= names for need in required)

    predicate = Given(components, faithful)
    circuit = greedy(Logged(predicate))
    kept = frozenset(circuit.names)
    assert faithful(kept)
    for size in range(len(kept)):
        for smaller in itertools.combinations(kept, size):
            assert not faithful(frozenset(smaller))


def test_one_question_for_each_component_in_the_given_order() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: False)
    order = list(reversed(components.discovery_order()))
    search = Logged(predicate, order)
    assert greedy(search) == components.full()
    assert list(search.by_component) == [component.name for component in order]
    everything = frozenset(components.names)
    assert predicate.asked == [everything - {component.name} for component in order]


def test_what_can_be_removed_is_removed_down_to_nothing() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: True)
    assert greedy(Logged(predicate)) == components.empty()
    assert len(predicate.asked) == len(components)
    assert predicate.asked[-1] == frozenset()


def test_an_undecided_component_is_kept() -> None:
    components = network(0).components()
    search = Logged(Given(components, lambda names: "fc2/1" in names or None))
    assert greedy(search).names == ("fc2/1",)
    assert search.by_component["fc2/1"].undecided


def test_only_what_is_in_the_order_is_tried() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: True)
    search = Logged(predicate, [components[0], components[2]])
    circuit = greedy(search)
    assert set(search.by_component) == {"fc1/0", "fc1/2"}
    assert ~circuit == components.circuit(["fc1/0", "fc1/2"])


def test_the_listener_hears_of_every_question() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: "fc3/0" in names)
    heard: list[Progress] = []
    greedy(Logged(predicate, listener=heard.append))
    heard = [progress for progress in heard if progress.done]
    assert len(heard) == 9
    assert (heard[0].doing, heard[0].queries, heard[0].size) == ("fc3/0", {"refuted": 1}, 9)
    assert (heard[1].doing, heard[1].size, heard[1].total) == ("fc3/1", 8, 9)
    assert heard[-1].remaining == 0


@pytest.mark.parametrize("seed", range(40))
def test_groups_give_the_same_circuit_with_fewer_questions(seed: int) -> None:
    """Faithful: holds one of some required sets, so monotone."""
    components = network(seed % 3).components()
    chance = random.Random(seed)
    share = chance.choice([0.1, 0.3, 0.6])
    required = [frozenset(n for n in components.names if chance.random() < share) for _ in range(3)]

    def faithful(names: frozenset[str]) -> bool:
        return any(need <= names for need in required)

    plain, grouped = Given(components, faithful), Given(components, faithful)
    circuit = greedy(Logged(plain))
    search = Logged(grouped, monotone=MONOTONE)
    assert greedy(search) == circuit
    assert len(grouped.asked) <= 1.5 * len(plain.asked)
    if not circuit:
        assert len(grouped.asked) < len(plain.asked)
    assert len(set(grouped.asked)) == len(grouped.asked)


def test_groups_save_most_where_almost_everything_goes() -> None:
    builder = GraphBuilder()
    wide = builder.add("fc", Linear(torch.ones(64, 1)), builder.input("x", (1,)))
    components = builder.build([wide]).components("neuron")
    predicate = Given(components, lambda names: "fc/40" in names)
    circuit = greedy(Logged(predicate, monotone=MONOTONE))
    assert circuit.names == ("fc/40",)
    assert len(predicate.asked) < 24


def test_a_group_that_stays_undecided_is_tried_one_by_one() -> None:
    components = network(0).components()
    plain = Given(components, lambda names: len(names) > 4)

    def whimsical(names: frozenset[str]) -> bool | None:
        return len(names) > 4 if len(components) - len(names) != 4 else None

    circuit = greedy(Logged(Given(components, whimsical), monotone=MONOTONE))
    assert len(greedy(Logged(plain))) == 5
    assert len(circuit) >= 5
