"""Standard output and standard error that say what is wrong when nobody can read them."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, RawIOBase, TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from kt.errors import KtError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PIPE_CLOSED", "checked_streams"]

PIPE_CLOSED = 141  # what a shell reports for a process that SIGPIPE ended: 128 + 13


class _Checked:
    """A stream whose failures end the command: quietly if the reader went away, else with one message."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if text == "":  # so the option parser tries out what a stream takes
            return 0
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._end(error) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._end(error) from None

    def _end(self, error: OSError) -> Exception:
        """What is still in the buffer goes nowhere, so that the interpreter does not fail on it once more."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return typer.Exit(PIPE_CLOSED)
        hint = "free some space, or send the output elsewhere"
        return KtError(f"{self._name} cannot be written: {error.strerror or error}", hint=hint)


class _Messages(_Checked):
    """A stream of messages: where there is no room for them, as in a log on a full disk, the work goes on without."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except KtError:
            return len(text)

    def flush(self) -> None:
        with suppress(KtError):
            super().flush()


class _Closed(_Checked):
    """A stream that the caller closed: to write there is a failure, not to need it is none."""

    def write(self, text: str) -> int:
        raise KtError(f"{self._name} is closed", hint="`> /dev/null` drops what is written")


@contextmanager
def checked_streams() -> Iterator[None]:
    """While this lasts, a failure of standard output ends the command as `_Checked` says; one of standard error does if
    its reader went away, and else costs nothing but the messages.

    Paths that are not UTF-8 are printed byte by byte.
    """
    before = sys.stdout, sys.stderr
    out, err = (_opened(stream, number) for number, stream in enumerate(before, 1))
    if isinstance(out, TextIOWrapper):
        out.reconfigure(errors="surrogateescape")
    out_kind = _Checked if before[0] else _Closed
    sys.stdout = cast(TextIO, out_kind(out, "standard output"))
    sys.stderr = cast(TextIO, _Messages(err, "standard error"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _opened(stream: TextIO | None, number: int) -> TextIO:
    """The stream, or in place of a closed one the null device, which keeps files from getting its number."""
    if stream is not None:
        return _buffered(stream)
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "w", encoding="utf-8", closefd=False)


def _buffered(stream: TextIO) -> TextIO:
    """The stream itself, or in place of one without a buffer (`PYTHONUNBUFFERED`) one that is flushed after each line.

    Without a buffer Python writes once, and takes what the system did not accept for written.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, RawIOBase):
        return stream
    buffer = BufferedWriter(FileIO(stream.fileno(), "wb", closefd=False))
    return TextIOWrapper(buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True)
