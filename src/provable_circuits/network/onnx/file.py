"""Reading an ONNX file into memory: everything that can be wrong with the file itself.

Only bytes are read: the file, and the data files it names inside its own folder. Nothing in them is
executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from provable_circuits.archives import DAMAGED, unpack_gzip
from provable_circuits.errors import ArgumentError, DataError, ModelFileError

_FIRST_BYTE = b"\x08"
"""The tag of ``ir_version``, the first field of every ONNX model."""


def load_model(path: str | PathLike[str]) -> onnx.ModelProto:
    """The model in a file, with the weights it keeps in other files.

    Raises:
        ModelFileError: the file, or one it refers to, is missing, cut short or not ONNX.
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentError(
            f"The 'path' parameter must be the name of an ONNX file. Got {path!r} instead."
        )
    place = Path(path)
    data = _bytes_of(place)
    if data.startswith(b"PK\x03\x04"):
        raise ModelFileError(
            f"The file '{place}' is a zip archive, as torch.save writes it, and not an ONNX model; "
            "load its weights into your module and use Graph.from_torch."
        )
    damaged = ModelFileError(
        f"The file '{place}' begins like an ONNX model but is cut short or damaged; "
        "copy or export it again."
        if data.startswith(_FIRST_BYTE)
        else f"The file '{place}' is not an ONNX model; give a file that an ONNX exporter wrote."
    )
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise damaged from None
    if not model.HasField("graph") or not model.graph.output or not model.opset_import:
        raise damaged
    if not all(isinstance(name, str) for name in _names(model.graph)):
        raise damaged
    _load_external_data(model, place)
    return model


def _bytes_of(place: Path) -> bytes:
    if place.is_dir():
        raise ModelFileError(f"'{place}' is a folder; give the path of the ONNX file inside it.")
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(
            f"There is no file '{place}'; give the path of an ONNX model."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"The file '{place}' cannot be read: {error}.") from error
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data, place)
    if not data:
        raise ModelFileError(f"The file '{place}' is empty; an ONNX model was expected.")
    return data


def _unpacked(data: bytes, place: Path) -> bytes:
    """The bytes of a model that is packed with gzip, as VNN-COMP has them."""
    try:
        return unpack_gzip(data, place)
    except DataError as error:
        raise ModelFileError(str(error)) from None
    except DAMAGED:
        raise ModelFileError(
            f"The file '{place}' is packed with gzip but cut short or damaged; copy it again."
        ) from None


def _names(graph: onnx.GraphProto) -> Iterator[object]:
    """All names that are used; protobuf gives bytes instead of text for one that is no text."""
    for value in [*graph.input, *graph.output, *graph.initializer]:
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _load_external_data(model: onnx.ModelProto, place: Path) -> None:
    """Fill in the tensors whose values lie in other files of the model's folder."""
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        for attribute in node.attribute:
            tensors.extend([attribute.t, *attribute.tensors])
    for tensor in tensors:
        if uses_external_data(tensor):
            tensor.raw_data = _external_bytes(tensor, place)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _external_bytes(tensor: onnx.TensorProto, place: Path) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"The weights '{tensor.name}' of '{place}' are kept in '{location}'"
    try:
        folder = place.parent.resolve()
        source = (folder / location).resolve()
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except (ValueError, OSError):
        raise ModelFileError(
            f"{what}, which is not a valid place; export the model again."
        ) from None
    if not source.is_relative_to(folder):
        raise ModelFileError(
            f"{what}, outside the model's folder, where nothing is read; put that file next to the "
            "model and export it again."
        )
    if not source.is_file():
        raise ModelFileError(f"{what}, which is missing; put that file next to the model.")
    try:
        with source.open("rb") as file:
            file.seek(max(offset, 0))
            data: bytes = file.read(length)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        raise ModelFileError(f"{what}, which cannot be read: {error}.") from None
    if offset < 0 or len(data) < length:
        raise ModelFileError(
            f"{what}, which is cut short: {length} bytes from byte {offset} on were expected. "
            f"Got {len(data)} instead; copy the file again."
        )
    return data
