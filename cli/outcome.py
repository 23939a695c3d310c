"""How a command ends: the one place that turns a failure into a message and an exit code."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from kt.errors import KtError

__all__ = ["INTERRUPTED", "complain", "end", "note", "reported"]

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended: 128 + SIGINT

Parameters = ParamSpec("Parameters")


def note(text: str) -> None:
    """Say something to the person at the terminal, never to the reader of the data."""
    print(f"kt: {text}", file=sys.stderr, flush=True)


def complain(error: KtError) -> None:
    """Print a failure and what to do about it."""
    print(f"kt: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    sys.stderr.flush()


def end(code: int) -> None:
    """End the command with this exit code, 0 included."""
    if code:
        raise typer.Exit(code)


def reported(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Wrap a command: a `KtError` becomes one message, Ctrl-C ends it quietly, and anything else is a bug and shows."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KtError as error:
            complain(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run
