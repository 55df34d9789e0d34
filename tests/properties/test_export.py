"""Exported queries: other programs compute the same numbers, and the same questions come back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.oracle.cases import Case as Drawn
from tests.oracle.cases import draw
from torch import Tensor

import provable_circuits as pc
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.export import Exported, export_query, query_property
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import Case, read_property
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.query import Query

PLAIN = {"MatMul", "Add", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Identity", "Shape", "Expand"}


def query_of(drawn: Drawn, tolerance: float = 0.5) -> Query:
    return Encoder(drawn.circuit.components, drawn.claim(tolerance)).encode(drawn.circuit)


def boxed(seeds: Iterable[int]) -> Iterator[tuple[Drawn, Query]]:
    """Random claims that a box can express."""
    for seed in seeds:
        drawn = draw(seed)
        query = query_of(drawn)
        if all(box.domains is None for box in query.ranges.values()):
            yield drawn, query


def expected(query: Query, part: Exported, x: Tensor) -> Tensor:
    """The left-hand sides of the constraints, straight from the query."""
    feeds = {
        name: torch.stack([part.points(point)[name] for point in x]) for name in query.graph.inputs
    }
    y = evaluate(query.graph, feeds)[query.graph.outputs[0]]
    return (y.to(x) @ query.rows[part.index].to(x).T).expand(len(x), -1)


def points_of(query: Query, part: Exported) -> Tensor:
    case = query_property(query, part.index).cases[0]
    share = torch.rand(4, len(case.lower), generator=torch.Generator().manual_seed(part.index))
    return case.lower + share.double() * (case.upper - case.lower)


@pytest.mark.parametrize("dense", [False, True], ids=["as is", "dense"])
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_onnx_runtime_computes_the_same_numbers(first: int, dense: bool, tmp_path: Path) -> None:
    compared = 0
    for drawn, query in boxed(range(first, first + 10)):
        if dense and "Square" in query.graph.summary():
            continue
        # ONNX Runtime convolves and leaks in float32 alone.
        parts = export_query(query, tmp_path, f"{drawn.seed}", dtype=torch.float32, dense=dense)
        assert [part.index for part in parts] == list(range(query.rows.shape[0]))
        for part in parts:
            model = onnx.load_model(part.onnx)
            onnx.checker.check_model(model, full_check=True)
            assert len(model.graph.input) == len(model.graph.output) == 1
            assert not dense or {node.op_type for node in model.graph.node} <= PLAIN
            x = points_of(query, part).float()
            session = onnxruntime.InferenceSession(part.onnx)
            (got,) = session.run(None, {model.graph.input[0].name: x.numpy()})
            np.testing.assert_allclose(got, expected(query, part, x).numpy(), rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared >= 3


def test_the_files_read_back_as_the_query(tmp_path: Path) -> None:
    for _, query in boxed(range(16)):
        for part in export_query(query, tmp_path, dtype=torch.float64):
            graph = pc.Graph.from_onnx(part.onnx)
            x = points_of(query, part)
            wanted = expected(query, part, x)
            torch.testing.assert_close(graph.run(x), wanted, rtol=1e-7, atol=1e-7)
            written, again = query_property(query, part.index), read_property(part.vnnlib)
            again.check(graph)
            for one, other in zip(written.cases, again.cases, strict=True):
                assert one.strict == other.strict == frozenset()
                for name in set(Case.__dataclass_fields__) - {"strict"}:
                    assert torch.equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("tolerance", [0.05, 0.4])
def test_the_exported_question_has_the_verdict_of_the_claim(
    tolerance: float, tmp_path: Path
) -> None:
    decided = 0
    for drawn, _ in boxed(range(28)):
        query = query_of(drawn, tolerance)
        if sum(math.prod(query.graph[name].shape) for name in query.graph.inputs) > 8:
            continue  # what takes long is not the point here
        verdict = pc.verify(drawn.graph, drawn.circuit, drawn.claim(tolerance), certify=False)
        statuses = [
            decide(pc.Graph.from_onnx(part.onnx), read_property(part.vnnlib)).status
            for part in export_query(query, tmp_path)
        ]
        if verdict.proved:
            assert set(statuses) <= {"holds", "unknown"}
        elif verdict.refuted:
            assert "violated" in statuses or "unknown" in statuses
        decided += "unknown" not in statuses
        assert "timeout" not in statuses
    assert decided >= 6


def tiny() -> tuple[pc.Graph, pc.Components]:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    with torch.no_grad():
        for i, weight in enumerate(net.parameters()):
            weight.copy_(torch.arange(weight.numel()).reshape(weight.shape) * 0.25 - 0.5 + i)
    graph = pc.Graph.from_torch(net, torch.zeros(1, 2))
    return graph, graph.components("neuron")


def export(patching: pc.Patching, domain: pc.Domain, folder: Path, tolerance: float = 0.1) -> str:
    _, components = tiny()
    metric = pc.LogitDifference(target=0, tolerance=tolerance)
    claim = pc.Claim(inputs=[domain], patching=patching, metric=metric)
    circuit = components.full().remove(components[0].name)
    (part,) = export_query(Encoder(components, claim).encode(circuit), folder)
    model = onnx.load_model(part.onnx)
    kinds = {1: "float32", 11: "float64"}
    return kinds[model.graph.input[0].type.tensor_type.elem_type]


def test_weights_take_the_narrowest_type_that_holds_them(tmp_path: Path) -> None:
    ball = pc.Ball([0.5, 0.25], eps=0.1)
    assert export(pc.Zero(), ball, tmp_path) == "float32"
    assert export(pc.Constant(0.1), ball, tmp_path) == "float64"


def test_the_property_says_what_breaks_the_claim(tmp_path: Path) -> None:
    export(pc.Zero(), pc.Box([0.25, -0.5], [0.5, 0.1]), tmp_path, tolerance=0.1)
    text = (tmp_path / "query-0.vnnlib").read_text()
    tenth = "0.1000000000000000055511151231257827021181583404541015625"
    for line in (
        "; X_0 to X_1: ",
        "(assert (>= X_0 0.25))",
        "(assert (<= X_0 0.5))",
        "(assert (>= X_1 -0.5))",
        f"(assert (<= X_1 {tenth}))",
        f"(and (>= Y_0 {tenth}))",
        f"(and (>= Y_1 {tenth}))",
    ):
        assert line in text
    assert text.count("declare-const") == 4


def test_a_circuit_that_just_keeps_its_claim_is_sat_in_vnn_lib(tmp_path: Path) -> None:
    """VNN-LIB's inequalities include their ends: the documented difference."""
    builder = GraphBuilder()
    x = builder.input("x", (1,))
    hidden = builder.add("fc1", Linear(torch.eye(1)), x, layer="fc1")
    relu = builder.add("relu", ReLU(), hidden)
    graph = builder.build([builder.add("fc2", Linear(torch.eye(1)), relu, layer="fc2")])
    components = graph.components("neuron", outputs=False)
    claim = pc.Claim(
        inputs=[pc.Box([0.0], [1.0])], patching=pc.Zero(), metric=pc.MaxAbs(tolerance=1.0)
    )
    query = Encoder(components, claim).encode(components.empty())
    (part,) = export_query(query, tmp_path)
    found = decide(pc.Graph.from_onnx(part.onnx), read_property(part.vnnlib), 10)
    assert found.status in ("violated", "unknown")
    assert not pc.verify(graph, components.empty(), claim, certify=False).refuted


def test_a_query_in_which_nothing_varies(tmp_path: Path) -> None:
    _, components = tiny()
    claim = pc.Claim(
        inputs=[pc.Point([0.5, 0.25])], patching=pc.Zero(), metric=pc.WinnerMargin(fraction=0.5)
    )
    query = Encoder(components, claim).encode(components.empty())
    assert not query.graph.inputs
    for dense in (False, True):
        (part,) = export_query(query, tmp_path, dense=dense)
        graph, question = pc.Graph.from_onnx(part.onnx), read_property(part.vnnlib)
        assert (question.inputs, question.outputs) == (1, 1)
        verdict = pc.verify(components.graph, components.empty(), claim, certify=False)
        assert decide(graph, question).status == ("holds" if verdict.proved else "violated")


@pytest.mark.parametrize("p", [1, 2])
def test_balls_that_are_no_boxes_are_refused(p: int, tmp_path: Path) -> None:
    with pytest.raises(pc.ProvableCircuitsError, match=r"of the query .* boxes only"):
        export(pc.Zero(), pc.Ball([0.5, 0.25], eps=0.1, p=p), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pc.ProvableCircuitsError, match="cannot be made"):
        export(pc.Zero(), pc.Ball([0.5, 0.25], eps=0.1), tmp_path / "file" / "folder")
