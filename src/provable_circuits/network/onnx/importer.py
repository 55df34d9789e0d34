"""From an ONNX file to a Graph.

The nodes of the file are read in order. A name stands either for a tensor of the graph or for a
constant. A node whose inputs are all constants is computed on the spot (see ``onnx_folding``), and
so is the shape of a tensor, for shapes are fixed but for the batch; every other node goes through
its reader (see ``onnx_readers``). What a node means is what ONNX Runtime computes without
optimisations; where runtimes or versions differ, it is refused. Dimension 0 of the input is the
batch. Where the file leaves its size free it is taken as 1: the graph is what the model computes
for one sample.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, numpy_helper
from torch import Tensor

from provable_circuits.errors import (
    ModelError,
    ModelFileError,
    UnsupportedOperationError,
    one_line,
)
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.onnx.file import load_model
from provable_circuits.network.onnx.folding import fold
from provable_circuits.network.onnx.node import (
    Array,
    OnnxNode,
    UnsupportedFormError,
    Value,
    element_type_name,
    sample_constant,
)
from provable_circuits.network.onnx.readers import READERS
from provable_circuits.network.onnx.transformers import INTEGERS
from provable_circuits.network.onnx.types import type_conflict, type_of
from provable_circuits.network.ops import Shape, ShapeError

OLDEST_OPERATOR_SET = 8

SUPPORTED_OPERATIONS = tuple(sorted([*READERS, "Constant", "Shape", "Size"]))
"""What a model may do with tensors that depend on its input; with constants, see ``FOLDERS``."""

_STANDARD_DOMAINS = ("", "ai.onnx")
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_RANDOM = ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike")
_NEVER_FOLDED = frozenset([*_RANDOM, "RandomUniform", "RandomUniformLike"])

_WEIGHT = re.compile(r"(.+)[._/](?:weight|kernel|W)(?::0)?")
"""A weight that is named after its layer."""


def graph_from_onnx(path: str | PathLike[str]) -> Graph:
    """Read an ONNX file of one input and one output; see ``Graph.from_onnx``."""
    model = load_model(path)
    try:
        walk = _OnnxWalk(model.graph, _operator_set(model))
        for node in model.graph.node:
            walk.read(node)
        return walk.finish()
    except ModelError as error:
        raise type(error)(one_line(str(error))) from error.__cause__


def _operator_set(model: onnx.ModelProto) -> int:
    versions: list[int] = [
        entry.version for entry in model.opset_import if entry.domain in _STANDARD_DOMAINS
    ]
    newest = defs.onnx_opset_version()
    if not versions or not OLDEST_OPERATOR_SET <= max(versions) <= newest:
        raise UnsupportedOperationError(
            f"The model must use an operator set of ONNX from {OLDEST_OPERATOR_SET} to {newest}. "
            f"Got {max(versions) if versions else 'none'} instead; convert it with "
            "onnx.version_converter or export it again."
        )
    return max(versions)


@dataclass(frozen=True, slots=True)
class _Source:
    """The model's input: its name, batch size, per-sample shape and element type."""

    name: str
    batch: int
    batch_is_free: bool
    shape: Shape
    element_type: int


def _source(graph: onnx.GraphProto) -> _Source:
    """The one real input; old files list their weights among the inputs too."""
    weights = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in weights]
    if len(names) != 1:
        raise ModelError(
            f"The model must have one input. Got {len(names)} instead"
            f"{': ' + ', '.join(names) if names else ''}; export it with a single input."
        )
    (value,) = (value for value in graph.input if value.name == names[0])
    kind = value.type.tensor_type
    if kind.elem_type not in (*_FLOATS, *INTEGERS):
        raise ModelError(
            f"The model's input '{value.name}' must be a tensor of floats, or of tokens. "
            f"Got {element_type_name(kind.elem_type)} instead."
        )
    sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim]
    shown = [dim.dim_value or dim.dim_param or "?" for dim in kind.shape.dim]
    where = f"The model's input '{value.name}' of shape [{', '.join(map(str, shown))}]"
    if not sizes:
        raise ModelError(
            f"The model's input '{value.name}' must have a shape that begins with the batch. "
            "Got a tensor without dimensions instead."
        )
    shape = tuple(size for size in sizes[1:] if size is not None)
    if len(shape) < len(sizes) - 1:
        raise ModelError(
            f"{where} must have fixed, positive sizes behind the batch; export it with the sizes "
            "it is used with."
        )
    if len(sizes) not in (2, 4) and sizes[0] not in (None, 1):
        raise ModelError(
            f"{where} must begin with a batch dimension of 1 or of free size, because with "
            f"{len(sizes)} dimensions the first one may mean something else; export it with one."
        )
    return _Source(value.name, sizes[0] or 1, sizes[0] is None, shape, kind.elem_type)


class _OnnxWalk:
    """What the names of the file stand for, as far as its nodes have been read."""

    def __init__(self, graph: onnx.GraphProto, operator_set: int) -> None:
        if len(graph.output) != 1:
            names = ", ".join(value.name for value in graph.output)
            raise ModelError(
                f"The model must have one output. Got {len(graph.output)} instead: {names}; "
                "export it with a single output."
            )
        if graph.sparse_initializer:
            raise ModelError("The model must keep its weights dense. Got sparse weights instead.")
        self.source = _source(graph)
        self.output = graph.output[0].name
        self.builder = GraphBuilder()
        self.values: dict[str, Value] = {
            tensor.name: _array(tensor) for tensor in graph.initializer
        }
        self.values[self.source.name] = self.builder.input(
            self.source.name, self.source.shape, integer=self.source.element_type in INTEGERS
        )
        self.origins = {tensor.name: tensor.name for tensor in graph.initializer}
        self.titles: dict[str, str] = {}
        self.types = {self.source.name: self.source.element_type}
        self.uses = Counter(name for node in graph.node for name in node.input)
        self.uses[self.output] += 1
        self.operator_set = operator_set
        self.context = checker.C.CheckerContext()
        self.context.ir_version = onnx.IR_VERSION
        self.context.opset_imports = {"": operator_set}

    def read(self, node: onnx.NodeProto) -> None:
        """Find out what the outputs of one node stand for."""
        self._check(node)
        operands = tuple(self._operand(node, name) for name in node.input)
        self._check_types(node, operands)
        constants = [value for value in operands if not isinstance(value, str)]
        try:
            if node.op_type in ("Shape", "Size") and isinstance(operands[0], str):
                self.values[node.output[0]] = self._size(node, operands[0])
            elif len(constants) == len(operands) and node.op_type not in _NEVER_FOLDED:
                self._fold(node, operands)
            elif node.op_type in READERS:
                self.values[node.output[0]] = READERS[node.op_type](self._node(node, operands))
            else:
                raise UnsupportedFormError("it has no exact counterpart here")
            for name in node.output[1:]:
                if self.uses[name] and name not in self.values:
                    raise UnsupportedFormError(f"its output '{name}' is used")
        except (UnsupportedFormError, ShapeError) as error:
            raise _unsupported(node, str(error).removesuffix(".")) from error

    def finish(self) -> Graph:
        """The graph, each tensor under the model's own name for it."""
        output = self.values.get(self.output)
        if output is None:
            raise ModelFileError(
                f"The model's output '{self.output}' is made by none of its nodes."
            )
        if not isinstance(output, str):
            output = self.builder.constant(self.output, self._constant_output(output))
        graph = self.builder.build([output])
        names = {self.source.name: self.source.name}
        names.setdefault(output, self.output)
        taken = set(names.values())
        for node in graph.nodes:
            if node.name not in names:
                names[node.name] = _fresh(self.titles[node.name], taken)
                taken.add(names[node.name])
        nodes = [
            replace(node, name=names[node.name], inputs=tuple(names[n] for n in node.inputs))
            for node in graph.nodes
        ]
        return Graph(nodes, [names[n] for n in graph.inputs], [names[n] for n in graph.outputs])

    def _constant_output(self, value: Array) -> Tensor:
        """The output of a model that ignores its input."""
        try:
            if value.ndim == 0:
                raise UnsupportedFormError("its constant has no batch dimension")
            return sample_constant(value, value.ndim - 1, self.source.batch)
        except UnsupportedFormError as error:
            raise ModelError(
                f"The model's output '{self.output}' does not depend on its input, and {error}."
            ) from error

    def _check(self, node: onnx.NodeProto) -> None:
        """Refuse a node that is not one of ONNX's own, or not as ONNX defines it."""
        if node.domain not in _STANDARD_DOMAINS:
            raise _unsupported(
                node, f"it belongs to the domain '{node.domain}', not to ONNX itself"
            )
        node.domain = ""
        if not defs.has(node.op_type, self.operator_set):
            raise _unsupported(node, f"operator set {self.operator_set} of ONNX does not have it")
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise _unsupported(node, "it runs a graph inside the graph")
        try:
            checker.check_node(node, self.context)
        except (checker.ValidationError, UnicodeDecodeError) as error:
            raise _invalid(node, str(error).splitlines()[0]) from error
        for name in node.output:
            if name and name in self.values:
                raise _invalid(node, f"'{name}' is made twice.")

    def _check_types(self, node: onnx.NodeProto, operands: tuple[Value | None, ...]) -> None:
        """Refuse inputs of types that the standard does not allow; note those of the outputs."""
        types = [
            self.types.get(name, 0)
            if isinstance(value, str)
            else type_of(value)
            if value is not None
            else None
            for name, value in zip(node.input, operands, strict=True)
        ]
        conflict = type_conflict(node, self.operator_set, types)
        if conflict:
            raise _invalid(node, f"{conflict}.")
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                types.insert(0, attribute.i)
        if node.op_type == "Where":  # the condition comes first
            types = types[1:]
        self.types.update({name: types[0] or 0 for name in node.output if types})

    def _operand(self, node: onnx.NodeProto, name: str) -> Value | None:
        if name and name not in self.values:
            raise _invalid(node, f"nothing before it makes '{name}'.")
        return self.values[name] if name else None

    def _node(self, node: onnx.NodeProto, operands: tuple[Value | None, ...]) -> OnnxNode:
        weights = [self.origins[name] for name in node.input if name in self.origins]
        return OnnxNode(
            output=node.output[0],
            output_count=sum(1 for name in node.output if name),
            title=_readable(node.name) or node.output[0],
            layer=_layer_name(weights[0] if weights else "", node),
            operands=operands,
            sole_reader=tuple(
                isinstance(value, str) and value == name and self.uses[name] == 1
                for name, value in zip(node.input, operands, strict=True)
            ),
            attributes=_attributes(node),
            builder=self.builder,
            titles=self.titles,
            batch=self.source.batch,
            batch_is_free=self.source.batch_is_free,
            element_type=self.source.element_type,
            operator_set=self.operator_set,
        )

    def _size(self, node: onnx.NodeProto, tensor: str) -> Array:
        """The shape of a tensor, or its number of elements."""
        sizes = (self.source.batch, *self.builder[tensor].shape)
        if node.op_type == "Size":
            return np.array(math.prod(sizes), dtype=np.int64)
        attributes = _attributes(node)
        return np.array(sizes[attributes.get("start", 0) : attributes.get("end")], dtype=np.int64)

    def _fold(self, node: onnx.NodeProto, operands: tuple[Value | None, ...]) -> None:
        """Compute a node all of whose inputs are constants."""
        results = fold(node.op_type, self._node(node, operands))
        for name, result in zip(node.output, results, strict=False):
            self.values[name] = result
            named = _WEIGHT.fullmatch(name)
            inherited = self.origins.get(next(filter(None, node.input), ""), name)
            self.origins[name] = name if named else inherited


def _array(tensor: onnx.TensorProto) -> Array:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelFileError(
            f"The weights '{tensor.name}' of shape {list(tensor.dims)} are damaged: {error}."
        ) from error


def _attributes(node: onnx.NodeProto) -> Mapping[str, Any]:
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def _place(node: onnx.NodeProto) -> str:
    name = f" '{node.name}'" if node.name else ""
    return f"the {node.op_type} node{name}, which makes '{node.output[0] if node.output else ''}'"


def _invalid(node: onnx.NodeProto, reason: str) -> ModelFileError:
    return ModelFileError(f"The model is not valid ONNX at {_place(node)}: {reason}")


def _unsupported(node: onnx.NodeProto, reason: str) -> UnsupportedOperationError:
    said = f"The operation {node.op_type} is not supported at {_place(node)}: {reason}."
    return UnsupportedOperationError(f"{said} 'Graph.from_onnx' lists those that are.")


def _layer_name(weight: str, node: onnx.NodeProto) -> str:
    """A layer's name: that of its weight without the ending, else the node's, else the output's."""
    if match := _WEIGHT.fullmatch(weight):
        return match[1]
    scope = _readable(node.name.removesuffix(f"/{node.op_type}"))
    return scope or _readable(node.name) or node.output[0]


def _readable(name: str) -> str:
    """A node's path as a dotted name: ``/layer1/layer1.0/conv1`` is ``layer1.0.conv1``."""
    words = [word for word in name.split("/") if word]
    kept = [
        word
        for i, word in enumerate(words)
        if i + 1 == len(words) or not words[i + 1].startswith(f"{word}.")
    ]
    return ".".join(kept)


def _fresh(name: str, taken: set[str]) -> str:
    number, fresh = 0, name
    while fresh in taken:
        number += 1
        fresh = f"{name}_{number}"
    return fresh
