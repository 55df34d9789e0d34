"""Files are written whole or not at all, and never through a link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provable_circuits import files
from provable_circuits.errors import DataError

FILES = {"a": b"new a", "b": b"new b", "c": b"new c"}


def there(folder: Path) -> dict[str, bytes]:
    return {name: files.place_of(folder, name).read_bytes() for name in FILES}


def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "out").symlink_to(target)
    files.write_file(tmp_path / "out", b"new")
    assert target.read_bytes() == b"precious"
    assert (tmp_path / "out").read_bytes() == b"new"
    assert not (tmp_path / "out").is_symlink()


def test_links_inside_a_folder_are_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "b").symlink_to(target)
    (folder / files.COMMITTED).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - what the system calls a link in the way
        files.write_folder(folder, FILES)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (folder / files.COMMITTED).unlink()
    files.write_folder(folder, FILES)
    assert target.read_bytes() == b"precious"
    assert there(folder) == FILES


@pytest.mark.parametrize("step", range(14))
def test_a_death_at_any_step_leaves_the_old_files_or_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Every call that changes the disk is one step; the process is taken to die at each."""
    old = {name: f"old {name}".encode() for name in FILES}
    files.write_folder(tmp_path, old)
    count = 0

    class Death(BaseException):
        pass

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            if count == step:
                raise Death
            count += 1
            return original(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for holder, name in [
            (Path, "replace"),
            (Path, "rename"),
            (Path, "rmdir"),
            (os, "open"),
            (files, "_write_new"),
        ]:
            patch.setattr(holder, name, dying(getattr(holder, name)))
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # the dead tidy nothing up
        try:
            files.write_folder(tmp_path, FILES)
            died = False
        except Death:
            died = True
    assert died
    assert there(tmp_path) in (old, FILES)
    files.write_folder(tmp_path, FILES)
    assert there(tmp_path) == FILES
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


def test_a_failure_changes_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_file(tmp_path / "a", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            files.write_file(tmp_path / "a", b"new")
        with pytest.raises(OSError, match="No space left"):
            files.write_folder(tmp_path, FILES)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert (tmp_path / "a").read_bytes() == b"old"


def test_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        files.write_file(pipe, b"through")
        assert reader.communicate()[0] == b"through"


def test_two_runs_may_not_have_one_folder(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from provable_circuits.files import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(DataError, match="Another run writes to the folder"),
            files.locked(tmp_path),
        ):
            pass
        other.kill()
        other.wait()
        with files.locked(tmp_path):
            assert list(tmp_path.iterdir()) == []


def test_the_probe_neither_collides_nor_follows(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".probe").symlink_to(target)
    files.prepare_folder(folder)
    assert target.read_bytes() == b"precious"
    assert [path.name for path in folder.iterdir()] == [".probe"]
