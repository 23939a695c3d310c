"""Whether a folder lies on a network file system, where SQLite's write-ahead log does not work."""

import os
from pathlib import Path

__all__ = ["is_shared_over_network"]

_NETWORK_TYPES = (
    "9p", "afs", "beegfs", "ceph", "cifs", "gfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "ocfs2", "orangefs",
    "panfs", "pvfs2", "smb", "smb3", "vboxsf", "virtiofs", "wekafs",
)  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")


def is_shared_over_network(folder: Path) -> bool:
    """True if other machines may write here too; False where the system does not tell."""
    kind = _file_system_type(os.path.realpath(folder))
    return kind.startswith(("fuse.", *_NETWORK_TYPES))


def _file_system_type(folder: str) -> str:
    """Type of the mount with the longest path above `folder`; the later of two mounts at one place is on top."""
    best, kind = "", ""
    for point, mount_type in _mounts():
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, mount_type
    return kind


def _mounts() -> list[tuple[str, str]]:
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return []
    fields = [line.split(" ") for line in lines]
    return [(_unescaped(field[1]), field[2]) for field in fields if len(field) > 2]


def _unescaped(point: str) -> str:
    """Mount points write space, tab, newline and backslash as octal."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escape, character)
    return point
