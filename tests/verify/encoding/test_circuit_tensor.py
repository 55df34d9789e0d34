"""What nodes stand for: bounds of the one turned into bounds of the other, against values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.verify.encoding.circuit_tensor import (
    CircuitTensor,
    Cut,
    Unread,
    Whole,
    ZeroFilled,
)

SHAPE = (5, 2, 3)
KEPT = torch.tensor([1, 3])
REST = torch.tensor([0, 2, 4])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensor_of(held: CircuitTensor, node: Tensor) -> Tensor:
    """The tensor by its definition; NaN where it was never computed."""
    if isinstance(held, Whole):
        return node
    fill = math.nan if isinstance(held, Unread) else 0.0
    tensor = torch.full((len(node), *SHAPE), fill, dtype=torch.float64)
    tensor[:, KEPT] = node[:, KEPT] if isinstance(held, ZeroFilled) else node
    return tensor


def node_shape(held: CircuitTensor) -> tuple[int, ...]:
    return (len(KEPT), *SHAPE[1:]) if isinstance(held, Cut | Unread) else SHAPE


EVERY = [Whole("n"), Cut("n", KEPT), ZeroFilled("n", KEPT), Unread("n", KEPT)]


@pytest.mark.parametrize("held", EVERY, ids=lambda held: type(held).__name__)
def test_bounds_of_a_node_enclose_its_tensor(held: CircuitTensor) -> None:
    node = random(4, *node_shape(held))
    lower, upper = held.tensor_bounds((node - 0.1, node + 0.1), SHAPE)
    tensor = tensor_of(held, node)
    there = ~tensor.isnan()
    assert bool((lower[there] <= tensor[there]).all())
    assert bool((tensor[there] <= upper[there]).all())
    assert bool((lower[~there] == -math.inf).all())
    assert bool((upper[~there] == math.inf).all())
    width = (upper - lower)[there]
    assert bool((width <= 0.2 + 1e-12).all()), "nothing that is known is given away"
    if isinstance(held, Cut | ZeroFilled):
        assert bool((lower[:, REST] == 0).all())
        assert bool((upper[:, REST] == 0).all())


@pytest.mark.parametrize("held", EVERY, ids=lambda held: type(held).__name__)
def test_bounds_of_a_tensor_enclose_its_node(held: CircuitTensor) -> None:
    node = random(4, *node_shape(held))
    tensor = tensor_of(held, node).nan_to_num(0.0)
    lower, upper = held.node_bounds((tensor - 0.1, tensor + 0.1))
    assert lower.shape == node.shape
    assert bool(((lower <= node) & (node <= upper)).all())
    known = upper - lower < 1
    raw = torch.zeros_like(known)
    if isinstance(held, ZeroFilled):
        raw[:, REST] = True
    assert torch.equal(known, ~raw), "of what counts as zero nothing is known, of the rest all is"


@pytest.mark.parametrize(
    "op",
    [
        ops.ReLU(),
        ops.LeakyReLU(0.2),
        ops.Tanh(),
        ops.Sigmoid(),
        ops.Clip(0.5, 1.0),
        ops.Reshape((30,)),
        ops.Reshape((10, 3)),
        ops.AvgPool2d((2, 1), (1, 1), (0, 0)),
        ops.Mean((1, 2), 6),
        ops.Mean((0,), 5),
        ops.Pad((1, 0, 1, 2)),
        ops.Affine(scale=random(5, 1, 1, seed=3)),
        ops.Affine(scale=random(1, 1, 3, seed=3)),
        ops.Affine(random(5, 1, 1, seed=3), random(5, 1, 1, seed=4)),
        ops.Affine(shift=random(5, 2, 3, seed=3)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("held", EVERY[:3], ids=lambda held: type(held).__name__)
def test_an_operation_on_the_node_is_that_on_the_tensor(held: CircuitTensor, op: ops.Op) -> None:
    """Wherever an operation is carried over to the node, it makes the same tensor."""
    node = random(4, *node_shape(held), seed=1)
    wanted = op.forward(tensor_of(held, node))
    moved = held.through(op, SHAPE)
    if moved is None:
        whole = held.whole(SHAPE)
        assert whole is not None, "a whole tensor goes through anything"
        assert torch.equal(whole.forward(node), tensor_of(held, node))
        return
    made, after = moved
    found = made.forward(node)
    filled = after.whole(wanted.shape[1:])
    assert torch.allclose(found if filled is None else filled.forward(found), wanted, atol=1e-12)


@pytest.mark.parametrize("held", EVERY[1:3], ids=lambda held: type(held).__name__)
def test_only_what_keeps_channels_of_zeros_is_carried_over(held: CircuitTensor) -> None:
    channels = random(5, 1, 1, seed=3)
    for op in (
        ops.ReLU(),
        ops.LeakyReLU(0.2),
        ops.Tanh(),
        ops.Reshape((30,)),
        ops.AvgPool2d((2, 1), (1, 1), (0, 0)),
        ops.AdaptiveAvgPool2d((2, 3), (1, 1)),
        ops.Mean((1, 2), 6),
        ops.Pad((1, 0, 1, 2)),
        ops.Affine(scale=channels),
    ):
        assert held.through(op, SHAPE) is not None, op
    for other in (
        ops.Sigmoid(),
        ops.Clip(0.5, 1.0),
        ops.Reshape((10, 3)),
        ops.Mean((0,), 5),
        ops.Affine(channels, channels),
        ops.Affine(shift=channels),
    ):
        assert held.through(other, SHAPE) is None, other


@pytest.mark.parametrize("held", EVERY[:3], ids=lambda held: type(held).__name__)
@pytest.mark.parametrize("size", [1, 3])
def test_weights_read_the_tensor(held: CircuitTensor, size: int) -> None:
    node = random(4, *node_shape(held), seed=2)
    weight = random(7, SHAPE[0], 1, size, seed=5)
    wanted = torch.nn.functional.conv2d(tensor_of(held, node), weight)
    found = torch.nn.functional.conv2d(node, held.columns(weight))
    assert torch.allclose(found, wanted, atol=1e-12)


def test_patched_channels_are_zero() -> None:
    mask = torch.zeros(SHAPE[0], dtype=torch.bool)
    mask[KEPT] = True
    node = random(2, *SHAPE)
    whole = Whole("n").kept_of(mask)
    op = whole.whole(SHAPE)
    assert op is not None
    assert torch.equal(op.forward(node), tensor_of(ZeroFilled("n", KEPT), node))
    cut = Unread("n", KEPT).kept_of(mask)
    assert isinstance(cut, Cut)
    assert torch.equal(cut.kept, KEPT)


def test_what_was_never_computed_cannot_be_read() -> None:
    held = Unread("n", KEPT)
    with pytest.raises(NotImplementedError):
        held.columns(random(7, SHAPE[0], 1, 1))
    with pytest.raises(NotImplementedError):
        held.through(ops.Reshape((30,)), SHAPE)


@pytest.mark.parametrize("held", EVERY, ids=lambda held: type(held).__name__)
def test_positions_in_the_node_are_positions_in_the_tensor(held: CircuitTensor) -> None:
    shape = node_shape(held)
    count = math.prod(shape)
    network = torch.arange(math.prod(SHAPE)).reshape(SHAPE)
    wanted = network[KEPT] if isinstance(held, Cut | Unread) else network
    assert torch.equal(held.positions(torch.arange(count), shape), wanted.flatten())
