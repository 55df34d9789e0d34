"""Random ONNX models: every operation that is read, in every form that one can think of.

A model grows node by node. After each node ONNX Runtime computes what there is, which tells the
shape, and whether the node is one that the runtime takes at all: one that it refuses is put aside,
and the model grows on without it. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]

OLDEST, NEWEST = 9, 22
"""Operator sets that the importer reads and any ONNX Runtime that we allow can run."""

LEVELS = onnxruntime.GraphOptimizationLevel


def session_of(model: bytes, optimised: bool = False) -> onnxruntime.InferenceSession:
    """ONNX Runtime, as it comes or with every optimisation switched off."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = LEVELS.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Draft:
    """A model as far as it has been drawn.

    Attributes:
        output: the tensor that the next operation reads, and the output of the model.
        result: what the runtime computes for it from ``x``.
        refused: models that differ from this one by a last node that the runtime does not take.
        finished: whether nothing can follow, because the runtime computes another shape than it
            foretells (pooling with ceil_mode before operator set 22).
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = int(self.random.integers(OLDEST, NEWEST + 1))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.refused: list[onnx.ModelProto] = []
        shape = self.pick([(5,), (6,), (3, 4), (2, 5, 6), (3, 7, 8), (4, 6, 5), (1, 9, 9)])
        fixed = len(shape) in (1, 3) and self.chance(0.4)
        batch = self.pick([1, 2, 3]) if fixed else 1
        self.shape: list[int | str] = [batch if fixed or self.chance(0.3) else "N", *shape]
        self.x: Array = self.random.normal(size=(batch, *shape)).astype(np.float32)
        self.output, self.result = "x", self.x
        self.finished = False
        self.earlier: dict[str, Array] = {}

    # Drawing.

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def axis(self, rank: int, first: int = 1) -> int:
        """An axis, the batch now and then, from either side."""
        axis = self.number(0 if self.chance(0.05) else min(first, rank - 1), rank - 1)
        return axis - rank if self.chance(0.3) else axis

    # Constants.

    def fresh(self, word: str) -> str:
        return f"{word}{len(self.nodes)}_{len(self.weights)}"

    def store(self, value: Array) -> str:
        """A constant as an initializer or as a node."""
        name = self.fresh("c")
        value = np.asarray(value)
        if self.chance(0.7):
            self.weights.append(numpy_helper.from_array(value, name))
            return name
        if value.ndim < 2 and value.dtype in (np.float32, np.int64) and self.opset >= 12:
            kind = "value_float" if value.dtype == np.float32 else "value_int"
            attributes = {kind + "s" * value.ndim: value.tolist()}
            if value.size:
                return self.append("Constant", [], name, **attributes)
        return self.append("Constant", [], name, value=numpy_helper.from_array(value))

    def integers(self, values: Sequence[int] | int, dtype: Any = np.int64) -> str:
        """Integers, now and then put together from pieces."""
        array = np.array(values, dtype)
        if array.ndim == 1 and len(array) > 1 and self.chance(0.3):
            cut = self.number(1, len(array) - 1)
            pieces = [self.store(array[:cut]), self.store(array[cut:])]
            return self.append("Concat", pieces, self.fresh("c"), axis=0)
        return self.store(array)

    def floats(self, *shape: int, positive: bool = False) -> str:
        """Floats, now and then computed from other constants."""
        if not positive and self.chance(0.25):
            from tests.network.onnx_constants import computed

            return computed(self, shape)
        drawn = self.random.uniform(0.5, 2, shape) if positive else self.random.normal(size=shape)
        return self.store(drawn.astype(np.float32))

    # Nodes.

    def append(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def listed(self, since: int, **lists: Sequence[int] | None) -> tuple[list[str], dict[str, Any]]:
        """Lists as inputs from operator set ``since`` on, and as attributes before."""
        if self.opset < since:
            return [], {key: list(value) for key, value in lists.items() if value}
        names = ["" if value is None else self.integers(list(value)) for value in lists.values()]
        while names and not names[-1]:
            names.pop()
        return names, {}

    def add(self, kind: str, *inputs: str, extra: int = 0, **attributes: Any) -> bool:
        """Append an operation on tensors if the runtime takes it; ``extra`` outputs go unread."""
        name = self.fresh("t")
        names = [name, *(f"{name}_{i}" for i in range(extra))]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"n_{name}", **attributes))
        model = self.model(name)
        try:
            session = session_of(model.SerializeToString())
            result = session.run(None, {"x": self.x})[0]
        except Exception:
            self.nodes.pop()
            self.refused.append(model)
            return False
        if not np.isfinite(result).all() or not 0 < result.size < 5000:
            self.nodes.pop()
            return False
        self.earlier[self.output] = self.result
        self.output, self.result = name, result
        foretold = session.get_outputs()[0].shape
        self.finished = result.ndim == 0 or any(
            isinstance(size, int) and size != actual
            for size, actual in zip(foretold, result.shape, strict=False)
        )
        return True

    def model(self, output: str | None = None) -> onnx.ModelProto:
        """The model so far."""
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output or self.output, TensorProto.FLOAT, None)],
            self.weights,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=4 + (self.opset > 17) * 6)

    def __str__(self) -> str:
        return onnx.printer.to_text(self.model())
