"""The contract of linear operations: pullbacks, gains and the terms of their sums."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.network.contract import LINEAR, Draw, Row, each, tame, wild
from tests.network.definitions import exact
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import LinearOp, Op, Shape


def dense(op: LinearOp, shapes: tuple[Shape, ...]) -> Tensor:
    """The matrix of L, column by column: [outputs, inputs of all operands in a row]."""
    columns = []
    at_zero = op.forward(*(torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes))
    for which, shape in enumerate(shapes):
        for i in range(math.prod(shape)):
            parts = [torch.zeros(1, *s, dtype=torch.float64) for s in shapes]
            parts[which].view(-1)[i] = 1.0
            columns.append((op.forward(*parts) - at_zero).flatten())
    return torch.stack(columns, dim=1)


def linear_op(row: Row, seed: int) -> LinearOp:
    op = row.make(tame(seed))
    assert isinstance(op, LinearOp)
    return op


@each(LINEAR)
def test_linear_operations_are_linear(row: Row) -> None:
    op, draw = linear_op(row, 10), tame(11)
    x, y = ([draw(2, *shape) for shape in row.inputs] for _ in range(2))
    zero = [torch.zeros_like(value) for value in x]
    offset = op.forward(*zero)
    mixed = [2.5 * a - 0.75 * b for a, b in zip(x, y, strict=True)]
    wanted = 2.5 * (op.forward(*x) - offset) - 0.75 * (op.forward(*y) - offset) + offset
    torch.testing.assert_close(op.forward(*mixed), wanted)
    given = op.offset()
    given = torch.zeros(()) if given is None else given
    assert torch.equal(offset, given.double().expand(2, *op.shape(*row.inputs)))


@each(LINEAR)
def test_pullback_is_the_transpose(row: Row) -> None:
    op, draw, count = linear_op(row, 12), tame(13), 4
    x = [draw(count, *shape) for shape in row.inputs]
    rows = draw(count, *op.shape(*row.inputs))
    image = op.forward(*x) - op.forward(*(torch.zeros_like(value) for value in x))
    pulled = op.pullback(rows, *row.inputs)
    assert [tuple(value.shape[1:]) for value in pulled] == list(row.inputs)
    left = (rows * image).flatten(1).sum(1)
    right = sum((p * v).flatten(1).sum(1) for p, v in zip(pulled, x, strict=True))
    torch.testing.assert_close(left, torch.as_tensor(right))


@each(LINEAR)
def test_pullback_of_unit_rows_gives_the_matrix(row: Row) -> None:
    op = linear_op(row, 14)
    out = op.shape(*row.inputs)
    count = math.prod(out)
    rows = torch.eye(count, dtype=torch.float64).reshape(count, *out)
    pulled = torch.cat([part.reshape(count, -1) for part in op.pullback(rows, *row.inputs)], dim=1)
    torch.testing.assert_close(pulled, dense(op, row.inputs))


@each(LINEAR)
def test_pullback_works_without_gradients_and_passes_them(row: Row) -> None:
    op = linear_op(row, 15)
    rows = tame(16)(2, *op.shape(*row.inputs))
    with torch.no_grad():
        plain = op.pullback(rows, *row.inputs)
    assert not any(part.requires_grad for part in plain)
    tracked = rows.clone().requires_grad_()
    total = sum(part.sum() for part in op.pullback(tracked, *row.inputs))
    assert isinstance(total, Tensor)
    (gradient,) = torch.autograd.grad(total, tracked)
    ones = [torch.ones(2, *shape, dtype=torch.float64) for shape in row.inputs]
    zeros = [torch.zeros_like(value) for value in ones]
    torch.testing.assert_close(gradient, op.forward(*ones) - op.forward(*zeros))


@each(LINEAR)
def test_spread_is_the_elementwise_absolute_value(row: Row) -> None:
    op = linear_op(row, 17)
    magnitude = dense(op, row.inputs).abs()
    x = [tame(18)(2, *shape).abs() for shape in row.inputs]
    flat = torch.cat([value.flatten(1) for value in x], dim=1)
    torch.testing.assert_close(op.spread(*x).flatten(1), flat @ magnitude.T)


@each(LINEAR)
def test_terms_count_what_is_summed(row: Row) -> None:
    op = linear_op(row, 19)
    matrix = dense(op, row.inputs)
    offset = int(op.offset() is not None)
    assert op.terms >= int((matrix != 0).sum(1).max()) + offset
    assert op.terms <= 4 * matrix.shape[1] + 4
    each_input = matrix.split([math.prod(shape) for shape in row.inputs], dim=1)
    assert op.back_terms >= max(int((part != 0).sum(0).max()) for part in each_input)


def _magnitude(op: LinearOp) -> Op:
    """The operation ``|L|``, without its offset."""
    match op:
        case ops.Linear() | ops.Conv2d():
            return replace(op, weight=op.weight.abs(), bias=None)
        case ops.Affine():
            return ops.Affine(None if op.scale is None else op.scale.abs())
        case ops.Divide():
            return ops.Divide(op.divisor.abs())
        case ops.Subtract():
            return ops.Add()
    return op


@each(LINEAR)
@pytest.mark.parametrize(
    "draw",
    [tame(21), lambda *shape: tame(21)(*shape).float(), wild(22), wild(23)],
    ids=["tame", "float32", "wild", "wilder"],
)
def test_gain_and_offset_size_bound_what_they_say(row: Row, draw: Draw) -> None:
    op = row.make(draw)
    assert isinstance(op, LinearOp)
    ones = [np.full(shape, Fraction(1), dtype=object) for shape in row.inputs]
    assert op.gain >= max(exact(_magnitude(op), *ones).flatten().tolist())
    for i in range(len(ones)):
        alone = [value if i == j else 0 * value for j, value in enumerate(ones)]
        assert op.back_gain >= max(exact(_magnitude(op), *alone).flatten().tolist())
    offset = op.offset()
    assert op.offset_size == (0 if offset is None else float(offset.abs().max()))


@each(LINEAR)
def test_operations_that_call_themselves_exact_only_move_values(row: Row) -> None:
    op = linear_op(row, 20)
    if not op.exact:
        return
    matrix = dense(op, row.inputs)
    assert set(matrix.unique().tolist()) <= {0.0, 1.0}
    assert int((matrix != 0).sum(1).max()) <= 1
    assert int((matrix != 0).sum(0).max()) <= 1
    assert op.offset() is None
