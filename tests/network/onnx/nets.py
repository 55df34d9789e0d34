"""ONNX models written node by node, and the numbers of other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from provable_circuits.network.graph import Graph

Array = NDArray[Any]

NEWEST = onnx.defs.onnx_opset_version()
NEWEST_OF_RUNTIME = 22
"""What any ONNX Runtime that we allow can run. No operation used here means anything else since."""


class Net:
    """Writes a small ONNX model, in the forms of one operator set."""

    def __init__(self, *shape: int | str | None, opset: int = 17, kind: int = TensorProto.FLOAT):
        self.shape = shape
        self.opset = opset
        self.kind = kind
        self.dtype = np.float64 if kind == TensorProto.DOUBLE else np.float32
        self.random = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.ir_version = 8 if opset <= 17 else 10

    def constant(self, name: str, value: object, dtype: type | None = None) -> str:
        array: Array = np.asarray(value, dtype or self.dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.normal(size=shape) * 0.5)

    def positive(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.uniform(0.5, 2.0, size=shape))

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(
            helper.make_node(op_type, inputs, names, name=f"node_{name}", **attributes)
        )
        return name

    def listed(self, op_type: str, source: str, since: int, **numbers: Any) -> str:
        """A node whose lists are attributes before operator set ``since``, and inputs since."""
        if self.opset < since:
            return self.node(op_type, source, **numbers)
        names = [
            self.constant(f"{op_type}_{len(self.nodes)}_{key}", value, np.int64)
            for key, value in numbers.items()
        ]
        return self.node(op_type, source, *names)

    def model(self, output: str, weights_as_inputs: bool = False) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", self.kind, self.shape)]
        if weights_as_inputs:
            inputs += [
                helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in self.weights
            ]
        outputs = [helper.make_tensor_value_info(output, self.kind, None)]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def save(self, output: str, folder: Path) -> Path:
        path = folder / "net.onnx"
        onnx.save_model(self.model(output), path)
        return path


def runtime(model: onnx.ModelProto, x: Array) -> Array:
    """What another runtime computes."""
    version = min(model.opset_import[0].version, NEWEST_OF_RUNTIME)
    runnable = onnx.ModelProto.FromString(model.SerializeToString())
    runnable.opset_import[0].version = version
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        runnable.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result: Array = session.run(None, {session.get_inputs()[0].name: x})[0]
    return result


def graph_of(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "net.onnx"
    onnx.save_model(model, path)
    return Graph.from_onnx(path)


def assert_agrees(model: onnx.ModelProto, graph: Graph) -> None:
    """Equal up to float32 rounding (float64 rounding where the model is one) on random inputs."""
    kind = model.graph.input[0].type.tensor_type
    double = kind.elem_type == TensorProto.DOUBLE
    batch = kind.shape.dim[0].dim_value or 3
    dtype, rtol, atol = (np.float64, 1e-12, 1e-13) if double else (np.float32, 1e-4, 1e-5)
    x = np.random.default_rng(11).normal(size=(batch, *graph.input_shape)).astype(dtype)
    expected = runtime(model, x)
    result = graph.run(x).numpy()
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
