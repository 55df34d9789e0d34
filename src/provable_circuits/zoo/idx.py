"""Reading IDX files, the format in which MNIST is published.

A file is two zero bytes, a byte for the type of its numbers (8: unsigned bytes, the only one MNIST
uses), a byte for the number of dimensions, each dimension as a big-endian 32-bit integer, and then
the numbers, the last dimension fastest. The file may be compressed with gzip.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provable_circuits.archives import DAMAGED, unpack_gzip
from provable_circuits.errors import DataError

UNSIGNED_BYTES = 0x08
GZIP_START = b"\x1f\x8b"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file, checked to the last byte.

    Args:
        path: the file, plain or compressed with gzip.
        dimensions: how many dimensions the array must have (3 for images, 1 for labels).

    Raises:
        DataError: the file is missing, damaged, cut short, too long, or of another kind.
    """
    content = _content(path)
    header = 4 + 4 * dimensions
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if content[:4] != magic:
        raise DataError(
            f"The file '{path}' must be an IDX file of unsigned bytes in {dimensions} "
            f"dimension(s): its first four bytes must be {magic.hex(' ')}. Got "
            f"{content[:4].hex(' ') or 'nothing'} instead; download it again."
        )
    if len(content) < header:
        raise DataError(f"The IDX file '{path}' is cut short in its header; download it again.")
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    expected, given = math.prod(sizes), len(content) - header
    if given != expected:
        what = "cut short" if given < expected else "too long"
        raise DataError(
            f"The IDX file '{path}' is {what}: {' x '.join(map(str, sizes))} bytes must follow its "
            f"header. Got {given} instead; download it again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)


def _content(path: Path) -> bytes:
    """The file's bytes, decompressed where they are compressed, whatever its name says."""
    try:
        content = path.read_bytes()
        return unpack_gzip(content, path) if content.startswith(GZIP_START) else content
    except DAMAGED as error:
        raise DataError(
            f"The file '{path}' is not a whole gzip file: {error}; download it again."
        ) from None
    except OSError as error:
        raise DataError(f"The file '{path}' cannot be read: {error.strerror}.") from None
