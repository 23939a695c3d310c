"""Writing a generated file: whole or not at all, only if it changed, and never in place of what is not a file."""

import contextlib
import os
import re
import secrets
import stat
import sys
from pathlib import Path

from kt.errors import InputError, KtError

__all__ = ["check_output", "write_if_changed"]

# Names of open descriptors; what they lead to may be a regular file, and belongs to whoever opened it.
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/[^/]+/(task/\d+/)?fd/\d+")

_STANDARD_OUTPUT = ("-", "/dev/stdout")
_ELSEWHERE = "name another file with -o"


def check_output(path: Path | str, *, option: str = "-o") -> None:
    """Raises InputError if `path` cannot be an output, so that a long run does not end in that message.

    Args:
        option: what has named it, for messages.
    """
    try:
        if not _is_stream(path):
            _check_name(path)
            _check_regular(_target(path), path)
    except InputError as error:
        raise InputError(error.message, hint=_by(option, error.hint)) from None


def write_if_changed(path: Path | str, text: str, *, option: str = "-o") -> bool:
    """Writes `text` to `path`; False if the file had exactly these contents and was left alone, times included.

    A regular file is replaced in one step by a new one that is already on disk, so a reader sees the old or the new
    contents and a failure leaves the old. "-" is standard output; devices, pipes and `/dev/stdout` are written to
    as they are. A symbolic link stays, and what it points to is replaced.

    Args:
        option: what has named the file, for messages.

    Raises:
        InputError: `path` is a folder, its parent does not exist, or it is write-protected.
        KtError: the file system refused, e.g. for lack of space.
    """
    try:
        if _is_stream(path):
            _write_stream(str(path), text)
            return True
        check_output(path, option=option)
        return _replace_if_changed(_target(path), text.encode())
    except BrokenPipeError:
        if str(path) in _STANDARD_OUTPUT:
            raise  # the command line's business
        raise KtError(f"{path} could not be written: its reader went away", hint=_by(option, _ELSEWHERE)) from None
    except OSError as error:
        hint = "free some space, or name another place with -o"
        if not _is_stream(path):  # what has gone into a stream is gone
            hint = f"whatever was there before is unchanged; {hint}"
        raise KtError(f"{path} could not be written: {error.strerror or error}", hint=_by(option, hint)) from error


def _by(option: str, hint: str | None) -> str | None:
    """A hint as it is for a file that another option has named."""
    return hint and hint.replace("-o", option)


def _is_stream(path: Path | str) -> bool:
    name = str(path)
    if name == "-" or _DESCRIPTOR.fullmatch(_absolute(name)):
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _absolute(name: str) -> str:
    try:
        return os.path.abspath(name)
    except OSError as error:  # the working folder was removed
        hint = "change to a folder that is there, or name the whole path with -o"
        raise InputError(f"{name}: the working folder is gone: {error.strerror or error}", hint=hint) from None


def _write_stream(name: str, text: str) -> None:
    if name in _STANDARD_OUTPUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with open(os.open(name, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as stream:
        stream.write(text)


def _target(path: Path | str) -> Path:
    return Path(os.path.realpath(path))


def _check_name(path: Path | str) -> None:
    if not str(path):
        raise InputError("the name of the output is empty", hint="name a file with -o")
    if str(path).endswith("/"):
        raise InputError(f"{path} is the name of a folder", hint="name a file in it with -o")


def _check_regular(target: Path, path: Path | str) -> None:
    mode = _mode(target, path)
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder", hint="name a file in it with -o")
    if not target.parent.is_dir():
        raise InputError(f"{path}: its folder {target.parent} does not exist", hint="make the folder first")
    if mode and not mode & 0o222:
        raise InputError(f"{path} is write-protected", hint="`chmod u+w` it, or name another file with -o")
    if not os.access(target.parent, os.W_OK | os.X_OK):  # also for a file that is there: a new one takes its name
        raise InputError(f"{path}: no file can be made in {target.parent}: no permission", hint=_ELSEWHERE)


def _mode(target: Path, path: Path | str) -> int:
    """Kind and permissions of what is there; 0 if nothing is."""
    try:
        return os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:  # a name that is too long, links in a circle, a folder above that may not be entered
        raise InputError(f"{path} cannot be written: {error.strerror or error}", hint=_ELSEWHERE) from None


def _replace_if_changed(target: Path, data: bytes) -> bool:
    mode = None
    if target.exists():
        if target.read_bytes() == data:
            return False
        mode = stat.S_IMODE(target.stat().st_mode)
    fresh = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}")
    try:
        _write_new(fresh, data, mode)
        os.replace(fresh, target)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    _sync_folder(target.parent)
    return True


def _write_new(fresh: Path, data: bytes, mode: int | None) -> None:
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as stream:
        if mode is not None:
            os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes the new name survive a power cut; not every file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
