"""ONNX operations of transformers are read as the runtime computes them, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from provable_circuits.errors import UnsupportedOperationError
from provable_circuits.network.graph import Graph
from provable_circuits.network.onnx.transformers import TRANSFORMER_READERS

Case = tuple[str, list[Any], dict[str, Any]]
"""An operation, the constants behind its first input, and its attributes."""

MASK = np.array([[[True]], [[False]]])
CASES: list[Case] = [
    ("Erf", [], {}),
    ("Exp", [], {}),
    ("Expand", [np.array([1, 2, 2, 3])], {}),
    ("Gelu", [], {}),
    ("Gelu", [], {"approximate": "tanh"}),
    ("LayerNormalization", [np.array([1.0, 2, 3]), np.array([0.5, 0, 1])], {"axis": -1}),
    ("LayerNormalization", [np.full((1, 3), 2.0)], {"axis": 2, "epsilon": 0.1}),
    ("Neg", [], {}),
    ("Pow", [np.array(3.0)], {}),
    ("Pow", [np.array(1.0)], {}),
    ("Reciprocal", [], {}),
    ("ReduceSum", [np.array([-1])], {"keepdims": 0}),
    ("ReduceSum", [np.array([1, 3])], {}),
    ("Softmax", [], {}),
    ("Softmax", [], {"axis": 1}),
    ("Sqrt", [], {}),
    ("Where", [MASK, np.array(7.0)], {}),
    ("Where", [MASK, np.array(-np.inf)], {}),
]


def model(case: Case) -> onnx.ModelProto:
    kind, constants, attributes = case
    names = [f"c{i}" for i in range(len(constants))]
    held = [
        numpy_helper.from_array(c.astype(np.float32) if c.dtype.kind == "f" else c, name)
        for c, name in zip(constants, names, strict=True)
    ]
    inputs = [names[0], "x", names[1]] if kind == "Where" else ["x", *names]
    node = helper.make_node(kind, inputs, ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def written(made: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_operations_agree_with_the_runtime(case: Case, tmp_path: Path) -> None:
    path = written(model(case), tmp_path)
    x = torch.rand(4, 2, 1, 3, generator=torch.Generator().manual_seed(0)) + 0.1
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x.numpy()})
    found = Graph.from_onnx(path).run(x)
    torch.testing.assert_close(found, torch.from_numpy(wanted), rtol=1e-5, atol=1e-5)


def test_every_reader_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(TRANSFORMER_READERS)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (("Softmax", [], {"axis": 0}), "across the samples"),
        (("Pow", [np.array(0.3)], {}), "its exponent is"),
        (("ReduceSum", [np.array([0])], {}), "across the samples"),
        (("Where", [MASK, np.array([1.0, 2.0, 3.0])], {}), "not one number"),
        (("Expand", [np.array([2, 2, 1, 3])], {}), "repeats samples"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_other_forms_are_refused(case: Case, says: str, tmp_path: Path) -> None:
    path = written(model(case), tmp_path)
    with pytest.raises(UnsupportedOperationError, match=says):
        Graph.from_onnx(path)


def test_both_vision_transformers_of_vnn_comp(shared_data: Path) -> None:
    folder = shared_data / "transformers" / "vit"
    if not folder.is_dir():
        pytest.skip("the data pack has no transformers")
    for name, count in (("pgd_2_3_16", 6), ("ibp_3_3_8", 9)):
        path = folder / f"{name}.onnx"
        graph = Graph.from_onnx(path)
        assert len(graph.components("head")) == count
        x = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(graph.run(x).numpy(), wanted, rtol=1e-4, atol=1e-4)
