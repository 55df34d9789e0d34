"""Greedy discovery against its definition, and against brute force on tiny networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Metric, Norm, WinnerMargin
from provable_circuits.claims.patching import Zero
from provable_circuits.discover.greedy import greedy
from provable_circuits.discover.predicate import Predicate, Sampled
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component, Components
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.verify.verdict import Proved, Undecided, Verdict


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
    circuit, verdicts = greedy(Sampled(components, claim), components.discovery_order())
    assert set(circuit.names) == naive(components, metric, inputs)
    assert set(verdicts) == set(components.names)
    for name, verdict in verdicts.items():
        assert verdict.refuted if name in circuit else verdict.held


class Given(Predicate):
    """A predicate that answers as it is told, and remembers what it was asked."""

    def __init__(self, components: Components, answer: Callable[[frozenset[str]], bool]) -> None:
        self.components = components
        self.answer = answer
        self.asked: list[frozenset[str]] = []

    def ask(self, circuits: Sequence[Circuit]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for circuit in circuits:
            names = frozenset(circuit.names)
            self.asked.append(names)
            faithful = self.answer(names)
            verdicts.append(Proved(0.0, "test") if faithful else Undecided("told so", "test"))
        return verdicts


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
    circuit, _ = greedy(predicate, components.discovery_order())
    kept = frozenset(circuit.names)
    assert faithful(kept)
    for size in range(len(kept)):
        for smaller in itertools.combinations(kept, size):
            assert not faithful(frozenset(smaller))


def test_one_question_for_each_component_in_the_given_order() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: False)
    order = list(reversed(components.discovery_order()))
    circuit, verdicts = greedy(predicate, order)
    assert circuit == components.full()
    assert list(verdicts) == [component.name for component in order]
    everything = frozenset(components.names)
    assert predicate.asked == [everything - {component.name} for component in order]


def test_what_can_be_removed_is_removed_down_to_nothing() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: True)
    circuit, _ = greedy(predicate, components.discovery_order())
    assert circuit == components.empty()
    assert len(predicate.asked) == len(components)
    assert predicate.asked[-1] == frozenset()


def test_an_undecided_component_is_kept() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: "fc2/1" in names)
    circuit, verdicts = greedy(predicate, components.discovery_order())
    assert circuit.names == ("fc2/1",)
    assert verdicts["fc2/1"].undecided


def test_only_what_is_in_the_order_is_tried() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: True)
    circuit, verdicts = greedy(predicate, [components[0], components[2]])
    assert set(verdicts) == {"fc1/0", "fc1/2"}
    assert ~circuit == components.circuit(["fc1/0", "fc1/2"])


def test_the_listener_hears_of_every_question() -> None:
    components = network(0).components()
    predicate = Given(components, lambda names: "fc3/0" in names)
    heard: list[tuple[str, int, bool]] = []

    def listener(component: Component, circuit: Circuit, verdict: Verdict) -> None:
        heard.append((component.name, len(circuit), verdict.proved))

    greedy(predicate, components.discovery_order(), listener)
    assert heard[0] == ("fc3/0", 9, False)
    assert heard[1] == ("fc3/1", 8, True)
    assert len(heard) == 9
