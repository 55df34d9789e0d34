"""Arguments of the wrong kind, at every public entry point: refused in a sentence of our own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.predicates.predicate import Decided, Sampled
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import parse_property

Call = Callable[[Any], object]


def graph() -> pc.Graph:
    builder = GraphBuilder()
    weight = torch.tensor([[1.0, -1.0], [0.5, 2.0], [1.0, 1.0]])
    hidden = builder.add("a", Linear(weight), builder.input("x", (2,)), layer="a")
    out = builder.add("b", Linear(torch.ones(2, 3)), builder.add("r", ReLU(), hidden), layer="b")
    return builder.build([out])


GRAPH = graph()
COMPONENTS = GRAPH.components("neuron")
FULL = COMPONENTS.full()
X = [0.25, 0.5]
CLAIM = pc.Claim(pc.Point(X), pc.Zero(), pc.MaxAbs(1.0))
RESULT = pc.discover(GRAPH, CLAIM, COMPONENTS)
PROPERTY = parse_property(
    "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
    "(declare-const Y_1 Real)(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))"
    "(assert (<= X_1 1))(assert (>= Y_0 100))"
)

NOT_NUMBERS: list[Any] = [
    None, "1", float, pc.Zero, [1.0, 2.0], np.ones(2), torch.ones(2), True, np.bool_(True),
    torch.tensor(True), math.nan, math.inf, -math.inf, np.float64(math.nan), 1j, object(),
]  # fmt: skip
NOT_WHOLE: list[Any] = [*NOT_NUMBERS, 0.5, np.float32(1.0)]
NOT_LIMITS: list[Any] = [v for v in NOT_NUMBERS if v is not None and v is not math.inf]
NOT_FLAGS: list[Any] = [None, "yes", 1, 0, np.int64(1), bool, [True], 0.0]
NOT_ARRAYS: list[Any] = [
    None, "x", b"x", np.ndarray, [None], [[1.0], [1.0, 2.0]], [math.nan, 0.0], [math.inf, 0.0],
    object(), {"x": 1.0}, [1j, 0.0], [], np.zeros((0, 2)), [True, False], np.array(["a", "b"]),
    np.array([128, 255], dtype=np.uint8), torch.tensor([128, 255], dtype=torch.uint8),
    np.array([128, 255], dtype=np.uint16),
]  # fmt: skip
NOT_NAMES: list[Any] = [None, 3, ["a/0"], ("a/0", "a/1"), str, b"a/0", FULL, COMPONENTS[0]]

NUMBERS: dict[str, tuple[str, Call]] = {
    "LogitDifference": ("tolerance", pc.LogitDifference),
    "MaxAbs": ("tolerance", pc.MaxAbs),
    "Norm": ("tolerance", pc.Norm),
    "MeanSquaredError": ("tolerance", pc.MeanSquaredError),
    "KLDivergence": ("tolerance", pc.KLDivergence),
    "WinnerMargin": ("fraction", pc.WinnerMargin),
    "Reachable": ("eps", pc.Reachable),
    "IntervalHull": ("eps", pc.IntervalHull),
}
LIMITS: dict[str, tuple[str, Call]] = {
    "discover": ("timeout", lambda v: pc.discover(GRAPH, CLAIM, timeout=v)),
    "discover by sampling": (
        "timeout",
        lambda v: pc.discover(GRAPH, CLAIM, method="sampling", timeout=v),
    ),
    "the budget of discover": ("budget", lambda v: pc.discover(GRAPH, CLAIM, budget=v)),
    "blocking_set": ("timeout", lambda v: pc.blocking_set(GRAPH, CLAIM, timeout=v)),
    "the budget of blocking_set": ("budget", lambda v: pc.blocking_set(GRAPH, CLAIM, budget=v)),
    "verify": ("timeout", lambda v: pc.verify(GRAPH, FULL, CLAIM, v)),
    "ask": ("timeout", lambda v: pc.Verifier(COMPONENTS, CLAIM).ask(FULL, v)),
    "screen": ("timeout", lambda v: pc.Verifier(COMPONENTS, CLAIM).screen([FULL], v)),
    "Decided": ("timeout", lambda v: Decided(COMPONENTS, CLAIM, v)),
    "decide": ("timeout", lambda v: decide(GRAPH, PROPERTY, v)),
}
NODES: dict[str, tuple[str, Call]] = {
    "nodes of discover": ("max_nodes", lambda v: pc.discover(GRAPH, CLAIM, max_nodes=v)),
    "nodes of blocking_set": ("max_nodes", lambda v: pc.blocking_set(GRAPH, CLAIM, max_nodes=v)),
    "nodes of verify": ("max_nodes", lambda v: pc.verify(GRAPH, FULL, CLAIM, max_nodes=v)),
    "nodes of ask": ("max_nodes", lambda v: pc.Verifier(COMPONENTS, CLAIM).ask(FULL, max_nodes=v)),
    "nodes of decide": ("max_nodes", lambda v: decide(GRAPH, PROPERTY, max_nodes=v)),
}
WHOLE: dict[str, tuple[str, Call]] = {
    "t_max": ("t_max", lambda v: pc.discover(GRAPH, CLAIM, t_max=v)),
    "points": ("points", lambda v: pc.discover(GRAPH, CLAIM, method="sampling", points=v)),
    "Sampled": ("points", lambda v: Sampled(COMPONENTS, CLAIM, v)),
    "seed of discover": ("seed", lambda v: pc.discover(GRAPH, CLAIM, seed=v)),
    "seed of blocking_set": ("seed", lambda v: pc.blocking_set(GRAPH, CLAIM, seed=v)),
    "seed of verify": ("seed", lambda v: pc.verify(GRAPH, FULL, CLAIM, seed=v)),
    "workers": ("workers", lambda v: pc.discover(GRAPH, CLAIM, workers=v)),
    "attack_steps": ("attack_steps", lambda v: pc.Verifier(COMPONENTS, CLAIM, attack_steps=v)),
    "attack_starts": ("attack_starts", lambda v: pc.Verifier(COMPONENTS, CLAIM, attack_starts=v)),
    "Blocks": ("size", pc.Blocks),
    "height": ("height", lambda v: pc.Patches(v, 1)),
    "width": ("width", lambda v: pc.Patches(1, v)),
    "bits": ("bits", lambda v: pc.Circuit(COMPONENTS, v)),
}
FLAGS: dict[str, tuple[str, Call]] = {
    "outputs": ("outputs", lambda v: GRAPH.components(outputs=v)),
    "shortcuts": ("shortcuts", lambda v: GRAPH.components(shortcuts=v)),
    "outputs of discover": ("outputs", lambda v: pc.discover(GRAPH, CLAIM, outputs=v)),
    "local_check": ("local_check", lambda v: pc.discover(GRAPH, CLAIM, local_check=v)),
    "assume_monotone": (
        "assume_monotone",
        lambda v: pc.blocking_set(GRAPH, CLAIM, assume_monotone=v),
    ),
}
ARRAYS: dict[str, tuple[str, Call]] = {
    "Point": ("x", pc.Point),
    "lower": ("lower", lambda v: pc.Box(v, X)),
    "upper": ("upper", lambda v: pc.Box(X, v)),
    "center": ("center", lambda v: pc.Box([0.0, 0.0], [1.0, 1.0], [0.0, v] if v is None else v)),
    "Ball": ("x", lambda v: pc.Ball(v, 0.1)),
    "eps": ("eps", lambda v: pc.Ball(X, v)),
    "low clip": ("clip", lambda v: pc.Ball(X, 0.1, clip=(v, 1))),
    "high clip of Reachable": ("clip", lambda v: pc.Reachable(0.1, clip=(0, v))),
    "Constant by layer": ("Constant", lambda v: pc.Constant({"a": v})),
}
KINDS: dict[str, tuple[str, list[Any], Call]] = {
    "graph of discover": (
        "graph",
        [None, "net.onnx", nn.Linear(2, 2), pc.Graph],
        lambda v: pc.discover(v, CLAIM),
    ),
    "graph of blocking_set": (
        "graph",
        [None, "net.onnx", nn.Linear(2, 2), pc.Graph],
        lambda v: pc.blocking_set(v, CLAIM),
    ),
    "graph of verify": (
        "graph",
        [None, "net.onnx", nn.Linear(2, 2), pc.Graph],
        lambda v: pc.verify(v, FULL, CLAIM),
    ),
    "claim of discover": ("claim", [None, pc.Claim, CLAIM.inputs], lambda v: pc.discover(GRAPH, v)),
    "claim of blocking_set": ("claim", [None, pc.Claim], lambda v: pc.blocking_set(GRAPH, v)),
    "claim of verify": (
        "claim",
        [None, pc.Claim, pc.MaxAbs(1.0)],
        lambda v: pc.verify(GRAPH, FULL, v),
    ),
    "claim of Verifier": ("claim", [None, pc.Claim], lambda v: pc.Verifier(COMPONENTS, v)),
    "components of Verifier": (
        "components",
        [None, GRAPH, pc.Components, FULL],
        lambda v: pc.Verifier(v, CLAIM),
    ),
    "circuit of verify": (
        "circuit",
        [None, pc.Circuit, ["a/0"], COMPONENTS],
        lambda v: pc.verify(GRAPH, v, CLAIM),
    ),
    "circuit of ask": (
        "circuit",
        [None, pc.Circuit, "a/0"],
        lambda v: pc.Verifier(COMPONENTS, CLAIM).ask(v),
    ),
    "circuits of screen": (
        "circuits",
        [None, 3, "a/0", pc.Circuit],
        lambda v: pc.Verifier(COMPONENTS, CLAIM).screen(v),
    ),
    "one of screen": (
        "Item 1 of the 'circuits'",
        [None, "a/0", pc.Circuit],
        lambda v: pc.Verifier(COMPONENTS, CLAIM).screen([FULL, v]),
    ),
    "granularity": (
        "granularity",
        [None, 3, "atom", pc.Neurons, ["neuron", "atom"], []],
        lambda v: pc.discover(GRAPH, CLAIM, v),
    ),
    "algorithm": (
        "algorithm",
        [None, 3, "magic", ["greedy"], pc.Neurons],
        lambda v: pc.discover(GRAPH, CLAIM, algorithm=v),
    ),
    "method": (
        "method",
        [None, 3, "guess", ["proof"]],
        lambda v: pc.discover(GRAPH, CLAIM, method=v),
    ),
    "order": (
        "order",
        [None, 3, "best", ["a/0"], [3], list],
        lambda v: pc.discover(GRAPH, CLAIM, order=v),
    ),
    "listener": (
        "listener",
        [3, "print", [print], dict],
        lambda v: pc.discover(GRAPH, CLAIM, listener=v),
    ),
    "device": (
        "device",
        [3.5, "gpu0x", [], object()],
        lambda v: pc.discover(GRAPH, CLAIM, device=v),
    ),
    "inputs of Claim": (
        "inputs",
        [None, 3, "x", pc.Ball, object()],
        lambda v: pc.Claim(v, pc.Zero(), pc.MaxAbs(1.0)),
    ),
    "one input of Claim": (
        "Item 1 of the 'inputs'",
        [None, X, "x", pc.Ball, torch.ones(2)],
        lambda v: pc.Claim([pc.Point(X), v], pc.Zero(), pc.MaxAbs(1.0)),
    ),
    "patching": (
        "patching",
        [None, "zero", pc.Zero, pc.MaxAbs(1.0), 0.0],
        lambda v: pc.Claim(pc.Point(X), v, pc.MaxAbs(1.0)),
    ),
    "metric": (
        "metric",
        [None, 2.0, pc.MaxAbs, pc.LogitDifference, "max-abs", pc.Zero()],
        lambda v: pc.Claim(pc.Point(X), pc.Zero(), v),
    ),
    "p of Ball": (
        "p",
        [None, 3, 0, "inf", True, np.ones(2), [2], math.nan, float],
        lambda v: pc.Ball(X, 0.1, p=v),
    ),
    "p of Norm": (
        "p",
        [None, 3, 0, "inf", True, np.ones(2), [2], math.nan],
        lambda v: pc.Norm(0.1, p=v),
    ),
    "p of Reachable": ("p", [None, 3, True, [2]], lambda v: pc.Reachable(0.1, p=v)),
    "clip": (
        "clip",
        [1, "01", (0, 1, 2), tuple, {0, 1}, np.ones(3)],
        lambda v: pc.Ball(X, 0.1, clip=v),
    ),
    "mask": (
        "mask",
        ["all", [0.5, 1.0], [None, 1], pc.Zero, [math.nan, 1.0]],
        lambda v: pc.Ball(X, 0.1, mask=v),
    ),
    "target": (
        "target",
        [None, 0.5, "label", True, [0.5], [True], int, [[0]], {0: 1}, ["0"], torch.tensor([0.5])],
        lambda v: pc.LogitDifference(1.0, v),
    ),
    "against": ("against", [None, "some", ["all"], 3], lambda v: pc.WinnerMargin(0.5, v)),
    "domains": (
        "domains",
        [3, "x", pc.Ball, [pc.Point(X), X], [pc.Ball]],
        lambda v: pc.Reachable(domains=v),
    ),
    "a domain as eps": ("eps", [pc.Point(X), pc.Ball], lambda v: pc.IntervalHull(v)),
    "data": (
        "data",
        [
            None,
            3,
            "x",
            pc.Zero,
            {"x": X},
            np.full((2, 2), 255, np.uint8),
            np.float64(1.0),
            np.zeros((0, 2)),
            np.full((2, 2), math.nan),
        ],
        lambda v: pc.Mean(v),
    ),
    "a batch of data": (
        "Batch 1 of the 'data'",
        [None, "x", np.full((2, 2), 255, np.uint8), np.ones((2, 3))],
        lambda v: pc.Mean([np.ones((2, 2)), v]).values(COMPONENTS),
    ),
    "value": ("value", [*NOT_NUMBERS], lambda v: pc.Constant(v)),
    "groups": ("groups", [None, ["a"], dict, "a"], lambda v: pc.Groups(v)),
    "names": ("names", [None, 3, "a/0", str], lambda v: COMPONENTS.circuit(v)),
    "one name": ("Item 1 of the 'names'", NOT_NAMES, lambda v: COMPONENTS.circuit(["a/0", v])),
    "remove": ("Argument 1 of Circuit.remove", NOT_NAMES, lambda v: FULL.remove("a/0", v)),
    "add": ("Argument 0 of Circuit.add", NOT_NAMES, lambda v: FULL.add(v)),
    "index_of": ("name", NOT_NAMES, lambda v: COMPONENTS.index_of(v)),
    "restrict": ("layer", [None, 3, "c", ["a"]], lambda v: FULL.restrict(v)),
    "operand": ("circuits", [None, "a/0", {"a/0"}, pc.Circuit], lambda v: FULL | v),
    "other": ("other", ["a/0", pc.Circuit, COMPONENTS], lambda v: FULL.draw(other=v)),
    "text": ("text", [None, b"{}", {"format": 1}], lambda v: pc.Circuit.from_json(v, COMPONENTS)),
    "components of from_json": (
        "components",
        [None, GRAPH],
        lambda v: pc.Circuit.from_json("{}", v),
    ),
    "components of Circuit": ("components", [None, GRAPH, ["a/0"]], lambda v: pc.Circuit(v, 0)),
    "mask of circuit_of": (
        "mask",
        [None, [True] * 5, torch.ones(5), torch.ones(2).bool()],
        lambda v: COMPONENTS.circuit_of(v),
    ),
    "patch of run": (
        "patch",
        [pc.Zero, pc.Mean, pc.Constant, "zero", 3, pc.Reachable(0.1)],
        lambda v: FULL.run(torch.ones(1, 2), v),
    ),
    "patch of to_graph": ("patch", [pc.Zero, pc.Mean, "zero"], lambda v: FULL.to_graph(v)),
    "x of run": ("x", ["x", torch.Tensor, None], lambda v: GRAPH.run(v)),
    "module": (
        "module",
        [nn.Linear, None, GRAPH],
        lambda v: pc.Graph.from_torch(v, torch.zeros(1, 2)),
    ),
    "mean of record": ("mean", ["a", np.ndarray, [math.nan]], lambda v: record(mean=v)),
    "std of record": ("std", ["a", 0.0, [-1.0, 1.0], float], lambda v: record(std=v)),
    "labels": ("labels", ["a", 3, [1, 2], [0.5], int], lambda v: record(labels=v)),
    "blocking_set of record": (
        "blocking_set",
        [pc.BlockingSet, FULL, "a/0"],
        lambda v: record(blocking_set=v),
    ),
    "settings of record": ("settings", [5, "a", dict], lambda v: record(settings=v)),
    "folder of save": ("folder", [5, None, Path], lambda v: RESULT.save(v)),
    "folder of load": ("folder", [5, None, Path], lambda v: pc.Run.load(v)),
    "path of draw": ("path", [5, Path], lambda v: RESULT.draw(v)),
    "path of Circuit.draw": ("path", [5, Path], lambda v: FULL.draw(v)),
    "circuits of run": (
        "circuits",
        [[None], ["a/0"], [pc.Circuit]],
        lambda v: COMPONENTS.run(v, torch.ones(1, 2)),
    ),
}


def record(**arguments: Any) -> pc.Run:
    return RESULT.record(**arguments)


def cases() -> list[Any]:
    """Every entry point with every value that it must refuse."""
    tables: list[tuple[dict[str, tuple[str, Call]], list[Any]]] = [
        (NUMBERS, [v for v in [*NOT_NUMBERS, -1.0] if v is not None]),
        (LIMITS, [*NOT_LIMITS, 0, 0.0, -1, np.float64(0.0), torch.tensor(0.0)]),
        (WHOLE, [*NOT_WHOLE, -1]),
        (NODES, [*(v for v in NOT_WHOLE if v is not None), 0, -1]),
        (FLAGS, NOT_FLAGS),
        (ARRAYS, NOT_ARRAYS),
    ]
    found = []
    for table, values in tables:
        for name, (wanted, call) in table.items():
            found += [pytest.param(call, v, wanted, id=f"{name}-{i}") for i, v in enumerate(values)]
    for name, (wanted, values, call) in KINDS.items():
        found += [pytest.param(call, v, wanted, id=f"{name}-{i}") for i, v in enumerate(values)]
    return found


@pytest.mark.parametrize(("call", "value", "wanted"), cases())
def test_the_wrong_kind_is_refused_by_name(call: Call, value: Any, wanted: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(value)
    text = str(caught.value)
    assert wanted in text
    assert re.search(r"Got |got |names? |has no |takes either|must hold|has no layer", text)
    assert text.endswith(".")
    assert "ABCMeta" not in text
    assert "unhashable" not in text


@pytest.mark.parametrize(
    "value", [np.float32(0.5), np.float64(0.5), torch.tensor(0.5), 1, np.int8(1)]
)
def test_numbers_of_every_kind_are_taken(value: Any) -> None:
    for _, call in [*NUMBERS.values(), *LIMITS.values()]:
        call(value)
    assert type(pc.MaxAbs(value).tolerance) in (int, float)


@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1), torch.tensor(1)])
def test_whole_numbers_of_every_kind_are_taken(value: Any) -> None:
    for _, call in WHOLE.values():
        call(value)
    assert pc.LogitDifference(1.0, value).target == 1
    assert pc.LogitDifference(1.0, [value, value]).target == (1, 1)


@pytest.mark.parametrize(
    "value", [X, np.array(X), np.array(X, np.float32), torch.tensor(X), (0, 1), np.array([0, 1])]
)
def test_arrays_of_every_kind_are_taken(value: Any) -> None:
    assert pc.Point(value).shape == (2,)
    assert pc.Ball(value, np.float32(0.1)).shape == (2,)
    assert pc.Box(value, value).shape == (2,)


def test_bytes_are_refused_with_the_scale_that_is_wanted() -> None:
    image = np.full((2, 2), 200, dtype=np.uint8)
    with pytest.raises(ArgumentError, match=r"Got torch.uint8 instead, .* as in x / 255.0"):
        pc.Ball(image, 0.01)
    assert float(pc.Ball(image / 255.0, 0.01).center.max()) == pytest.approx(200 / 255)


def test_a_class_is_told_from_one_of_its_instances() -> None:
    with pytest.raises(ArgumentError) as caught:
        pc.Claim(pc.Point(X), pc.Zero(), pc.MaxAbs)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "The 'metric' parameter of Claim must be a Metric such as LogitDifference(2.0). "
        "Got the class MaxAbs instead: make one of it, as in MaxAbs(...)."
    )


def test_a_list_of_names_is_told_how_to_be_unpacked() -> None:
    with pytest.raises(ArgumentError) as caught:
        FULL.remove(["a/0", "a/1"])  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Argument 0 of Circuit.remove must be a component's name. Got list instead: "
        "write remove(*names) to unpack several."
    )
