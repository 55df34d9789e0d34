"""Tensors from whatever a user holds: tensors, numpy arrays of any layout, lists, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


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
