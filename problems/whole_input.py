"""A file, or what is piped into kt, read whole: but not without end, and not from nowhere."""

import sys
from pathlib import Path

from kt.errors import InputError

__all__ = ["name_of", "read_whole"]

_STDIN = "<stdin>"


def name_of(path: Path | str) -> str:
    """What messages call it: "-" stands for standard input."""
    return _STDIN if str(path) == "-" else str(path)


def read_whole(path: Path | str, most: int) -> bytes:
    """All bytes of a file, or of standard input.

    Args:
        most: more bytes than this are refused; a device such as /dev/zero has no end.

    Raises:
        InputError: it is larger, or standard input is closed.
        OSError: it cannot be read.
    """
    raw = _read_stdin(most) if str(path) == "-" else _read_file(path, most)
    if len(raw) > most:
        raise InputError(f"{name_of(path)}: larger than {most // 2**20} MiB", hint="split it into several files")
    return raw


def _read_file(path: Path | str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most + 1)


def _read_stdin(most: int) -> bytes:
    if sys.stdin is None:  # as `<&-` leaves it
        raise InputError(f"{_STDIN}: cannot be read: standard input is closed", hint="pipe it into kt, or name a file")
    return sys.stdin.buffer.read(most + 1)
