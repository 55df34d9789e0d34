"""Circuits as graphs of components: which edges there are, and that others can read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import networkx
import pytest
import torch
from tests.network.networks import conv_graph, dense_graph, weights
from torch import nn

import provable_circuits as pc
from provable_circuits.network.component_graph import INPUT, connections
from provable_circuits.network.components import Components
from provable_circuits.network.execution import circuit_activations
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import (
    Add,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Gather,
    LeakyReLU,
    Linear,
    Permute,
    Reshape,
)


def small() -> pc.Circuit:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    return pc.Graph.from_torch(net, torch.zeros(1, 2)).components().full().remove("0/1", "2/0")


def test_layers_one_after_another() -> None:
    found = connections(small().components)
    assert (found.sources, found.output) == (((INPUT,), (0,)), (1,))


def test_both_ways_around_a_residual_block() -> None:
    """fc3 reads fc2 and, by the addition, fc1; and the input, which is joined to them."""
    found = connections(dense_graph().components())
    assert found.sources == ((INPUT,), (0,), (INPUT, 0, 1), (2,))
    assert found.output == (3,)


def test_layers_without_components_are_passed_through() -> None:
    components = conv_graph().components("filter", shortcuts=True)
    names = [site.layer.name for site in components.sites]
    assert names == ["conv1", "conv2", "proj"]
    found = connections(components)
    assert found.sources == ((INPUT,), (0,), (INPUT,))
    assert found.output == (0, 1, 2)
    without = connections(conv_graph().components("filter"))
    assert without.output == (INPUT, 0, 1)


def test_units_in_no_component_let_paths_past() -> None:
    components = dense_graph().components(pc.Groups({"fc1": {"a": [0]}, "fc2": {"b": [0]}}))
    assert connections(components).sources == ((INPUT,), (INPUT, 0))


def test_networkx() -> None:
    circuit = small()
    graph = circuit.to_networkx()
    assert list(graph.nodes) == ["input", *circuit.components.names, "output"]
    assert graph.nodes["0/1"] == {"layer": "0", "index": 1, "kept": False}
    assert graph.nodes["input"]["kept"]
    assert graph.number_of_edges() == 3 + 6 + 2
    assert networkx.is_directed_acyclic_graph(graph)
    kept = {edge for edge in graph.edges if graph.edges[edge]["kept"]}
    assert kept == {
        ("input", "0/0"),
        ("input", "0/2"),
        ("0/0", "2/1"),
        ("0/2", "2/1"),
        ("2/1", "output"),
    }
    assert graph.graph["size"] == 3


# --- grouped convolutions ------------------------------------------------------------------------


def edges_between(graph: networkx.DiGraph, one: str, two: str) -> set[tuple[int, int]]:
    """The edges from components of one layer to those of another, by their numbers."""
    layer = graph.nodes(data="layer")
    index = graph.nodes(data="index")
    return {(index[a], index[b]) for a, b in graph.edges if (layer[a], layer[b]) == (one, two)}


def depthwise(*between: nn.Module) -> pc.Circuit:
    x = torch.zeros(1, 1, 6, 6)
    layers = [nn.Conv2d(1, 3, 3, padding=1), *between, nn.Conv2d(3, 3, 3, padding=1, groups=3)]
    maps = nn.Sequential(*layers, nn.Flatten()).eval()
    net = nn.Sequential(*maps, nn.Linear(maps(x).numel(), 2)).eval()
    return pc.Graph.from_torch(net, x).components(pc.Blocks(1)).full()


@pytest.mark.parametrize(
    "between",
    [
        (),
        (nn.ReLU(),),
        (nn.BatchNorm2d(3), nn.ReLU()),
        (nn.ReLU(), nn.MaxPool2d(2)),
        (nn.BatchNorm2d(3), nn.LeakyReLU(), nn.AvgPool2d(3, 1, 1)),
        (nn.ZeroPad2d(1), nn.Sigmoid(), nn.MaxPool2d(3, 1)),
    ],
    ids=str,
)
def test_a_depthwise_convolution_has_an_edge_for_each_channel(between: Any) -> None:
    circuit = depthwise(*between)
    first, second, last = (site.layer.name for site in circuit.components.sites)
    graph = circuit.to_networkx()
    assert edges_between(graph, first, second) == {(0, 0), (1, 1), (2, 2)}
    assert edges_between(graph, second, last) == {(i, j) for i in range(3) for j in range(2)}
    assert graph.number_of_edges() == 3 + 3 + 6 + 2
    found = read(circuit.to_eap_json())
    assert len(found.edges) == graph.number_of_edges()
    own = {edge for edge in found.edges if edge[0].startswith(f"{first}/")}
    assert own == {(f"{first}/{i}", f"{second}/{i}") for i in range(3)}
    heads = json.loads(circuit.to_eap_json(heads=True))
    assert sum(name.startswith("a0.h0->") for name in heads["edges"]) == 3


def test_groups_of_several_channels() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 1, groups=2), nn.Flatten())
    circuit = pc.Graph.from_torch(net, torch.zeros(1, 1, 2, 2)).components("filter").full()
    found = edges_between(circuit.to_networkx(), "0", "2")
    assert found == {(i, j) for i in range(4) for j in range(6) if i // 2 == j // 3}


def mixed() -> Components:
    """Groups behind a sum, a shuffle of channels, a join, a linear layer on part of a tensor."""
    w, builder = weights(4), GraphBuilder()
    x = builder.input("x", (2, 4, 4))
    a = builder.add("a", Conv2d(w(4, 2, 3, 3), w(4), padding=(1, 1)), x, layer="a")
    normal = builder.add("bn", BatchNorm(w(4, 1, 1), w(4, 1, 1)), a)
    active = builder.add("act", LeakyReLU(0.3), normal)
    b = builder.add("b", Conv2d(w(4, 1, 3, 3), None, padding=(1, 1), groups=4), active, layer="b")
    total = builder.add("sum", Add(), b, active)
    split = builder.add("split", Reshape((2, 2, 4, 4)), total)
    mixed = builder.add(
        "mixed", Reshape((4, 4, 4)), builder.add("turn", Permute((1, 0, 2, 3)), split)
    )
    c = builder.add("c", Conv2d(w(6, 2, 1, 1), w(6), groups=2), mixed, layer="c")
    pooled = builder.add("pool", AvgPool2d((2, 2), (2, 2)), c)
    joined = builder.add(
        "join", Concat(0), pooled, builder.add("small", AvgPool2d((2, 2), (2, 2)), x)
    )
    d = builder.add("d", Conv2d(w(8, 1, 2, 2), None, groups=8), joined, layer="d")
    flat = builder.add("flat", Reshape((8,)), d)
    part = builder.add("part", Gather(torch.arange(2, 7)), flat)
    e = builder.add("e", Linear(w(3, 5)), part, layer="e")
    return builder.build([e]).components(pc.Blocks(1))


def by_patching(components: Components) -> set[tuple[str, str]]:
    """Edges by experiment: whether a component, alone, follows the patch of another."""
    graph = components.graph
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(1, *graph.input_shape, generator=draw, dtype=torch.float64)

    def random() -> dict[str, torch.Tensor]:
        return {
            site.tensor: torch.randn(1, *site.layer.shape, generator=draw, dtype=torch.float64)
            for site in components.sites
        }

    plain, other = random(), random()
    found = set()
    for site in components.sites:
        for target in site.components:
            alone = components.circuit([target.name])
            units = site.labels.expand(site.layer.shape) == target.index
            before = circuit_activations(alone, x, [site.tensor], plain)[site.tensor][0][units]
            for source in components.sites:
                for moved in source.components:
                    own = source.labels.expand(source.layer.shape) == moved.index
                    changed = torch.where(own, other[source.tensor], plain[source.tensor])
                    patch = {**plain, source.tensor: changed}
                    after = circuit_activations(alone, x, [site.tensor], patch)[site.tensor]
                    if moved != target and not torch.equal(before, after[0][units]):
                        found.add((moved.name, target.name))
    return found


@pytest.mark.parametrize(
    "make",
    [
        mixed,
        lambda: mixed().graph.components(pc.Patches(2, 2)),
        lambda: mixed().graph.components(
            pc.Groups({"a": {"u": [0, 1]}, "c": {"v": [0], "w": [4]}})
        ),
        lambda: dense_graph().components(),
    ],
    ids=["grouped", "patches", "groups by hand", "dense"],
)
def test_edges_are_what_an_experiment_finds(make: Any) -> None:
    components: Components = make()
    graph = components.full().to_networkx()
    ends = {"input", "output"}
    assert {edge for edge in graph.edges if not ends & set(edge)} == by_patching(components)


# --- a reader written from the schema ------------------------------------------------------------


@dataclass
class Read:
    """A graph as its file tells it: which nodes and which pairs of nodes are in the circuit."""

    nodes: dict[str, bool]
    edges: dict[tuple[str, str], bool]


def read(text: str) -> Read:
    """Edges by their two ends, which the name joins with an arrow."""
    document = json.loads(text)
    assert set(document) == {"cfg", "nodes", "edges"}
    nodes = {name: node["in_graph"] for name, node in document["nodes"].items()}
    edges = {}
    for name, edge in document["edges"].items():
        parent, child = name.split("->")
        assert {parent, child} <= set(nodes)
        assert edge["score"] == float(edge["in_graph"])
        edges[parent, child] = edge["in_graph"]
    return Read(nodes, edges)


class Transformer:
    """The nodes and edges that a transformer of some size has, by EAP-IG's names."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        self.nodes, self.edges = {"input": True}, {}
        stream = ["input"]
        for layer in range(cfg["n_layers"]):
            heads = [f"a{layer}.h{head}" for head in range(cfg["n_heads"])]
            self.edges.update(
                {f"{one}->{head}<{q}>": False for one in stream for head in heads for q in "qkv"}
            )
            stream += heads
            self.edges.update({f"{one}->m{layer}": False for one in stream})
            stream.append(f"m{layer}")
        self.edges.update({f"{one}->logits": False for one in stream})
        self.nodes |= dict.fromkeys(stream[1:], False)

    def load(self, document: dict[str, Any]) -> None:
        """Take over what a file says, which must know no other nodes and edges."""
        for name, node in document["nodes"].items():
            if name != "logits":
                assert name in self.nodes
                self.nodes[name] = node["in_graph"]
        for name, edge in document["edges"].items():
            assert name in self.edges
            self.edges[name] = edge["in_graph"]


@pytest.mark.parametrize("make", [small, lambda: dense_graph().components().full().remove("fc2/1")])
def test_the_schema_of_eap_and_mib_round_trip(make: Any) -> None:
    circuit: pc.Circuit = make()
    found, graph = read(circuit.to_eap_json()), circuit.to_networkx()
    ends = {"output": "logits"}
    assert found.nodes == {ends.get(n, n): graph.nodes[n]["kept"] for n in graph}
    assert found.edges == {(a, ends.get(b, b)): kept for a, b, kept in graph.edges(data="kept")}
    names = [name for name, kept in found.nodes.items() if kept][1:-1]
    assert circuit.components.circuit(names) == circuit


@pytest.mark.parametrize("make", [small, lambda: conv_graph().components("filter").full()])
def test_as_heads_it_is_a_part_of_a_transformer(make: Any) -> None:
    circuit: pc.Circuit = make()
    document = json.loads(circuit.to_eap_json(heads=True))
    transformer = Transformer(document["cfg"])
    transformer.load(document)
    kept = [node["component"] for node in document["nodes"].values() if "component" in node]
    assert kept == list(circuit.components.names)
    in_graph = [name for name, inside in transformer.nodes.items() if inside]
    assert len(in_graph) == 1 + len(circuit)
    graph = circuit.to_networkx()
    into_output = graph.in_degree("output")
    assert len(document["edges"]) == 3 * (graph.number_of_edges() - into_output) + into_output


def test_arrows_and_odd_characters_in_names() -> None:
    drawn, builder = weights(6), GraphBuilder()
    value = builder.input("x", (2,))
    for name in ("a->b", "a→b", "<&\"'é>", "c"):
        value = builder.add(name, Linear(drawn(2, 2)), value, layer=name)
    circuit = builder.build([value]).components().full().remove("a->b/0")
    text = circuit.to_eap_json()
    found = read(text)
    assert len(found.nodes) == 2 + 8
    original = {name: node.get("component") for name, node in json.loads(text)["nodes"].items()}
    removed = [original[name] for name, inside in found.nodes.items() if not inside]
    assert removed == ["a->b/0"]
    assert sorted(filter(None, original.values())) == sorted(circuit.components.names)


def test_the_empty_circuit_keeps_its_ends() -> None:
    found = read(small().components.empty().to_eap_json())
    assert [name for name, inside in found.nodes.items() if inside] == ["input", "logits"]
    assert not any(found.edges.values())
