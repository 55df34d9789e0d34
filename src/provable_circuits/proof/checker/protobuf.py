"""Messages of protocol buffers, as far as ONNX files need them: numbers and bytes by field."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

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
    """A message that is read by the numbers of its fields, none of which may be unknown.

    A field of another wire type than asked for is refused: readers differ in what they make of it.
    """

    def __init__(self, data: bytes, known: Collection[int] | None = None) -> None:
        self._fields: dict[int, list[tuple[int, Value]]] = {}
        for count, (number, kind, value) in enumerate(fields(data)):
            if count >= MOST_FIELDS or (known is not None and number not in known):
                raise RefusedError("The network file has a field that the checker does not know.")
            self._fields.setdefault(number, []).append((kind, value))

    def _values(self, number: int, kind: int) -> list[Value]:
        values = self._fields.get(number, [])
        if any(other != kind for other, _ in values):
            raise RefusedError("The network file has a field of another type than ONNX's.")
        return [value for _, value in values]

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def data(self, number: int) -> bytes:
        """The one value of a field of bytes; empty where it is missing."""
        values = self.all_data(number)
        return values[-1] if values else b""

    def all_data(self, number: int) -> list[bytes]:
        """The values of a field of bytes or messages."""
        return [value for value in self._values(number, 2) if isinstance(value, bytes)]

    def text(self, number: int) -> str:
        """The one text of a field; empty where it is missing."""
        texts = self.texts(number)
        return texts[-1] if texts else ""

    def texts(self, number: int) -> list[str]:
        """The texts of a field."""
        try:
            return [value.decode() for value in self.all_data(number)]
        except UnicodeDecodeError:
            raise RefusedError("The network file has a name that is no text.") from None

    def messages(self, number: int, known: Collection[int] | None = None) -> list[Message]:
        """The messages of a field."""
        return [Message(value, known) for value in self.all_data(number)]

    def integers(self, number: int) -> list[int]:
        """The integers of a field, written one by one or packed."""
        found: list[int] = []
        for kind, value in self._fields.get(number, []):
            if isinstance(value, int):
                found.append(signed(value))
                continue
            if kind != 2:
                raise RefusedError("The network file has a float where an integer is expected.")
            at = 0
            while at < len(value):
                item, at = varint(value, at)
                found.append(signed(item))
        return found

    def integer(self, number: int, default: int = 0) -> int:
        """The one integer of a field."""
        values = [value for value in self._values(number, 0) if isinstance(value, int)]
        return signed(values[-1]) if values else default

    def real(self, number: int) -> float:
        """The one 32-bit float of a field."""
        values = [value for value in self._values(number, 5) if isinstance(value, bytes)]
        return float(struct.unpack("<f", values[-1])[0]) if values else 0.0
