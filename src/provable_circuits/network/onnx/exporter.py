"""From a Graph to an ONNX file.

Every operation writes itself; here are the file around them and the batch dimension. A tensor that
depends on no input has a batch dimension of one. That broadcasts in arithmetic, but ONNX does not
broadcast when it concatenates, and an output must have one row for each sample: there such tensors
are expanded to the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from provable_circuits.errors import ArgumentError, ModelFileError
from provable_circuits.files import write_file
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Concat, Input, IntegerInput

OPERATOR_SET = 22
IR_VERSION = 10
"""Both of ONNX 1.17 (2024). Before 22, ONNX does not say where pooling with ceil_mode ends."""

BATCH = "batch"

INT64 = TensorProto.INT64

_TYPES = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}


def graph_to_onnx(
    graph: Graph, path: str | PathLike[str], dtype: torch.dtype = torch.float32
) -> None:
    """Write a graph, of any number of inputs and outputs, as an ONNX file.

    Args:
        graph: the graph; its inputs and outputs keep their names.
        path: the file to write.
        dtype: ``torch.float32`` or ``torch.float64``, for inputs, outputs and weights.

    Raises:
        ArgumentError: another dtype, or weights that are too large for it.
        ModelFileError: the file cannot be written.
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentError(
            f"The 'path' parameter must be the name of a file to write. Got {path!r} instead."
        )
    if dtype not in _TYPES:
        raise ArgumentError(
            f"The 'dtype' parameter must be torch.float32 or torch.float64. Got {dtype!r} instead."
        )
    data = _OnnxWriter(graph, dtype).model().SerializeToString()
    try:
        write_file(Path(path), data)
    except OSError as error:
        raise ModelFileError(f"The file '{path}' cannot be written: {error}.") from error


class _OnnxWriter:
    """The file as far as it is written; operations see it as an ``OnnxWriter``."""

    def __init__(self, graph: Graph, dtype: torch.dtype) -> None:
        self._graph = graph
        self._dtype = dtype
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[object, ...], tuple[str, Tensor]] = {}
        self._taken = {node.name for node in graph.nodes}
        self._current: Node
        self._varying = set(graph.inputs)
        for node in graph.nodes:
            if self._varying.intersection(node.inputs):
                self._varying.add(node.name)

    def model(self) -> onnx.ModelProto:
        """The whole file."""
        outputs = tuple(dict.fromkeys(self._graph.outputs))
        for node in self._graph.nodes:
            if not isinstance(node.op, Input):
                self._write(node, expand=node.name in outputs)
        kind = _TYPES[self._dtype]
        batch = BATCH if self._graph.inputs else 1
        inputs, results = (
            [
                helper.make_tensor_value_info(
                    name,
                    INT64 if isinstance(self._graph[name].op, IntegerInput) else kind,
                    [batch, *self._graph[name].shape],
                )
                for name in names
            ]
            for names in (self._graph.inputs, outputs)
        )
        file = helper.make_graph(self._nodes, "graph", inputs, results, self._initializers)
        return helper.make_model(
            file,
            opset_imports=[helper.make_opsetid("", OPERATOR_SET)],
            ir_version=IR_VERSION,
            producer_name="provable-circuits",
        )

    def constant(self, value: Tensor) -> str:
        """Store a constant once; integers stay integers, floats take the file's dtype."""
        key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key not in self._constants:
            stored = value.detach().cpu()
            if stored.is_floating_point():
                stored = stored.to(self._dtype)
                if bool((stored.isinf() & value.cpu().isfinite()).any()):
                    raise ArgumentError(
                        f"The 'dtype' parameter must hold all weights, and {self._dtype} is too "
                        f"small for those of '{self._layer()}'; use torch.float64."
                    )
            else:
                stored = stored.to(torch.int64)
            name = self._fresh(f"{self._layer()}.{self._role(value)}")
            self._initializers.append(numpy_helper.from_array(stored.contiguous().numpy(), name))
            self._constants[key] = (name, value)  # holding it keeps its address from being reused
        return self._constants[key][0]

    def node(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        """Append a node under a name of its own."""
        name = self._fresh(f"{self._current.name}.{op_type}")
        node = helper.make_node(op_type, inputs, [name], name=name)
        node.attribute.extend(helper.make_attribute(*pair) for pair in sorted(attributes.items()))
        self._nodes.append(node)
        return name

    def _write(self, node: Node, expand: bool) -> None:
        """One operation of the graph, its output under the graph's own name."""
        self._current = node
        inputs = list(node.inputs)
        if isinstance(node.op, Concat) and node.name in self._varying:
            inputs = [n if n in self._varying else self._expanded(n, n) for n in inputs]
        output = node.op.write_onnx(self, *inputs)
        if expand and self._graph.inputs and node.name not in self._varying:
            output = self._expanded(output, node.name)
        last = self._nodes[-1]
        if last.output[0] != output:
            last = helper.make_node("Identity", [output], [node.name])
            self._nodes.append(last)
        last.name = last.output[0] = node.name

    def _expanded(self, name: str, tensor: str) -> str:
        """A tensor that depends on no input, with one row for each sample of the batch."""
        batch = self.node("Shape", [self._graph.inputs[0]], start=0, end=1)
        sizes = self.constant(torch.tensor(self._graph[tensor].shape, dtype=torch.int64))
        return self.node("Expand", [name, self.node("Concat", [batch, sizes], axis=0)])

    def _layer(self) -> str:
        """What the constants of the current node are named after."""
        return self._current.layer or self._current.name

    def _role(self, value: Tensor) -> str:
        """The parameter that a constant is, possibly transposed, or just ``constant``."""
        for name, parameter in self._current.op.parameters().items():
            if parameter.data_ptr() == value.data_ptr() and parameter.numel() == value.numel():
                return name
        return "constant"

    def _fresh(self, name: str) -> str:
        number, fresh = 0, name
        while fresh in self._taken:
            number += 1
            fresh = f"{name}_{number}"
        self._taken.add(fresh)
        return fresh
