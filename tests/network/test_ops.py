"""The contract of operations: every row of ``tests/network/contract.py`` passes every test."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.network.contract import (
    ACTIVATIONS,
    COMPUTED,
    CPU,
    LINEAR,
    ROWS,
    Draw,
    Row,
    each,
    tame,
    wild,
)
from tests.network.definitions import Exact, encloses, exact, rational, sound
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import LinearOp, Op, Shape, ShapeError
from provable_circuits.rounding import Interval

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
