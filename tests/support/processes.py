"""What becomes of child processes."""

from pathlib import Path

__all__ = ["is_running"]


def is_running(pid: int) -> bool:
    """Whether a process with this id runs; one that was killed and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
