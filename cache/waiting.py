"""Waiting for other processes that hold the cache: for how long, who they are, and that a person is told."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["HANDLER_S", "Tell", "Waiting", "holders", "silent"]

BUSY_S = 60.0  # how long to wait for other processes before giving up
HANDLER_S = 1.0  # of it, in one go inside SQLite
TELL_AFTER_S = 0.9

Tell = Callable[[str], None]


def silent(text: str) -> None:
    """Tells nobody."""


class Waiting:
    """One wait for whoever holds a cache file or its folder; it is told once, if it takes longer than a moment."""

    def __init__(self, file: Path, tell: Tell) -> None:
        self._file = file
        self._tell = tell
        self._began = time.monotonic()
        self._told = False

    def goes_on(self) -> bool:
        """Waits a little longer; False if it has been long enough."""
        waited = time.monotonic() - self._began
        if waited >= BUSY_S:
            return False
        if waited >= TELL_AFTER_S and not self._told:
            self._told = True
            self._tell(f"waiting at most {BUSY_S:.0f} s for {holders(self._file)}: the cache {self._file} is in use")
        time.sleep(random.uniform(0.005, 0.03))
        return True


def holders(file: Path) -> str:
    """The processes besides this one that others wait for, as far as the system tells: `process 4711`."""
    found = sorted(_writers(file) | _users_of_folder(file))
    if not found:
        return "another process"
    return f"process{'es' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _writers(file: Path) -> set[int]:
    """Those that write: they hold a part of the file or, with a write-ahead log, of the index of that log."""
    inodes = {_inode(file), _inode(Path(f"{file}-shm"))}
    return {pid for kind, mode, pid, inode in _locks() if (kind, mode) == ("POSIX", "WRITE") and inode in inodes
            and _has_open(pid, file)}  # fmt: skip


def _users_of_folder(file: Path) -> set[int]:
    """Those that set a damaged file aside: they hold its folder."""
    inode = _inode(file.parent)
    return {pid for kind, mode, pid, where in _locks() if (kind, mode) == ("FLOCK", "WRITE") and where == inode
            and _has_open(pid, file.parent)}  # fmt: skip


def _locks() -> list[tuple[str, str, int, int]]:
    """Kind, mode, process and inode of each lock that another process holds, as the Linux kernel lists them."""
    try:
        with open("/proc/locks", encoding="ascii") as lines:
            rows = [line.split() for line in lines]
    except OSError:
        return []
    # "1: POSIX  ADVISORY  WRITE 24470 fe:00:2146486 120 120"; one that is waited for has "->" after its number.
    held = [row for row in rows if len(row) == 8 and row[1] != "->"]
    locks = [(row[1], row[3], int(row[4]), int(row[5].rpartition(":")[2])) for row in held]
    return [lock for lock in locks if lock[2] not in (0, os.getpid())]


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process has it open: inodes of different disks may be equal. True where that cannot be seen."""
    try:
        wanted, names = os.stat(path), os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return True
    return any(_is_same(f"/proc/{pid}/fd/{name}", wanted) for name in names)


def _is_same(link: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(link), wanted)
    except OSError:
        return False
