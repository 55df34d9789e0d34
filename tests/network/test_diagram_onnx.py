"""Drawings against ONNX files: every connection that a file has is drawn, and no other.

What a file has is found by a walk over its nodes, channel by channel, that shares no code with the
package.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.network.networks import GRAPHS

from provable_circuits.drawing.diagram import Diagram
from provable_circuits.drawing.layout import arrange
from provable_circuits.network.components import Components
from provable_circuits.network.diagram import diagram_of
from provable_circuits.network.graph import Graph

Unit = tuple[str, int]
"""A layer, and the place of a component in it; of the input and the output 0."""

SIZE = 4
"""The rows and columns of feature maps."""


class Model:
    """An ONNX model that is written node by node; all tensors but the last are feature maps."""

    def __init__(self, channels: int = 2) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels = {"x": channels}
        self.first = channels

    def constant(self, name: str, values: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, name: str, channels: int, *inputs: str, **options: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **options))
        self.channels[name] = channels
        return name

    def conv(self, name: str, source: str, channels: int = 2, groups: int = 1) -> str:
        shape = channels, self.channels[source] // groups, 1, 1
        values = np.random.default_rng(len(self.nodes)).normal(size=shape).astype(np.float32)
        weight = self.constant(f"{name}.weight", values)
        return self.node("Conv", name, channels, source, weight, group=groups)

    def relu(self, source: str) -> str:
        return self.node("Relu", f"relu{len(self.nodes)}", self.channels[source], source)

    def merge(self, kind: str, *sources: str) -> str:
        name, sizes = f"merge{len(self.nodes)}", [self.channels[source] for source in sources]
        if kind == "Concat":
            return self.node(kind, name, sum(sizes), *sources, axis=1)
        return self.node(kind, name, sizes[0], *sources)

    def part(self, source: str, start: int, stop: int) -> str:
        name = f"part{len(self.nodes)}"
        ends = [
            self.constant(f"{name}.{which}", np.array([place]))
            for which, place in (("start", start), ("stop", stop), ("axis", 1))
        ]
        return self.node("Slice", name, stop - start, source, *ends)

    def head(self, source: str, outputs: int = 3) -> str:
        flat = self.node("Flatten", "flat", self.channels[source] * SIZE**2, source)
        weight = self.constant("head.weight", np.ones((outputs, self.channels[flat]), np.float32))
        return self.node("Gemm", "head", outputs, flat, weight, transB=1)

    def unread(self) -> list[str]:
        read = {name for node in self.nodes for name in node.input}
        return [name for name in self.channels if name not in read]

    def save(self, path: Path) -> Path:
        last = self.nodes[-1].output[0]
        shape: list[str | int | None] = ["batch", self.first, SIZE, SIZE]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
            self.weights,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
        return path


def residual() -> Model:
    """A block with a projection around it and two without."""
    model = Model()
    stream = model.conv("first", "x")
    for name in ("a", "b", "c"):
        inner = model.relu(model.conv(f"{name}.conv1", stream))
        outer = model.conv(f"{name}.conv2", inner)
        around = model.conv(f"{name}.shortcut", stream) if name == "a" else stream
        stream = model.relu(model.merge("Add", outer, around))
    model.head(stream)
    return model


def branches() -> Model:
    """Branches of different depth that are concatenated, one of them depthwise."""
    model = Model(3)
    stem = model.conv("stem", "x", 4)
    deep = model.conv("b.point", model.relu(model.conv("b.depth", stem, 4, groups=4)), 3)
    model.head(model.relu(model.merge("Concat", model.conv("a", stem, 2), deep, stem)))
    return model


def dense_blocks() -> Model:
    """Each layer reads all before it."""
    model = Model()
    read = [model.conv("first", "x")]
    for i in range(4):
        joined = model.merge("Concat", *read) if i else read[0]
        read.append(model.relu(model.conv(f"conv{i}", joined, i + 1)))
    model.head(model.merge("Concat", *read))
    return model


def shuffled() -> Model:
    """The channels of two layers are split such that one half is of the second layer alone."""
    model = Model()
    a, b = model.conv("a", "x", 2), model.conv("b", "x", 4)
    both = model.merge("Concat", a, b)
    left, right = model.part(both, 0, 3), model.part(both, 3, 6)
    model.head(model.merge("Concat", model.conv("c", right, 2), model.conv("d", left, 3, groups=3)))
    return model


def random_model(seed: int) -> Model:
    source = random.Random(seed)
    model = Model(source.choice([2, 3]))
    model.conv("conv0", "x", source.choice([2, 4]))
    for i in range(1, source.randint(5, 16)):
        tensors = list(model.channels)[-6:]
        one = source.choice(tensors)
        count = model.channels[one]
        alike = [name for name in tensors if model.channels[name] == count and name != one]
        match source.choice(
            ["conv", "conv", "grouped", "relu", "Add", "Add", "Sub", "Concat", "part"]
        ):
            case "conv":
                model.conv(f"conv{i}", one, source.choice([2, 4]))
            case "grouped":
                groups = source.choice([g for g in range(1, count + 1) if count % g == 0])
                model.conv(f"conv{i}", one, groups * source.choice([1, 2]), groups)
            case "part":
                start = source.randrange(count)
                model.part(one, start, source.randint(start + 1, count))
            case "relu":
                model.relu(one)
            case "Concat":
                model.merge("Concat", *source.sample(tensors, min(len(tensors), 2)))
            case kind if alike:
                model.merge(kind, one, source.choice(alike))
    model.head(model.merge("Concat", *model.unread()))
    return model


# --- the oracle ----------------------------------------------------------------------------------


def in_onnx(path: Path, cut: set[str]) -> set[tuple[Unit, Unit]]:
    """The connections between components, each a channel of one of the layers that are cut."""
    graph = onnx.load(path).graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    data = [value for value in graph.input if value.name not in weights]
    found: set[tuple[Unit, Unit]] = set()
    # of each tensor, the components that each of its channels is computed from
    origins: dict[str, list[set[Unit]]] = {
        value.name: [{("input", 0)}] * value.type.tensor_type.shape.dim[1].dim_value
        for value in data
    }
    for node in graph.node:
        read = [origins[name] for name in node.input if name in origins]
        options = {option.name: helper.get_attribute_value(option) for option in node.attribute}
        made = _channels(node, read, options, weights)
        layer = node.input[1].removesuffix(".weight") if node.op_type in ("Conv", "Gemm") else ""
        if layer in cut:
            found |= {(unit, (layer, i)) for i, units in enumerate(made) for unit in units}
            made = [{(layer, i)} for i in range(len(made))]
        origins[node.output[0]] = made
    ends = {unit for value in graph.output for units in origins[value.name] for unit in units}
    return found | {(unit, ("output", 0)) for unit in ends}


def _channels(
    node: onnx.NodeProto,
    read: Sequence[list[set[Unit]]],
    options: dict[str, Any],
    weights: dict[str, np.ndarray],
) -> list[set[Unit]]:
    match node.op_type:
        case "Conv":
            count, groups = len(weights[node.input[1]]), options.get("group", 1)
            size = len(read[0]) // groups
            parts = [set().union(*read[0][size * g : size * (g + 1)]) for g in range(groups)]
            return [parts[i * groups // count] for i in range(count)]
        case "Gemm":
            return [set().union(*read[0])] * len(weights[node.input[1]])
        case "Add" | "Sub" if len(read) == 2:
            return [one | two for one, two in zip(*read, strict=True)]
        case "Concat":
            return [units for part in read for units in part]
        case "Slice":
            start, stop = (int(weights[name][0]) for name in node.input[1:3])
            return read[0][start:stop]
        case "Relu" | "Flatten" | "Add" | "Sub":  # a flat map has its channels as they were
            return read[0]
        case kind:
            raise NotImplementedError(kind)


# --- what is drawn -------------------------------------------------------------------------------


def drawn(diagram: Diagram) -> set[tuple[str, str]]:
    """The pairs of layers that lines of the drawing lead from and to, by way of joins alone."""
    layout = arrange(diagram)
    assert {route.link for route in layout.routes} == set(diagram.links)
    assert all(route.way or route.band for route in layout.routes)
    reaching: list[set[int]] = [{i} for i in range(len(diagram.columns))]
    for i, column in enumerate(diagram.columns):
        if column.join:
            before = [route.link.source for route in layout.routes if route.link.target == i]
            assert len(before) > 1, "a join of one connection joins nothing"
            reaching[i] = set().union(*(reaching[k] for k in before))
    titles = [column.title for column in diagram.columns]
    return {
        (titles[source], titles[route.link.target])
        for route in layout.routes
        if not diagram.columns[route.link.target].join
        for source in reaching[route.link.source]
    }


def drawn_directly(diagram: Diagram) -> dict[tuple[str, str], set[tuple[int, int]]]:
    """For layers that are linked with no join in between, which of their components are."""
    found = {}
    for link in diagram.links:
        one, two = diagram.columns[link.source], diagram.columns[link.target]
        if one.nodes and two.nodes:
            every = {(i, j) for i in range(len(one.nodes)) for j in range(len(two.nodes))}
            found[one.title, two.title] = every if link.pairs is None else set(link.pairs)
    return found


def check(path: Path, components: Components) -> Diagram:
    expected = in_onnx(path, {site.layer.name for site in components.sites})
    diagram = diagram_of(components.full())
    assert drawn(diagram) == {(one[0], two[0]) for one, two in expected}
    for (source, target), pairs in drawn_directly(diagram).items():
        assert pairs == {
            (one[1], two[1]) for one, two in expected if (one[0], two[0]) == (source, target)
        }
    return diagram


MODELS = {
    "residual": (residual, ["+", "+", "+"]),
    "branches": (branches, ["‖"]),
    "dense blocks": (dense_blocks, ["‖"] * 4),
    "shuffled": (shuffled, ["‖", "‖"]),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shortcuts", [False, True])
@pytest.mark.parametrize("outputs", [False, True])
def test_a_network_is_drawn_as_its_file_has_it(
    name: str, shortcuts: bool, outputs: bool, tmp_path: Path
) -> None:
    make, joins = MODELS[name]
    path = make().save(tmp_path / "net.onnx")
    components = Graph.from_onnx(path).components("filter", shortcuts=shortcuts, outputs=outputs)
    diagram = check(path, components)
    assert [column.join for column in diagram.columns if column.join] == joins
    text = components.full().draw()
    assert text.count('<g class="join"><title>sum</title>') == joins.count("+")
    assert text.count('<g class="join"><title>concatenation</title>') == joins.count("‖")


@pytest.mark.parametrize("seed", range(60))
def test_a_random_network_is_drawn_as_its_file_has_it(seed: int, tmp_path: Path) -> None:
    path = random_model(seed).save(tmp_path / "net.onnx")
    for shortcuts in (False, True):
        check(path, Graph.from_onnx(path).components("filter", shortcuts=shortcuts))


@pytest.mark.parametrize("shortcuts", [False, True])
def test_resnet2b_is_drawn_as_its_file_has_it(shortcuts: bool, shared_data: Path) -> None:
    path = shared_data / "cifar10_resnet_2b.onnx"
    components = Graph.from_onnx(path).components(shortcuts=shortcuts)
    diagram = check(path, components)
    found = drawn(diagram)
    shortcut = "layer1.0.shortcut.0" if shortcuts else "conv1"
    assert (shortcut, "layer1.1.conv1") in found, "the shortcut of the first block"
    assert ("layer1.0.conv2", "output") in found, "the sum of the first, around the second block"
    assert [column.join for column in diagram.columns if column.join] == ["+", "+"]


# --- and against the component graph --------------------------------------------------------------


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_a_network_is_drawn_as_its_component_graph_has_it(make: Callable[[], Components]) -> None:
    components = make()
    graph = components.full().to_networkx()
    layer = {"input": "input", "output": "output"} | {c.name: c.layer for c in components}
    expected = {(layer[one], layer[two]) for one, two in graph.edges}
    assert drawn(diagram_of(components.full())) == expected
