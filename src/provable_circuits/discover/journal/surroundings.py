"""Folders where a journal cannot be kept safely.

SQLite relies on locks and on memory shared through a file. Network file systems often pretend to
have both. What is known to be one is told by the system's table of mounts; where there is no such
table, nothing is known, and nothing is said.
"""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

OVER_THE_NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs"),
    )
)
"""File systems that other machines share."""

LOCAL_FUSE = frozenset(["fuse.ntfs", "fuse.exfat", "fuseblk", "fuse.fuse-overlayfs"])
"""File systems in user space that are of this machine; the others are mostly not."""


def unsafe(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of network file system that a path is on, if it is on one."""
    kind = _kind(path, mounts)
    if kind in OVER_THE_NETWORK:
        return kind
    if kind is not None and kind.startswith("fuse.") and kind not in LOCAL_FUSE:
        return kind
    return None


def _kind(path: Path, mounts: Path) -> str | None:
    """The file system's kind, of the mount whose place is the longest part of the path."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    place = path.resolve()
    found: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        mount = Path(fields[4].encode().decode("unicode_escape"))
        if place.is_relative_to(mount) and (found is None or len(mount.parts) >= found[0]):
            found = (len(mount.parts), kinds[0])
    return None if found is None else found[1]
