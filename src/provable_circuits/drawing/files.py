"""Pictures as files, in the form that their name asks for."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from provable_circuits.arguments import parameter, refused
from provable_circuits.drawing.diagram import Diagram
from provable_circuits.drawing.raster import raster
from provable_circuits.drawing.scene import Scene
from provable_circuits.drawing.svg import svg
from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.files import write_file


def save(picture: Diagram | Scene, path: str | PathLike[str]) -> None:
    """Write a picture: ``.svg``, or ``.png``, which needs the extra ``plot``.

    Raises:
        ArgumentError: the name ends in something else.
        DataError: the file cannot be written.
        MissingExtraError: a PNG is asked for and matplotlib is not installed.
    """
    if not isinstance(path, str | PathLike):
        raise refused(parameter("path"), "the name of a file", path)
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ArgumentError(
            f"A picture is written as .svg or .png: give '{file}' one of these endings."
        )
    content = svg(picture).encode() if suffix == ".svg" else raster(picture)
    try:
        write_file(file, content)
    except OSError as error:
        raise DataError(f"The picture '{file}' cannot be written: {error.strerror}.") from None
