"""What travels between processes arrives as it was: networks, components, claims, verdicts."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.verify.networks import dense
from torch import Tensor, nn

import provable_circuits as pc
from provable_circuits.claims.patching import FixedPatching, RangingPatching
from provable_circuits.discover.predicates.predicate import Sampled
from provable_circuits.discover.predicates.transport import (
    _portable,
    pack_question,
    pack_verdicts,
    unpack_question,
    unpack_verdicts,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.execution import run
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage

SETTINGS = {"timeout": 20.0, "seed": 3, "device": "cpu"}
CENTERS = torch.rand(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
MASK = torch.tensor([True, False, True, True, False])


@cache
def components_of_dense() -> pc.Components:
    return dense(1).components()


def same(a: Any, b: Any) -> bool:
    """Equal down to the last bit, data classes field by field."""
    if isinstance(a, Tensor):
        return (
            isinstance(b, Tensor)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
            and torch.equal(torch.signbit(a), torch.signbit(b))
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


def sent(components: pc.Components, claim: pc.Claim) -> tuple[pc.Components, pc.Claim]:
    arrived, new, settings = unpack_question(pack_question(components, claim, SETTINGS))
    assert settings == SETTINGS
    assert arrived.graph is not components.graph
    assert arrived.graph.digest == components.graph.digest
    assert arrived == components
    return arrived, new


def some_circuits(components: pc.Components) -> list[pc.Circuit]:
    names = components.names
    return [
        components.full(),
        components.full().remove(names[0]),
        components.full().remove(*names[1::3]),
        components.circuit(names[::2]),
        components.empty(),
    ]


def assert_same_verdicts(components: pc.Components, claim: pc.Claim) -> list[str]:
    """The kinds of verdict that a verifier gives, the same on either side."""
    arrived, new = sent(components, claim)
    here, there = pc.Verifier(components, claim, seed=3), pc.Verifier(arrived, new, seed=3)
    kinds = []
    for circuit in some_circuits(components):
        verdict = here.ask(circuit)
        other = there.ask(pc.Circuit(arrived, circuit.bits))
        assert other.kind == verdict.kind, circuit
        kinds.append(verdict.kind)
    return kinds


DOMAINS: dict[str, Callable[[Tensor], pc.Domain]] = {
    "point": pc.Point,
    "box": lambda x: pc.Box(x - 0.05, x + 0.1),
    "box with centre": lambda x: pc.Box(x - 0.05, x + 0.1, center=x),
    "ball": lambda x: pc.Ball(x, 0.05),
    "ball of many radii": lambda x: pc.Ball(x, torch.linspace(0, 0.1, 5)),
    "clipped and masked ball": lambda x: pc.Ball(x, 0.3, clip=(0, 1), mask=MASK),
    "clipped and masked 2-ball": lambda x: pc.Ball(x, 0.1, p=2, clip=(0, x + 0.05), mask=MASK),
    "1-ball": lambda x: pc.Ball(x, 0.1, p=1),
}


@pytest.mark.parametrize("kind", DOMAINS)
def test_domains_travel(kind: str) -> None:
    components = components_of_dense()
    claim = pc.Claim([DOMAINS[kind](x) for x in CENTERS], pc.Zero(), pc.LogitDifference(0.05, 1))
    _, new = sent(components, claim)
    assert same(new.inputs, claim.inputs)
    for old, domain in zip(claim.inputs, new.inputs, strict=True):
        assert same(domain.bounds(), old.bounds())
        points = old.sample(5, torch.Generator().manual_seed(0))
        assert domain.contains(points).all()
        assert torch.equal(domain.contains(points + 0.04), old.contains(points + 0.04))
    assert {"proved", "refuted"} <= set(assert_same_verdicts(components, claim))


def batches() -> Iterator[tuple[Tensor, list[int]]]:
    """As a loader gives them: batches with labels, once."""
    for part in torch.rand(30, 5, generator=torch.Generator().manual_seed(4)).split(7):
        yield part, [0] * len(part)


DATA = torch.rand(4000, 5, generator=torch.Generator().manual_seed(4))
BALLS = tuple(pc.Ball(x, 0.15) for x in CENTERS)
PATCHINGS: dict[str, Callable[[], pc.Patching]] = {
    "zero": pc.Zero,
    "mean": lambda: pc.Mean(DATA),
    "mean of an iterator": lambda: pc.Mean(batches()),
    "constant": lambda: pc.Constant(0.2),
    "constant of numpy": lambda: pc.Constant(np.float32(0.2)),  # type: ignore[arg-type]
    "constant by layer": lambda: pc.Constant(
        {
            "0": np.linspace(0, 0.5, 6)[::-1],
            "2": [0.1, 0.2, 0.3, 0.4, 0.5],
            "4": torch.tensor(0.1),
        }
    ),
    "reachable": lambda: pc.Reachable(eps=0.1),
    "reachable, clipped": lambda: pc.Reachable(eps=0.4, p=2, clip=(np.float32(0), 1)),
    "reachable domains": lambda: pc.Reachable(domains=list(BALLS)),
    "hull": lambda: pc.IntervalHull(eps=0.1),
    "hull of a domain": lambda: pc.IntervalHull(domains=pc.Box(torch.zeros(5), torch.ones(5))),
    "hull of domains": lambda: pc.IntervalHull(domains=BALLS),
}


@pytest.mark.parametrize("kind", PATCHINGS)
def test_patchings_travel(kind: str) -> None:
    components = components_of_dense()
    inputs = [pc.Ball(x, 0.05) for x in CENTERS]
    claim = pc.Claim(inputs, PATCHINGS[kind](), pc.LogitDifference(0.01, 1))
    arrived, new = sent(components, claim)
    if isinstance(claim.patching, FixedPatching):
        assert isinstance(new.patching, FixedPatching)
        values, old = new.patching.values(arrived), claim.patching.values(components)
        assert all(same(values[site.tensor], old[site.tensor]) for site in components.sites)
    else:
        assert type(new.patching) is type(claim.patching)
        assert isinstance(claim.patching, RangingPatching)
        assert isinstance(new.patching, RangingPatching)
        for i in range(2):
            was = claim.patching.domain(i, claim.inputs)
            assert same(new.patching.domain(i, new.inputs), was)
    assert {"proved", "refuted"} <= set(assert_same_verdicts(components, claim))


def test_means_travel_as_numbers_without_their_data() -> None:
    components = components_of_dense()
    claim = pc.Claim(pc.Point(CENTERS[0]), pc.Mean(DATA), pc.MaxAbs(0.5))
    packed = pack_question(components, claim, SETTINGS)
    assert len(packed) < DATA.numel()
    _, new, _ = unpack_question(packed)
    assert isinstance(new.patching, pc.Constant)
    assert isinstance(claim.patching, pc.Mean)


METRICS: list[pc.Metric] = [
    pc.LogitDifference(0.1),
    pc.LogitDifference(0.1, 2),
    pc.LogitDifference(0.1, [2, 0]),
    pc.LogitDifference(0.1, np.array([0, 1])),  # type: ignore[arg-type]
    pc.LogitDifference(np.float32(0.05), 1),  # type: ignore[arg-type]
    pc.WinnerMargin(),
    pc.WinnerMargin(0.4, "all"),
    pc.MaxAbs(0.2),
    pc.MaxAbs(0),
    pc.Norm(0.2, 1),
    pc.Norm(0.2),
    pc.Norm(0.2, math.inf),
]


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_metrics_travel(metric: pc.Metric) -> None:
    components = components_of_dense()
    claim = pc.Claim([pc.Ball(x, 0.02) for x in CENTERS], pc.Constant(0.2), metric)
    _, new = sent(components, claim)
    assert type(new.metric) is type(metric)
    assert new.metric == metric
    assert {"proved", "refuted"} <= set(assert_same_verdicts(components, claim))


@pytest.mark.parametrize("metric", [pc.MeanSquaredError(0.01), pc.KLDivergence(0.01)], ids=repr)
def test_metrics_for_sampling_travel(metric: pc.Metric) -> None:
    components = components_of_dense()
    claim = pc.Claim([pc.Ball(x, 0.02) for x in CENTERS], pc.Constant(0.2), metric)
    arrived, new = sent(components, claim)
    circuits = some_circuits(components)
    old = Sampled(components, claim, 4).ask(circuits)
    verdicts = Sampled(arrived, new, 4).ask([pc.Circuit(arrived, c.bits) for c in circuits])
    assert all(same(verdict, was) for verdict, was in zip(verdicts, old, strict=True))
    assert {verdict.kind for verdict in old} == {"held", "refuted"}


class Pooled(nn.Module):
    """Convolutions with batch normalisation, a residual connection and max pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.second = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(12, 3)
        for p in (self.norm.running_mean, self.norm.running_var):
            assert p is not None
            p.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.norm(self.first(x)).relu()
        y = (self.second(x) + x).relu()
        logits: Tensor = self.head(self.pool(y).flatten(1))
        return logits


@pytest.fixture(scope="module")
def pooled() -> pc.Graph:
    torch.manual_seed(0)
    return pc.Graph.from_torch(Pooled(), torch.zeros(1, 1, 4, 4))


@pytest.mark.parametrize("patching", [pc.Zero(), pc.Reachable(eps=0.05), pc.IntervalHull(eps=0.05)])
def test_a_convolutional_network_travels(pooled: pc.Graph, patching: pc.Patching) -> None:
    kinds = {type(node.op) for node in pooled.nodes}
    assert {ops.Conv2d, ops.BatchNorm, ops.MaxPool2d, ops.Add, ops.Linear} <= kinds
    components = pooled.components("filter")
    x = torch.rand(1, 4, 4, generator=torch.Generator().manual_seed(2))
    claim = pc.Claim(pc.Ball(x, 0.02, clip=(0, 1)), patching, pc.LogitDifference(0.5))
    arrived, _ = sent(components, claim)
    for old, node in zip(pooled.nodes, arrived.graph.nodes, strict=True):
        assert same(node, old)
    batch = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(run(arrived.graph, batch), run(pooled, batch))
    assert "proved" in assert_same_verdicts(components, claim)


def test_weights_that_two_layers_share_stay_shared() -> None:
    builder = GraphBuilder()
    weight = torch.eye(2)
    first = builder.add("first", ops.Linear(weight), builder.input("x", (2,)))
    graph = builder.build([builder.add("second", ops.Linear(weight), first)])
    claim = pc.Claim(pc.Point([0.0, 1.0]), pc.Zero(), pc.MaxAbs(0.5))
    arrived, _ = sent(graph.components(), claim)
    first_op, second_op = (arrived.graph[name].op for name in ("first", "second"))
    assert first_op.sharing_key == second_op.sharing_key


def test_groups_of_ones_own_travel(pooled: pc.Graph) -> None:
    left = np.zeros((3, 4, 4), dtype=bool)
    left[:, :, :2] = True
    groups = pc.Groups({"first": {"left": left, "right": ~left}, "second": {"all but one": [0, 2]}})
    components = pooled.components(groups)
    claim = pc.Claim(pc.Point(torch.rand(1, 4, 4)), pc.Zero(), pc.WinnerMargin())
    arrived, _ = sent(components, claim)
    assert arrived.names == ("first/left", "first/right", "second/all but one")
    assert all(same(site, old) for site, old in zip(arrived.sites, components.sites, strict=True))
    assert_same_verdicts(components, claim)


OPERATIONS: list[ops.Op] = [
    ops.ReLU(),
    ops.LeakyReLU(0.2),
    ops.Clip(-math.inf, 6.0),
    ops.Sigmoid(),
    ops.Tanh(),
    ops.Square(),
    ops.Add(),
    ops.Subtract(),
    ops.Affine(torch.ones(2)),
    ops.BatchNorm(torch.ones(2, 1, 1), torch.zeros(2, 1, 1)),
    ops.Divide(torch.tensor(3.0)),
    ops.Conv2d(torch.ones(2, 1, 3, 3), None, (2, 1), (1, 0), (1, 2)),
    ops.Linear(torch.ones(2, 3, dtype=torch.float16), torch.ones(2)),
    ops.AdaptiveAvgPool2d((5, 5), (2, 2)),
    ops.AvgPool2d((2, 2), (1, 1), count_include_pad=False),
    ops.MaxPool2d((2, 2), (1, 1)),
    ops.Mean((1, 2), True),
    ops.Concat(0),
    ops.Gather(torch.tensor([[0, 1]])),
    ops.Pad((1, 0, 0, 1)),
    ops.Permute((1, 0)),
    ops.Reshape((4,)),
    ops.Scatter(torch.tensor([0, 2]), (4,)),
    ops.Constant(torch.ones(2)),
    ops.Input((2, 2)),
    ops.IntegerInput((2,)),
    ops.Embedding(torch.ones(3, 2)),
    ops.Multiply(),
    ops.MatMul(),
    ops.Softmax(1),
    ops.Fill(torch.tensor([True, False]), -torch.inf),
    ops.Normalise(1, 1e-5, False),
    ops.GELU(True),
    ops.SiLU(),
    ops.Exp(),
    ops.Erf(),
    ops.Sqrt(),
    ops.Reciprocal(),
    ops.Power(3),
    ops.Slice(0, 1, 3, 2),
    ops.Expand((2, 3)),
    ops.Sum((0,), 4, True),
]


def test_every_operation_travels() -> None:
    def concrete(kind: type) -> Iterator[type]:
        subclasses: list[type] = kind.__subclasses__()
        for below in subclasses:
            if below.__module__.startswith(ops.__name__):
                if not inspect.isabstract(below):
                    yield below
                yield from concrete(below)

    assert {type(op) for op in OPERATIONS} == set(concrete(ops.Op))
    for op in OPERATIONS:
        assert same(_portable().unpack(_portable().pack(op)), op)


def some_verdicts() -> list[pc.Verdict]:
    z = torch.tensor([0.1, -0.0, 1e-310], dtype=torch.float64)
    plain = pc.Witness(1, z, 0.25, z.float(), z + 1, 2)
    ranging = pc.Witness(0, z, math.inf, z, z * math.inf, patch_input=z.flip(0))
    hull = pc.Witness(3, z, 5e-324, z, z, patch_values={"relu": z[None], "b": z.reshape(3, 1)})
    return [
        pc.Proved(-0.1, Stage.LINEAR),
        pc.Proved(-0.0, Stage.REDUNDANT),
        pc.Proved(-math.inf, Stage.LINEAR),
        *(pc.Refuted(witness, Stage.ATTACK) for witness in (plain, ranging, hull)),
        pc.Undecided(Reason.TIME, Stage.SPLITTING),
        pc.Undecided(Reason.MEMORY, Stage.LINEAR, 0.1 + 0.2),
        pc.Held(12, -0.3),
        pc.Proved(-1.0, "Marabou"),
    ]


def test_verdicts_travel_exactly() -> None:
    verdicts = some_verdicts()
    arrived = unpack_verdicts(pack_verdicts(verdicts))
    assert len(arrived) == len(verdicts)
    for verdict, old in zip(arrived, verdicts, strict=True):
        assert same(verdict, old), old
    assert same(arrived[1].bound, -0.0)  # type: ignore[attr-defined]
    assert unpack_verdicts(pack_verdicts([])) == []


@pytest.mark.parametrize("patching", ["reachable", "hull"])
def test_a_witness_that_travelled_breaks_its_circuit_still(patching: str) -> None:
    components = components_of_dense()
    inputs = [pc.Ball(x, 0.05) for x in CENTERS]
    claim = pc.Claim(inputs, PATCHINGS[patching](), pc.LogitDifference(0.003, 1))
    arrived, new = sent(components, claim)
    circuits = [pc.Circuit(arrived, components.full().remove(n).bits) for n in components.names]
    there = pc.Verifier(arrived, new)
    verdicts = [there.ask(circuit) for circuit in circuits]
    found = unpack_verdicts(pack_verdicts(verdicts))
    here = pc.Verifier(components, claim)
    refuted = 0
    for circuit, verdict in zip(circuits, found, strict=True):
        if isinstance(verdict, pc.Refuted):
            refuted += 1
            own = pc.Circuit(components, circuit.bits)
            (again,) = here.carried([own], [verdict.witness])
            assert again is not None
            assert again.witness.excess == pytest.approx(verdict.witness.excess)
            assert (verdict.witness.patch_input is None) == (patching == "hull")
            assert (verdict.witness.patch_values is None) == (patching == "reachable")
    assert refuted >= 3


def test_a_domain_of_ones_own_is_refused_by_name() -> None:
    class Diamond(pc.Point):
        """Not known to those it would be sent to."""

    components = components_of_dense()
    for claim in [
        pc.Claim(Diamond(CENTERS[0]), pc.Zero(), pc.MaxAbs(0.5)),
        pc.Claim(pc.Point(CENTERS[0]), pc.Reachable(domains=Diamond(CENTERS[0])), pc.MaxAbs(0.5)),
    ]:
        with pytest.raises(ArgumentError, match="A Diamond cannot be written down"):
            pack_question(components, claim, SETTINGS)


def test_a_question_that_was_cut_short_is_refused() -> None:
    components = components_of_dense()
    packed = pack_question(
        components, pc.Claim(pc.Point(CENTERS[0]), pc.Zero(), pc.MaxAbs(0.5)), SETTINGS
    )
    for share in itertools.islice(itertools.count(0.1, 0.2), 5):
        with pytest.raises(ArgumentError, match="The data is not what was packed"):
            unpack_question(packed[: int(share * len(packed))])
