"""Circuits as diagrams: statuses, and connections read from the graph."""

from __future__ import annotations

import itertools
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from provable_circuits.drawing.diagram import Link
from provable_circuits.drawing.layout import arrange
from provable_circuits.errors import ArgumentError, DataError, MissingExtraError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.diagram import diagram_of
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Concat, Conv2d, Gather, Linear, ReLU


def dense(*widths: int) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", (widths[0],))
    for i, (size, out) in enumerate(pairwise(widths), start=1):
        x = builder.add(f"fc{i}", Linear(torch.ones(out, size)), x, layer=f"fc{i}")
        x = builder.add(f"relu{i}", ReLU(), x)
    return builder.build([x])


class Blocks:
    """A convolutional network written layer by layer, each of two channels."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.x = self.builder.input("x", (2, 4, 4))

    def conv(self, name: str, source: str) -> str:
        weight = torch.randn(2, 2, 1, 1, generator=torch.Generator().manual_seed(len(name)))
        return self.builder.add(name, Conv2d(weight, None), source, layer=name)

    def add(self, name: str, *sources: str) -> str:
        return self.builder.add(name, Add(), *sources)

    def block(self, name: str, source: str, *, shortcut: bool = False) -> str:
        inner = self.builder.add(f"{name}.relu", ReLU(), self.conv(f"{name}.conv1", source))
        outer = self.conv(f"{name}.conv2", inner)
        around = self.conv(f"{name}.shortcut", source) if shortcut else source
        return self.builder.add(f"{name}.out", ReLU(), self.add(f"{name}.sum", outer, around))

    def components(self, output: str, *, shortcuts: bool = False) -> Components:
        graph = self.builder.build([output])
        return graph.components("filter", outputs=True, shortcuts=shortcuts)


def links(components: Components) -> dict[tuple[str, str], bool]:
    """The connections by the names of their ends, and whether each is dashed; joins by number."""
    diagram = diagram_of(components.full())
    count = itertools.count(1)
    titles = [f"{c.join}{next(count)}" if c.join else c.title for c in diagram.columns]
    return {(titles[k.source], titles[k.target]): k.dashed for k in diagram.links}


def test_statuses_of_one_circuit() -> None:
    circuit = dense(2, 3, 2).components("neuron", outputs=True).circuit(["fc1/0", "fc2/1"])
    diagram = diagram_of(circuit)
    assert [column.title for column in diagram.columns] == ["input", "fc1", "fc2", "output"]
    assert [(node.name, node.label, node.status) for node in diagram.nodes] == [
        ("fc1/0", "0", "kept"),
        ("fc1/1", "1", "removed"),
        ("fc1/2", "2", "removed"),
        ("fc2/0", "0", "removed"),
        ("fc2/1", "1", "kept"),
    ]
    assert diagram.title == "2 of 5 components kept"


def test_statuses_of_two_circuits_compared() -> None:
    components = dense(2, 4).components("neuron", outputs=True)
    diagram = diagram_of(
        components.circuit(["fc1/0", "fc1/1"]), components.circuit(["fc1/0", "fc1/2"])
    )
    statuses = [node.status for node in diagram.nodes]
    assert statuses == ["kept", "first only", "second only", "removed"]
    assert diagram.title == "2 and 2 of 4 components kept, 1 by both circuits"
    assert diagram.legend[1] == ("removed", "removed by both (1)")
    assert diagram.legend[2] == ("first only", "only in the first circuit (1)")


def test_circuits_of_different_networks_are_not_compared() -> None:
    first = dense(2, 4).components("neuron", outputs=True).full()
    second = dense(2, 5).components("neuron", outputs=True).full()
    with pytest.raises(ArgumentError, match="same network's components"):
        diagram_of(first, second)


def test_a_plain_network_is_a_chain() -> None:
    diagram = diagram_of(dense(2, 3, 2).components("neuron", outputs=True).empty())
    assert diagram.links == (Link(0, 1), Link(1, 2), Link(2, 3))


def test_each_residual_block_has_one_connection_around_it() -> None:
    net = Blocks()
    stream = net.conv("first", net.x)
    for name in ("a", "b", "c"):
        stream = net.block(name, stream)
    assert links(net.components(stream)) == {
        ("input", "first"): False,
        ("first", "a.conv1"): False,
        ("a.conv1", "a.conv2"): False,
        ("a.conv2", "+1"): False,
        ("first", "+1"): True,
        ("+1", "b.conv1"): False,
        ("b.conv1", "b.conv2"): False,
        ("b.conv2", "+2"): False,
        ("+1", "+2"): True,
        ("+2", "c.conv1"): False,
        ("c.conv1", "c.conv2"): False,
        ("c.conv2", "+3"): False,
        ("+2", "+3"): True,
        ("+3", "output"): False,
    }


def test_a_shortcut_without_components_is_part_of_the_connection() -> None:
    net = Blocks()
    end = net.conv("last", net.block("a", net.conv("first", net.x), shortcut=True))
    found = links(net.components(end))
    assert found[("first", "+1")] is True
    assert found[("+1", "last")] is False
    assert "a.shortcut" not in {name for pair in found for name in pair}


def test_a_shortcut_with_components_is_a_column_on_a_dashed_way() -> None:
    net = Blocks()
    end = net.conv("last", net.block("a", net.conv("first", net.x), shortcut=True))
    found = links(net.components(end, shortcuts=True))
    assert found[("first", "a.shortcut")] is True
    assert found[("a.shortcut", "+1")] is True
    assert found[("a.conv2", "+1")] is False, "the way itself, which passes by the shortcut"
    assert ("first", "+1") not in found


def test_branches_that_are_read_once_are_all_connected() -> None:
    net = Blocks()
    branches = [net.conv(name, net.x) for name in ("a", "bb", "ccc")]
    pair = net.add("pair", *branches[:2])
    joined = net.builder.add("joined", Concat(0), pair, branches[2])
    found = links(net.components(joined))
    assert set(found) == {("input", name) for name in ("a", "bb", "ccc")} | {
        ("a", "+1"),
        ("bb", "+1"),
        ("+1", "‖2"),
        ("ccc", "‖2"),
        ("‖2", "output"),
    }
    assert not any(found.values()), "side by side, with no longer way beside any"


def test_sums_of_sums_are_one_unless_others_read_them() -> None:
    net = Blocks()
    a, b, c = (net.conv(name, net.x) for name in ("a", "bb", "ccc"))
    inner = net.add("inner", a, b)
    outer = net.add("outer", inner, c)
    assert set(links(net.components(outer))) >= {(n, "+1") for n in ("a", "bb", "ccc")}
    net = Blocks()
    a, b, c = (net.conv(name, net.x) for name in ("a", "bb", "ccc"))
    inner = net.add("inner", a, b)
    last = net.add("last", net.conv("dddd", inner), net.add("outer", inner, c))
    found = links(net.components(last))
    assert {("+1", "dddd"), ("+1", "+2"), ("ccc", "+2"), ("dddd", "+2")} <= set(found)


def test_a_sum_that_is_an_output_stays_apart() -> None:
    net = Blocks()
    a, b, c = (net.conv(name, net.x) for name in ("a", "bb", "ccc"))
    inner = net.add("inner", a, b)
    graph = net.builder.build([inner, net.add("outer", inner, c)])
    found = set(links(graph.components("filter", outputs=True)))
    assert {("a", "+1"), ("bb", "+1"), ("+1", "+2"), ("ccc", "+2")} <= found
    assert {("+1", "output"), ("+2", "output")} <= found


def test_what_is_added_to_itself_joins_nothing() -> None:
    net = Blocks()
    a = net.conv("a", net.x)
    twice = net.add("twice", a, net.builder.add("relu", ReLU(), a))
    assert set(links(net.components(twice))) == {("input", "a"), ("a", "output")}


def test_a_part_of_a_join_is_linked_to_what_it_is_computed_from() -> None:
    net = Blocks()
    a, b, c = (net.conv(name, net.x) for name in ("a", "bb", "ccc"))
    joined = net.builder.add("joined", Concat(0), a, b)
    part = net.builder.add("part", Gather(torch.arange(32, 64).reshape(2, 4, 4)), joined)
    total = net.add("total", net.conv("dddd", part), c)
    assert set(links(net.components(total, shortcuts=True))) == {
        *(("input", name) for name in ("a", "bb", "ccc")),
        ("bb", "dddd"),
        ("dddd", "+1"),
        ("ccc", "+1"),
        ("+1", "output"),
    }


def test_a_constant_that_is_added_joins_nothing() -> None:
    net = Blocks()
    a, b = (net.conv(name, net.x) for name in ("a", "bb"))
    joined = net.builder.add("joined", Concat(0), a, b, net.conv("ccc", net.x))
    part = net.builder.add("part", Gather(torch.arange(16, 48).reshape(2, 4, 4)), joined)
    fixed = net.builder.constant("fixed", torch.ones(2, 4, 4))
    found = links(net.components(net.add("total", part, fixed)))
    assert {pair for pair in found if pair[1] == "output"} == {("a", "output"), ("bb", "output")}


def test_only_components_of_a_group_are_connected() -> None:
    net = Blocks()
    first = net.conv("first", net.x)
    weight = torch.ones(2, 1, 1, 1)
    last = net.builder.add("deep", Conv2d(weight, None, groups=2), first, layer="deep")
    diagram = diagram_of(net.components(last).full())
    (link,) = (k for k in diagram.links if (k.source, k.target) == (1, 2))
    assert link.pairs == ((0, 0), (1, 1))
    assert all(k.pairs is None for k in diagram.links if k != link)
    edges = [route.edges for route in arrange(diagram).routes if route.link == link]
    assert [len(lines) for lines in edges] == [2]


def test_layers_without_components_are_passed() -> None:
    graph = dense(2, 3, 3, 2)
    components = graph.components("neuron", outputs=False)
    assert ("fc2", "output") in links(components)


def test_a_layer_that_reads_a_constant_has_no_connection_to_the_input() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    fixed = builder.constant("fixed", torch.ones(2))
    a = builder.add("a", Linear(torch.ones(2, 2)), fixed, layer="a")
    b = builder.add("b", Linear(2 * torch.ones(2, 2)), x, layer="b")
    graph = builder.build([builder.add("sum", Add(), a, b)])
    assert links(graph.components("neuron", outputs=True)) == {
        ("input", "b"): False,
        ("b", "+1"): False,
        ("a", "+1"): False,
        ("+1", "output"): False,
    }


def test_an_output_that_is_constant_has_no_connection() -> None:
    builder = GraphBuilder()
    builder.add("fc", Linear(torch.eye(2)), builder.input("x", (2,)), layer="fc")
    outputs = ["fc", builder.constant("fixed", torch.ones(2))]
    components = builder.build(outputs).components("neuron", outputs=True)
    assert links(components) == {("input", "fc"): False, ("fc", "output"): False}


@pytest.fixture
def circuit() -> Circuit:
    return dense(2, 3, 2).components("neuron", outputs=True).circuit(["fc1/0"])


def test_draw_returns_and_writes_the_same_svg(circuit: Circuit, tmp_path: Path) -> None:
    text = circuit.draw(tmp_path / "circuit.svg")
    assert (tmp_path / "circuit.svg").read_text(encoding="utf-8") == text == circuit._repr_svg_()
    assert ElementTree.fromstring(text).findtext("{*}title") == "1 of 5 components kept"


def test_draw_compares(circuit: Circuit) -> None:
    text = circuit.draw(other=circuit.components.full())
    assert text.count('class="component second-only"') == 4


def test_draw_writes_png(circuit: Circuit, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    circuit.draw(str(tmp_path / "circuit.PNG"))
    with image.open(tmp_path / "circuit.PNG") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(100_000)}
    assert (0x2F, 0x46, 0x68) in colours, "a component that is kept"
    assert (0xE4, 0xE7, 0xEB) in colours, "one that is removed"


def test_png_needs_matplotlib(
    circuit: Circuit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'provable-circuits\[plot\]'"):
        circuit.draw(tmp_path / "circuit.png")


def test_other_endings_are_refused(circuit: Circuit, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"\.svg or \.png: give 'circuit\.pdf' one of these"):
        circuit.draw("circuit.pdf")
    with pytest.raises(DataError, match="cannot be written: No such file or directory"):
        circuit.draw(tmp_path / "nowhere" / "circuit.svg")
