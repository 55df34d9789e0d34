"""Tensors from whatever a user holds: tensors, numpy arrays of any layout, lists, numbers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.arguments import got
from provable_circuits.errors import ArgumentError, ScaleWarning

BYTES = (torch.uint8, torch.uint16)
"""The types of images as files hold them: no network's inputs have their scale."""

IMAGE = 16
"""Whole numbers count as an image if they are so many or, as integers, so large."""


def as_tensor(value: Any) -> Tensor:
    """The same numbers as a tensor, in their own dtype.

    Arrays that are read-only, reversed or of foreign byte order are copied first.

    Raises:
        TypeError, ValueError, RuntimeError: what is no array of real numbers.
    """
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = np.array(value, order="C")
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    if tensor.is_complex():
        raise TypeError("complex numbers")
    return tensor


def real_tensor(value: Any, what: str) -> Tensor:
    """Finite real numbers as a tensor, at least one, in their own dtype.

    Args:
        value: an array of any kind.
        what: what it is, at the beginning of a sentence, such as ``The 'x' parameter of Ball``.

    Raises:
        ArgumentError: it is no such array; or holds bytes, which are an image as a file has it.
    """
    try:
        tensor = as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"{what} must be an array of numbers. Got {got(value)} instead."
        ) from None
    if tensor.dtype in BYTES:
        raise ArgumentError(
            f"{what} must be in the scale of the network's inputs. Got {tensor.dtype} instead, "
            "which is that of image files: convert it, as in x / 255.0, and normalise it as the "
            "network's training data was."
        )
    if tensor.dtype == torch.bool:
        raise ArgumentError(
            f"{what} must be an array of numbers. Got booleans instead: convert them, as in "
            "x.astype(float) or x.double()."
        )
    if tensor.numel() == 0:
        raise ArgumentError(
            f"{what} must hold at least one number. Got the shape {list(tensor.shape)} instead."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ArgumentError(f"{what} must be finite. Got NaN or infinity instead.")
    return tensor


def warn_of_scale(
    value: Any, what: str, radius: float = math.inf, unit: str = "", level: int = 3
) -> None:
    """Warn of inputs that look like an image of 0 to 255: whole numbers above 1.

    Integers do, unless they are few and small. Others do if they are many, range within 0 to 255,
    and the radius around them is below 1: in that scale less than one step of a pixel.

    Args:
        value: inputs as the user gave them, of a kind that ``real_tensor`` takes.
        what: what they are, at the beginning of a sentence.
        radius: how far inputs range around them.
        unit: what is said of the radius, such as ``eps 0.01``.
        level: how far up the call of the user is.
    """
    tensor = as_tensor(value)
    low, high = float(tensor.min()), float(tensor.max())
    if high <= 1:
        return
    if tensor.is_floating_point():
        image = tensor.numel() >= IMAGE and 0 <= low < high <= 255 and radius < 1
        if not image or not bool((tensor == tensor.round()).all()):
            return
    elif tensor.numel() < IMAGE and high < IMAGE:
        return
    taken = f", and {unit} is taken in that scale" if unit else ""
    scale = 65535 if high > 255 else 255
    warnings.warn(
        f"{what} holds whole numbers from {low:g} to {high:g} ({tensor.dtype}), as image files "
        f"do{taken}: divide by the scale, as in x / {scale:g}.0, and normalise as the network's "
        "training data was. If the network takes them as they are, give them as floating-point "
        "numbers and ignore ScaleWarning.",
        ScaleWarning,
        stacklevel=level,
    )
