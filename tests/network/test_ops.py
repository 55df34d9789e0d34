"""The contract of operations: one row per operation or variant, and every row passes every test.

To add an operation, add its row to ``ROWS`` and its exact definition to ``exact``.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import LinearOp, Op, Shape, ShapeError
from provable_circuits.rounding import Interval

Draw = Callable[..., Tensor]
"""Makes a parameter of the given lengths; rows are drawn with tame and with wild numbers."""

Exact = Any
"""A numpy array of fractions."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """One operation: how it is made from drawn parameters, what it reads, and what it refuses."""

    name: str
    make: Callable[[Draw], Op]
    inputs: tuple[Shape, ...]
    wrong: tuple[Shape, ...] = ()
    says: str = ""


MAP = (2, 5, 6)
"""A small feature map whose sides differ, so that mixed-up axes show."""


def _conv(out: int, each: int, height: int, width: int, **settings: Any) -> Callable[[Draw], Op]:
    return lambda draw: ops.Conv2d(draw(out, each, height, width), draw(out), **settings)


def _no_zeros(value: Tensor) -> Tensor:
    return torch.where(value == 0, torch.ones_like(value), value)


ROWS = [
    Row("constant", lambda draw: ops.Constant(draw(2, 3)), (), ((2,),), "takes 0 input"),
    Row(
        "linear",
        lambda draw: ops.Linear(draw(4, 3), draw(4)),
        ((3,),),
        ((2,),),
        r"last dimension is 3. Got \(2,\)",
    ),
    Row(
        "linear without bias", lambda draw: ops.Linear(draw(2, 5)), ((5,),), ((),), "dimension is 5"
    ),
    Row(
        "linear on two dimensions",
        lambda draw: ops.Linear(draw(4, 3), draw(4)),
        ((2, 3),),
        ((3, 2),),
        "last dimension",
    ),
    Row(
        "linear of one unit", lambda draw: ops.Linear(draw(1, 1)), ((1,),), ((1,), (1,)), "1 input"
    ),
    Row("conv", _conv(3, 2, 3, 2), (MAP,), ((3, 5, 6),), r"2 channels.*Got \(3, 5, 6\)"),
    Row(
        "conv without bias",
        lambda draw: ops.Conv2d(draw(1, 2, 1, 1)),
        (MAP,),
        ((2, 5),),
        "height and width",
    ),
    Row("conv, strided", _conv(2, 2, 3, 3, stride=(2, 3)), (MAP,), ((2, 2, 6),), "larger than"),
    Row("conv, padded", _conv(2, 2, 3, 3, padding=(2, 1)), (MAP,), ((2, 6),), "Got"),
    Row("conv, dilated", _conv(2, 2, 2, 3, dilation=(3, 2)), (MAP,), ((2, 3, 6),), "larger than"),
    Row("conv, grouped", _conv(4, 1, 3, 3, groups=2), (MAP,), ((1, 5, 6),), "2 channels"),
    Row(
        "conv, everything",
        _conv(4, 1, 2, 3, stride=(2, 2), padding=(1, 2), dilation=(2, 1), groups=2),
        (MAP,),
        ((4, 5, 6),),
        "2 channels",
    ),
    Row("affine", lambda draw: ops.Affine(draw(3), draw(3)), ((3,),), ((2,),), r"shape \(3,\)"),
    Row("affine, scale", lambda draw: ops.Affine(scale=draw()), (MAP,), (MAP, MAP), "1 input"),
    Row(
        "affine, shift",
        lambda draw: ops.Affine(shift=draw(2, 1, 1)),
        (MAP,),
        ((3, 5, 6),),
        "Affine",
    ),
    Row(
        "affine, both broadcast",
        lambda draw: ops.Affine(draw(2, 1, 6), draw(5, 1)),
        (MAP,),
        ((1, 5, 6),),
        "broadcasts to its input",
    ),
    Row("affine, neither", lambda draw: ops.Affine(), ((3,),), (), ""),
    Row(
        "batch norm",
        lambda draw: ops.BatchNorm(draw(2, 1, 1), draw(2, 1, 1)),
        (MAP,),
        ((5, 6),),
        "BatchNorm takes a constant",
    ),
    Row(
        "divide",
        lambda draw: ops.Divide(_no_zeros(draw(2, 1, 1))),
        (MAP,),
        ((3, 5, 6),),
        "Divide takes a constant",
    ),
    Row(
        "add", lambda draw: ops.Add(), ((2, 3), (2, 3)), ((2, 3), (3, 2)), r"\(2, 3\) and \(3, 2\)"
    ),
    Row("subtract", lambda draw: ops.Subtract(), ((3,), (3,)), ((3,),), "2 input"),
    Row("relu", lambda draw: ops.ReLU(), ((2, 3),), ((2,), (2,)), "ReLU takes 1 input"),
    Row("leaky relu", lambda draw: ops.LeakyReLU(0.1), ((4,),), (), ""),
    Row("leaky relu, flat", lambda draw: ops.LeakyReLU(0.0), ((4,),), (), ""),
    Row("clip", lambda draw: ops.Clip(-0.5, 1.5), ((4,),), (), ""),
    Row("clip, above only", lambda draw: ops.Clip(-math.inf, 0.25), ((4,),), (), ""),
    Row("sigmoid", lambda draw: ops.Sigmoid(), ((4,),), (), ""),
    Row("tanh", lambda draw: ops.Tanh(), ((4,),), (), ""),
    Row("square", lambda draw: ops.Square(), ((4,),), (), ""),
    Row("average", lambda draw: ops.AvgPool2d((2, 3), (2, 3)), (MAP,), ((2, 1, 6),), "larger than"),
    Row(
        "average, overlapping",
        lambda draw: ops.AvgPool2d((3, 3), (1, 1), (1, 1)),
        (MAP,),
        ((5, 6),),
        "channels, height and width",
    ),
    Row(
        "average, padding not counted",
        lambda draw: ops.AvgPool2d((3, 2), (2, 2), (1, 1), False, False),
        (MAP,),
        ((6,),),
        "feature maps",
    ),
    Row("average, ceil", lambda draw: ops.AvgPool2d((2, 4), (2, 3), (0, 2), True), (MAP,), (), ""),
    Row(
        "average, ceil, padding not counted",
        lambda draw: ops.AvgPool2d((3, 3), (3, 3), (1, 1), True, False),
        (MAP,),
        (),
        "",
    ),
    Row(
        "average, half padding",
        lambda draw: ops.AvgPool2d((2, 2), (1, 1), (1, 1)),
        (MAP,),
        (),
        "",
    ),
    Row(
        "adaptive average",
        lambda draw: ops.AdaptiveAvgPool2d((5, 6), (2, 4)),
        (MAP,),
        ((2, 6, 5),),
        r"\(5, 6\)",
    ),
    Row(
        "adaptive average, enlarging",
        lambda draw: ops.AdaptiveAvgPool2d((2, 3), (7, 5)),
        ((1, 2, 3),),
        (),
        "",
    ),
    Row("max", lambda draw: ops.MaxPool2d((2, 2), (2, 2)), (MAP,), ((2, 1, 6),), "larger than"),
    Row(
        "max, padded",
        lambda draw: ops.MaxPool2d((3, 2), (2, 1), (1, 0, 1, 0)),
        (MAP,),
        ((2, 5),),
        "feature maps",
    ),
    Row(
        "max, uneven padding",
        lambda draw: ops.MaxPool2d((3, 3), (1, 1), (0, 1, 2, 2)),
        (MAP,),
        (),
        "",
    ),
    Row(
        "max, dilated",
        lambda draw: ops.MaxPool2d((2, 3), (2, 1), (0, 0, 0, 0), (2, 2)),
        (MAP,),
        ((2, 2, 6),),
        "larger than",
    ),
    Row(
        "max, ceil", lambda draw: ops.MaxPool2d((2, 4), (2, 3), (1, 1, 1, 1), (1, 1), True), (MAP,)
    ),
    Row("mean, spatial", lambda draw: ops.Mean((1, 2), 30), (MAP,), ((2, 5, 5),), "30 values"),
    Row("mean, kept", lambda draw: ops.Mean((0,), 2, True), (MAP,), ((3, 5, 6),), "Mean over 2"),
    Row("mean, last", lambda draw: ops.Mean((2,), 6), (MAP,), ((2, 6),), "does not fit"),
    Row("reshape", lambda draw: ops.Reshape((6, 10)), (MAP,), ((2, 5),), "cannot turn"),
    Row("flatten", lambda draw: ops.Reshape((60,)), (MAP,), ((59,),), "Reshape"),
    Row("permute", lambda draw: ops.Permute((2, 0, 1)), (MAP,), ((5, 6),), "Permute"),
    Row(
        "concat",
        lambda draw: ops.Concat(1),
        ((2, 3), (2, 1), (2, 2)),
        ((2, 3), (3, 3)),
        "along dimension 1",
    ),
    Row("concat of one", lambda draw: ops.Concat(0), ((2,),), (), ""),
    Row("concat of vectors", lambda draw: ops.Concat(0), ((2,), (3,)), (), ""),
    Row("pad", lambda draw: ops.Pad((1, 0, 2, 3)), (MAP,), ((5, 6),), "around feature maps"),
    Row(
        "gather",
        lambda draw: ops.Gather(torch.tensor([[3, 0], [3, 5]])),
        ((2, 3),),
        ((5,),),
        "beyond",
    ),
    Row(
        "gather, distinct",
        lambda draw: ops.Gather(torch.tensor([4, 0, 5])),
        ((2, 3),),
        ((2, 2),),
        "Gather's index",
    ),
    Row(
        "scatter",
        lambda draw: ops.Scatter(torch.tensor([4, 1, 0]), (2, 3)),
        ((3,),),
        ((4,),),
        "Scatter's index does not fit",
    ),
]


def each(rows: list[Row]) -> pytest.MarkDecorator:
    """Run a test for every row."""
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def tame(seed: int) -> Draw:
    """Ordinary numbers."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def wild(seed: int) -> Draw:
    """Zeros, denormal, tiny, huge and nearly overflowing numbers side by side, and whole ones that
    cancel."""
    source = random.Random(seed)

    def number() -> float:
        kind = source.choice(["zero", "whole", "cancel", "denormal", "tiny", "huge", "any"])
        sign = source.choice([-1.0, 1.0])
        return (
            sign
            * {
                "zero": 0.0,
                "whole": float(source.randrange(1, 4)),
                "cancel": 1e16,
                "denormal": source.random() * 2.0**-1023,
                "tiny": source.random() * 2.0 ** source.randrange(-600, -400),
                "huge": source.random() * 2.0 ** source.choice([400, 600, 1000, 1023]),
                "any": source.random() * 2.0 ** source.randrange(-60, 60),
            }[kind]
        )

    def draw(*shape: int) -> Tensor:
        values = [number() for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    return draw


COMPUTED = [row for row in ROWS if row.inputs]
LINEAR = [row for row in COMPUTED if isinstance(row.make(tame(0)), LinearOp)]
ACTIVATIONS = [row for row in ROWS if isinstance(row.make(tame(0)), ops.Activation)]


# --- exact arithmetic ----------------------------------------------------------------------------


def rational(value: Tensor) -> Exact:
    """The same numbers as exact fractions."""
    found = np.empty(tuple(value.shape), dtype=object)
    for place in np.ndindex(found.shape):
        found[place] = Fraction(float(value[place]))
    return found


def _average(values: Exact, count: int) -> Fraction:
    return sum(values.flatten().tolist(), Fraction(0)) / count


def _windows(op: Any, length: int, axis: int, out: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and end within the padding of each pooling window, by PyTorch's definition."""
    for i in range(out):
        start = i * op.stride[axis] - op.padding[axis]
        yield start, start + op.kernel[axis], length + op.padding[axis]


def _exact_linear(op: ops.Linear, x: Exact) -> Exact:
    product = x @ rational(op.weight).T
    return product if op.bias is None else product + rational(op.bias)


def _exact_conv(op: ops.Conv2d, x: Exact, out: Shape) -> Exact:
    (top, left), weight = op.padding, rational(op.weight)
    padded = np.pad(x, ((0, 0), (top, top), (left, left)), constant_values=0)
    result = np.empty(out, dtype=object)
    inputs, outputs = weight.shape[1], out[0] // op.groups
    for o, i, j in np.ndindex(out):
        first = o // outputs * inputs
        total = Fraction(0) if op.bias is None else Fraction(float(op.bias[o]))
        for c, h, w in np.ndindex(weight.shape[1:]):
            y, z = i * op.stride[0] + h * op.dilation[0], j * op.stride[1] + w * op.dilation[1]
            total += weight[o, c, h, w] * padded[first + c, y, z]
        result[o, i, j] = total
    return result


def _exact_average(op: ops.AvgPool2d, x: Exact, out: Shape) -> Exact:
    _, height, width = x.shape
    result = np.empty(out, dtype=object)
    rows = list(_windows(op, height, 0, out[1]))
    columns = list(_windows(op, width, 1, out[2]))
    for c, i, j in np.ndindex(out):
        (top, bottom, last_row), (left, right, last_column) = rows[i], columns[j]
        inside = x[c, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        padded = (min(bottom, last_row) - top) * (min(right, last_column) - left)
        result[c, i, j] = _average(inside, padded if op.count_include_pad else inside.size)
    return result


def _exact_adaptive(op: ops.AdaptiveAvgPool2d, x: Exact, out: Shape) -> Exact:
    def window(i: int, axis: int) -> slice:
        length, size = op.length[axis], op.size[axis]
        return slice(
            math.floor(Fraction(i * length, size)), math.ceil(Fraction((i + 1) * length, size))
        )

    result = np.empty(out, dtype=object)
    for c, i, j in np.ndindex(out):
        inside = x[c, window(i, 0), window(j, 1)]
        result[c, i, j] = _average(inside, inside.size)
    return result


def _exact_max(op: ops.MaxPool2d, x: Exact, out: Shape) -> Exact:
    result = np.empty(out, dtype=object)
    for c, i, j in np.ndindex(out):
        places = itertools.product(
            [i * op.stride[0] - op.padding[0] + h * op.dilation[0] for h in range(op.kernel[0])],
            [j * op.stride[1] - op.padding[1] + w * op.dilation[1] for w in range(op.kernel[1])],
        )
        inside = [x[c, h, w] for h, w in places if 0 <= h < x.shape[1] and 0 <= w < x.shape[2]]
        result[c, i, j] = max(inside)
    return result


def _exact_scatter(op: ops.Scatter, x: Exact) -> Exact:
    result = np.full(math.prod(op.size), Fraction(0), dtype=object)
    result[op.index.flatten().numpy()] = x.flatten()
    return result.reshape(op.size)


def _exponential(x: Fraction) -> Decimal:
    return (Decimal(x.numerator) / Decimal(x.denominator)).exp()


def sigmoid(x: Fraction) -> Fraction:
    """To sixty digits."""
    if abs(x) > 800:
        return Fraction(int(x > 0))
    with localcontext() as context:
        context.prec = 60
        return Fraction(1 / (1 + _exponential(-x)))


def tanh(x: Fraction) -> Fraction:
    """To sixty digits, however small x is: as many more are carried as the difference cancels."""
    if abs(x) > 800:
        return Fraction(1 if x > 0 else -1)
    with localcontext() as context:
        smallness = x.denominator.bit_length() - abs(x.numerator).bit_length()
        context.prec = 60 + max(0, smallness) // 3
        square = _exponential(2 * x)
        return Fraction((square - 1) / (square + 1))


def exact(op: Op, *inputs: Exact) -> Exact:
    """What the operation is defined to compute for one sample, in exact rational arithmetic."""
    out = op.shape(*(value.shape for value in inputs))
    x = inputs[0]
    each_value = np.frompyfunc
    match op:
        case ops.Linear():
            return _exact_linear(op, x)
        case ops.Conv2d():
            return _exact_conv(op, x, out)
        case ops.Affine():
            value = x if op.scale is None else x * rational(op.scale)
            return value if op.shift is None else value + rational(op.shift)
        case ops.Divide():
            return x / rational(op.divisor)
        case ops.Add():
            return inputs[0] + inputs[1]
        case ops.Subtract():
            return inputs[0] - inputs[1]
        case ops.AvgPool2d():
            return _exact_average(op, x, out)
        case ops.AdaptiveAvgPool2d():
            return _exact_adaptive(op, x, out)
        case ops.MaxPool2d():
            return _exact_max(op, x, out)
        case ops.Mean():
            total = x.sum(axis=tuple(op.dims), keepdims=op.keepdim)
            return total / Fraction(op.count)
        case ops.Reshape():
            return x.reshape(op.size)
        case ops.Permute():
            return x.transpose(op.dims)
        case ops.Concat():
            return np.concatenate(inputs, axis=op.dim)
        case ops.Pad():
            top, left, bottom, right = op.padding
            return np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=0)
        case ops.Gather():
            return x.flatten()[op.index.numpy()]
        case ops.Scatter():
            return _exact_scatter(op, x)
        case ops.ReLU():
            return each_value(lambda v: max(v, Fraction(0)), 1, 1)(x)
        case ops.LeakyReLU(slope=slope):
            return each_value(lambda v: v if v > 0 else v * Fraction(slope), 1, 1)(x)
        case ops.Clip(low=low, high=high):
            # Comparing a fraction with an infinite float is exact.
            return each_value(
                lambda v: Fraction(low) if v < low else Fraction(high) if v > high else v, 1, 1
            )(x)
        case ops.Sigmoid():
            return each_value(sigmoid, 1, 1)(x)
        case ops.Tanh():
            return each_value(tanh, 1, 1)(x)
        case ops.Square():
            return x * x
    raise NotImplementedError(f"{op.name} has no exact definition yet")


def encloses(ends: Interval, sample: int, values: Exact) -> bool:
    """Whether exact values lie within the ends of one sample."""
    lower, upper = (end[sample] for end in ends)
    assert tuple(lower.shape) == tuple(upper.shape) == values.shape
    return all(
        float(lower[place]) <= values[place] <= float(upper[place])
        for place in np.ndindex(values.shape)
    )


def sound(ends: Interval) -> bool:
    """Whether ends are float64, free of NaN, and in order."""
    lower, upper = ends
    return lower.dtype == upper.dtype == torch.float64 and bool((lower <= upper).all())


# --- the tests -----------------------------------------------------------------------------------


def _subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _subclasses(child)


def test_every_operation_has_a_row() -> None:
    kinds = {kind for kind in _subclasses(Op) if kind.__module__.startswith(ops.__name__)}
    concrete = {kind for kind in kinds if not inspect.isabstract(kind)} - {ops.Input}
    assert {type(row.make(tame(0))) for row in ROWS} >= concrete


def test_every_operation_can_be_imported_from_ops() -> None:
    kinds = {kind for kind in _subclasses(Op) if kind.__module__.startswith(ops.__name__)}
    public = {kind.__name__ for kind in kinds if not inspect.isabstract(kind)}
    assert public <= set(ops.__all__)


@each(COMPUTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_is_that_of_forward(row: Row, dtype: torch.dtype) -> None:
    op, draw = row.make(tame(0)).to(dtype, CPU), tame(1)
    for batch in (1, 3):
        inputs = [draw(batch, *shape).to(dtype) for shape in row.inputs]
        output = op.forward(*inputs)
        assert output.shape == (batch, *op.shape(*row.inputs))
        assert output.dtype == dtype


@each(COMPUTED)
def test_forward_is_the_definition(row: Row) -> None:
    op, draw = row.make(tame(2)), tame(3)
    inputs = [draw(2, *shape) for shape in row.inputs]
    output = op.forward(*inputs)
    for sample in (0, 1):
        wanted = exact(op, *(rational(value[sample]) for value in inputs))
        torch.testing.assert_close(output[sample], torch.tensor(wanted.astype(float)))


@each([row for row in ROWS if row.says])
def test_wrong_shapes_are_refused_in_words(row: Row) -> None:
    op = row.make(tame(0))
    with pytest.raises(ShapeError, match=row.says) as error:
        op.shape(*row.wrong)
    assert op.name in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ops.LeakyReLU(1.5), "slope from 0 to 1. Got 1.5"),
        (lambda: ops.LeakyReLU(-0.1), "slope from 0 to 1"),
        (lambda: ops.LeakyReLU(math.nan), "slope from 0 to 1"),
        (lambda: ops.Clip(2.0, 1.0), "Got 2.0 and 1.0"),
        (lambda: ops.Clip(math.nan, 1.0), "at or below"),
        (lambda: ops.Clip(math.inf, math.inf), "at or below"),
        (lambda: ops.Concat(0).shape(), "at least one input"),
        (lambda: ops.Concat(2).shape((2,), (2,)), "along dimension 2"),
        (lambda: ops.Divide(torch.tensor([1.0, 0.0])).shape((2,)), "without zeros"),
        (lambda: ops.Linear(torch.ones(2, 3), torch.ones(3)).shape((3,)), "bias of shape"),
        (lambda: ops.Conv2d(torch.ones(2, 1, 1, 1), torch.ones(1)).shape((1, 2, 2)), "bias"),
        (lambda: ops.Gather(torch.tensor([-1])).shape((3,)), "beyond"),
        (lambda: ops.Scatter(torch.tensor([0, 0]), (3,)).shape((2,)), "twice"),
        (lambda: ops.Scatter(torch.tensor([0, 3]), (3,)).shape((2,)), "beyond"),
        (lambda: ops.Mean((), 1).shape((3,)), "does not fit"),
        (lambda: ops.Mean((0, 0), 9).shape((3,)), "does not fit"),
        (lambda: ops.Pad((0, -1, 0, 0)).shape((1, 2, 2)), "adds zeros"),
        (lambda: ops.AvgPool2d((2, 2), (1, 1), (2, 0)).shape((1, 4, 4)), "at most half"),
        (lambda: ops.MaxPool2d((2, 2), (1, 1), (2, 0, 0, 0)).shape((1, 4, 4)), "without any"),
    ],
)
def test_senseless_operations_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        make()


@each(COMPUTED)
def test_samples_of_a_batch_are_kept_apart(row: Row) -> None:
    op, draw = row.make(tame(4)), tame(5)
    inputs = [draw(3, *shape) for shape in row.inputs]
    together = op.forward(*inputs)
    apart = torch.cat([op.forward(*(value[i : i + 1] for value in inputs)) for i in range(3)])
    torch.testing.assert_close(together, apart)


@each(ROWS)
def test_parameters_and_settings_make_the_sharing_key(row: Row) -> None:
    op = row.make(tame(6))
    assert hash(op.sharing_key) == hash(replace(op).sharing_key)  # type: ignore[type-var]
    if op.parameters():
        other = replace(op, **{name: v.clone() for name, v in op.parameters().items()})  # type: ignore[type-var]
        assert other.sharing_key != op.sharing_key
    else:
        assert row.make(tame(7)).sharing_key == op.sharing_key
    assert not set(op.parameters()) & set(op.settings())


@each(ROWS)
def test_a_change_of_dtype_leaves_the_original_alone(row: Row) -> None:
    op = row.make(tame(8))
    before = {name: value.clone() for name, value in op.parameters().items()}
    moved = op.to(torch.float32, CPU)
    assert type(moved) is type(op)
    assert moved.settings() == op.settings()
    for name, value in op.parameters().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
        floating = value.is_floating_point()
        assert moved.parameters()[name].dtype == (torch.float32 if floating else value.dtype)


# --- linear operations ---------------------------------------------------------------------------


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


# --- intervals -----------------------------------------------------------------------------------


def _interval_at(row: Row, seed: int, widths: list[float]) -> list[Interval]:
    """Ends for each operand, one sample for each width."""
    draw = tame(seed)
    ends = []
    for shape in row.inputs:
        middle, spread = draw(len(widths), *shape), draw(len(widths), *shape).abs()
        width = torch.tensor(widths).reshape(-1, *([1] * len(shape)))
        ends.append((middle - spread * width, middle + spread * width))
    return ends


def _points(ends: list[Interval], sample: int, seed: int) -> Iterator[list[Exact]]:
    """Both ends, random corners and random exact points between them."""
    source = random.Random(seed)
    sides = [(rational(lower[sample]), rational(upper[sample])) for lower, upper in ends]

    def between(low: Fraction, high: Fraction, share: Fraction) -> Fraction:
        return low + (high - low) * share

    mix = np.frompyfunc(between, 3, 1)
    for shares in ([0], [1], [0, 1], [0, 1], [0, 1, Fraction(1, 3), Fraction(5, 7)]):
        yield [
            mix(low, high, np.frompyfunc(lambda _, s=shares: Fraction(source.choice(s)), 1, 1)(low))
            for low, high in sides
        ]


@each(COMPUTED)
def test_intervals_enclose(row: Row) -> None:
    seed = 21
    op = row.make(tame(seed))
    ends = _interval_at(row, seed + 10, [0.0, 1e-3, 1.0])
    found = op.interval(*ends)
    assert sound(found)
    for sample in range(3):
        for point in _points(ends, sample, seed):
            assert encloses(found, sample, exact(op, *point))


@each(COMPUTED)
def test_intervals_of_points_are_tight(row: Row) -> None:
    op = row.make(tame(23))
    ends = _interval_at(row, 24, [0.0])
    lower, upper = op.interval(*ends)
    assert bool((upper - lower <= 1e-13 * (1 + lower.abs())).all())


@each(COMPUTED)
def test_intervals_of_boxes_reach_their_extremes(row: Row) -> None:
    """No wider than one operation needs: each end is taken at some corner, but for rounding."""
    op = row.make(tame(25))
    ends = _interval_at(row, 26, [0.5])
    lower, upper = op.interval(*ends)
    if isinstance(op, LinearOp):
        radii = [(high - low) / 2 for low, high in ends]
        width = 2 * op.spread(*radii)
    elif isinstance(op, ops.Square):
        (low, high), *_ = ends
        least = torch.where((low < 0) & (high > 0), 0.0, torch.minimum(low * low, high * high))
        width = torch.maximum(low * low, high * high) - least
    else:
        (low, high), *_ = ends
        width = op.forward(high) - op.forward(low)
    torch.testing.assert_close(upper - lower, width, rtol=1e-9, atol=1e-12)


@each(COMPUTED)
def test_intervals_enclose_wild_numbers(row: Row) -> None:
    """Cancellation, denormals and overflow: never a wrong finite end, never NaN."""
    for seed in range(40, 46):
        op, draw = row.make(wild(seed)), wild(seed + 100)
        ends = []
        for shape in row.inputs:
            first, second = draw(2, *shape), draw(2, *shape)
            second[0] = first[0]
            ends.append((torch.minimum(first, second), torch.maximum(first, second)))
        found = op.interval(*ends)
        assert sound(found)
        for sample in (0, 1):
            for point in itertools.islice(_points(ends, sample, seed), 3):
                assert encloses(found, sample, exact(op, *point))


@each(COMPUTED)
def test_infinite_ends_give_no_proof_and_no_nan(row: Row) -> None:
    op = row.make(tame(27))
    whole = [
        (torch.full((1, *shape), -math.inf), torch.full((1, *shape), math.inf))
        for shape in row.inputs
    ]
    ends = [(low.double(), high.double()) for low, high in whole]
    lower, upper = op.interval(*ends)
    assert sound((lower, upper))
    for seed in (28, 29):
        values = [tame(seed)(1, *shape) * 1e6 for shape in row.inputs]
        output = op.forward(*values)
        assert bool(((lower <= output) & (output <= upper)).all())
    half = [(torch.zeros_like(low), high) for low, high in ends]
    assert sound(op.interval(*half))


def one(*values: float) -> Interval:
    """A point as an interval."""
    point = torch.tensor([values], dtype=torch.float64)
    return point, point


@pytest.mark.parametrize(
    ("weight", "x", "value"),
    [
        ([1e16, -1e16, 1.0], [1.0, 1.0, 1.0], 1),
        ([1e16, 1.0, -1e16], [1.0, 1.0, 1.0], 1),
        ([1e308, 1e308, -1e308, -1e308], [1.0, 1.0, 1.0, 1.0], 0),
        ([1e308, 1e308, -1.5e308], [1.0, 1.0, 1.0], 2 * Fraction(1e308) - Fraction(1.5e308)),
        ([1e300], [1e-310], Fraction(1e300) * Fraction(1e-310)),
        ([1e-200], [1e-200], Fraction(1e-200) ** 2),
        ([5e-324], [0.5], Fraction(5e-324) / 2),
        ([5e-324, -5e-324], [0.4, 0.4], 0),
    ],
)
def test_sums_that_fool_floating_point(weight: list[float], x: list[float], value: Any) -> None:
    lower, upper = ops.Linear(torch.tensor([weight], dtype=torch.float64)).interval(one(*x))
    assert float(lower) <= value <= float(upper)


def test_overflow_of_a_partial_sum_is_no_bound() -> None:
    """The sum overflows on the way although its exact value is an ordinary number."""
    op = ops.Linear(torch.tensor([[1e308, 1e308, -1e308, -1e308, 1.0]], dtype=torch.float64))
    lower, upper = op.interval(one(1.0, 1.0, 1.0, 1.0, 7.0))
    assert float(lower) <= 7.0 <= float(upper)
    mean_lower, mean_upper = ops.Mean((0,), 2).interval(one(1.7e308, 1.7e308))
    assert float(mean_lower) <= 1.7e308 <= float(mean_upper)


@each(ACTIVATIONS)
def test_activations_are_monotone_and_enclosed_everywhere(row: Row) -> None:
    op = row.make(tame(0))
    places = [0.0, 5e-324, 1e-310, 1e-200, 1e-20, 1e-8, 0.1, 0.5, 1.0, 1.5, 4.0, 18.0, 19.1, 36.0]
    places += [37.5, 300.0, 700.0, 709.5, 720.0, 744.0, 746.0, 1e5, 1e200, 1.7e308]
    x = torch.tensor(sorted([-place for place in places] + places), dtype=torch.float64)[None]
    lower, upper = op.interval((x, x))
    assert encloses((lower, upper), 0, exact(op, rational(x[0])))
    for end in (lower[0], upper[0]):
        assert bool((end[1:] >= end[:-1]).all())


@pytest.mark.parametrize("op", [ops.Sigmoid(), ops.Tanh()], ids=["sigmoid", "tanh"])
def test_smooth_activations_are_enclosed_to_the_last_digit(op: Op) -> None:
    """Many points of every size, long enough for vectorised code, against sixty digits."""
    generator = torch.Generator().manual_seed(0)
    size = torch.rand(300, generator=generator, dtype=torch.float64) * 12 - 9
    sign = torch.where(torch.rand(300, generator=generator) < 0.5, -1.0, 1.0)
    x = (sign * 10**size)[None]
    found = op.interval((x, x))
    assert encloses(found, 0, exact(op, rational(x[0])))
    assert float(found[0].min()) >= (0 if isinstance(op, ops.Sigmoid) else -1)
    assert float(found[1].max()) <= 1


def test_batch_normalisation_from_its_statistics() -> None:
    draw = tame(30)
    module = torch.nn.BatchNorm2d(3).double().eval()
    for value in module.parameters():
        value.data = draw(3)
    module.running_mean, module.running_var = draw(3), draw(3).abs()
    op = ops.BatchNorm.from_statistics(
        3, 3, module.weight, module.bias, module.running_mean, module.running_var, module.eps
    )
    x = draw(2, 3, 4, 5)
    torch.testing.assert_close(op.forward(x), module(x))
    plain = ops.BatchNorm.from_statistics(2, 1, None, None, draw(2), draw(2).abs(), 1e-5)
    assert plain.shape((2,)) == (2,)
    assert plain.scale is not None
    assert plain.scale.dtype == torch.float64


@pytest.mark.parametrize(
    ("length", "size", "kind"),
    [((4, 6), (2, 3), ops.AvgPool2d), ((5, 6), (2, 3), ops.AdaptiveAvgPool2d)],
)
def test_adaptive_pooling_is_plain_where_it_divides(
    length: tuple[int, int], size: tuple[int, int], kind: type
) -> None:
    op = ops.adaptive_average(length, size)
    assert type(op) is kind
    x = tame(31)(2, 3, *length)
    torch.testing.assert_close(op.forward(x), torch.nn.functional.adaptive_avg_pool2d(x, size))


def test_inputs_and_constants() -> None:
    given = ops.Input((3,))
    assert given.shape() == (3,)
    with pytest.raises(RuntimeError, match="fed"):
        given.forward()
    with pytest.raises(RuntimeError, match="fed"):
        given.interval()
    value = torch.tensor([1.0, 2.0])
    constant = ops.Constant(value)
    assert torch.equal(constant.forward(), value[None])
    lower, upper = constant.interval()
    assert torch.equal(lower, value[None])
    assert torch.equal(upper, value[None])


def test_parameters_are_copies() -> None:
    source = torch.ones(2, 3, requires_grad=True)
    taken = ops.as_parameter(source.T)
    with torch.no_grad():
        source.fill_(9.0)
    assert torch.equal(taken, torch.ones(3, 2))
    assert taken.is_contiguous()
    assert not taken.requires_grad
