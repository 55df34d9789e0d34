"""Files that hold more than they seem to: sizes are looked at before anything is unpacked.

A small compressed file can say that it holds terabytes. An array's header tells its shape, an
archive's directory the sizes of its members, and what unpacks to more than ``largest()`` bytes is
refused before memory is asked for. The limit is 2 GiB; the environment variable
``PROVABLE_CIRCUITS_MAX_BYTES`` sets another.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from provable_circuits.errors import DataError

VARIABLE = "PROVABLE_CIRCUITS_MAX_BYTES"
USUAL = 2**31
MAGIC = b"\x93NUMPY"
ZIP = b"PK"


def largest() -> int:
    """Bytes that a file may unpack to."""
    text = os.environ.get(VARIABLE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else USUAL


def too_large(path: Path) -> DataError:
    """What is said of a file that unpacks to too much."""
    return DataError(
        f"The file '{path}' unpacks to more than {largest():,} bytes, the most that is read: set "
        f"{VARIABLE} to a larger number if it should be."
    )


def read_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file, some or all; of an ``.npy`` file the one, named ``""``.

    Raises:
        DataError: the file unpacks to too much.
        ValueError: it is not what it should be.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
        file.seek(0)
        if start == MAGIC:
            return {"": _array(file, path, [largest()])}
        if not start.startswith(ZIP):
            raise ValueError("no file of arrays")
        try:
            return _members(file, path, None if names is None else set(names))
        except DataError:
            raise
        except MemoryError:
            raise too_large(path) from None
        except Exception as error:  # a damaged archive fails in as many ways as there are bytes
            raise ValueError(f"a damaged archive: {error!r}") from None


def _members(file: IO[bytes], path: Path, names: set[str] | None) -> dict[str, NDArray[Any]]:
    left = [largest()]
    found = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            if member.file_size > left[0]:
                raise too_large(path)
            with archive.open(member) as content:
                found[name] = _array(content, path, left)
    return found


def _array(file: IO[bytes], path: Path, left: list[int]) -> NDArray[Any]:
    """One array, whose header is read first; what it takes is taken off what is left."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            shape, fortran, dtype = read(file)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError("an array of objects")
        size = math.prod(shape) * dtype.itemsize
        if size > left[0]:
            raise too_large(path)
        left[0] -= size
        data = file.read(size)
        if len(data) != size:
            raise ValueError("cut short")
        values = np.frombuffer(data, dtype)
        return values.reshape(shape, order="F" if fortran else "C")
    except DataError:
        raise
    except MemoryError:
        raise too_large(path) from None
    except Exception as error:
        raise ValueError(f"a damaged array: {error!r}") from None


def unpack_gzip(data: bytes, path: Path) -> bytes:
    """What is packed in some bytes.

    Raises:
        DataError: it is too much.
        OSError, EOFError, zlib.error: it is damaged.
    """
    most = largest()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise too_large(path)
    return content


DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)
"""How damaged packing fails."""
