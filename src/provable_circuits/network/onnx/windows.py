"""Reading the ONNX operations that slide a window over a feature map: convolution and pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from provable_circuits.network.onnx.node import OnnxNode, UnsupportedFormError, as_weights
from provable_circuits.network.ops import AvgPool2d, Conv2d, MaxPool2d, Pad

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """A window and its way over the map; ``pads`` are top, left, bottom, right."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    pads: tuple[int, int, int, int]
    ceil_mode: bool

    @property
    def padding(self) -> Pair | None:
        """Rows above and below, columns left and right, where these are the same."""
        top, left, bottom, right = self.pads
        return (top, left) if (top, left) == (bottom, right) else None

    @property
    def reach(self) -> Pair:
        """The height and width that the window spans."""
        rows, columns = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))
        return rows, columns


def read_conv(node: OnnxNode) -> str:
    """Conv; padding that differs between opposite sides becomes an operation of its own."""
    tensor, weight = node.tensor(0), as_weights(node.constant(1))
    given = node.optional_constant(2)
    bias = None if given is None else as_weights(given)
    if weight.ndim != 4:
        raise UnsupportedFormError(
            f"it convolves over {weight.ndim - 2} dimensions, and only two are supported"
        )
    window = _window(node, tensor, (weight.shape[2], weight.shape[3]))
    padding = window.padding
    if padding is None:
        tensor, padding = node.add(Pad(window.pads), tensor, part="pad"), (0, 0)
    groups = node.attributes.get("group", 1)
    op = Conv2d(weight, bias, window.stride, padding, window.dilation, groups)
    return node.add(op, tensor, layer=node.layer)


def read_max_pool(node: OnnxNode) -> str:
    """MaxPool of two dimensions."""
    tensor = node.tensor(0)
    window = _window(node, tensor, None)
    op = MaxPool2d(window.kernel, window.stride, window.pads, window.dilation, window.ceil_mode)
    return node.add(op, tensor)


def read_average_pool(node: OnnxNode) -> str:
    """AveragePool of two dimensions; padding that counts can be an operation of its own."""
    tensor = node.tensor(0)
    window = _window(node, tensor, None)
    counted = node.flag("count_include_pad")
    if window.dilation != (1, 1):
        raise UnsupportedFormError("its window has gaps (dilations)")
    padding = window.padding
    if padding is None or any(
        2 * pad > size for pad, size in zip(padding, window.kernel, strict=True)
    ):
        if not counted or window.ceil_mode:
            raise UnsupportedFormError(
                "its padding differs between opposite sides or is more than half its window, which "
                "is supported only where it counts in the average and ceil_mode is off"
            )
        tensor, padding = node.add(Pad(window.pads), tensor, part="pad"), (0, 0)
    return node.add(
        AvgPool2d(window.kernel, window.stride, padding, window.ceil_mode, counted), tensor
    )


def _window(node: OnnxNode, tensor: str, kernel: Pair | None) -> Window:
    """The window that a node describes, with explicit padding."""
    shape = node.shape(tensor)
    if len(shape) != 3:
        raise UnsupportedFormError(
            f"it takes feature maps of channels, height and width, and not {list(shape)}"
        )
    size, convolves = (shape[1], shape[2]), kernel is not None
    kernel = _pair(node, "kernel_shape", kernel)
    stride, dilation = _pair(node, "strides", (1, 1)), _pair(node, "dilations", (1, 1))
    mode = node.attributes.get("auto_pad", "NOTSET")
    pads = list(node.attributes.get("pads", (0, 0, 0, 0))) if mode == "NOTSET" else [0, 0, 0, 0]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for i in (0, 1):
            windows = math.ceil(size[i] / stride[i])
            total = (windows - 1) * stride[i] + kernel[i] - size[i]
            if dilation[i] != 1 or total < (-1 if convolves else 0):
                raise UnsupportedFormError(
                    f"auto_pad {mode} with dilations, or with strides so large that the map would "
                    "be cropped, means different things to different runtimes"
                )
            total = max(total, 0)
            pads[i], pads[i + 2] = total // 2, total - total // 2
            if mode == "SAME_LOWER":
                pads[i], pads[i + 2] = pads[i + 2], pads[i]
    if len(pads) != 4 or min(pads) < 0:
        raise UnsupportedFormError(f"its pads {pads} are not four sizes from zero up")
    if not convolves and any(pad >= kernel[i % 2] for i, pad in enumerate(pads)):
        raise UnsupportedFormError("its padding is as large as its window")
    top, left, bottom, right = pads
    window = Window(kernel, stride, dilation, (top, left, bottom, right), False)
    if not node.flag("ceil_mode") or _fits(window, size) or mode.startswith("SAME"):
        return window
    if mode == "VALID":
        raise UnsupportedFormError(
            "auto_pad VALID with ceil_mode means different things to different runtimes"
        )
    return Window(kernel, stride, dilation, window.pads, True)


def _fits(window: Window, size: Pair) -> bool:
    """Whether the last window ends exactly where the padded map does."""
    spans = (size[i] + window.pads[i] + window.pads[i + 2] - window.reach[i] for i in (0, 1))
    return all(span % stride == 0 for span, stride in zip(spans, window.stride, strict=True))


def _pair(node: OnnxNode, name: str, default: Pair | None) -> Pair:
    values = tuple(node.attributes.get(name, default or ()))
    if (
        len(values) != 2
        or min(values) < 1
        or (name == "kernel_shape" and default not in (None, values))
    ):
        raise UnsupportedFormError(f"its {name} {list(values)} does not fit feature maps")
    return values[0], values[1]
