"""The contract of operations: every row of ``tests/network/contract.py`` passes every test."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from tests.network.contract import COMPUTED, CPU, ROWS, Row, each, tame
from tests.network.definitions import exact, rational

from provable_circuits.network import ops
from provable_circuits.network.ops import Op, ShapeError


def _subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _subclasses(child)


def test_every_operation_has_a_row() -> None:
    kinds = {kind for kind in _subclasses(Op) if kind.__module__.startswith(ops.__name__)}
    concrete = {kind for kind in kinds if not inspect.isabstract(kind)} - {
        ops.Input,
        ops.IntegerInput,
    }
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
