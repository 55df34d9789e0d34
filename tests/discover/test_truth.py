"""Every algorithm and every statement about its result, against brute force over all circuits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from tests.discover.searching import Given, Logged
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.api import ALGORITHMS
from provable_circuits.discover.predicates.monotonicity import monotonicity
from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.discover.results.minimality import NOTIONS
from provable_circuits.network.components import Components
from provable_circuits.zoo.toy import ToyNetwork, counterexample_network, xor_network

PATCHINGS = ("zero", "mean", "constant", "reachable", "interval")


@dataclass(frozen=True, eq=False)
class Case:
    """A small network, a claim, and for each of its circuits, by bits, whether it is faithful."""

    components: Components
    claim: pc.Claim
    faithful: tuple[bool, ...]

    @property
    def smallest(self) -> int:
        return min(bits.bit_count() for bits, holds in enumerate(self.faithful) if holds)

    def holds(self, circuit: pc.Circuit, notion: str) -> bool:
        """The definitions, on sets of bits."""
        bits = circuit.bits
        if not self.faithful[bits]:
            return False
        inner = [b for b in range(bits) if b & bits == b]
        if notion == "quasi":
            return any(not self.faithful[bits & ~(1 << i)] for i in range(16) if bits >> i & 1)
        if notion == "local":
            return not any(self.faithful[bits & ~(1 << i)] for i in range(16) if bits >> i & 1)
        if notion == "subset":
            return not any(self.faithful[b] for b in inner)
        return len(circuit) == self.smallest


def dense(seed: int) -> pc.Graph:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    return pc.Graph.from_torch(net, torch.zeros(1, 3))


def convolution(seed: int) -> pc.Graph:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.ReLU(),
        nn.Conv2d(3, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3, 2),
    )
    return pc.Graph.from_torch(net, torch.zeros(1, 1, 3, 3))


def make_patching(kind: str, graph: pc.Graph, seed: int) -> pc.Patching:
    data = torch.rand(20, *graph.input_shape, generator=torch.Generator().manual_seed(seed))
    return {
        "zero": pc.Zero(),
        "mean": pc.Mean(data),
        "constant": pc.Constant(0.2),
        "reachable": pc.Reachable(eps=0.15),
        "interval": pc.IntervalHull(eps=0.1),
    }[kind]


@cache
def case(seed: int, kind: str) -> Case:
    """A case at a tolerance under which about a third of some circuits are faithful."""
    graph = convolution(seed) if seed % 4 == 3 else dense(seed)
    components = graph.components("filter" if seed % 4 == 3 else "neuron")
    generator = torch.Generator().manual_seed(seed)
    centers = torch.rand(1 + seed % 2, *graph.input_shape, generator=generator)
    inputs = [pc.Ball(x, 0.1 if kind == "interval" else 0.05) for x in centers]
    patching = make_patching(kind, graph, seed)
    count = len(components)
    some = [
        pc.Circuit(components, bits)
        for bits in torch.randint(2**count, (40,), generator=generator).tolist()
    ]
    claims = [pc.Claim(inputs, patching, make_metric(seed, 2.0**power)) for power in range(-10, 4)]

    def unlike_a_third(claim: pc.Claim) -> float:
        verdicts = Decided(components, claim).ask([*some, components.full()])
        share = sum(verdict.proved for verdict in verdicts[:-1]) / len(some)
        return abs(share - 1 / 3) if verdicts[-1].proved else math.inf

    claim = min(claims, key=unlike_a_third)
    circuits = [pc.Circuit(components, bits) for bits in range(2**count)]
    verdicts = Decided(components, claim).ask(circuits)
    assert not any(verdict.undecided for verdict in verdicts)
    assert verdicts[-1].proved
    return Case(components, claim, tuple(verdict.proved for verdict in verdicts))


def make_metric(seed: int, tolerance: float) -> pc.Metric:
    metrics: list[pc.Metric] = [
        pc.LogitDifference(tolerance),
        pc.MaxAbs(tolerance),
        pc.Norm(tolerance, p=1),
        pc.WinnerMargin(max(0.0, 1 - tolerance)),
    ]
    return metrics[seed % 4]


CASES = [(seed, kind) for kind in PATCHINGS for seed in range(4)]


def discover(of: Case, algorithm: str, **settings: object) -> pc.Result:
    graph = of.components.graph
    return pc.discover(graph, of.claim, of.components, algorithm, **settings, certify=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("seed", "kind"), CASES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_result_says_is_true(algorithm: str, seed: int, kind: str) -> None:
    of = case(seed, kind)
    for local_check in (False, True):
        result = discover(of, algorithm, local_check=local_check)
        circuit = result.circuit
        assert result.faithful == "proved"
        assert of.faithful[circuit.bits]
        for name, kept in result.kept.items():
            without = of.faithful[circuit.remove(name).bits]
            if kept.status in ("necessary", "removable"):
                assert without == (kept.status == "removable")
            assert kept.status != "undecided" or not local_check
        for notion in NOTIONS:
            said = result.minimality.notions[notion]
            if said == "unconditional":
                assert of.holds(circuit, notion)
            if said == "no":
                assert not of.holds(circuit, notion)
        if local_check:
            said = result.minimality.notions["local"]
            assert said == ("unconditional" if of.holds(circuit, "local") else "no")
        if result.lower is not None and "assumed" not in result.monotone:
            assert result.lower <= of.smallest


@pytest.mark.parametrize(("seed", "kind"), CASES)
def test_algorithms_are_what_their_pseudo_code_says(seed: int, kind: str) -> None:
    of = case(seed, kind)
    count = len(of.components)
    order = [of.components.index_of(c.name) for c in of.components.discovery_order()]

    def one_pass(bits: int) -> int:
        for i in order:
            if bits >> i & 1 and of.faithful[bits & ~(1 << i)]:
                bits &= ~(1 << i)
        return bits

    full = 2**count - 1
    passed = one_pass(full)
    result = discover(of, "greedy")
    assert result.circuit.bits == passed
    assert sum(result.queries.values()) == count + 1
    while one_pass(passed) != passed:
        passed = one_pass(passed)
    result = discover(of, "exhaustive")
    assert result.circuit.bits == passed
    assert sum(result.queries.values()) <= count**2 + 1
    result = discover(of, "binary-search")
    if of.faithful[0]:
        assert result.circuit.bits == 0
        return
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        removed = sum(1 << i for i in order[:middle])
        low, high = (middle, high) if of.faithful[full & ~removed] else (low, middle)
    assert result.circuit.bits == full & ~sum(1 << i for i in order[:low])
    assert sum(result.queries.values()) <= 2 + math.ceil(math.log2(count))
    assert of.holds(result.circuit, "quasi")


@pytest.mark.parametrize("seed", range(12))
def test_interval_hulls_are_monotone(seed: int) -> None:
    of = case(seed, "interval")
    assert monotonicity(of.claim).known
    for bits, holds in enumerate(of.faithful):
        if holds:
            for i in range(len(of.components)):
                assert of.faithful[bits | 1 << i]


@pytest.mark.parametrize("seed", range(12))
def test_the_hitting_set_is_the_true_minimum(seed: int) -> None:
    of = case(seed, "interval")
    result = discover(of, "hitting-set")
    assert len(result.circuit) == of.smallest
    assert result.lower in (of.smallest, None)
    assert result.minimality.notion == "cardinal"
    assert result.minimality.holds == "unconditional"
    enumerated = discover(of, "blocking-sets", t_max=len(of.components))
    assert len(enumerated.circuit) == of.smallest
    assert enumerated.minimality.notion == "cardinal"
    greedy = discover(of, "greedy")
    assert of.holds(greedy.circuit, "subset")
    assert greedy.minimality.notions["subset"] == "unconditional"
    assert {kept.status for kept in greedy.kept.values()} <= {"necessary"}


@pytest.mark.parametrize("seed", range(12))
def test_the_smallest_blocking_set_is_the_smallest(seed: int) -> None:
    of = case(seed, "interval")
    found = pc.blocking_set(of.components.graph, of.claim, of.components)
    full = len(of.faithful) - 1
    sizes = [bits.bit_count() for bits in range(full + 1) if not of.faithful[full & ~bits]]
    if not sizes:
        assert found.removed is None
        return
    assert found.removed is not None
    assert len(found.removed) == found.lower == min(sizes)
    assert found.smallest
    assert not of.faithful[(~found.removed).bits]


@pytest.mark.parametrize("t_max", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_of_enumeration_never_exceed_the_minimum(seed: int, t_max: int) -> None:
    of = case(seed, "interval")
    result = discover(of, "blocking-sets", t_max=t_max)
    lowers = [moment.lower for moment in result.timeline if moment.lower is not None]
    assert lowers == sorted(lowers)
    assert (result.lower or 0) <= of.smallest <= len(result.circuit)
    levels = sum(math.comb(len(of.components), t) for t in range(1, t_max + 1))
    assert sum(result.queries.values()) <= levels + t_max + len(of.components) + 2


def xor() -> tuple[ToyNetwork, pc.Claim]:
    toy = xor_network()
    return toy, pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))


def counterexample(pairs: int) -> tuple[ToyNetwork, pc.Claim]:
    toy = counterexample_network(pairs)
    return toy, pc.Claim(pc.Box([0.0], [1.0]), pc.Zero(), pc.MaxAbs(0.0))


@pytest.mark.parametrize(
    ("names", "notions"),
    [
        (("v1", "v2", "v3", "v4", "v5", "v6"), (True, False, False, False)),
        (("v1", "v2", "v3", "v4", "v5"), (True, True, False, False)),
        (("v1", "v2", "v3"), (True, True, False, False)),
        (("v2", "v4"), (True, True, True, False)),
        (("v1",), (True, True, True, True)),
        (("v2",), (False, False, False, False)),
    ],
)
def test_the_four_notions_on_the_xor_network(
    names: tuple[str, ...], notions: tuple[bool, ...]
) -> None:
    toy, claim = xor()
    predicate = Decided(toy.components, claim)
    circuit = toy.components.circuit([f"v/{name}" for name in names])
    assert tuple(pc.minimality.holds(circuit, predicate, n) for n in NOTIONS) == notions


def test_single_removals_get_stuck_on_the_xor_network() -> None:
    toy, claim = xor()
    for algorithm in ("greedy", "exhaustive"):
        result = pc.discover(toy.graph, claim, toy.components, algorithm, certify=False)
        assert result.circuit.names == ("v/v1", "v/v2", "v/v3", "v/v4", "v/v5")
        assert (result.minimality.notion, result.minimality.holds) == ("local", "unconditional")
    result = pc.discover(toy.graph, claim, toy.components, "binary-search", certify=False)
    assert result.circuit == toy.components.full()
    assert result.minimality.notion == "quasi"


@pytest.mark.parametrize("algorithm", ["hitting-set", "blocking-sets"])
def test_on_xor_the_hitting_set_bound_is_not_claimed_and_would_be_false(algorithm: str) -> None:
    toy, claim = xor()
    result = pc.discover(toy.graph, claim, toy.components, algorithm, certify=False)
    assert result.lower is None
    assert result.minimality.notion == "local"
    assert "not monotone" in result.monotone
    assumed = pc.discover(
        toy.graph, claim, toy.components, algorithm, assume_monotone=True, certify=False
    )
    assert assumed.lower == 5
    assert assumed.minimality.notion == "cardinal"
    assert assumed.minimality.holds == "assumed"
    assert "if the predicate is monotone" in str(assumed)
    predicate = Decided(toy.components, claim)
    assert pc.minimality.holds(toy.components.circuit(["v/v1"]), predicate, "cardinal")


@pytest.mark.parametrize("pairs", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["greedy", "exhaustive", "binary-search"])
def test_the_counterexample_family_keeps_everything(algorithm: str, pairs: int) -> None:
    toy, claim = counterexample(pairs)
    order = [f"p/{i}" for i in range(pairs)] + ["v3/0"] + [f"q/{i}" for i in range(pairs)]
    for names in ("paper", [*order, "v4/0"]):
        result = pc.discover(
            toy.graph, claim, toy.components, algorithm, order=names, certify=False
        )
        assert result.circuit == toy.components.full()
        assert result.minimality.notions["subset"] == "unknown"
    predicate = Decided(toy.components, claim)
    assert pc.minimality.holds(toy.components.circuit(["v3/0", "v4/0"]), predicate, "cardinal")
    assert not pc.minimality.holds(toy.components.full(), predicate, "subset")


def test_zero_patching_is_not_monotone() -> None:
    toy, claim = counterexample(1)
    small = toy.components.circuit(["v3/0", "v4/0"])
    assert pc.verify(toy.graph, small, claim, certify=False).proved
    assert pc.verify(toy.graph, small.add("p/0"), claim, certify=False).refuted
    assert not monotonicity(claim).usable


def test_reachable_patching_is_not_monotone() -> None:
    """Two neurons that cancel: patched from one common input they still do, one alone does not."""
    hidden, out = nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False)
    hidden.weight.data, out.weight.data = torch.ones(2, 1), torch.tensor([[1.0, -1.0]])
    graph = pc.Graph.from_torch(nn.Sequential(hidden, nn.ReLU(), out), torch.zeros(1, 1))
    components = graph.components("neuron", outputs=False)
    inputs = pc.Ball(torch.tensor([0.5]), 0.1)
    claim = pc.Claim(inputs, pc.Reachable(eps=0.1), pc.MaxAbs(0.1))
    assert pc.verify(graph, components.empty(), claim, certify=False).proved
    assert pc.verify(graph, components.empty().add("0/0"), claim, certify=False).refuted
    hull = pc.Claim(inputs, pc.IntervalHull(eps=0.1), pc.MaxAbs(0.1))
    assert pc.verify(graph, components.empty(), hull, certify=False).refuted


def test_an_assumption_that_answers_contradict_is_dropped() -> None:
    components = dense(0).components()
    search = Logged(Given(components, lambda names: len(names) != 5))
    search.ask(components.circuit(components.names[:5]))
    assert not search.contradicted
    search.ask(components.circuit(components.names[5:9]))
    assert not search.contradicted
    search.ask(components.circuit(components.names[:3]))
    assert search.contradicted


def test_the_cases_differ() -> None:
    sizes = {case(seed, "interval").smallest for seed in range(12)}
    assert len(sizes) >= 4
    assert len({case(seed, kind).smallest for seed, kind in CASES}) >= 4
