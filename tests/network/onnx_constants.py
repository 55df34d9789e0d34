"""Random chains of nodes on constants, which an importer has to compute itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from tests.network.onnx_models import Array, Draft, session_of
from tests.network.onnx_steps import cuts, window

CASTS = [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32]


class Chain:
    """A constant as far as it has been computed, and what the runtime says that it is."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        shape = draft.pick([(), (4,), (3, 4), (2, 3, 4), (1, 2, 5, 6), (2, 2, 7, 5), (1, 3, 4, 4)])
        if draft.chance(0.25):
            self.value: Array = draft.random.integers(-4, 6, size=shape)
        else:
            self.value = draft.random.normal(size=shape).astype(np.float32) * 2
        self.name = draft.store(np.asarray(self.value))

    @property
    def floating(self) -> bool:
        return self.value.dtype in (np.float32, np.float64)

    @property
    def tame(self) -> bool:
        """Whether its rounding stays small under functions that vary quickly."""
        return not self.floating or bool((np.abs(self.value) < 10).all())

    def like(self, *shape: int) -> str:
        """Another constant of this one's type."""
        random = self.draft.random
        drawn = random.uniform(0.5, 3, shape) if self.floating else random.integers(1, 5, shape)
        return self.draft.store(np.asarray(drawn * random.choice([-1, 1], shape), self.value.dtype))

    def add(self, kind: str, *inputs: str, **attributes: Any) -> None:
        """Append a node if the runtime takes it."""
        d = self.draft
        name = d.append(kind, inputs, d.fresh("k"), **attributes)
        self.settle(name)

    def settle(self, name: str) -> None:
        """Go on from the last node, if the runtime can compute it."""
        d = self.draft
        model = d.model(name)
        del model.graph.output[0].type.tensor_type.shape.dim[:]
        model.graph.output[0].ClearField("type")
        try:
            result = session_of(model.SerializeToString()).run(None, {"x": d.x})[0]
        except Exception:
            d.nodes.pop()
            return
        wild = result.dtype.kind == "f" and not (np.abs(result) < 1e6).all()
        if wild or not 0 < result.size < 3000:
            d.nodes.pop()
        else:
            self.name, self.value = name, result


def elementwise(c: Chain) -> None:
    d = c.draft
    if not c.floating:
        c.add(d.pick(["Neg", "Abs", "Identity"]), c.name)
        return
    kinds = ["Neg", "Abs", "Sigmoid", "Tanh", "Relu", "LeakyRelu", "Identity", "Reciprocal"]
    kinds += ["Sqrt", "Log", "Clip", "Dropout", "Elu"]
    kind = d.pick([*kinds, "Exp", "Sin", "Cos"] if c.tame else kinds)
    if kind in ("Sqrt", "Log"):
        c.add("Abs", c.name)
    if kind == "Clip" and d.opset >= 11:
        c.add(kind, c.name, d.store(np.array(-0.5, c.value.dtype)))
    else:
        c.add(kind, c.name)


def first_steps(c: Chain) -> None:
    """What is not continuous, and therefore stands before anything that rounds."""
    kind = c.draft.pick(["Floor", "Ceil", "Sign", "Round", "Cast", "Cast", "Not"])
    attributes = {"to": c.draft.pick(CASTS)} if kind == "Cast" else {}
    c.add(kind, c.name, **attributes)


def binary(c: Chain) -> None:
    d, shape = c.draft, c.value.shape
    kind = d.pick(["Add", "Sub", "Mul", "Div", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Mean"])
    sizes = [size if d.chance(0.5) else 1 for size in shape][d.number(0, len(shape)) :]
    if d.chance(0.3):
        sizes = [2, *[1] * len(shape)]
    other = c.like(*sizes)
    if kind == "Pow":
        c.add(kind, c.name, d.store(np.array(d.pick([2, 3]), c.value.dtype)))
    elif kind == "Mod" and c.tame:
        c.add(kind, c.name, other, fmod=int(c.floating or d.chance(0.3)))
    elif kind != "Mod":
        c.add(kind, *([c.name, other] if d.chance(0.7) else [other, c.name]))


def compare(c: Chain) -> None:
    d = c.draft
    kinds = ["Less", "Greater", "Equal", *(["LessOrEqual", "GreaterOrEqual"] * (d.opset >= 12))]
    flags = d.append(d.pick(kinds), [c.name, c.like()], d.fresh("k"))
    if d.chance(0.3):
        flags = d.append("Not", [flags], d.fresh("k"))
    if d.chance(0.3):
        flags = d.append(d.pick(["And", "Or"]), [flags, d.store(np.array([True]))], d.fresh("k"))
    c.add("Where", flags, c.name, c.like(*c.value.shape[-1:]))


def reduce(c: Chain) -> None:
    d, rank = c.draft, c.value.ndim
    kinds = ["Sum", "Sum", "Mean", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare"]
    kind = f"Reduce{d.pick(kinds)}"
    axes = [d.axis(rank, 0) for _ in range(d.number(1, 2))] if rank and d.chance(0.8) else None
    if axes and len(axes) == 2 and axes[0] % rank == axes[1] % rank:
        axes = axes[:1]
    since = 13 if kind == "ReduceSum" else 18
    inputs, listed = d.listed(since, axes=axes)
    attributes = {} if d.chance(0.4) else {"keepdims": d.number(0, 1)}
    if d.opset >= since and d.chance(0.2):
        attributes["noop_with_empty_axes"] = 1
    c.add(kind, c.name, *inputs, **attributes, **listed)


def products(c: Chain) -> None:
    d, shape = c.draft, c.value.shape
    if c.value.ndim == 2 and c.floating and d.chance(0.6):
        flags = {"transA": d.number(0, 1), "transB": d.number(0, 1)}
        inner = shape[0] if flags["transA"] else shape[1]
        other = c.like(*((3, inner) if flags["transB"] else (inner, 3)))
        numbers = {"alpha": d.pick([1.0, 0.5]), "beta": d.pick([1.0, 0.0, -2.0])}
        c.add("Gemm", c.name, other, c.like(*d.pick([(), (3,), (1, 3)])), **flags, **numbers)
    elif shape:
        c.add("MatMul", c.name, c.like(*d.pick([(shape[-1], 2), (shape[-1],), (2, shape[-1], 3)])))


def windows(c: Chain) -> None:
    d = c.draft
    if c.value.ndim != 4 or not c.floating:
        return
    channels = c.value.shape[1]
    attributes = window(d, 2)
    kind = d.pick(["Conv", "MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool"])
    if kind == "GlobalAveragePool":
        attributes = {}
    elif kind == "Conv":
        c.add(kind, c.name, c.like(3, channels, *attributes["kernel_shape"]), **attributes)
        return
    else:
        if d.opset < (10 if kind == "MaxPool" else 19):
            attributes.pop("dilations", None)
        if d.opset >= 10 and d.chance(0.5):
            attributes["ceil_mode"] = 1
        if kind == "AveragePool" and d.chance(0.4):
            attributes["count_include_pad"] = 1
    c.add(kind, c.name, **attributes)


def norm(c: Chain) -> None:
    d = c.draft
    if c.value.ndim > 1 and c.floating:
        channels = c.value.shape[1]
        numbers = [c.like(channels) for _ in range(3)]
        spread = d.append("Abs", [c.like(channels)], d.fresh("k"))
        epsilon = {"epsilon": 0.3} if d.chance(0.5) else {}
        c.add("BatchNormalization", c.name, *numbers, spread, **epsilon)


def moving(c: Chain) -> None:
    """Operations that move values."""
    d, shape, rank = c.draft, c.value.shape, c.value.ndim
    kinds = ["Transpose", "Flatten", "Reshape", "Expand", "Tile", "Concat", "Unsqueeze", "Squeeze"]
    kind = d.pick(kinds)
    if kind == "Reshape":
        keeps = [0 if d.chance(0.5) else size for size in shape[:-1]]
        c.add(kind, c.name, d.integers(d.pick([[-1], [*keeps, -1], [*keeps, 1, -1]])))
    elif kind == "Transpose":
        order = [int(i) for i in d.random.permutation(rank)]
        c.add(kind, c.name, **({"perm": order} if order and d.chance(0.8) else {}))
    elif kind == "Flatten":
        c.add(kind, c.name, axis=d.number(-rank, rank))
    elif kind == "Expand":
        c.add(kind, c.name, d.integers([2, *(1 if d.chance(0.5) else size for size in shape)]))
    elif kind == "Tile":
        c.add(kind, c.name, d.integers([d.number(1, 2) for _ in shape]))
    elif kind == "Concat" and rank:
        axis = d.axis(rank, 0)
        sizes = [2 if i == axis % rank else size for i, size in enumerate(shape)]
        c.add(kind, c.name, c.like(*sizes), axis=axis)
    elif kind == "Unsqueeze":
        inputs, attributes = d.listed(13, axes=[d.axis(rank + 1, 0)])
        c.add(kind, c.name, *inputs, **attributes)
    elif kind == "Squeeze":
        axes = [i for i, size in enumerate(shape) if size == 1 and d.chance(0.7)]
        inputs, attributes = d.listed(13, axes=axes or None)
        c.add(kind, c.name, *inputs, **attributes)


def picking(c: Chain) -> None:
    """Slices, gathered places, parts of a split, padding."""
    d, shape, rank = c.draft, c.value.shape, c.value.ndim
    if not rank:
        return
    kind = d.pick(["Slice", "Slice", "Slice", "Gather", "GatherElements", "Split", "Pad"])
    axis = d.axis(rank, 0)
    if kind == "Slice":
        inputs, attributes = d.listed(10, **cuts(d, shape))
        c.add(kind, c.name, *inputs, **attributes)
    elif kind == "Gather":
        places = d.random.integers(-shape[axis], shape[axis], size=d.pick([(), (2,), (2, 2)]))
        c.add(kind, c.name, d.integers(places.tolist()), axis=axis)
    elif kind == "GatherElements":
        places = d.random.integers(-shape[axis], shape[axis], size=shape)
        c.add(kind, c.name, d.integers(places.tolist()), axis=axis)
    elif kind == "Split":
        cut = d.number(0, shape[axis])
        inputs, attributes = d.listed(13, split=[cut, shape[axis] - cut])
        if d.chance(0.4):
            inputs, attributes = [], {"num_outputs": 2} if d.opset >= 18 else {}
        name = d.append(kind, [c.name, *inputs], d.fresh("k"), axis=axis, **attributes)
        d.nodes[-1].output.append(f"{name}_1")
        c.settle(d.pick([name, f"{name}_1"]))
    else:
        pads = [d.number(0, 2) for _ in range(2 * rank)]
        mode = d.pick(["constant", "constant", "reflect", "edge"])
        inputs, attributes = d.listed(11, pads=pads)
        c.add(kind, c.name, *inputs, mode=mode, **attributes)


def sources(c: Chain) -> None:
    """Constants that come from a shape or a range."""
    d = c.draft
    kind = d.pick(["Shape", "Size", "ConstantOfShape", "Range", "NonZero", "DequantizeLinear"])
    if kind in ("Shape", "Size"):
        ends = {"start": d.number(-5, 5), "end": d.number(-5, 5)}
        c.add(kind, c.name, **(ends if kind == "Shape" and d.opset >= 15 else {}))
    elif kind == "ConstantOfShape":
        fill = numpy_helper.from_array(np.array([d.pick([2, -3])], c.value.dtype))
        sizes = d.integers([d.number(1, 3) for _ in range(d.number(1, 3))])
        c.add(kind, sizes, **({"value": fill} if d.chance(0.7) else {}))
    elif kind == "Range" and d.opset >= 11:
        ends = d.pick([(0, 5, 1), (5, 0, -2), (-1, 8, 3), (2, 3, 4)])
        c.add(kind, *(d.integers(end) for end in ends))
    elif kind == "NonZero":
        c.add(kind, c.name)
    elif kind == "DequantizeLinear" and d.opset >= 10:
        whole = d.random.integers(-100, 100, size=(3, 4)).astype(np.int8)
        scale = d.store(np.array(0.1, np.float32))
        zero = [d.store(np.array(d.number(-9, 9), np.int8))] if d.chance(0.6) else []
        if d.opset >= 13 and d.chance(0.5):
            scale = d.store(np.array([0.1, 0.2, 0.3], np.float32))
            zero = []
        c.add(kind, d.store(whole), scale, *zero, **({"axis": 0} if d.opset >= 13 else {}))


STEPS: Mapping[Callable[[Chain], None], int] = {
    elementwise: 4,
    binary: 5,
    compare: 2,
    reduce: 3,
    products: 2,
    windows: 5,
    norm: 3,
    moving: 4,
    picking: 5,
    sources: 1,
}
_CHOICES = [step for step, weight in STEPS.items() for _ in range(weight)]


def chain(draft: Draft) -> Chain:
    """A constant computed by a few nodes."""
    c = Chain(draft)
    if draft.chance(0.3):
        first_steps(c)
    for _ in range(draft.number(1, 4)):
        draft.pick(_CHOICES)(c)
    return c


def computed(draft: Draft, shape: Sequence[int]) -> str:
    """A constant of floats of a given shape, of tame size, computed by a chain of nodes."""
    c = chain(draft)
    if c.value.dtype != np.float32:
        c.add("Cast", c.name, to=TensorProto.FLOAT)
    count = math.prod(shape)
    copies = -(-count // c.value.size)
    flat = draft.append("Reshape", [c.name, draft.integers([-1])], draft.fresh("k"))
    many = draft.append("Concat", [flat] * copies, draft.fresh("k"), axis=0)
    inputs, attributes = draft.listed(10, starts=[0], ends=[count])
    some = draft.append("Slice", [many, *inputs], draft.fresh("k"), **attributes)
    tame = draft.append("Tanh", [some], draft.fresh("k"))
    return draft.append("Reshape", [tame, draft.integers(list(shape))], draft.fresh("k"))


def random_constant(seed: int) -> Draft:
    """A model whose output is a constant, the same for every input."""
    draft = Draft(seed)
    c = chain(draft)
    if c.value.dtype != np.float32:
        c.add("Cast", c.name, to=TensorProto.FLOAT)
    inputs, attributes = draft.listed(13, axes=[0])
    c.add("Unsqueeze", c.name, *inputs, **attributes)
    draft.output, draft.result = c.name, c.value
    return draft
