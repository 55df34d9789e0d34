"""What a circuit computes, as a mask on pairs of a source and a reader."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from provable_circuits.network.components import Components
from provable_circuits.network.execution import Floats
from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.intervals import Intervals
from provable_circuits.network.ops import Add, Linear, ReLU
from provable_circuits.network.semantics import (
    NOTHING_REMOVED,
    Arithmetic,
    CircuitMask,
    Reader,
    SourceMask,
    interpret,
)

A, B, C = (torch.randn(3, 3, generator=torch.Generator().manual_seed(s)).double() for s in range(3))
PATCH = torch.tensor([[0.25, -0.5, 2.0]], dtype=torch.float64)
X = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]], dtype=torch.float64)


def forked() -> Graph:
    """One layer that two others read, whose sum is the output."""
    builder = GraphBuilder()
    first = builder.add("relu", ReLU(), builder.add("first", Linear(A), builder.input("x", (3,))))
    left = builder.add("left", Linear(B), first)
    right = builder.add("right", Linear(C), first)
    return builder.build([builder.add("sum", Add(), left, right)])


def units(components: Components, *gone: str) -> Tensor:
    """The units of the first layer that are kept, among all components, [1, components]."""
    keep = torch.ones(1, len(components), dtype=torch.bool)
    for name in gone:
        keep[0, components.index_of(name)] = False
    return keep


def run(graph: Graph, mask: CircuitMask, wanted: Sequence[str] = ("sum",)) -> dict[str, Tensor]:
    floats = Floats(graph, {"x": X}, wanted, {"relu": PATCH})
    return interpret(graph, mask, floats, wanted)


def test_a_removed_pair_is_seen_by_its_reader_alone() -> None:
    """Path patching: ``left`` sees the patch of one unit, ``right`` its own value."""
    graph = forked()
    components = graph.components("neuron", outputs=False)
    everything, less = units(components), units(components, "first/1")
    own = (X @ A.T).clamp_min(0)
    patched = torch.stack([own[:, 0], PATCH[:, 1].expand(2), own[:, 2]], 1)
    one = CircuitMask.of_pairs(components, everything, {"left": less})
    torch.testing.assert_close(run(graph, one)["sum"], patched @ B.T + own @ C.T)
    other = CircuitMask.of_pairs(components, less, {"left": everything})
    torch.testing.assert_close(run(graph, other)["sum"], own @ B.T + patched @ C.T)
    # Whoever takes the tensor as an output sees what readers see that are not listed.
    assert torch.equal(run(graph, one, ["relu"])["relu"], own)
    assert torch.equal(run(graph, other, ["relu"])["relu"], patched)
    assert not torch.equal(own, patched)


@pytest.mark.parametrize("gone", [["first/0"], ["first/1", "first/2"]])
def test_pairs_that_go_together_are_a_node(gone: list[str]) -> None:
    graph = forked()
    components = graph.components("neuron", outputs=False)
    less = units(components, *gone)
    readers: dict[Reader, Tensor] = {"left": less, "right": less, None: less}
    pairs = CircuitMask.of_pairs(components, units(components), readers)
    circuit = components.full().remove(*gone)
    wanted = components.run([circuit], X, {"relu": PATCH})[0]
    assert torch.equal(run(graph, pairs)["sum"], wanted)
    assert torch.equal(run(graph, CircuitMask.of_nodes(components, less))["sum"], wanted)
    assert not torch.equal(wanted, graph.run(X))


def test_intervals_see_the_same_pairs() -> None:
    graph = forked()
    components = graph.components("neuron", outputs=False)
    mask = CircuitMask.of_pairs(
        components, units(components), {"right": units(components, "first/0", "first/2")}
    )
    intervals = Intervals(graph, {"x": (X, X)}, {"relu": (PATCH, PATCH)})
    lower, upper = interpret(graph, mask, intervals, ["sum"])["sum"]
    value = run(graph, mask)["sum"]
    assert bool(((lower <= value) & (value <= upper)).all())
    assert float((upper - lower).max()) < 1e-12


def test_what_is_touched_depends_on_the_reader() -> None:
    graph = forked()
    components = graph.components("neuron", outputs=False)
    less = units(components, "first/1")
    assert CircuitMask.of_nodes(components, less).touched(graph) == {"left", "right", "sum"}
    one = CircuitMask.of_pairs(components, units(components), {"left": less})
    assert one.touched(graph) == {"left", "sum"}
    assert NOTHING_REMOVED.touched(graph) == set()
    assert CircuitMask.of_nodes(components, units(components)).sources == {}


def test_units_that_some_reader_sees() -> None:
    some, others = torch.tensor([[True, False, False]]), torch.tensor([[False, False, True]])
    mask = CircuitMask({"relu": SourceMask(some, {"left": others, "whole": None})})
    both = mask.read("relu", ["left", "right"])
    assert both is not None
    assert both.tolist() == [[True, False, True]]
    assert mask.read("relu", ["right", "more"]) is some
    assert mask.read("relu", ["right", "whole"]) is None
    assert mask.read("other", ["left"]) is None


class Written(Arithmetic[str]):
    """Formulas."""

    def __init__(self, shares: bool) -> None:
        self.shares = shares
        self.asked: list[str] = []

    def own(self, node: Node) -> str:
        self.asked.append(node.name)
        return node.name

    def apply(self, node: Node, inputs: Sequence[str]) -> str:
        return f"{node.op.name}({', '.join(inputs)})"

    def patched(self, node: Node, value: str, kept: Tensor) -> str:
        return f"patched {value}"


def test_the_networks_own_tensors_are_asked_for_where_nothing_lies_upstream() -> None:
    graph = forked()
    components = graph.components("neuron", outputs=False)
    mask = CircuitMask.of_pairs(
        components, units(components), {"left": units(components, "first/1")}
    )
    sharing, plain = Written(True), Written(False)
    assert interpret(graph, mask, sharing, ["sum"]) == {"sum": "Add(Linear(patched relu), right)"}
    assert sharing.asked == ["relu", "right"]
    assert interpret(graph, mask, plain, ["sum"]) == {
        "sum": "Add(Linear(patched ReLU(Linear(x))), Linear(ReLU(Linear(x))))"
    }
    assert plain.asked == ["x"]
