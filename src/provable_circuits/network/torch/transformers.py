"""How the operations of transformers are read: tokens, attention, masks, norms, and shapes.

These readers know where the batch is (``BatchPlace``): it may be any dimension, or be folded
into one, as ``nn.MultiheadAttention`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from provable_circuits.network import ops
from provable_circuits.network.ops import Op, ShapeError, as_parameter
from provable_circuits.network.torch.einsum import einsum
from provable_circuits.network.torch.layout import BatchPlace
from provable_circuits.network.torch.operands import (
    constant,
    elementwise,
    expanded,
    layout,
    matrix_product,
    network,
    rank,
    reordered,
    size,
)
from provable_circuits.network.torch.readers import READERS, Reading


def _embedding(r: Reading) -> str:
    weight = r.parameter(0, "weight")
    if weight is None:
        raise ShapeError("its weight is missing.")
    r.layouts[r.node] = r.layouts[r.node.args[1]]  # type: ignore[index]
    return r.add(ops.Embedding(weight), r.source(1))


def _index(r: Reading) -> str:
    """``table[:, tokens]``, or a tensor at constant places."""
    places = list(r.node.args[1])  # type: ignore[arg-type]
    varying = [i for i, place in enumerate(places) if network(r, place)]
    value = r.argument(0, "self")
    if isinstance(value, Tensor):
        if len(varying) != 1 or any(p is not None for i, p in enumerate(places) if i != varying[0]):
            raise ShapeError("a constant is read at one index that depends on the input.")
        return _table(r, value, varying[0], places[varying[0]])
    if varying:
        raise ShapeError("a tensor of the network is read at places that depend on the input.")
    own = layout(r, 0)
    if not own.alone or (own.dim < len(places) and places[own.dim] is not None):
        raise ShapeError("it reads across the samples of a batch.")
    shape = r.shape()
    index = [slice(None)] * len(shape)
    for dim, place in enumerate(places):
        if place is not None:
            index[own.place(dim)] = r.constants[place] if isinstance(place, fx.Node) else place
    every = torch.arange(math.prod(shape)).reshape(shape)
    found = every[tuple(index)]
    if tuple(r.node.meta["val"].shape[1:]) == tuple(found.shape) and own.plain:
        return r.unary(ops.Gather(found.contiguous()))
    raise ShapeError("the batch must be the first dimension.")


def _table(r: Reading, value: Tensor, dim: int, tokens: Any) -> str:
    """A constant table, one of whose dimensions is read at tokens."""
    before, after = tuple(value.shape[:dim]), tuple(value.shape[dim + 1 :])
    weight = as_parameter(value.movedim(dim, 0).flatten(1))
    source, own = r.tensors[tokens], r.layouts[tokens]
    shape = r.builder[source].shape
    rows = r.add(ops.Embedding(weight), source)
    rows = r.add(ops.Reshape((*shape, *before, *after)), rows)
    count, lead = len(shape), len(before)
    order = [
        *range(count, count + lead),
        *range(count),
        *range(count + lead, count + lead + len(after)),
    ]
    r.layouts[r.node] = BatchPlace(own.dim + lead, own.outer, own.inner)
    return r.add(ops.Permute(tuple(order)), rows) if lead else rows


def _unary(make: Callable[[Reading], Op]) -> Callable[[Reading], str]:
    return lambda r: r.unary(make(r))


def _pass(r: Reading) -> str:
    return READERS[_name(r)](r)


def _name(r: Reading) -> str:
    packet = getattr(r.node.target, "overloadpacket", r.node.target)
    return str(getattr(packet, "__name__", packet))


def _linear(r: Reading) -> str:
    if layout(r, 0).dim == rank(r, 0) - 1:
        raise ShapeError("it acts across the samples of a batch.")
    return READERS["linear"](r)


def _matmul(r: Reading) -> str:
    first, second = r.argument(0, "self"), r.argument(1, "other")
    if isinstance(second, Tensor) and second.ndim == 2 and network(r, first):
        if layout(r, 0).dim == rank(r, 0) - 1:
            raise ShapeError("it acts across the samples of a batch.")
        return r.add(ops.Linear(as_parameter(second.T)), r.source(), layer=r.layer)
    return matrix_product(r, first, second)


def _baddbmm(r: Reading) -> str:
    if r.argument(3, "beta", 1) != 1 or r.argument(4, "alpha", 1) != 1:
        raise ShapeError("alpha and beta must be 1.")
    product = matrix_product(r, r.argument(1, "batch1"), r.argument(2, "batch2"))
    shift = r.argument(0, "self")
    if network(r, shift):
        return r.add(ops.Add(), product, r.tensors[shift])
    return _shifted(r, product, constant(r, shift, 3, r.layouts[r.node]))


def _shifted(r: Reading, source: str, shift: Tensor) -> str:
    """A constant added; minus infinity is a mask."""
    masked = shift == -math.inf
    if not bool(masked.any()):
        return r.add(ops.Affine(shift=shift), source)
    rest = shift.masked_fill(masked, 0.0)
    if bool((rest != 0).any()):
        source = r.add(ops.Affine(shift=rest), source)
    return r.add(ops.Fill(masked, -math.inf), source)


def _add(r: Reading, sign: int) -> str:
    first, second = r.argument(0, "self"), r.argument(1, "other")
    alpha = r.node.kwargs.get("alpha", 1)
    if alpha != 1:
        raise ShapeError("alpha must be 1.")
    if network(r, first) and network(r, second):
        return r.add(ops.Add() if sign > 0 else ops.Subtract(), *elementwise(r, first, second))
    given = first if network(r, first) else second
    other = second if network(r, first) else first
    source, shift = expanded(r, given, other)
    if given is first:
        return _shifted(r, source, sign * shift)
    if sign > 0:
        return _shifted(r, source, shift)
    return r.add(ops.Affine(torch.tensor(-1.0, dtype=shift.dtype), shift), source)


def _multiply(r: Reading) -> str:
    first, second = r.argument(0, "self"), r.argument(1, "other")
    if network(r, first) and network(r, second):
        if first is second:
            return r.add(ops.Power(2), r.tensors[first])
        return r.add(ops.Multiply(), *elementwise(r, first, second))
    given, other = (first, second) if network(r, first) else (second, first)
    source, scale = expanded(r, given, other)
    return r.add(ops.Affine(scale=scale), source)


def _divide(r: Reading) -> str:
    if r.node.kwargs.get("rounding_mode") is not None:
        raise ShapeError("only plain division is.")
    first, second = r.argument(0, "self"), r.argument(1, "other")
    if not network(r, second):
        source, divisor = expanded(r, first, second)
        return r.add(ops.Divide(divisor), source)
    if not network(r, first):
        source, scale = expanded(r, second, first)
        return r.add(ops.Affine(scale=scale), r.add(ops.Reciprocal(), source))
    above, below = elementwise(r, first, second)
    return r.add(ops.Multiply(), above, r.add(ops.Reciprocal(), below))


def _softmax(r: Reading) -> str:
    dim = layout(r, 0).place(int(r.argument(1, "dim")) % rank(r, 0))
    return r.add(ops.Softmax(dim), r.source(), layer=r.name)


def _filled(r: Reading, source: str, mask: Tensor, value: float) -> str:
    return r.add(ops.Fill(as_parameter(mask.bool()), float(value)), source)


def _masked_fill(r: Reading) -> str:
    value = r.argument(2, "value")
    if network(r, value) or network(r, r.argument(1, "mask")):
        raise ShapeError("mask and value must be constants.")
    source, mask = expanded(r, r.argument(0, "self"), r.argument(1, "mask"))
    return _filled(r, source, mask, float(value))


def _where(r: Reading) -> str:
    condition = r.argument(0, "condition")
    if network(r, condition):
        raise ShapeError("its condition depends on the network's input.")
    first, second = r.argument(1, "self"), r.argument(2, "other")
    given = first if network(r, first) else second
    other = second if network(r, first) else first
    if network(r, other):
        left, right = elementwise(r, first, second)
        mask = constant(r, condition, rank(r, 1), r.layouts[r.node])
        kept = _filled(r, left, ~mask.bool(), 0.0)
        return r.add(ops.Add(), kept, _filled(r, right, mask.bool(), 0.0))
    wanted = torch.as_tensor(other)
    if not bool((wanted == wanted.flatten()[0]).all()):
        raise ShapeError("what is put in must be one number.")
    source, mask = expanded(r, given, condition)
    mask = mask.bool()
    return _filled(r, source, ~mask if given is first else mask, float(wanted.flatten()[0]))


def _triangle(r: Reading, keep: Callable[[Tensor, int], Tensor]) -> str:
    if layout(r, 0).dim >= rank(r, 0) - 2:
        raise ShapeError("it acts across the samples of a batch.")
    ones = keep(torch.ones(r.shape()[-2:]), int(r.argument(1, "diagonal", 0)))
    return _filled(r, r.source(), ones == 0, 0.0)


def _attention(r: Reading) -> str:
    """``softmax(q k^T * scale + mask) v``."""
    if r.argument(4, "dropout_p", 0.0):
        raise ShapeError("it is random in evaluation mode.")
    query, key, value = (r.source(i) for i in range(3))
    own = r.layouts[r.node.args[0]]  # type: ignore[index]
    if len({r.layouts[r.node.args[i]] for i in range(3)}) != 1 or own.dim >= rank(r, 0) - 2:  # type: ignore[index]
        raise ShapeError("the batch of queries, keys and values must be in one place.")
    width = r.shape(0)[-1]
    scale = r.argument(6, "scale")
    factor = torch.tensor(width**-0.5 if scale is None else float(scale), dtype=torch.float64)
    order = [*range(len(r.shape(1)))]
    order[-2:] = order[-1], order[-2]
    scores = r.add(ops.MatMul(), query, r.add(ops.Permute(tuple(order)), key))
    scores = r.add(ops.Affine(scale=factor), scores)
    mask = r.argument(3, "attn_mask")
    if network(r, mask):
        raise ShapeError("its mask depends on the network's input.")
    if r.argument(5, "is_causal", False):
        shape = r.builder[scores].shape[-2:]
        scores = _filled(r, scores, torch.ones(shape).tril() == 0, -math.inf)
    if mask is not None:
        part = constant(r, mask, rank(r, 0), own)
        if mask.dtype == torch.bool:
            scores = _filled(r, scores, ~part, -math.inf)
        else:
            scores = _shifted(r, scores, part)
    last = len(r.builder[scores].shape) - 1
    weights = r.add(ops.Softmax(last), scores, layer=r.name)
    return r.add(ops.MatMul(), weights, value)


def _layer_norm(r: Reading, centred: bool, epsilon_at: int) -> str:
    dims = len(r.argument(1, "normalized_shape"))
    if layout(r, 0).dim >= rank(r, 0) - dims:
        raise ShapeError("it acts across the samples of a batch.")
    given = r.argument(epsilon_at, "eps")
    epsilon = 1e-5 if centred else torch.finfo(r.node.meta["val"].dtype).eps
    name = r.unary(ops.Normalise(dims, float(epsilon if given is None else given), centred))
    scale = r.parameter(2, "weight")
    shift = r.parameter(3, "bias") if centred else None
    return name if scale is None and shift is None else r.add(ops.Affine(scale, shift), name)


def _power(r: Reading) -> str:
    exponent = r.argument(1, "exponent")
    if network(r, exponent) or not network(r, r.argument(0, "self")):
        raise ShapeError("only constant powers are.")
    exponent = float(exponent)
    if exponent == 1:
        return r.source()
    if exponent in (0.5, -0.5):
        root = r.unary(ops.Sqrt())
        return root if exponent > 0 else r.add(ops.Reciprocal(), root)
    if exponent == -1:
        return r.unary(ops.Reciprocal())
    if exponent != int(exponent):
        raise ShapeError(f"the power {exponent} is not a whole number.")
    if exponent < 0:
        below = r.source() if exponent == -1 else r.unary(ops.Power(int(-exponent)))
        return r.add(ops.Reciprocal(), below)
    return r.unary(ops.Power(int(exponent)))


def _rsqrt(r: Reading) -> str:
    return r.add(ops.Reciprocal(), r.unary(ops.Sqrt()))


def _reduce(r: Reading, kind: type[ops.Sum] | type[ops.Mean]) -> str:
    given, own = r.argument(1, "dim"), layout(r, 0)
    full = rank(r, 0)
    listed = range(full) if given in (None, []) else [given] if isinstance(given, int) else given
    dims = tuple(sorted(own.place(dim % full) for dim in listed))
    keep = bool(r.argument(2, "keepdim", False))
    if not keep:
        gone = sum(dim % full < own.dim for dim in listed)
        r.layouts[r.node] = BatchPlace(own.dim - gone, own.outer, own.inner)
    return r.unary(kind(dims, math.prod(r.shape()[dim] for dim in dims), keep))


def _reshape(r: Reading) -> str:
    before, after = size(r.node.args[0]), size(r.node)
    own = layout(r, 0).reshaped(before, after, r.batch)
    r.layouts[r.node] = own
    shape = own.sample(after, r.batch)
    return r.source() if shape == r.shape() else r.unary(ops.Reshape(shape))


def _expand(r: Reading) -> str:
    own, lead = layout(r, 0), len(size(r.node)) - rank(r, 0)
    r.layouts[r.node] = BatchPlace(own.dim + lead, own.outer, own.inner)
    shape = r.layouts[r.node].sample(size(r.node), r.batch)
    source = r.source()
    if len(shape) != len(r.shape()):
        source = r.add(ops.Reshape((*([1] * lead), *r.shape())), source)
    return source if r.builder[source].shape == shape else r.add(ops.Expand(shape), source)


def _permute(r: Reading) -> str:
    full = rank(r, 0)
    return reordered(r, r.source(), layout(r, 0), [dim % full for dim in r.argument(1, "dims")])


def _transpose(r: Reading) -> str:
    full = rank(r, 0)
    if full < 2:
        return r.source()
    first, second = (0, 1) if _name(r) == "t" else (r.argument(1, ""), r.argument(2, ""))
    order = list(range(full))
    first, second = first % full, second % full
    order[first], order[second] = order[second], order[first]
    return reordered(r, r.source(), layout(r, 0), order)


def _select(r: Reading) -> str:
    dim, own = int(r.argument(1, "dim")) % rank(r, 0), layout(r, 0)
    if dim == own.dim and own.dim == 0 and not own.alone:
        raise ShapeError("it reads across the samples of a batch.")
    place = own.place(dim)
    shape = r.shape()
    index = int(r.argument(2, "index")) % shape[place]
    r.layouts[r.node] = BatchPlace(own.dim - (dim < own.dim), own.outer, own.inner)
    part = r.unary(ops.Slice(place, index, index + 1))
    return r.add(ops.Reshape((*shape[:place], *shape[place + 1 :])), part)


def _slice(r: Reading) -> str:
    full, own = rank(r, 0), layout(r, 0)
    dim = int(r.argument(1, "dim", 0)) % full
    length = size(r.node.args[0])[dim]
    start, stop, step = slice(
        r.argument(2, "start"), r.argument(3, "end"), int(r.argument(4, "step", 1))
    ).indices(length)
    if (start, step) == (0, 1) and stop >= length:
        return r.source()
    return r.unary(ops.Slice(own.place(dim), start, stop, step))


def _split(r: Reading) -> str:
    """All parts; ``getitem`` takes one of them."""
    name, own = _name(r), layout(r, 0)
    dim = int(r.argument(1 if name == "unbind" else 2, "dim", 0)) % rank(r, 0)
    place = own.place(dim)
    lengths = [size(value)[dim] if name != "unbind" else 1 for value in r.node.meta["val"]]
    parts, start = [], 0
    for length in lengths:
        part = r.unary(ops.Slice(place, start, start + length))
        if name == "unbind":
            shape = r.builder[part].shape
            part = r.add(ops.Reshape((*shape[:place], *shape[place + 1 :])), part)
        parts.append(part)
        start += length
    r.parts[r.node] = tuple(parts)
    if name == "unbind":
        r.layouts[r.node] = BatchPlace(own.dim - (dim < own.dim), own.outer, own.inner)
    return parts[0]


def _getitem(r: Reading) -> str:
    source = r.node.args[0]
    if source in r.parts:
        return r.parts[source][int(r.argument(1, "index"))]  # type: ignore[index]
    return READERS["getitem"](r)


def _joined(r: Reading, stack: bool) -> str:
    """``cat`` and ``stack``; constants, such as class tokens, join every sample."""
    values = list(r.node.args[0])  # type: ignore[arg-type]
    first = next(value for value in values if network(r, value))
    own, full = r.layouts[first], len(size(first))
    dim = int(r.argument(1, "dim", 0)) % (full + stack)
    after = own if not stack else BatchPlace(own.dim + (dim <= own.dim), own.outer, own.inner)
    place = after.place(dim)
    names = []
    for value in values:
        if network(r, value):
            if r.layouts[value] != own:
                raise ShapeError("the batch of all parts must be in one place.")
            name = r.tensors[value]
        else:
            held = constant(r, r.constants[value], full, own)
            name = r.builder.constant(f"{r.name}.constant", as_parameter(held))
        if stack:
            shape = r.builder[name].shape
            name = r.add(ops.Reshape((*shape[:place], 1, *shape[place:])), name)
        names.append(name)
    r.layouts[r.node] = after
    return r.add(ops.Concat(place), *names)


def _cast(r: Reading) -> str:
    before, after = (node.meta["val"].dtype for node in (r.node.args[0], r.node))  # type: ignore[union-attr]
    if not before.is_floating_point and not after.is_floating_point and after != torch.bool:
        return r.source()
    return READERS["_to_copy"](r)


WITHOUT_VALUES = frozenset(
    ["zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"]
)
"""Operations that look at the shape of a tensor alone."""

SAME = (
    "relu leaky_relu relu6 clamp clamp_min clamp_max hardtanh sigmoid tanh neg clone alias detach "
    "contiguous lift_fresh_copy dropout rsub"
)
"""Operations on each number by itself, which are read as in any network."""

TRANSFORMER_READERS: dict[str, Callable[[Reading], str]] = {
    **dict.fromkeys(SAME.split(), _pass),
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": lambda r: matrix_product(r, r.argument(0, "self"), r.argument(1, "mat2")),
    "baddbmm": _baddbmm,
    "einsum": einsum,
    "embedding": _embedding,
    "index": _index,
    "add": lambda r: _add(r, 1),
    "sub": lambda r: _add(r, -1),
    "mul": _multiply,
    "div": _divide,
    "softmax": _softmax,
    "_softmax": _softmax,
    "masked_fill": _masked_fill,
    "where": _where,
    "tril": lambda r: _triangle(r, torch.tril),
    "triu": lambda r: _triangle(r, torch.triu),
    "scaled_dot_product_attention": _attention,
    "layer_norm": lambda r: _layer_norm(r, True, 4),
    "rms_norm": lambda r: _layer_norm(r, False, 3),
    "gelu": _unary(lambda r: ops.GELU(r.argument(1, "approximate", "none") == "tanh")),
    "silu": _unary(lambda r: ops.SiLU()),
    "exp": _unary(lambda r: ops.Exp()),
    "erf": _unary(lambda r: ops.Erf()),
    "sqrt": _unary(lambda r: ops.Sqrt()),
    "rsqrt": _rsqrt,
    "reciprocal": _unary(lambda r: ops.Reciprocal()),
    "square": _unary(lambda r: ops.Power(2)),
    "pow": _power,
    "sum": lambda r: _reduce(r, ops.Sum),
    "mean": lambda r: _reduce(r, ops.Mean),
    **dict.fromkeys(
        ["view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"],
        _reshape,
    ),
    "expand": _expand,
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "select": _select,
    "slice": _slice,
    **dict.fromkeys(["split", "split_with_sizes", "chunk", "unbind"], _split),
    "getitem": _getitem,
    "cat": lambda r: _joined(r, False),
    "stack": lambda r: _joined(r, True),
    "to": _cast,
    "_to_copy": _cast,
}
