"""The element types of tensors, and those that the standard allows a node to take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import defs, helper

from provable_circuits.network.onnx.node import Array, element_type_name


def type_of(value: Array) -> int:
    """The element type of a constant, as a number of ``TensorProto.DataType``; 0 if it has none."""
    try:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)))
    except (KeyError, ValueError):
        return 0


def type_conflict(
    node: onnx.NodeProto, operator_set: int, types: Sequence[int | None]
) -> str | None:
    """What is wrong with the types of a node's inputs (None for one left out), if anything is."""
    expected = defs.get_schema(node.op_type, operator_set).inputs
    bound: dict[str, int] = {}
    for i, kind in enumerate(types):
        formal = expected[min(i, len(expected) - 1)]
        if kind is None:
            continue
        name = element_type_name(kind)
        if f"tensor({name.lower()})" not in formal.types:
            return f"its input '{formal.name}' must not be of type {name}"
        first = bound.setdefault(formal.type_str, kind)
        if formal.is_homogeneous and first != kind:
            return f"its inputs must be of one type, and not {element_type_name(first)} and {name}"
    return None
