"""Finds a template or header, in the user's template folders first, then in the built-in ones; and reads it."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kt.errors import InputError

__all__ = ["BUILTIN", "MAX_BYTES", "Stamp", "find_file", "read_bytes", "read_text", "stamp"]

BUILTIN = Path(__file__).parent
MAX_BYTES = 4 * 2**20  # of a file; the built-in ones have some thousand

Stamp = tuple[int, int]  # time in ns and size: a file with the same ones has not changed


def find_file(name: str, template_dirs: Sequence[Path], asked_by: str = "") -> Path:
    """The file called `name` (with `/`) in the first folder that has it.

    Args:
        name: path below a template folder, e.g. "include/kt/common.cuh".
        template_dirs: folders searched before the built-in one.
        asked_by: what refers to it, for messages.

    Raises:
        InputError: there is none, the name leaves the folders, or a folder cannot be searched.
    """
    by = f" ({asked_by})" if asked_by else ""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/"):
        raise InputError(f"{name!r} is not the name of a file below a template folder{by}")
    folders = [*template_dirs, BUILTIN]
    for folder in folders:
        path = Path(folder, *parts)
        try:
            if path.is_file():
                return path
        except OSError as error:  # a folder without the right to enter it may have the file: no other one stands for it
            raise _unreadable(path, error) from None
    searched = ", ".join(str(folder) for folder in template_dirs) or "the built-in templates alone"
    raise InputError(f"there is no template {name}{by}; searched: {searched}", hint=_similar(name, folders))


def stamp(path: Path) -> Stamp:
    """What tells whether the file at `path` has changed.

    Raises:
        InputError: it cannot be looked at.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    return status.st_mtime_ns, status.st_size


def read_bytes(path: Path) -> bytes:
    """What stands in a template or header.

    Raises:
        InputError: it cannot be read, or is larger than any kernel.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, which no template or header may be")
    return raw


def read_text(path: Path) -> str:
    r"""The text of a template or header; its lines end with \n.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8"
        raise InputError(message, hint="save the file as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror or error}")


def _similar(name: str, folders: Sequence[Path]) -> str | None:
    present = {
        path.relative_to(folder).as_posix()
        for folder in folders
        for pattern in ("**/*.cu.j2", "**/*.cuh")
        for path in Path(folder).glob(pattern)
    }
    close = difflib.get_close_matches(name, sorted(present), n=1)
    return f"did you mean {close[0]}? Folders are added with --templates DIR" if close else None
