"""Enclosures derived from those of a larger circuit, against what the smaller circuit computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.verify.bounding.known import known_of, single
from tests.verify.encoding.feeding import COMPONENTS, PATCHINGS, feeds, patch_values, weights
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Box, Point
from provable_circuits.claims.metrics import MaxAbs
from provable_circuits.claims.patching import Constant, IntervalHull, Patching, Reachable, Zero
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Affine,
    AvgPool2d,
    Concat,
    Conv2d,
    Linear,
    ReLU,
    Reshape,
)
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.differential import DifferentialBounds
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query


def chain(components: Components, seed: int) -> tuple[Circuit, Circuit]:
    """A circuit and a smaller one; in some layers nothing is left, in some nothing goes."""
    drawn = torch.rand(2, len(components), generator=torch.Generator().manual_seed(seed))
    larger = [n for n, share in zip(components.names, drawn[0], strict=True) if share < 0.8]
    smaller = [n for n, share in zip(components.names, drawn[1], strict=True) if share < 0.7]
    whole = components.full() if seed % 3 == 0 else components.circuit(larger)
    return whole, whole & components.circuit(smaller)


def values_of(
    encoder: Encoder, query: Query, patching: Patching, count: int, seed: int
) -> list[dict[str, Tensor]]:
    """Every tensor of a query, at inputs and patches of its claim."""
    generator = torch.Generator().manual_seed(seed)
    domains = encoder.claim.inputs
    found = []
    for _ in range(count):
        z = torch.cat([domain.sample(1, generator) for domain in domains])
        source = z
        if isinstance(patching, Reachable | IntervalHull):
            each = [patching.domain(j, domains) for j in range(len(domains))]
            source = torch.cat([domain.sample(1, generator) for domain in each])
        patch = patch_values(encoder, patching, source)
        given = feeds(query, z, source, patch, encoder.components)
        found.append(evaluate(query.graph, given, [node.name for node in query.graph.nodes]))
    return found


@pytest.mark.parametrize("cut", COMPONENTS)
@pytest.mark.parametrize("patched", PATCHINGS)
@pytest.mark.parametrize("eps", [0.0, 1e-7, 0.3])
def test_what_is_derived_encloses_the_smaller_circuit(cut: str, patched: str, eps: float) -> None:
    components = COMPONENTS[cut]()
    graph = components.graph
    patching = PATCHINGS[patched](graph)
    if eps == 1e-7 and isinstance(patching, Reachable | IntervalHull):
        patching = type(patching)(eps=eps)
    centers = weights(3)(2, *graph.input_shape).double()
    domains = [Ball(x, eps) if eps else Point(x) for x in centers]
    encoder = Encoder(components, Claim(domains, patching, MaxAbs(0.5)))
    difference = DifferentialBounds(encoder)
    derivations = checked = 0
    for seed in range(6):
        larger, smaller = chain(components, seed)
        before, after = encoder.encode(larger), encoder.encode(smaller)
        network = bool(seed % 2) or eps == 1e-7
        derived = difference.enclosures(known_of(encoder, before, network), after)
        derivations += len(derived)
        offered(after, derived)
        for values in values_of(encoder, after, patching, 4, seed):
            for name, (lower, upper) in derived.items():
                if name in after.graph:  # the circuit may have lost what reads it
                    value = values[name]
                    assert lower.shape[1:] == value.shape[1:]
                    inside = (lower <= value + 1e-9) & (value - 1e-9 <= upper)
                    assert bool(inside.all()), (name, seed)
                    checked += 1
        if eps == 1e-7 and patched not in ("reachable", "hull"):
            narrow(derived)
    assert derivations
    assert checked


def offered(query: Query, derived: dict[str, Interval]) -> None:
    """Only nodes of the circuit's own tensors get bounds, not those that it shares."""
    own = {held.node for held in query.tensors.values()} - query.common
    assert derived.keys() <= own


def narrow(derived: dict[str, Interval]) -> None:
    """Where nothing ranges far, what is derived must not either."""
    for name, (lower, upper) in derived.items():
        width = upper - lower
        known = width.isfinite()  # of channels that neither circuit computes there is nothing
        assert bool(known.any()), name
        assert bool((width[known] < 1e-2).all()), name


def branches() -> Graph:
    """Three filters, a grouped layer, a sum of what moves and what does not, and a join."""
    w, builder = weights(5), GraphBuilder()
    x = builder.input("x", (2, 3, 3))
    conv = builder.add("conv", Conv2d(w(4, 2, 1, 1), w(4)), x)
    relu = builder.add("relu", ReLU(), conv)
    grouped = builder.add("grouped", Conv2d(w(4, 2, 1, 1), w(4), groups=2), relu)
    still = builder.add("still", Conv2d(w(4, 2, 1, 1), w(4)), x)
    total = builder.add("total", Add(), builder.add("acted", ReLU(), grouped), still)
    moved = builder.add("moved", Affine(w(4, 1, 1), w(4, 1, 1)), total)
    joined = builder.add("joined", Concat(0), builder.add("relu2", ReLU(), moved), still)
    flat = builder.add("flat", Reshape((72,)), joined)
    return builder.build([builder.add("y", Linear(w(2, 72), w(2)), flat)])


@pytest.mark.parametrize("make", [Zero, lambda: Constant(0.7)])
@pytest.mark.parametrize("order", range(4))
def test_layers_that_are_emptied_in_two_steps(make: Callable[[], Patching], order: int) -> None:
    """Some filters first, the others later: the node of the first step holds all channels."""
    graph = branches()
    components = graph.components("filter")
    centers = weights(3)(2, 2, 3, 3).double()
    patching = make()
    claim = Claim([Ball(x, 1e-6) for x in centers], patching, MaxAbs(0.5))
    encoder = Encoder(components, claim)
    layer = ["conv", "grouped"][order % 2]
    first = components.full().remove(f"{layer}/0", f"{layer}/2")
    second = first.remove(f"{layer}/1", *([f"{layer}/3"] if order > 1 else []))
    before, after = encoder.encode(first), encoder.encode(second)
    derived = DifferentialBounds(encoder).enclosures(known_of(encoder, before), after)
    assert derived
    offered(after, derived)
    narrow(derived)
    for values in values_of(encoder, after, patching, 3, order):
        for name in derived.keys() & values.keys():
            lower, upper = derived[name]
            inside = (lower <= values[name] + 1e-9) & (values[name] - 1e-9 <= upper)
            assert bool(inside.all()), name


def test_nodes_that_are_shared_keep_their_bounds() -> None:
    """Behind filters that count as zero the pooled node is the network's own, whatever is kept."""
    w, builder = weights(6), GraphBuilder()
    x = builder.input("x", (1, 4, 4))
    relu = builder.add("relu", ReLU(), builder.add("conv", Conv2d(w(3, 1, 1, 1), w(3)), x))
    pool = builder.add("pool", AvgPool2d((2, 2), (2, 2)), relu)
    flat = builder.add("flat", Reshape((12,)), pool)
    graph = builder.build([builder.add("y", Linear(w(2, 12)), flat)])
    components = graph.components("filter")
    claim = Claim(Ball(torch.zeros(1, 4, 4), 0.1), Zero(), MaxAbs(1.0))
    encoder = Encoder(components, claim)
    query = encoder.encode(components.full().remove("conv/1"))
    assert query.held("pool").node in query.common
    known = known_of(encoder, encoder.encode(components.full()))
    derived = DifferentialBounds(encoder).enclosures(known, query)
    offered(query, derived)
    assert {query.roles[name].tensor for name in derived} == {"y"}


def test_constants_of_layers_do_not_move_anything() -> None:
    """Of a change only the linear part is taken: offsets cancel."""
    components = single(ReLU(), -4.0, also=100.0).components()
    encoder = Encoder(components, Claim(Box([1.0], [2.0]), Zero(), MaxAbs(1.0)))
    ops = DifferentialBounds(encoder)._homogeneous
    for name in ("first", "second", "again"):
        op = ops[name]
        assert isinstance(op, Linear)
        assert op.bias is None
        assert torch.equal(op.weight, encoder.ops[name].parameters()["weight"])
    graph = branches()
    encoder = Encoder(graph.components(), Claim(Point(torch.zeros(2, 3, 3)), Zero(), MaxAbs(1.0)))
    homogeneous = DifferentialBounds(encoder)._homogeneous
    for name in ("conv", "grouped"):
        conv = homogeneous[name]
        assert isinstance(conv, Conv2d)
        assert conv.bias is None
    moved = homogeneous["moved"]
    assert isinstance(moved, Affine)
    assert moved.shift is None
    assert moved.scale is not None
