"""Writing ONNX: valid files that ONNX Runtime evaluates to the numbers of plain execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isabstract
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import Tensor

from provable_circuits.errors import ArgumentError, ModelFileError
from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    GELU,
    AdaptiveAvgPool2d,
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Constant,
    Conv2d,
    Divide,
    Embedding,
    Erf,
    Exp,
    Expand,
    Fill,
    Gather,
    Input,
    IntegerInput,
    LeakyReLU,
    Linear,
    MatMul,
    MaxPool2d,
    Mean,
    Multiply,
    Normalise,
    Op,
    Pad,
    Permute,
    Power,
    Reciprocal,
    ReLU,
    Reshape,
    Scatter,
    Shape,
    Sigmoid,
    SiLU,
    Slice,
    Softmax,
    Sqrt,
    Square,
    Subtract,
    Sum,
    Tanh,
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run_file(path: Path, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
    """All outputs of a valid file, by name."""
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    results = session.run(names, {name: value.numpy() for name, value in feeds.items()})
    return {name: torch.from_numpy(np.array(r)) for name, r in zip(names, results, strict=True)}


def assert_written(
    graph: Graph, folder: Path, dtype: torch.dtype = torch.float32, batch: int = 3
) -> Path:
    """The file has the graph's inputs and outputs and computes what the graph does."""
    path = folder / "graph.onnx"
    graph.to_onnx(path, dtype)
    feeds = {
        name: numbers(batch, *graph[name].shape, seed=i + 1).to(dtype)
        for i, name in enumerate(graph.inputs)
    }
    expected = evaluate(graph, feeds)
    results = run_file(path, feeds)
    assert list(results) == list(dict.fromkeys(graph.outputs))
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (1e-12, 1e-12)
    for name, result in results.items():
        torch.testing.assert_close(result, expected[name], rtol=rtol, atol=atol)
    return path


def chain(shape: Shape, *ops: Op) -> Graph:
    builder = GraphBuilder()
    name = builder.input("x", shape)
    for op in ops:
        name = builder.add(op.name.lower(), op, name)
    return builder.build([name])


OPERATIONS: list[tuple[Shape, Op]] = [
    ((5,), Linear(numbers(4, 5), numbers(4))),
    ((3, 5), Linear(numbers(4, 5))),
    ((4, 7, 6), Conv2d(numbers(6, 2, 3, 2), numbers(6), (2, 1), (1, 0), (1, 2), groups=2)),
    ((4, 7, 6), Conv2d(numbers(6, 4, 1, 1))),
    ((5,), ReLU()),
    ((5,), LeakyReLU(0.125)),
    ((5,), Clip(-0.3, 0.4)),
    ((5,), Clip(-torch.inf, 0.4)),
    ((5,), Sigmoid()),
    ((5,), Tanh()),
    ((5,), Square()),
    ((2, 3), Affine(numbers(3), numbers(2, 1))),
    ((2, 3), Affine()),
    ((5,), BatchNorm(numbers(5), numbers(5))),
    ((2, 3, 3), BatchNorm(numbers(2, 1, 1), numbers(2, 1, 1))),
    ((2, 3, 3), BatchNorm(numbers(2, 1, 1), None)),
    ((2, 3), Divide(numbers(3))),
    ((2, 7, 8), AvgPool2d((3, 2), (2, 2), (1, 1), count_include_pad=False)),
    ((2, 7, 8), AvgPool2d((3, 2), (2, 3), (1, 1), ceil_mode=True)),
    ((2, 7, 8), AdaptiveAvgPool2d((7, 8), (3, 5))),
    ((2, 7, 8), MaxPool2d((3, 2), (2, 2), (1, 1, 1, 1))),
    ((2, 7, 8), MaxPool2d((3, 2), (2, 2), (0, 1, 2, 0), (1, 2))),
    ((2, 6, 8), MaxPool2d((2, 3), (2, 3), (0, 0, 1, 1), ceil_mode=True)),
    ((2, 5, 7), MaxPool2d((2, 2), (2, 2), (1, 1, 1, 1), ceil_mode=True)),
    ((2, 3, 4), Mean((1, 2), 12, keepdim=True)),
    ((2, 3, 4), Mean((0,), 2)),
    ((2, 3, 4), Reshape((6, 4))),
    ((2, 3, 4), Permute((2, 0, 1))),
    ((2, 3, 4), Pad((1, 0, 2, 3))),
    ((2, 3), Gather(torch.tensor([[5, 0], [3, 3]]))),
    ((2, 3), Scatter(torch.tensor([7, 1, 2, 6, 0, 4]), (2, 2, 2))),
    ((2, 6), Slice(1, 1, 6, 2)),
    ((2, 1, 3), Expand((2, 4, 3))),
    ((2, 3, 4), Sum((0, 2), 8)),
    ((2, 3, 4), Sum((1,), 3, keepdim=True)),
    ((2, 4), Softmax(1)),
    ((2, 4), Softmax(0)),
    ((2, 3), Fill(torch.tensor([[True], [False]]), -2.5)),
    ((5,), GELU()),
    ((5,), GELU(tanh=True)),
    ((5,), SiLU()),
    ((5,), Exp()),
    ((5,), Erf()),
    ((5,), Reciprocal()),
    ((5,), Power(3)),
    ((2, 4), Normalise(1, 1e-5)),
    ((2, 2, 3), Normalise(2, 1e-3, centred=False)),
]


@pytest.mark.parametrize(("shape", "op"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_every_operation_alone(shape: Shape, op: Op, tmp_path: Path) -> None:
    graph = chain(shape, op)
    path = assert_written(graph, tmp_path)
    x = numbers(2, *shape)
    graph.to_onnx(path, torch.float64)
    again = Graph.from_onnx(path)
    torch.testing.assert_close(again.run(x), graph.run(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "op", [Add(), Subtract(), Multiply(), Concat(0), Concat(1)], ids=lambda op: str(op)
)
def test_every_operation_on_two_tensors(op: Op, tmp_path: Path) -> None:
    builder = GraphBuilder()
    a, b = builder.input("a", (2, 3)), builder.input("b", (2, 3))
    assert_written(builder.build([builder.add("y", op, a, b)]), tmp_path)
    builder = GraphBuilder()
    a = builder.input("a", (2, 3))
    assert_written(builder.build([builder.add("y", op, a, a)]), tmp_path)


def subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from subclasses(child)


def test_no_operation_is_left_out() -> None:
    ours = {kind for kind in subclasses(Op) if kind.__module__.startswith(Op.__module__[:-5])}
    concrete = {kind for kind in ours if not isabstract(kind)}
    two = {Add, Subtract, Multiply, MatMul, Concat}
    others = {Constant, Input, IntegerInput, Embedding, Sqrt}
    assert concrete == {type(op) for _, op in OPERATIONS} | two | others


def test_attention_over_tokens_is_written_and_read_back(tmp_path: Path) -> None:
    builder = GraphBuilder()
    tokens = builder.input("tokens", (4,), integer=True)
    x = builder.add("embed", Embedding(numbers(5, 3)), tokens)
    turned = builder.add("turned", Permute((1, 0)), x)
    scores = builder.add("scores", MatMul(), x, turned)
    masked = builder.add("masked", Fill(torch.ones(4, 4).triu(1).bool(), -torch.inf), scores)
    pattern = builder.add("pattern", Softmax(1), masked)
    mixed = builder.add("mixed", MatMul(), pattern, x)
    squared = builder.add("squared", Multiply(), mixed, mixed)
    root = builder.add("root", Sqrt(), squared)
    graph = builder.build([root])
    path = tmp_path / "attention.onnx"
    graph.to_onnx(path, torch.float64)
    values = torch.randint(0, 5, (6, 4), generator=torch.Generator().manual_seed(0))
    wanted = graph.run(values, torch.float64)
    torch.testing.assert_close(run_file(path, {"tokens": values})["root"], wanted)
    again = Graph.from_onnx(path)
    assert isinstance(again["tokens"].op, IntegerInput)
    torch.testing.assert_close(again.run(values, torch.float64), wanted)
    assert again.components("head").names == ("pattern/h0",)


def merged_graph() -> Graph:
    """A network and a circuit of it in one graph, with what they share and a fixed patch."""
    builder = GraphBuilder()
    x, patch = builder.input("x", (6,)), builder.input("patch", (2,))
    first = Linear(numbers(5, 6), numbers(5))
    hidden = builder.add("relu", ReLU(), builder.add("fc1", first, x, layer="fc1"))
    assert builder.add("copy", first, x) == "fc1"
    last = Linear(numbers(3, 5, seed=2), numbers(3))
    network = builder.add("network", last, hidden, layer="fc2")
    kept = builder.add("kept", Linear(numbers(2, 5), None), hidden, layer="kept")
    fixed = builder.constant("fixed", numbers(1))
    joined = builder.add("joined", Concat(0), patch, fixed, kept)
    circuit = builder.add("circuit", last, joined, layer="fc2")
    difference = builder.add("difference", Subtract(), circuit, network)
    return builder.build([network, difference])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_merged_graph(dtype: torch.dtype, batch: int, tmp_path: Path) -> None:
    path = assert_written(merged_graph(), tmp_path, dtype, batch)
    model = onnx.load_model(path)
    kind = TensorProto.FLOAT if dtype == torch.float32 else TensorProto.DOUBLE
    for value in [*model.graph.input, *model.graph.output]:
        assert value.type.tensor_type.elem_type == kind
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [value.name for value in model.graph.input] == ["x", "patch"]
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names))
    assert all(names)
    assert {"fc1", "relu", "network", "joined", "circuit", "difference"} <= set(names)


def test_shared_weights_are_written_once(tmp_path: Path) -> None:
    path = assert_written(merged_graph(), tmp_path)
    stored = {t.name: tuple(t.dims) for t in onnx.load_model(path).graph.initializer}
    assert [name for name, dims in stored.items() if dims == (5, 3)] == ["fc2.weight"]
    assert {"fc1.weight", "fc1.bias", "fc2.bias", "kept.weight", "fixed.value"} <= set(stored)


def test_integers_stay_integers_and_floats_take_the_files_type(tmp_path: Path) -> None:
    graph = chain((2, 3), Affine(torch.ones(3)), Permute((1, 0)), Reshape((6,)), Clip(0.1, 5.0))
    path = assert_written(graph, tmp_path, torch.float64)
    kinds = {t.name: t.data_type for t in onnx.load_model(path).graph.initializer}
    assert kinds.pop("reshape.constant") == TensorProto.INT64
    assert set(kinds.values()) == {TensorProto.DOUBLE}
    low = [t for t in onnx.load_model(path).graph.initializer if t.name == "clip.constant"]
    assert float(numpy_helper.to_array(low[0])) == 0.1


def graph_of(outputs: Sequence[str]) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", (3,))
    one = builder.constant("one", numbers(3))
    two = builder.constant("two", numbers(3, seed=1))
    builder.add("sum", Add(), one, two)
    builder.add("y", Add(), x, "sum")
    builder.add("pair", Concat(0), one, x, "sum")
    return builder.build(outputs)


@pytest.mark.parametrize(
    "outputs",
    [
        ["x"],
        ["one"],
        ["sum"],
        ["x", "y"],
        ["one", "y", "sum"],
        ["pair", "one"],
        ["y", "y"],
    ],
    ids=lambda names: "-".join(names),
)
@pytest.mark.parametrize("batch", [1, 4])
def test_outputs_that_are_inputs_or_depend_on_none(
    outputs: list[str], batch: int, tmp_path: Path
) -> None:
    graph = graph_of(outputs)
    path = assert_written(graph, tmp_path, torch.float64, batch)
    if len(outputs) == 1:
        again = Graph.from_onnx(path)
        x = numbers(batch, 3)
        torch.testing.assert_close(again.run(x), graph.run(x), rtol=0, atol=0)
        assert again.outputs == graph.outputs


def test_the_name_of_an_initializer_never_hides_a_tensor(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.input("fc.weight", (3,))
    y = builder.add("fc.MatMul", Linear(numbers(3, 3), numbers(3)), x, layer="fc")
    assert_written(builder.build([builder.add("fc.bias", ReLU(), y)]), tmp_path)


def test_component_names_survive(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2, 5, 5))
    a = builder.add("a", Conv2d(numbers(3, 2, 3, 3)), x, layer="block.0/conv")
    n = BatchNorm(numbers(3, 1, 1), numbers(3, 1, 1))
    a = builder.add("relu", ReLU(), builder.add("norm", n, a))
    a = builder.add("flat", Reshape((27,)), a)
    graph = builder.build([builder.add("head", Linear(numbers(2, 27), numbers(2)), a)])
    path = assert_written(graph, tmp_path)
    again = Graph.from_onnx(path)
    for granularity in ("filter", "neuron"):
        before, after = graph.components(granularity), again.components(granularity)
        assert after.names == before.names
        assert [site.tensor for site in after.sites] == [site.tensor for site in before.sites]


def test_every_benchmark_network(shared_data: Path, tmp_path: Path) -> None:
    for source in sorted(shared_data.glob("*.onnx")):
        assert_written(Graph.from_onnx(source), tmp_path)


# Errors.


def test_other_types_are_refused(tmp_path: Path) -> None:
    graph = chain((2,), ReLU())
    with pytest.raises(
        ArgumentError, match=r"'dtype' parameter must be torch\.float32 or"
    ) as caught:
        graph.to_onnx(tmp_path / "graph.onnx", torch.float16)
    assert "Got torch.float16 instead." in str(caught.value)
    with pytest.raises(ArgumentError, match="'path' parameter must be the name of a file to write"):
        graph.to_onnx(7)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_weights_that_do_not_fit_the_type_are_refused(tmp_path: Path) -> None:
    graph = chain((1,), Linear(torch.tensor([[1e300]], dtype=torch.float64)))
    with pytest.raises(ArgumentError, match=r"too small for those of 'linear'; use torch\.float64"):
        graph.to_onnx(tmp_path / "graph.onnx")
    assert not list(tmp_path.iterdir())
    assert_written(graph, tmp_path, torch.float64)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    graph = chain((2,), ReLU())
    with pytest.raises(ModelFileError, match="cannot be written"):
        graph.to_onnx(tmp_path / "no" / "graph.onnx")
