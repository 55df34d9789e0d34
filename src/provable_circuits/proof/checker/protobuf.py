"""Messages of protocol buffers, as far as ONNX files need them: numbers and bytes by field."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Any

from .arithmetic import RefusedError

Value = int | bytes

MOST_FIELDS = 2**20
"""No message may have more."""


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message in turn: number, wire type, and value.

    Wire types: 0 a varint, 1 eight bytes, 2 a length and bytes, 5 four bytes.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise RefusedError("The network file has a field of a kind that ONNX does not use.")
        if at + size > len(data):
            raise RefusedError("The network file ends in the middle of a field.")
        yield key >> 3, kind, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = 0
    for place in range(10):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value & (2**64 - 1), at
    raise RefusedError("The network file ends in the middle of a number.")


def signed(value: int) -> int:
    """A 64-bit number with its sign."""
    return value - 2**64 if value >= 2**63 else value


class Message:
    """A message that is read by the numbers of its fields; it may have those of ``known`` alone.

    Args:
        data: the message.
        known: numbers of fields; fields of other numbers are refused.
        ignored: numbers of fields that mean nothing here, such as names and remarks.
    """

    def __init__(self, data: bytes, known: Collection[int], ignored: Collection[int] = ()) -> None:
        self._fields: dict[int, list[tuple[int, Value]]] = {}
        for count, (number, kind, value) in enumerate(fields(data)):
            if number in known:
                self._fields.setdefault(number, []).append((kind, value))
            if count >= MOST_FIELDS or not (number in known or number in ignored):
                raise RefusedError("The network file has a field that the checker does not know.")

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def _values(self, number: int, *kinds: int) -> list[Any]:
        """The values of a field, which must be written in one of some ways."""
        found = self._fields.get(number, [])
        if not all(kind in kinds for kind, _ in found):
            raise RefusedError(f"The network file has a field {number} of another kind.")
        return [value for _, value in found]

    def all_data(self, number: int) -> list[bytes]:
        """The values of a field of bytes or messages."""
        return self._values(number, 2)

    def data(self, number: int) -> bytes:
        """The one value of a field of bytes; empty where it is missing."""
        (value,) = self.all_data(number) or [b""]
        return value

    def text(self, number: int) -> str:
        """The one text of a field."""
        return self.data(number).decode()

    def texts(self, number: int) -> list[str]:
        """The texts of a field."""
        return [value.decode() for value in self.all_data(number)]

    def integers(self, number: int) -> list[int]:
        """The integers of a field, written one by one or packed."""
        found: list[int] = []
        for value in self._values(number, 0, 2):
            at = 0 if isinstance(value, bytes) else None
            if at is None:
                found.append(signed(value))
            while at is not None and at < len(value):
                item, at = varint(value, at)
                found.append(signed(item))
        return found

    def integer(self, number: int) -> int:
        """The one integer of a field; 0 where it is missing."""
        (value,) = self._values(number, 0) or [0]
        return signed(value)

    def real(self, number: int) -> float:
        """The one 32-bit float of a field; 0 where it is missing."""
        (value,) = self._values(number, 5) or [bytes(4)]
        return float(struct.unpack("<f", value)[0])
