"""Tensors from whatever a user holds: tensors, numpy arrays of any layout, lists, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.arguments import got
from provable_circuits.errors import ArgumentError

BYTES = (torch.uint8, torch.uint16)
"""The types of images as files hold them: no network's inputs have their scale."""


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
