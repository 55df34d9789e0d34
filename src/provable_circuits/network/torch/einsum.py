"""``einsum`` of one or two operands, as permutations and one product of matrices."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import ShapeError, as_parameter
from provable_circuits.network.torch.layout import BatchPlace
from provable_circuits.network.torch.operands import network
from provable_circuits.network.torch.readers import Reading

Operand = tuple[str, list[str]]
"""The name of a sample's tensor, and a letter for each of its dimensions."""


def einsum(r: Reading) -> str:
    """One or two operands, at least one a tensor of the network; the batch is one letter."""
    equation = str(r.argument(0, "equation")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    letters = [list(part) for part in left.split(",")]
    values = list(r.node.args[1])  # type: ignore[arg-type]
    if not arrow or "." in equation or any(len(set(own)) != len(own) for own in letters):
        raise ShapeError(f"the equation {equation!r} must name every dimension once.")
    batch = {
        own[r.layouts[value].dim]
        for value, own in zip(values, letters, strict=True)
        if network(r, value)
    }
    alone = all(r.layouts[value].alone for value in values if network(r, value))
    if len(batch) != 1 or not alone or not batch <= set(right):
        raise ShapeError("the batch must be one letter, of its own, in operands and result.")
    (sample,) = batch
    r.layouts[r.node] = BatchPlace(right.index(sample))
    wanted = [letter for letter in right if letter != sample]
    given = [_operand(r, value, own, sample) for value, own in zip(values, letters, strict=True)]
    if len(given) == 1:
        name, own = _summed(r, given[0], set(wanted))
        return _ordered(r, (name, own), wanted)
    if len(given) != 2:
        raise ShapeError("it has more than two operands.")
    return _product(r, given, wanted)


def _operand(r: Reading, value: Any, letters: list[str], sample: str) -> tuple[Any, list[str]]:
    """A tensor's name, or a constant, without the batch."""
    if network(r, value):
        return r.tensors[value], [letter for letter in letters if letter != sample]
    if sample in letters:
        raise ShapeError("its constant differs between the samples of a batch.")
    return r.constants[value], letters


def _summed(r: Reading, operand: tuple[Any, list[str]], needed: set[str]) -> tuple[Any, list[str]]:
    """Without the letters that nobody else has."""
    value, letters = operand
    gone = [i for i, letter in enumerate(letters) if letter not in needed]
    if not gone:
        return operand
    left = [letter for letter in letters if letter in needed]
    if isinstance(value, Tensor):
        return value.sum(gone), left
    count = math.prod(r.builder[value].shape[i] for i in gone)
    return r.add(ops.Sum(tuple(gone), count), value), left


def _ordered(r: Reading, operand: Operand, wanted: list[str]) -> str:
    """The dimensions in the order wanted."""
    name, letters = operand
    order = tuple(letters.index(letter) for letter in wanted)
    return name if order == tuple(range(len(order))) else r.add(ops.Permute(order), name)


def _product(r: Reading, given: list[tuple[Any, list[str]]], wanted: list[str]) -> str:
    if isinstance(given[0][0], Tensor):
        given = given[::-1]
    first, second = (
        _summed(r, one, set(other[1]) | set(wanted))
        for one, other in zip(given, given[::-1], strict=True)
    )
    (left, own), (right, others) = first, second
    inner = [letter for letter in own if letter in others and letter not in wanted]
    shared = [letter for letter in own if letter in others and letter in wanted]
    rows = [letter for letter in own if letter not in others]
    columns = [letter for letter in others if letter not in own]
    lengths = dict(zip(own, r.builder[left].shape, strict=True))
    sizes = right.shape if isinstance(right, Tensor) else r.builder[right].shape
    lengths |= dict(zip(others, sizes, strict=True))

    def shape(*groups: list[str]) -> tuple[int, ...]:
        return tuple(math.prod(lengths[letter] for letter in group) for group in groups)

    if isinstance(right, Tensor) and not shared:
        flat = _ordered(r, (left, own), rows + inner)
        each = tuple(lengths[letter] for letter in rows)
        flat = _reshaped(r, flat, (*each, *shape(inner)))
        order = [others.index(letter) for letter in columns + inner]
        weight = right.permute(order).reshape(shape(columns, inner))
        product = r.add(ops.Linear(as_parameter(weight)), flat, layer=r.layer)
        made = rows + columns
    else:
        if isinstance(right, Tensor):
            right = r.builder.constant(f"{r.name}.constant", as_parameter(right))
        flat = _ordered(r, (left, own), shared + rows + inner)
        flat = _reshaped(r, flat, shape(shared, rows, inner))
        other = _ordered(r, (right, others), shared + inner + columns)
        other = _reshaped(r, other, shape(shared, inner, columns))
        product = r.add(ops.MatMul(), flat, other)
        made = shared + rows + columns
    product = _reshaped(r, product, tuple(lengths[letter] for letter in made))
    return _ordered(r, (product, made), wanted)


def _reshaped(r: Reading, name: str, shape: tuple[int, ...]) -> str:
    return name if r.builder[name].shape == shape else r.add(ops.Reshape(shape), name)
