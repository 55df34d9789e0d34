"""The network: read from an ONNX file into the operations that the rules know.

Operator set 22, one input and one output with a batch dimension first, and the operations below:
anything else is refused. Tensors are made flat, without the batch dimension. Clipping and max
pooling are written with ReLUs, exactly in real arithmetic:

    min(max(x, a), b)  =  b - relu(b - (a + relu(x - a)))
    max(x, y)          =  y + relu(x - y)              windows in a balanced tree
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .arithmetic import MOST_TERMS, Arithmetic, Array, RefusedError
from .operations import (
    Bend,
    Convolution,
    Curve,
    Gather,
    Larger,
    Matrix,
    Operation,
    Scale,
    Sum,
)
from .problem import Step
from .protobuf import Message

OPERATOR_SET = 22
MOST_ENTRIES = 2**24
TYPES = {1: "<f4", 7: "<i8", 11: "<f8"}

Shape = tuple[int, ...]


@dataclass
class Network:
    """Steps in order, the shape of every tensor of the file, and the names of input and output.

    Some operations take several steps; the tensors between them have a step and no shape.
    """

    steps: list[Step]
    shapes: dict[str, Shape]
    input: str
    output: str


def parse_network(data: bytes, arithmetic: Arithmetic | None = None) -> Network:
    """The network of the bytes of an ONNX file, with its weights as numbers of an arithmetic."""
    try:
        model = Message(data, (7, 8), (1, 2, 3, 4, 5, 6, 14))
        opsets = [Message(part, (1, 2)) for part in model.all_data(8)]
        if [(opset.text(1), opset.integer(2)) for opset in opsets] != [("", OPERATOR_SET)]:
            raise RefusedError(f"The network file is not of operator set {OPERATOR_SET} alone.")
        graph = Message(model.data(7), (1, 5, 11, 12), (2, 10, 13, 16))
        return _Reader(graph, arithmetic or Arithmetic()).network()
    except (ValueError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise RefusedError("The network file is not a file of ONNX that fits itself.") from error


class _Reader:
    def __init__(self, graph: Message, arithmetic: Arithmetic) -> None:
        self.graph, self.arithmetic = graph, arithmetic
        self.constants: dict[str, Array] = {}
        self.shapes: dict[str, Shape] = {}
        self.steps: list[Step] = []
        self.names: set[str] = set()
        self.room = MOST_ENTRIES

    def network(self) -> Network:
        for data in self.graph.all_data(5):
            tensor = Message(data, (1, 2, 8, 9, 14), (12, 16))
            self._fresh(tensor.text(8))
            self.constants[tensor.text(8)] = _tensor(tensor)
        inputs, outputs = (
            [Message(data, (1, 2), (3, 4)) for data in self.graph.all_data(field)]
            for field in (11, 12)
        )
        if len(inputs) != 1 or len(outputs) != 1:
            raise RefusedError("The network has not one input and one output.")
        self.names.add(self.step(inputs[0].text(1), None, (), _shape(inputs[0])))
        for data in self.graph.all_data(1):
            self.names.add(self._node(Message(data, (1, 2, 4, 5, 7), (3, 6, 9))))
        output = self.own(outputs[0].text(1))
        if _shape(outputs[0]) != self.shapes[output]:
            raise RefusedError("The network's output is not of the shape that the file says.")
        shapes = {name: shape for name, shape in self.shapes.items() if name in self.names}
        return Network(self.steps, shapes, inputs[0].text(1), output)

    def _fresh(self, name: str) -> None:
        if not name or name in self.constants or name in self.shapes:
            raise RefusedError(f"The tensor {name[:80]!r} is made twice, or has no name.")

    def step(
        self, name: str, operation: Operation | None, inputs: Sequence[str], shape: Shape
    ) -> str:
        self._fresh(name)
        units = math.prod(shape)
        if not 0 < units <= MOST_TERMS:
            raise RefusedError(f"The tensor {name[:80]!r} has no units, or too many.")
        self.room -= operation.index.size if isinstance(operation, Gather) else units
        if self.room < 0:
            raise RefusedError("The tensors of the network have too many units together.")
        self.shapes[name] = shape
        if operation is not None and self.arithmetic.exact:
            operation = _exactly(operation, self.arithmetic)
        self.steps.append(Step(name, operation, tuple(inputs), units))
        return name

    def own(self, name: str) -> str:
        if name not in self.names:
            raise RefusedError(f"The network file reads {name[:80]!r} before it is made.")
        return name

    def _node(self, message: Message) -> str:
        kind, outputs = message.text(4), message.texts(2)
        reader = READERS.get(kind)
        if reader is None or len(outputs) != 1 or message.text(7):
            raise RefusedError(f"The operation {kind[:40]!r} is none that the checker knows.")
        attributes: dict[str, Message] = {}
        for data in message.all_data(5):
            attribute = Message(data, (1, 2, 3, 4, 8, 20), (13,))
            if attributes.setdefault(attribute.text(1), attribute) is not attribute:
                raise RefusedError(f"An operation {kind!r} has an attribute twice.")
        node = _Node(self, kind, message.texts(1), outputs[0], attributes)
        try:
            reader(node)
        except (ValueError, IndexError, TypeError, OverflowError, MemoryError) as error:
            raise RefusedError(f"An operation {kind!r} does not fit its tensors.") from error
        if node.attributes:
            unknown = min(node.attributes)[:40]
            raise RefusedError(f"{kind!r} has an attribute that is not known: {unknown!r}.")
        return outputs[0]


@dataclass
class _Node:
    reader: _Reader
    kind: str
    inputs: list[str]
    output: str
    attributes: dict[str, Message]

    def attribute(self, name: str, kind: int, default: Any) -> Any:
        """An attribute of a kind: 1 a float, 2 an integer, 3 a text, 7 integers."""
        attribute = self.attributes.pop(name, None)
        if attribute is None:
            return default
        field = {1: 2, 2: 3, 3: 4, 7: 8}[kind]
        if attribute.integer(20) != kind or any(n in attribute for n in {2, 3, 4, 8} - {field}):
            raise RefusedError(f"The attribute {name!r} of {self.kind!r} is of another type.")
        read = {1: attribute.real, 2: attribute.integer, 3: attribute.text, 7: attribute.integers}
        return read[kind](field)

    def integers(self, name: str, default: Sequence[int]) -> list[int]:
        return list(self.attribute(name, 7, default))

    def integer(self, name: str, default: int) -> int:
        return int(self.attribute(name, 2, default))

    def constant(self, place: int) -> Array:
        try:
            return self.reader.constants[self.inputs[place]]
        except (KeyError, IndexError):
            raise RefusedError(f"An operand of {self.kind!r} is no constant of the file.") from None

    def sizes(self, place: int) -> list[int]:
        """A constant that is a list of integers."""
        value = self.constant(place)
        if value.dtype != np.int64 or value.ndim != 1:
            raise RefusedError(f"An operand of {self.kind!r} is no list of integers.")
        return [int(n) for n in value]

    def is_constant(self, place: int) -> bool:
        return self.inputs[place] in self.reader.constants

    def tensor(self, place: int) -> tuple[str, Shape]:
        name = self.reader.own(self.inputs[place])
        return name, self.reader.shapes[name]

    def count(self, *allowed: int) -> None:
        if len(self.inputs) not in allowed:
            raise RefusedError(f"An operation {self.kind!r} has {len(self.inputs)} operands.")

    def make(
        self, operation: Operation, inputs: Sequence[str], shape: Shape, part: str = ""
    ) -> str:
        name = f"{self.output}~{part}" if part else self.output
        return self.reader.step(name, operation, inputs, tuple(int(n) for n in shape))

    def pick(self, sources: Sequence[str], index: Array, part: str = "") -> str:
        """Units of some tensors laid end to end, in the shape of ``index``."""
        sizes = [math.prod(self.reader.shapes[name]) for name in sources]
        places = index.reshape(-1, 1).astype(np.int64)
        return self.make(Gather(places, sizes), sources, index.shape, part)


def _exactly(operation: Any, arithmetic: Arithmetic) -> Operation:
    """The operation with rational weights."""
    names = [
        n
        for n in ("weight", "factor", "bias", "divisor")
        if getattr(operation, n, None) is not None
    ]
    made: Operation = replace(
        operation, **{name: arithmetic.array(getattr(operation, name)) for name in names}
    )
    return made


def _indices(shape: Shape) -> Array:
    return np.arange(math.prod(shape)).reshape(shape)


def _matmul(node: _Node) -> None:
    node.count(2)
    left = node.is_constant(0)
    weight = _real(node.constant(0 if left else 1))
    name, shape = node.tensor(1 if left else 0)
    if weight.ndim != 2 or len(shape) < 1 + left or weight.shape[left] != shape[-1 - left]:
        raise RefusedError("MatMul is not by a matrix that fits.")
    if not left:
        node.make(Matrix(weight), [name], (*shape[:-1], weight.shape[1]))
        return
    turned = node.pick([name], np.swapaxes(_indices(shape), -1, -2), "turned")
    made = (*shape[:-2], shape[-1], weight.shape[0])
    product = node.make(Matrix(weight.T), [turned], made, "product")
    node.pick([product], np.swapaxes(_indices(made), -1, -2))


def _sum(node: _Node) -> None:
    node.count(2)
    minus = node.kind == "Sub"
    if node.is_constant(0) or node.is_constant(1):
        first = node.is_constant(0)
        shift, (name, shape) = (
            _real(node.constant(0 if first else 1)),
            node.tensor(1 if first else 0),
        )
        sign = -1.0 if minus and first else 1.0
        shift = _spread(-shift if minus and not first else shift, shape)
        units = math.prod(shape)
        node.make(Scale(np.full(units, sign), bias=shift), [name], shape)
        return
    (one, shape), (other, second) = node.tensor(0), node.tensor(1)
    if shape != second:
        raise RefusedError("Two tensors of different shapes are added.")
    node.make(Sum(minus), [one, other], shape)


def _scale(node: _Node) -> None:
    node.count(2)
    divides = node.kind == "Div"
    first = node.is_constant(0) and not divides
    factor, (name, shape) = _real(node.constant(0 if first else 1)), node.tensor(1 if first else 0)
    if divides and (factor == 0).any():
        raise RefusedError("A tensor is divided by zero.")
    node.make(Scale(_spread(factor, shape), divides), [name], shape)


def _spread(values: Array, shape: Shape) -> Array:
    """Constants broadcast to a tensor; a leading batch dimension of one falls away."""
    if values.ndim == len(shape) + 1 and values.shape[0] == 1:
        values = values[0]
    return np.broadcast_to(values, shape).reshape(-1).copy()


def _normalise(node: _Node) -> None:
    node.count(5)
    scale, shift, mean, variance = (_real(node.constant(i)) for i in range(1, 5))
    epsilon = node.attribute("epsilon", 1, 1e-5)
    node.attribute("momentum", 1, 0.9)
    if node.integer("training_mode", 0) or mean.any() or (variance != 1).any() or epsilon:
        raise RefusedError("A batch normalisation is not written as a scale and a shift.")
    name, shape = node.tensor(0)
    if any(value.shape != shape[:1] for value in (scale, shift, mean, variance)):
        raise RefusedError("A batch normalisation does not fit its tensor.")
    channels = (len(scale), *([1] * (len(shape) - 1)))
    parts = [_spread(value.reshape(channels), shape) for value in (scale, shift)]
    node.make(Scale(parts[0], bias=parts[1]), [name], shape)


def _convolve(node: _Node) -> None:
    node.count(2, 3)
    weight = _real(node.constant(1))
    name, shape = node.tensor(0)
    if len(shape) != 3 or weight.ndim != 4:
        raise RefusedError("A convolution is not of maps in two dimensions.")
    stride, dilation = node.integers("strides", [1, 1]), node.integers("dilations", [1, 1])
    pads, groups = node.integers("pads", [0] * 4), node.integer("group", 1)
    kernel = node.integers("kernel_shape", weight.shape[2:])
    if (
        [len(stride), len(dilation), len(pads)] != [2, 2, 4]
        or pads[:2] != pads[2:]
        or min(*stride, *dilation, groups) < 1
        or min(pads) < 0
        or kernel != list(weight.shape[2:])
        or min(weight.shape) < 1
        or weight.shape[1] * groups != shape[0]
        or weight.shape[0] % groups
    ):
        raise RefusedError("A convolution does not fit its tensors.")
    out = [
        (shape[1 + i] + 2 * pads[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    ]
    bias = None
    if len(node.inputs) == 3:
        bias = _real(node.constant(2))
        if bias.shape != weight.shape[:1]:
            raise RefusedError("A convolution does not fit its tensors.")
        _bounded((len(bias), *out))
        bias = np.repeat(bias, math.prod(out))
    made = (weight.shape[0], *out)
    _positive(made)
    _bounded([shape[0], *(shape[1 + i] + 2 * pads[i] for i in (0, 1))])
    operation = Convolution(
        weight, shape, made, _pair(stride), _pair(pads), _pair(dilation), groups, bias
    )
    node.make(operation, [name], made)


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]


def _windows(node: _Node) -> tuple[str, Shape, Array, Shape, bool]:
    """The units that each window of a pooling reads, [outputs, places]; -1 in the padding."""
    node.count(1)
    name, shape = node.tensor(0)
    kernel = node.integers("kernel_shape", [])
    stride, dilation = node.integers("strides", [1, 1]), node.integers("dilations", [1, 1])
    pads, ceil = node.integers("pads", [0] * 4), node.integer("ceil_mode", 0)
    node.integer("storage_order", 0)
    lists = (kernel, stride, dilation)
    if len(shape) != 3 or any(len(v) != 2 or min(v) < 1 for v in lists) or len(pads) != 4:
        raise RefusedError("A pooling is not of maps in two dimensions.")
    if min(pads) < 0 or max(*kernel, *stride, *dilation, *pads) > 2**10:
        raise RefusedError("A pooling does not fit its tensors.")
    reads = []
    for axis in (0, 1):
        length, before, after = shape[1 + axis], pads[axis], pads[axis + 2]
        span = length + before + after - dilation[axis] * (kernel[axis] - 1) - 1
        count = (-(-span // stride[axis]) if ceil else span // stride[axis]) + 1
        if ceil and (count - 1) * stride[axis] >= length + before:
            count -= 1
        _positive((count,))
        _bounded([count, kernel[axis]])
        starts = np.arange(count) * stride[axis] - before
        reads.append(starts[:, None] + np.arange(kernel[axis]) * dilation[axis])
    _bounded([shape[0], reads[0].size, reads[1].size])
    down, across = reads[0][:, None, :, None], reads[1][None, :, None, :]
    inside = (down >= 0) & (down < shape[1]) & (across >= 0) & (across < shape[2])
    flat = np.where(inside, down * shape[2] + across, -1)
    channel = np.arange(shape[0])[:, None, None, None, None] * shape[1] * shape[2]
    whole = np.where(flat[None] < 0, -1, flat[None] + channel)
    made = (shape[0], len(reads[0]), len(reads[1]))
    return name, shape, whole.reshape(math.prod(made), -1), made, bool(ceil)


def _average(node: _Node) -> None:
    padded = node.integer("count_include_pad", 0)
    name, shape, windows, made, ceil = _windows(node)
    if padded and ceil:
        raise RefusedError("An average pooling counts padding in windows that overhang.")
    counts = np.full(len(windows), windows.shape[1]) if padded else (windows >= 0).sum(axis=1)
    _positive(counts)
    node.make(Gather(windows, [math.prod(shape)], counts.astype(np.float64)), [name], made)


def _maximum(node: _Node) -> None:
    name, _, windows, made, _ = _windows(node)
    first = np.take_along_axis(windows, (windows >= 0).argmax(axis=1)[:, None], 1)
    _positive((first >= 0).all(keepdims=True))
    places = np.where(windows < 0, first, windows)
    level = [node.pick([name], places[:, i], f"place{i}") for i in range(places.shape[1])]
    if len(level) == 1:
        node.pick(level, np.arange(len(places)).reshape(made))
        return
    count = 0
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=False))
        rest = level[2 * len(pairs) :]
        last = len(pairs) == 1 and not rest
        joined = []
        for one, other in pairs:
            shape = (len(places),)
            over = node.make(Sum(minus=True), [one, other], shape, f"over{count}")
            gain = node.make(Bend(0.0), [over], shape, f"gain{count}")
            part = "" if last else f"max{count}"
            joined.append(node.make(Larger(), [other, gain, one], made if last else shape, part))
            count += 1
        level = [*joined, *rest]


def _clip(node: _Node) -> None:
    node.count(1, 2, 3)
    name, shape = node.tensor(0)
    ends = [float(_finite_or_inf(node, i)) for i in (1, 2)]
    units = math.prod(shape)
    low, high = ends
    if not low <= high:
        raise RefusedError("A tensor is clipped to a range that is empty.")
    if low > -math.inf:
        shifted = node.make(
            Scale(np.ones(units), bias=np.full(units, -low)), [name], shape, "above"
        )
        gain = node.make(Bend(0.0), [shifted], shape, "gain")
        part = "low" if high < math.inf else ""
        name = node.make(Scale(np.ones(units), bias=np.full(units, low)), [gain], shape, part)
    if high < math.inf:
        turned = node.make(
            Scale(-np.ones(units), bias=np.full(units, high)), [name], shape, "below"
        )
        loss = node.make(Bend(0.0), [turned], shape, "loss")
        node.make(Scale(-np.ones(units), bias=np.full(units, high)), [loss], shape)
    elif low == -math.inf:
        node.pick([name], _indices(shape))


def _finite_or_inf(node: _Node, place: int) -> float:
    if len(node.inputs) <= place or not node.inputs[place]:
        return -math.inf if place == 1 else math.inf
    value = node.constant(place)
    if value.size != 1 or np.isnan(value).any() or value.dtype == np.int64:
        raise RefusedError("A tensor is not clipped to numbers.")
    return float(value.reshape(-1)[0])


def _activation(node: _Node) -> None:
    node.count(1)
    name, shape = node.tensor(0)
    usual = float(np.float32(0.01))
    slope = node.attribute("alpha", 1, usual) if node.kind == "LeakyRelu" else 0.0
    if not 0 <= slope <= 1:
        raise RefusedError("A leaky ReLU has a slope outside 0 to 1.")
    curve = {"Sigmoid": Curve(False), "Tanh": Curve(True)}
    node.make(curve.get(node.kind, Bend(slope)), [name], shape)


def _reshape(node: _Node) -> None:
    node.count(2)
    name, shape = node.tensor(0)
    size = node.sizes(1)
    if node.integer("allowzero", 0) or not size or size[0] not in (-1, 1) or min(size[1:]) < 1:
        raise RefusedError("A tensor is reshaped in a way that the checker does not know.")
    node.pick([name], _indices(shape).reshape(size[1:]))


def _flatten(node: _Node) -> None:
    node.count(1)
    if node.integer("axis", 1) != 1:
        raise RefusedError("A tensor is flattened along another axis than the first.")
    name, shape = node.tensor(0)
    node.pick([name], _indices(shape).reshape(-1))


def _transpose(node: _Node) -> None:
    node.count(1)
    name, shape = node.tensor(0)
    order = node.integers("perm", [])
    if order[:1] != [0] or sorted(order) != list(range(len(shape) + 1)):
        raise RefusedError("A transposition moves the batch, or is none.")
    node.pick([name], _indices(shape).transpose([i - 1 for i in order[1:]]))


def _concat(node: _Node) -> None:
    sources = [node.tensor(i) for i in range(len(node.inputs))]
    axis = node.integer("axis", 0)
    if axis < 1:
        raise RefusedError("Tensors are joined along the batch.")
    _bounded([sum(math.prod(shape) for _, shape in sources)])
    starts = np.cumsum([0, *(math.prod(shape) for _, shape in sources)])
    parts = [_indices(shape) + start for (_, shape), start in zip(sources, starts, strict=False)]
    node.pick([name for name, _ in sources], np.concatenate(parts, axis - 1))


def _pad(node: _Node) -> None:
    node.count(2, 3, 4)
    name, shape = node.tensor(0)
    mode, pads = node.attribute("mode", 3, "constant"), node.sizes(1)
    axes = list(range(len(shape) + 1))
    if len(node.inputs) == 4 and node.sizes(3) != axes:
        raise RefusedError("A tensor is padded along some of its axes only.")
    filled = len(node.inputs) > 2 and node.inputs[2] and node.constant(2).any()
    if filled or mode != "constant" or len(pads) != 2 * len(axes):
        raise RefusedError("A tensor is padded with something else than zeros.")
    before, after = pads[: len(axes)], pads[len(axes) :]
    if before[0] or after[0] or min(pads) < 0:
        raise RefusedError("A tensor is padded along the batch, or cut by padding.")
    around = list(zip(before[1:], after[1:], strict=True))
    _bounded([n + a + b for n, (a, b) in zip(shape, around, strict=True)])
    node.pick([name], np.pad(_indices(shape), around, constant_values=-1))


def _gather(node: _Node) -> None:
    node.count(2)
    name, shape = node.tensor(0)
    index, axis = node.constant(1), node.integer("axis", 0)
    if axis < 1 or index.dtype != np.int64:
        raise RefusedError("A tensor is not gathered from by integers behind the batch.")
    size = shape[axis - 1]
    if ((index < -size) | (index >= size)).any():
        raise RefusedError("A tensor is gathered from beyond its end.")
    _bounded([math.prod(shape) // size, index.size])
    node.pick([name], np.take(_indices(shape), index % size, axis - 1))


def _mean(node: _Node) -> None:
    node.count(2)
    name, shape = node.tensor(0)
    axes = tuple(n - 1 for n in node.sizes(1))
    keep = bool(node.integer("keepdims", 1))
    if node.integer("noop_with_empty_axes", 0) or not axes or min(axes) < 0:
        raise RefusedError("A mean is taken over the batch, or over nothing.")
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    windows = _indices(shape).transpose(*rest, *axes).reshape(math.prod(shape[i] for i in rest), -1)
    made = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
    counts = np.full(len(windows), float(windows.shape[1]))
    node.make(Gather(windows, [math.prod(shape)], counts), [name], made)


def _identity(node: _Node) -> None:
    node.count(1)
    name, shape = node.tensor(0)
    node.pick([name], _indices(shape))


READERS: dict[str, Callable[[_Node], None]] = {
    "Add": _sum,
    "AveragePool": _average,
    "BatchNormalization": _normalise,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _convolve,
    "Div": _scale,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _identity,
    "LeakyRelu": _activation,
    "MatMul": _matmul,
    "MaxPool": _maximum,
    "Mul": _scale,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Relu": _activation,
    "Reshape": _reshape,
    "Sigmoid": _activation,
    "Sub": _sum,
    "Tanh": _activation,
    "Transpose": _transpose,
}


def _positive(sizes: object) -> None:
    if np.min(np.asarray(sizes)) < 1:
        raise RefusedError("A window does not fit its tensor.")


def _bounded(sizes: Sequence[int]) -> None:
    """Refuse what takes too much memory: tensors with their padding, and all windows' places."""
    if math.prod(sizes) > MOST_ENTRIES:
        raise RefusedError("A tensor of the network is too large.")


def _real(values: Array) -> Array:
    if values.dtype == np.int64 or not np.isfinite(values).all():
        raise RefusedError("A weight of the network is not a finite number.")
    return values.astype(np.float64)


def _shape(value: Message) -> Shape:
    """The per-sample shape of the input or output of the file."""
    tensor = Message(Message(value.data(2), (1,), (6,)).data(1), (1, 2))
    dims = [Message(dim, (1, 2), (3,)) for dim in Message(tensor.data(2), (1,)).all_data(1)]
    sizes = [0 if 2 in dim else dim.integer(1) for dim in dims]
    if tensor.integer(1) not in (1, 11) or sizes[:1] not in ([0], [1]) or min(sizes[1:]) < 1:
        raise RefusedError("An input or output is not of floats of a known shape behind a batch.")
    _bounded(sizes[1:])
    return tuple(sizes[1:])


def _tensor(message: Message) -> Array:
    """A constant of the file; its bytes are in the file and little-endian."""
    kind, dims = message.integer(2), message.integers(1)
    if kind not in TYPES or message.integer(14):
        raise RefusedError("A constant of the network is not of floats or integers in the file.")
    raw, size = message.data(9), np.dtype(TYPES[kind]).itemsize
    if min(dims, default=0) < 0 or len(raw) != math.prod(dims) * size:
        raise RefusedError("A constant of the network has not as many numbers as its shape.")
    return np.frombuffer(raw, dtype=TYPES[kind]).reshape(dims)
