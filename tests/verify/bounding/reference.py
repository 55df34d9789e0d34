"""A plain reference of backward bounds: back with matrices and loops, one row at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Add,
    Affine,
    Concat,
    Constant,
    Conv2d,
    Input,
    LeakyReLU,
    Linear,
    LinearOp,
    ReLU,
    Reshape,
    Sigmoid,
    Square,
)
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.crown import Fixed, View
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.encoding.problem import InputRange

PROBLEMS, ROWS = 2, 3
CPU = torch.device("cpu")


def dice(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator).double()


def dense() -> Graph:
    """A sum of two paths, a path that is joined with itself and a constant, and a curved unit."""
    w, builder = dice(0), GraphBuilder()
    x = builder.input("x", (4,))
    relu = builder.add("relu", ReLU(), builder.add("fc1", Linear(w(5, 4), w(5)), x))
    second = builder.add("fc2", Linear(w(5, 5)), relu)
    total = builder.add("add", Add(), builder.add("moved", Affine(w(5), w(5)), second), relu)
    leaky = builder.add("leaky", LeakyReLU(0.25), total)
    joined = builder.add("cat", Concat(0), builder.constant("c", w(2)), leaky, x, leaky)
    curved = builder.add("sigmoid", Sigmoid(), builder.add("fc3", Linear(w(3, 16), w(3)), joined))
    return builder.build([builder.add("y", Linear(w(2, 3), w(2)), curved)])


def convolutional() -> Graph:
    """Offsets for each channel, for each column, and for each unit."""
    w, builder = dice(1), GraphBuilder()
    x = builder.input("x", (2, 4, 3))
    conv = builder.add("conv", Conv2d(w(3, 2, 3, 3), w(3), padding=(1, 1)), x)
    columns = builder.add("columns", Affine(w(3, 1, 1), w(1, 1, 3)), conv)
    relu = builder.add("relu", ReLU(), columns)
    other = builder.add("conv2", Conv2d(w(2, 3, 2, 2), w(2)), relu)
    units = builder.add("units", Affine(shift=w(2, 3, 2)), other)
    flat = builder.add("flat", Reshape((12,)), builder.add("relu2", ReLU(), units))
    return builder.build([builder.add("y", Linear(w(2, 12), w(2)), flat)])


def squared() -> Graph:
    """An activation that is steeper than one."""
    w, builder = dice(2), GraphBuilder()
    x = builder.input("x", (3,))
    square = builder.add("square", Square(), builder.add("fc", Linear(5 * w(4, 3), w(4)), x))
    return builder.build([builder.add("y", Linear(w(2, 4), w(2)), square)])


GRAPHS = {"dense": dense, "convolutional": convolutional, "squared": squared}


def bounds_of(graph: Graph, width: float = 1.0) -> Bounds:
    """Bounds over two boxes of which neither is around zero."""
    middle = dice(7)(PROBLEMS, *graph.input_shape)
    size = width * torch.rand(middle.shape, generator=torch.Generator().manual_seed(8)).double()
    region = Region({"x": InputRange(middle - size, middle + size)})
    bounds = Bounds(Structure(graph, CPU), region, PROBLEMS)
    bounds.compute(refine=False)
    return bounds


def start_rows(graph: Graph, name: str) -> Tensor:
    rows: Tensor = dice(9)(PROBLEMS, ROWS, *graph[name].shape)
    return rows


def matrix(op: LinearOp, position: int, shapes: list[tuple[int, ...]]) -> Tensor:
    """L for one of the inputs, column by column, from the operation itself."""
    zeros = [torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes]
    at_zero = op.forward(*zeros).flatten()
    columns = []
    for i in range(math.prod(shapes[position])):
        inputs = [zero.clone() for zero in zeros]
        inputs[position].view(-1)[i] = 1.0
        columns.append(op.forward(*inputs).flatten() - at_zero)
    return torch.stack(columns, 1)


Held = dict[str, Tensor]


def reference(
    view: View,
    start: str,
    row: Tensor,
    problem: int,
    multipliers: Mapping[str, Tensor],
    alpha: Mapping[str, Mapping[int, float]],
) -> tuple[float, Held]:
    """The bound of one flat row of one problem, and the row that arrives at each tensor."""
    graph, value, held, seen = view.graph, 0.0, {start: row}, {}
    for node in reversed(graph.nodes):
        a = held.pop(node.name, None)
        if a is None:
            continue
        seen[node.name] = a
        op = view.ops[node.name].to(torch.float64, CPU)
        arriving: dict[str, Tensor] = {}
        if isinstance(op, Input):
            lower, upper = (end[problem].flatten() for end in view.region.ends(node.name))
            value += sum(min(c * low, c * up) for c, low, up in zip(a, lower, upper, strict=True))
        elif isinstance(op, Constant):
            value += float(a @ op.value.flatten().double())
        elif isinstance(op, LinearOp):
            shapes = [graph[name].shape for name in node.inputs]
            zero = op.forward(*(torch.zeros(1, *s, dtype=torch.float64) for s in shapes))
            value += float(a @ zero.flatten())
            for i, name in enumerate(node.inputs):
                piece = a @ matrix(op, i, shapes)
                arriving[name] = arriving[name] + piece if name in arriving else piece
        else:
            line, new = view.lines[node.name], a.clone()
            fixed = alpha.get(node.name, {})
            for i, c in enumerate(a.tolist()):
                side = "below" if c >= 0 else "above"
                slope = getattr(line, f"{side}_slope").double()[problem].flatten()[i]
                offset = getattr(line, f"{side}_offset")
                if offset is not None and offset.ndim > 1 and i not in fixed:
                    value += c * float(offset.double()[problem].flatten()[i])
                new[i] = c * fixed.get(i, slope)
            if node.name in multipliers:
                new = new - multipliers[node.name][problem].flatten()
            arriving[node.inputs[0]] = new
        for name, piece in arriving.items():
            held[name] = held[name] + piece if name in held else piece
    return float(value), seen


def references(
    view: View,
    start: str,
    rows: Tensor,
    multipliers: Mapping[str, Tensor] | None = None,
    fixed: Mapping[str, Fixed] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The bounds [problems, rows], and the 1-norms of what arrives at each tensor."""
    values = torch.zeros(rows.shape[:2], dtype=torch.float64)
    norms: dict[str, Tensor] = {}
    for p in range(rows.shape[0]):
        for r in range(rows.shape[1]):
            alpha: dict[str, dict[int, float]] = {}
            for name, known in (fixed or {}).items():
                for i in range(len(known.units)):
                    if (int(known.problems[i]), int(known.rows[i])) == (p, r):
                        alpha.setdefault(name, {})[int(known.units[i])] = float(known.alpha[i])
            row = rows[p, r].flatten().double()
            values[p, r], seen = reference(view, start, row, p, multipliers or {}, alpha)
            for name, a in seen.items():
                norms.setdefault(name, torch.zeros_like(values))[p, r] = a.abs().sum()
    return values, norms
