"""Files that are written whole or not at all, and never through a symbolic link.

A file is written beside its place, under a random name that did not exist before, brought to the
disk, and renamed. Whoever looks meanwhile, or after a death at any moment, sees the old file or the
new one. A symbolic link that stands at the place is replaced; what it leads to is not touched.

Several files that belong together go into a folder as one step: they are written into a folder of
their own inside it, that folder is renamed to ``COMMITTED`` (the moment from which the new files
count), and then each is moved to its place. ``place_of`` finds a file at any moment of that. Some
of them may lie in a folder inside the folder, which is moved, and replaced, as a whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from provable_circuits.errors import DataError

COMMITTED = ".committed"
"""The folder of files that count already and are on their way to their places."""

WRITING = ".writing-"
"""How the names of folders begin whose files do not count yet."""


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; a link at its place is replaced, never followed.

    What is neither a file nor a link, such as a device or a pipe, is written to as it is.

    Raises:
        OSError: it cannot be written; nothing changed.
    """
    if _is_special(path):
        path.write_bytes(data)
        return
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        _write_new(beside, data)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files into a folder that exists, all of them or none.

    Args:
        folder: the folder.
        files: what each holds, by name, or by ``inner/name``: the folder ``inner`` must not hold
            anything else, and is replaced.

    Raises:
        OSError: they cannot be written; the files that were there still count.
    """
    for name in files:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise IsADirectoryError(21, "Is a directory", str(folder / name))
    inner = {str(Path(name).parent) for name in files} - {"."}
    for own in (folder / name for name in inner):
        if own.is_dir() and not own.is_symlink():
            others = {path.name for path in own.iterdir()} - {Path(name).name for name in files}
            if others:
                raise FileExistsError(17, "It holds other files", str(own))
    finish(folder)
    for left in folder.glob(f"{WRITING}*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
    beside = Path(tempfile.mkdtemp(prefix=WRITING, dir=folder))
    try:
        for name in inner:
            (beside / name).mkdir()
        for name, data in files.items():
            _write_new(beside / name, data)
        for name in (*inner, "."):
            _sync_folder(beside / name)
        beside.rename(folder / COMMITTED)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    _sync_folder(folder)
    finish(folder)


def finish(folder: Path) -> None:
    """Move files that count already to their places, where a death kept them from it."""
    committed = folder / COMMITTED
    if committed.is_symlink() or not committed.is_dir():
        return
    for path in sorted(committed.iterdir()):
        place = folder / path.name
        if path.is_dir() and place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif path.is_dir():
            place.unlink(missing_ok=True)
        path.replace(place)
    committed.rmdir()
    _sync_folder(folder)


def place_of(folder: Path, name: str) -> Path:
    """Where a file of a folder is now."""
    committed = folder / COMMITTED
    if not committed.is_symlink() and (committed / name).exists():
        return committed / name
    return folder / name


def prepare_folder(folder: Path) -> None:
    """Make a folder, or say that it cannot be written, before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".probe-", dir=folder):
            pass
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be written: {error.strerror}.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for oneself; it is free again when the process ends, however it does.

    Raises:
        DataError: another run holds it.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be read: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"Another run writes to the folder '{folder}': wait for its end, or give another "
                "folder."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(held)


def _is_special(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist, down to the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
