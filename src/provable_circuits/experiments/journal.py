"""A file of rows: one JSON line for each batch, written as it finishes.

A run that was interrupted goes on where it was: rows that are there are not made again, and a line
that was cut short is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from provable_circuits.errors import DataError
from provable_circuits.files import write_file


class Journal:
    """The rows of one run, in a file."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        """Open a file, or make it.

        Args:
            path: the file.
            head: what the run is about; a file about something else is refused.
        """
        self.path = path
        self.head = head
        self.rows: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise DataError(f"The file '{path}' is a symbolic link, which is not written through.")
        if path.exists():
            self._read(head)
        else:
            self._write(head)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, in memory and on disk."""
        self.rows[row["key"]] = row
        self._write(row)

    def revise(self, rows: Iterable[dict[str, Any]]) -> None:
        """Put rows in the place of those of the same key, whole or not at all."""
        changed = {row["key"]: row for row in rows if self.rows[row["key"]] != row}
        if not changed:
            return
        self.rows |= changed
        lines = [self.head, *self.rows.values()]
        write_file(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, head: dict[str, Any]) -> None:
        try:
            text = self.path.read_text()
        except (OSError, UnicodeError):
            raise DataError(f"The file '{self.path}' is not one of rows of text.") from None
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        try:
            found = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            reason = str(error)[:200]
            raise DataError(f"The file '{self.path}' is not one of rows: {reason}.") from None
        if not found:
            write_file(self.path, b"")
            self._write(head)
            return
        if found[0] != head:
            other = str(found[0])[:200]
            raise DataError(
                f"The file '{self.path}' is of another run: {other}. Choose another --out."
            )
        if not all(isinstance(row, dict) and isinstance(row.get("key"), str) for row in found[1:]):
            raise DataError(f"The file '{self.path}' holds lines that are no rows of a run.")
        self.rows = {row["key"]: row for row in found[1:]}
        if whole != text:
            write_file(self.path, whole.encode())
