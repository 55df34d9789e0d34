"""Network file systems are known by the table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from provable_circuits.discover.journal.surroundings import unsafe

TABLE = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / {there}/nfs rw shared:1 - nfs4 server:/nfs rw
31 22 0:41 / {there}/nfs/fast\\040disk rw - xfs /dev/sdb1 rw
32 22 0:42 / {there}/far rw - fuse.sshfs host:/ rw
33 22 0:43 / {there}/usb rw - fuseblk /dev/sdc1 rw
damaged line
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("nfs/me/run", "nfs4"),
        ("nfs/fast disk/run", None),
        ("nfsstead", None),
        ("far/run", "fuse.sshfs"),
        ("usb/run", None),
    ],
)
def test_the_longest_mount_counts(tmp_path: Path, place: str, expected: str | None) -> None:
    (tmp_path / "mounts").write_text(TABLE.format(there=tmp_path))
    assert unsafe(tmp_path / place, tmp_path / "mounts") == expected


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    assert unsafe(tmp_path, tmp_path / "none") is None
