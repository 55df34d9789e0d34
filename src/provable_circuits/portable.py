"""Portable: data classes as bytes, and back, without executing anything that is read.

A tree of known data classes, tensors, numbers, strings, sequences and mappings becomes one
safetensors document: its tensors, and the tree as JSON in the header. Only classes that the reader
was told of are made again; their fields are set as they were, and no constructor runs. What numpy
holds comes back as tensors and plain numbers.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Pair:
    ...     left: float
    ...     right: torch.Tensor
    >>> portable = Portable({"pair": Pair})
    >>> portable.unpack(portable.pack(Pair(0.5, torch.ones(2))))
    Pair(left=0.5, right=tensor([1., 1.]))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError


class Portable:
    """Writes and reads trees of the data classes named in ``kinds``."""

    def __init__(self, kinds: Mapping[str, type]) -> None:
        self._kinds = dict(kinds)
        self._names = {kind: name for name, kind in self._kinds.items()}

    def pack(self, value: Any) -> bytes:
        """The bytes of a tree."""
        writer = _TextWriter(self._names)
        tree = json.dumps(writer.written(value), allow_nan=False)
        return safetensors.torch.save(writer.tensors, {"tree": tree})

    def digest(self, value: Any) -> str:
        """A digest of what a tree holds, however its tensors are shared."""
        tree = json.dumps(_Digests(self._names).written(value), allow_nan=False)
        return hashlib.sha256(tree.encode()).hexdigest()

    def unpack(self, data: bytes) -> Any:
        """The tree that some bytes were made of."""
        try:
            tensors = safetensors.torch.load(data)
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            tree = json.loads(header["__metadata__"]["tree"])
            return self._read(tree, tensors)
        except MemoryError:
            raise ArgumentError("The data is not what was packed: it asks for memory.") from None
        except Exception as error:  # damaged bytes fail in as many ways as there are bytes
            reason = repr(error)[:200]
            raise ArgumentError(f"The data is not what was packed: {reason}.") from None

    def _read(self, tree: Any, tensors: Mapping[str, Tensor]) -> Any:
        if isinstance(tree, list):
            return [self._read(part, tensors) for part in tree]
        if not isinstance(tree, dict):
            return tree
        ((tag, content),) = tree.items()
        if tag == "tensor":
            return tensors[content]
        if tag == "float":
            return float(content)
        if tag == "integer":
            return int(content, 16)
        if tag == "tuple":
            return tuple(self._read(part, tensors) for part in content)
        if tag == "mapping":
            return {self._read(k, tensors): self._read(v, tensors) for k, v in content}
        kind = self._kinds[tag]
        made: object = object.__new__(kind)
        if set(content) != {field.name for field in fields(kind)}:
            raise ValueError(f"the fields of {tag} are others")
        for field in fields(kind):
            object.__setattr__(made, field.name, self._read(content[field.name], tensors))
        return made


class _TextWriter:
    """A tree while it is written; a tensor that occurs twice is written once."""

    def __init__(self, names: Mapping[type, str]) -> None:
        self.names = names
        self.tensors: dict[str, Tensor] = {}
        self._seen: dict[int, tuple[str, Any]] = {}

    def written(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < 2**53 else {"integer": hex(value)}
        if isinstance(value, float):
            return {"float": value.hex()} if value - value != 0 else float(value)
        if isinstance(value, Tensor | np.ndarray):
            return {"tensor": self._tensor(value)}
        if isinstance(value, list):
            return [self.written(part) for part in value]
        if isinstance(value, tuple):
            return {"tuple": [self.written(part) for part in value]}
        if isinstance(value, Mapping):
            return {"mapping": [[self.written(k), self.written(v)] for k, v in value.items()]}
        name = self.names.get(type(value))
        if name is None or not is_dataclass(value):
            raise ArgumentError(
                f"A {type(value).__name__} cannot be written down, and so cannot be sent to other "
                "processes."
            )
        return {name: {f.name: self.written(getattr(value, f.name)) for f in fields(value)}}

    def _tensor(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        if id(value) not in self._seen:
            name = str(len(self._seen))
            self.tensors[name] = _copied(value)
            self._seen[id(value)] = (name, value)
        return self._seen[id(value)][0]


class _Digests(_TextWriter):
    """A tree with the digest of each tensor in its place."""

    def _tensor(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        tensor = _copied(value)
        data = tensor.flatten().view(torch.uint8).numpy().tobytes()
        return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()}"


def _copied(value: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """The same numbers in a tensor of their own, whatever their layout or byte order was."""
    try:
        if isinstance(value, np.ndarray):
            dtype = value.dtype.newbyteorder("=")
            tensor = torch.from_numpy(np.array(value, dtype, order="C"))
        else:
            tensor = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        if tensor.is_complex():
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"An array of {value.dtype} cannot be written down, and so cannot be sent to other "
            "processes."
        ) from None
    return tensor
