"""The merged graph of a query computes what network and circuit compute, run apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.verify.encoding.feeding import (
    COMPONENTS,
    METRICS,
    PATCHINGS,
    circuits,
    conv_graph,
    dense_graph,
    feeds,
    patch_values,
    weights,
)
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.claims.metrics import (
    LogitDifference,
    MaxAbs,
    MeanSquaredError,
    Norm,
)
from provable_circuits.claims.patching import (
    IntervalHull,
    Reachable,
    Zero,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Components
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Conv2d,
    LeakyReLU,
    Linear,
    ReLU,
    Reshape,
    Sigmoid,
)
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import CircuitStep, Role, RoleKind


@pytest.mark.parametrize("cut", COMPONENTS)
@pytest.mark.parametrize("patched", PATCHINGS)
@pytest.mark.parametrize("kind", ["balls", "points"])
def test_a_query_asks_what_the_claim_says(cut: str, patched: str, kind: str) -> None:
    components = COMPONENTS[cut]()
    graph = components.graph
    patching = PATCHINGS[patched](graph)
    centers = weights(3)(2, *graph.input_shape).double()
    domains: list[Domain] = [Ball(x, 0.2) if kind == "balls" else Point(x) for x in centers]
    generator = torch.Generator().manual_seed(4)
    z = torch.cat([domain.sample(1, generator) for domain in domains])
    source = z
    if isinstance(patching, Reachable | IntervalHull):
        source = torch.cat([patching.domain(j, domains).sample(1, generator) for j in (0, 1)])
    for metric in METRICS.values():
        encoder = Encoder(components, Claim(domains, patching, metric))
        patch = patch_values(encoder, patching, source)
        anchor, reference = graph.run(centers), graph.run(z)
        for circuit in circuits(components):
            query = encoder.encode(circuit)
            given = feeds(query, z, source, patch, components)
            y = evaluate(query.graph, given)[query.graph.outputs[0]].expand(2, -1)
            asked = (torch.einsum("kco,ko->kc", query.rows, y) + query.offsets).amax(1)
            wanted = metric.excess(anchor, reference, circuit.run(z, patch))
            torch.testing.assert_close(asked, wanted, rtol=1e-9, atol=1e-9)


def test_whatever_can_be_shared_is_shared() -> None:
    """The full circuit is the network; removing outputs alone leaves all but the end in common."""
    components = dense_graph().components()
    claim = Claim(Ball([0.0] * 4, 0.1), Zero(), MaxAbs(1.0))
    encoder = Encoder(components, claim)
    whole = encoder.encode(components.full())
    assert [node.name for node in whole.graph.nodes] == ["difference~"]
    last = encoder.encode(components.full().remove("fc5/0"))
    assert len(last.graph) <= len(encoder.network) + 4


def test_the_full_circuit_differs_from_the_network_by_nothing() -> None:
    for make in (dense_graph, conv_graph):
        graph = make()
        components = graph.components()
        x = weights(6)(3, *graph.input_shape).double()
        for metric in (LogitDifference(0.5), MaxAbs(0.5), Norm(0.7, 1), Norm(0.7)):
            encoder = Encoder(components, Claim(Ball(x[0], 0.1), Reachable(eps=0.1), metric))
            query = encoder.encode(components.full())
            assert query.graph.inputs == ()
            y = evaluate(query.graph, {})[query.graph.outputs[0]]
            assert not y.any()
            assert y.shape[1] == query.rows.shape[2]


def test_the_2_norm_is_asked_as_a_square() -> None:
    components = COMPONENTS["neurons"]()
    graph = components.graph
    centers = weights(3)(2, 4).double()
    metric = Norm(0.7, 2)
    encoder = Encoder(components, Claim([Ball(x, 0.2) for x in centers], Zero(), metric))
    z = centers + 0.1
    for circuit in circuits(components):
        query = encoder.encode(circuit)
        given = feeds(query, z, z, {}, components)
        y = evaluate(query.graph, given)[query.graph.outputs[0]].expand(2, -1)
        asked = (torch.einsum("kco,ko->kc", query.rows, y) + query.offsets).amax(1)
        wanted = metric.excess(graph.run(centers), graph.run(z), circuit.run(z))
        torch.testing.assert_close(asked, (wanted + 0.7) ** 2 - 0.7**2, rtol=1e-9, atol=1e-9)


def test_removed_channels_are_cut_out_of_the_weights() -> None:
    w, builder = weights(0), GraphBuilder()
    value = builder.input("x", (2, 5, 5))
    for i, (before, after) in enumerate([(2, 4), (4, 5), (5, 3)]):
        conv = builder.add(f"conv{i}", Conv2d(w(after, before, 1, 1), w(after)), value)
        value = builder.add(f"relu{i}", ReLU(), conv)
    flat = builder.add("flat", Reshape((75,)), value)
    graph = builder.build([builder.add("head", Linear(w(2, 75)), flat)])
    components = graph.components("filter")
    encoder = Encoder(components, Claim(Ball(torch.zeros(2, 5, 5), 0.1), Zero(), MaxAbs(1.0)))
    outputs = [name for name in components.names if name.startswith("head")]
    query = encoder.encode(components.full().remove("conv0/1", "conv1/0", "conv1/4", "conv2/0"))
    sizes = {
        query.roles[node.name].tensor: tuple(node.op.weight.shape[:2])
        for node in query.graph.nodes
        if isinstance(node.op, Conv2d | Linear) and query.roles[node.name].kind is RoleKind.CIRCUIT
    }
    # The first layer is the network's own, so what reads it has zeros in place of one channel.
    assert sizes == {"conv1": (3, 4), "conv2": (2, 3), "head": (2, 50)}
    query = encoder.encode(
        components.circuit(["conv0/1", "conv1/3", "conv2/0", "conv2/1", *outputs])
    )
    (conv1,) = (n.op for n in query.graph.nodes if n.name.startswith("conv1~"))
    assert isinstance(conv1, Conv2d)
    assert len(conv1.weight) == 1, "one channel is cut out as two are"


def test_printing_a_query_shows_its_size() -> None:
    components = dense_graph().components()
    encoder = Encoder(components, Claim(Ball([0.0] * 4, 0.1), Reachable(eps=0.1), MaxAbs(1.0)))
    whole = encoder.encode(components.full())
    less = encoder.encode(components.full().remove("fc1/0"))
    assert repr(whole).startswith(f"Query({len(components)} of {len(components)} components")
    assert "1 inputs x 6 constraints" in repr(whole)
    for query in (whole, less):
        assert f"{len(query.graph)} nodes" in repr(query)
        assert f"{query.unstable} of " in repr(query)
        assert "activation units unstable" in repr(query)
        assert "of them the network's own" in repr(query)
    assert "patch:input [4]" in repr(less)
    assert "patch:input" not in repr(whole)


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (lambda: Claim(Point([0.0] * 3), Zero(), MaxAbs(1.0)), "the network takes"),
        (
            lambda: Claim(Point([0.0] * 4), Reachable(domains=Point([0.0] * 3)), MaxAbs(1.0)),
            "patching's domains have shape",
        ),
    ],
)
def test_claims_that_do_not_fit_are_errors(claim: Callable[[], Claim], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Encoder(dense_graph().components(), claim())


def test_a_metric_for_sampling_alone_is_an_error() -> None:
    claim = Claim(Point([0.0] * 4), Zero(), MeanSquaredError(1.0))
    with pytest.raises(ArgumentError, match="MeanSquaredError serves sampling alone"):
        Encoder(dense_graph().components(), claim)


@pytest.mark.parametrize("name", ["patch:input", "patch:x", "at:fc", "fc~1", "difference~"])
@pytest.mark.parametrize("patched", PATCHINGS)
def test_a_network_may_have_tensors_named_like_labels(name: str, patched: str) -> None:
    """Names have no meaning: under any of them a query computes the same."""

    def output(hidden: str) -> Tensor:
        w, builder = weights(0), GraphBuilder()
        x = builder.input("x", (2,))
        first = builder.add("fc", Linear(w(3, 2), w(3)), x)
        second = builder.add(hidden, Linear(w(3, 3)), builder.add("relu", ReLU(), first))
        last = Linear(w(2, 3))
        graph = builder.build([builder.add("y", last, builder.add("r", ReLU(), second))])
        components = graph.components()
        claim = Claim(Ball([0.1, 0.2], 0.1), PATCHINGS[patched](graph), MaxAbs(1.0))
        query = Encoder(components, claim).encode(components.full().remove("fc/0"))
        points = {n: r.lower * 0.9 + r.upper * 0.1 for n, r in query.ranges.items()}
        return evaluate(query.graph, points)[query.graph.outputs[0]]

    plain = output("hidden")
    assert bool(plain.any())
    torch.testing.assert_close(output(name), plain)


def test_only_patchings_that_have_them_have_boxes_and_sources() -> None:
    components = dense_graph().components()
    encoder = Encoder(components, Claim(Point([0.0] * 4), Zero(), MaxAbs(1.0)))
    assert encoder.patch_range is None
    with pytest.raises(ArgumentError, match="Only IntervalHull"):
        _ = encoder.hull
    with pytest.raises(ArgumentError, match="no source"):
        encoder.patch_source()
    reachable = Encoder(components, Claim(Point([0.0] * 4), Reachable(eps=0.1), MaxAbs(1.0)))
    assert not reachable.fixed
    graph, ranges, roles = reachable.patch_source()
    x = weights(4)(3, 4).double() * 0.1
    (given,) = graph.inputs
    assert roles[given].kind is RoleKind.PATCH_INPUT
    values = evaluate(graph, {given: x})
    torch.testing.assert_close(values[graph.outputs[0]], components.graph.run(x))
    assert set(ranges) == {given}
    assert bool((ranges[given].upper >= 0.1).all())


def test_the_box_of_one_input() -> None:
    components = dense_graph().components()
    centers = weights(3)(3, 4).double()
    claim = Claim([Ball(x, 0.1) for x in centers], IntervalHull(eps=0.2), MaxAbs(1.0))
    encoder = Encoder(components, claim)
    for index in range(3):
        alone = Encoder(
            components, Claim(Ball(centers[index], 0.1), IntervalHull(eps=0.2), MaxAbs(1.0))
        )
        for site in components.sites:
            lower, upper = encoder.hull_at(site.tensor, index)
            assert lower.shape == (1, *site.layer.shape)
            assert bool((lower <= upper).all())
            assert bool((lower < upper).any()) or site.tensor == "clip"
            torch.testing.assert_close((lower, upper), alone.hull[site.tensor])


def test_units_that_intervals_leave_open_are_counted() -> None:
    """Of piecewise linear functions those that have both signs, of others those that move; the
    most."""
    ends = [(-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (0.5, 3.0), (-2.0, -1.0), (-0.5, 0.5)]
    ends += [(-3.0, 2.0)]
    lower, upper = torch.tensor([*ends, (1.0, 1.0)], dtype=torch.float64).T
    box = InputRange(torch.stack([lower, lower]), torch.stack([upper, lower]))
    for op, count in ((ReLU(), 3), (LeakyReLU(0.1), 3), (Sigmoid(), 7)):
        builder = GraphBuilder()
        x = builder.input("x", (8,))
        graph = builder.build([builder.add("y", op, x)])
        query = Query(
            graph=graph,
            ranges={"x": box},
            rows=torch.zeros(2, 1, 8),
            offsets=torch.zeros(2, 1),
            roles={"x": Role(RoleKind.INPUT, "x"), "y": Role(RoleKind.SPECIFICATION, "y")},
            circuit=dense_graph().components().full(),
            removed_units={},
        )
        assert query.unstable == count
        two = [builder.add("z", op, "y"), "y"]
        both = builder.build([builder.add("sum", Add(), *two)])
        assert replace(query, graph=both).unstable > count or isinstance(op, ReLU)


def test_domains_that_say_more_than_their_box_are_kept() -> None:
    components, point = dense_graph().components(), [0.5] * 4
    cases: list[tuple[list[Domain], bool]] = [
        ([Ball(point, 0.1)], False),
        ([Box([0.0] * 4, [1.0] * 4)], False),
        ([Ball(point, 0.1, 2)], True),
        ([Ball(point, 0.1, 1), Ball(point, 0.1)], True),
        ([Ball(point, 0.1), Ball(point, 0.1, 2)], True),
    ]
    for domains, kept in cases:
        encoder = Encoder(components, Claim(domains, Zero(), MaxAbs(1.0)))
        box = encoder.z_range
        assert box.domains == (tuple(domains) if kept else None)
        assert box.lower.shape == box.upper.shape == (len(domains), 4)
        for i, domain in enumerate(domains):
            lower, upper = domain.bounds()
            assert torch.equal(box.lower[i], lower)
            assert torch.equal(box.upper[i], upper)


def test_upstream_are_the_components_whose_removal_reaches_a_tensor() -> None:
    components = dense_graph().components()
    encoder = Encoder(components, Claim(Ball([0.0] * 4, 0.1), Zero(), MaxAbs(1.0)))
    bits = {site.layer.name: 0 for site in components.sites}
    for site in components.sites:
        for component in site.components:
            bits[site.layer.name] |= 1 << components.names.index(component.name)
    assert encoder.upstream["x"] == encoder.upstream["c"] == encoder.upstream["fc1"] == 0
    assert encoder.upstream["relu"] == bits["fc1"]
    first = bits["fc1"] | bits["fc2"]
    assert encoder.upstream["fc2"] == encoder.upstream["cat"] == encoder.upstream["fc3"] == first
    assert encoder.upstream["fc5"] == sum(bits.values())


@pytest.mark.parametrize("patched", ["zero", "reachable"])
def test_common_are_the_tensors_that_mean_the_same_in_every_query(patched: str) -> None:
    for make in (dense_graph, conv_graph):
        components = make().components()
        graph = components.graph
        centers = weights(3)(1, *graph.input_shape).double()
        claim = Claim(Ball(centers[0], 0.1), PATCHINGS[patched](graph), MaxAbs(1.0))
        encoder = Encoder(components, claim)
        for circuit in circuits(components):
            query = encoder.encode(circuit)
            names = {node.name for node in query.graph.nodes}
            assert names <= query.roles.keys()
            other = names - query.common - query.lasting
            kinds = {query.roles[name].kind for name in other}
            assert kinds <= {RoleKind.CONSTANT, RoleKind.SPECIFICATION}
            assert RoleKind.SPECIFICATION in kinds
            assert not query.common & query.lasting
            first = next(node.name for node in query.graph.nodes)
            assert query.roles[first].common or not query.ranges


def test_only_sites_that_lose_something_are_patched() -> None:
    components = dense_graph().components()
    claim = Claim(Ball([0.0] * 4, 0.1), Reachable(eps=0.1), MaxAbs(1.0))
    for gone in ("fc1/0", "fc2/0", "fc3/1", "fc5/0"):
        query = Encoder(components, claim).encode(components.full().remove(gone))
        ((place, _),) = (s for s in _sites(components).items() if s[1] == gone.partition("/")[0])
        steps = (CircuitStep.MASKED, CircuitStep.SOURCE, CircuitStep.PATCHED)
        roles = [query.roles[node.name] for node in query.graph.nodes]
        patched = {role.tensor for role in roles if role.step in steps}
        assert patched == {place}


def _sites(components: Components) -> dict[str, str]:
    return {site.tensor: site.layer.name for site in components.sites}


@pytest.mark.parametrize("cut", COMPONENTS)
@pytest.mark.parametrize("patched", ["zero", "constant", "reachable"])
def test_a_role_means_one_thing(cut: str, patched: str) -> None:
    """Bounds are remembered by roles: in all queries of an encoder, one role, one tensor."""
    components = COMPONENTS[cut]()
    graph = components.graph
    z, source = weights(3)(2, 1, *graph.input_shape).double()
    claim = Claim(Ball(z[0], 1e-9), PATCHINGS[patched](graph), MaxAbs(1.0))
    encoder = Encoder(components, claim)
    seen: dict[tuple[Role, tuple[int, ...]], Tensor] = {}
    again = 0
    for circuit in circuits(components):
        query = encoder.encode(circuit)
        kinds = {name: query.roles[name].kind for name in query.graph.inputs}
        inputs = {n: source if k is RoleKind.PATCH_INPUT else z for n, k in kinds.items()}
        every = [node.name for node in query.graph.nodes]
        for name, value in evaluate(query.graph, inputs, every).items():
            if name in query.lasting | query.common:
                kept = query.cut.get(name)
                key = (query.roles[name], () if kept is None else tuple(kept.tolist()))
                again += key in seen
                torch.testing.assert_close(value, seen.setdefault(key, value))
    assert again > 3


def test_roles_do_not_depend_on_what_lies_behind() -> None:
    components = dense_graph().components()
    encoder = Encoder(components, Claim(Ball([0.0] * 4, 0.1), Zero(), MaxAbs(1.0)))
    less = components.full().remove("fc1/0")
    one, two = (encoder.encode(c) for c in (less, less.remove("fc4/0", "fc5/0")))
    for tensor in ("relu", "fc2", "moved", "cat", "fc3"):
        assert one.roles[one.held(tensor).node] == two.roles[two.held(tensor).node]
    assert one.held("fc3").node in one.lasting & two.lasting
    assert one.roles[one.held("fc5").node] != two.roles[two.held("fc5").node]
