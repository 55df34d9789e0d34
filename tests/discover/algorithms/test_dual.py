"""Everything that a blocking set states, against brute force over all subsets of small networks."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest
import torch
from tests.discover.searching import MONOTONE, NOT_MONOTONE, Answer, Given, Logged

import provable_circuits as pc
from provable_circuits.discover.algorithms.dual import WHOLE, SmallestBlockingSet
from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.network.components import Components
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU

ASSUMED = Monotonicity(False, True, "assumed by the test")
PATCHINGS = ("zero", "mean", "constant", "reachable")
GRID = torch.arange(-24, 25, dtype=torch.float64).unsqueeze(1) / 24
"""Every point of [-1, 1] at which a ReLU of these networks can change sign, and the bounds."""

Truth = tuple[Components, pc.Claim, tuple[bool, ...]]


def cancelling(seed: int) -> pc.Graph:
    """One input, weights of -1, 0 and 1: neurons cancel each other often, and exactly."""
    chance = random.Random(seed)
    builder = GraphBuilder()
    tensor = builder.input("x", (1,))
    for place, (before, after) in enumerate(pairwise([1, 4, 2, 1] if seed % 2 else [1, 4, 1])):
        weight = torch.tensor([[float(chance.choice((-1, 0, 1))) for _ in range(before)]
                               for _ in range(after)])  # fmt: skip
        bias = torch.tensor([chance.choice((0.0, 0.5)) for _ in range(after)])
        tensor = builder.add(f"l{place}", Linear(weight, bias), tensor, layer=f"l{place}")
        if after > 1:
            tensor = builder.add(f"r{place}", ReLU(), tensor)
    return builder.build([tensor])


def patching(kind: str) -> pc.Patching:
    return {
        "zero": pc.Zero(),
        "mean": pc.Mean(torch.tensor([[-1.0], [1.0], [0.5], [0.5]])),
        "constant": pc.Constant(0.25),
        "reachable": pc.Reachable(domains=pc.Box([-1.0], [1.0])),
    }[kind]


@cache
def brute_force(seed: int, kind: str) -> Truth:
    """Whether each circuit, by its bits, keeps the one output within 0.37 at x = 0.5.

    Under reachable patching the output is piecewise linear in the patch input, and extreme at a
    point of the grid.
    """
    graph = cancelling(seed)
    components = graph.components("neuron", outputs=False)
    claim = pc.Claim(pc.Point([0.5]), patching(kind), pc.MaxAbs(0.37))
    x = torch.tensor([[0.5]], dtype=torch.float64)
    wanted = graph.run(x)
    if isinstance(claim.patching, pc.Reachable):
        sites = [site.tensor for site in components.sites]
        at = [evaluate(graph, {graph.inputs[0]: point[None]}, sites) for point in GRID]
    else:
        at = [dict(claim.patching.values(components))]
    circuits = [pc.Circuit(components, bits) for bits in range(1 << len(components))]
    gaps = torch.stack([(components.run(circuits, x, patch) - wanted).abs() for patch in at])
    return components, claim, tuple((gaps.amax((0, 2, 3)) <= 0.37).tolist())


def check(found: pc.BlockingSet, components: Components, faithful: tuple[bool, ...]) -> None:
    """Whatever is stated without an assumption is true, and what is assumed is said to be."""
    full = len(faithful) - 1
    blocking = [bits for bits in range(full + 1) if not faithful[full & ~bits]]
    least = min((bits.bit_count() for bits in blocking), default=None)
    if found.removed is not None:
        assert found.removed.bits in blocking
        assert found.verdict is not None
        assert not found.none
    if found.none or found.lower is not None:
        assert found.holds in ("unconditional", "assumed")
    else:
        assert found.holds is None
    if found.holds == "unconditional":
        assert not (found.none and blocking)
        assert least is None or found.lower is None or found.lower <= least
    assert least is None or found.shown <= least
    if found.holds == "assumed":
        assert "if so" in str(found)
        assert "without that assumption" in str(found)
    elif found.none:
        assert "there is none" in str(found)
    document = found.document()
    assert document["smallest"] == found.smallest
    assert document["none"] == found.none


@pytest.mark.parametrize("kind", PATCHINGS)
@pytest.mark.parametrize("assume", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_what_is_said_of_cancelling_neurons_is_true(seed: int, assume: bool, kind: str) -> None:
    components, claim, faithful = brute_force(seed, kind)
    found = pc.blocking_set(components.graph, claim, components, assume_monotone=assume)
    check(found, components, faithful)
    full = len(faithful) - 1
    sizes = [bits.bit_count() for bits in range(full + 1) if not faithful[full & ~bits]]
    assert found.holds == "unconditional"
    assert found.none == (not sizes)
    if sizes:
        assert found.removed is not None
        assert len(found.removed) == found.lower == min(sizes)
        assert found.smallest


def test_the_networks_of_these_tests_are_what_the_tests_are_about() -> None:
    """Many have a faithful empty circuit and a blocking set, and some have no blocking set."""
    truths = [brute_force(seed, kind)[2] for seed in range(30) for kind in PATCHINGS]
    assert sum(truth[0] and not all(truth) for truth in truths) >= 10
    assert sum(all(truth) for truth in truths) >= 5


def test_one_of_two_cancelling_neurons_is_a_blocking_set() -> None:
    builder = GraphBuilder()
    hidden = builder.add("h", Linear(torch.ones(2, 1)), builder.input("x", (1,)), layer="h")
    out = builder.add("y", Linear(torch.tensor([[1.0, -1.0]])), builder.add("r", ReLU(), hidden))
    graph = builder.build([out])
    claim = pc.Claim(pc.Point([1.0]), pc.Zero(), pc.MaxAbs(0.5))
    found = pc.blocking_set(graph, claim, outputs=False)
    assert not found.none
    assert found.removed is not None
    assert len(found.removed) == 1
    assert str(found).endswith("no smaller set does so: each was asked about")


def wide(count: int) -> Components:
    builder = GraphBuilder()
    layer = builder.add("fc", Linear(torch.ones(count, 1)), builder.input("x", (1,)))
    return builder.build([layer]).components("neuron")


def blocking(components: Components, answer: Answer, monotone: Monotonicity) -> pc.BlockingSet:
    search = Logged(Given(components, answer), monotone=monotone)
    search.ask(components.full())
    dual = SmallestBlockingSet(search)
    dual.run()
    if search.contradicted:
        search.monotone = NOT_MONOTONE
    return pc.BlockingSet.of_search(dual)


class Random:
    """Any predicate at all, but that the whole network is faithful; some answers are withheld."""

    def __init__(self, seed: int, components: Components, share: float, withheld: float) -> None:
        chance = random.Random(seed)
        count = 1 << len(components)
        self.components = components
        self.truth = (*(chance.random() < share for _ in range(count - 1)), True)
        self.answers = [None if chance.random() < withheld else truth for truth in self.truth]

    def __call__(self, names: frozenset[str]) -> bool | None:
        return self.answers[self.components.circuit(names).bits]


@pytest.mark.parametrize("withheld", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("monotone", [ASSUMED, NOT_MONOTONE])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_said_is_true_of_any_predicate(
    seed: int, monotone: Monotonicity, share: float, withheld: float
) -> None:
    components = wide(6)
    given = Random(seed, components, share, withheld)
    found = blocking(components, given, monotone)
    check(found, components, given.truth)
    if withheld == 0.0:
        assert found.holds == "unconditional"
        assert found.none == all(given.truth)
        assert found.none or found.smallest


def test_of_many_components_it_is_said_what_was_not_shown() -> None:
    components = wide(WHOLE + 4)
    names = frozenset(components.names)

    def all_but_sets_of_four(kept: frozenset[str]) -> bool:
        return len(names - kept) != 4  # one more than sets are asked about one by one

    plain = blocking(components, all_but_sets_of_four, NOT_MONOTONE)
    assert plain.removed is None
    assert not plain.none
    assert (plain.lower, plain.shown, plain.holds) == (4, 4, "unconditional")
    assert str(plain) == (
        "Blocking set: none was found\n  no set of fewer than 4 components does so"
    )
    assumed = blocking(components, all_but_sets_of_four, ASSUMED)
    assert assumed.none
    assert assumed.holds == "assumed"
    assert str(assumed) == (
        "Blocking set: assumed by the test; if so, there is none, since the empty circuit is "
        "faithful\n  without that assumption, no set of fewer than 4 components does so"
    )


@pytest.mark.parametrize("monotone", [MONOTONE, ASSUMED, NOT_MONOTONE])
def test_a_large_blocking_set_of_many_components_is_found(monotone: Monotonicity) -> None:
    components = wide(WHOLE + 4)
    needed = [frozenset(components.names[i : i + 3]) for i in (0, 3, 6, 9, 12)]
    found = blocking(components, lambda kept: any(n <= kept for n in needed), monotone)
    assert found.removed is not None
    assert len(found.removed) == 5
    assert found.shown == (1 if monotone.known else 4)
    assert found.smallest == monotone.usable
    assert found.holds == ("assumed" if monotone.assumed else "unconditional")
    said = str(found)
    if monotone.known:
        assert said.endswith("no smaller set does so: told so")
    elif monotone.assumed:
        assert "if so, no smaller set does so" in said
        assert "without that assumption, no set of fewer than 4 components does so" in said
    else:
        assert "that no smaller set does so was not shown" in said
        assert "no set of fewer than 4 components does so" in said
