"""How a command ends: the one place that turns a failure into a message and an exit code."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from kt.cli.origin import Context, placed
from kt.cli.printable import printable
from kt.errors import InputError, KtError
from kt.interrupts import ended_by, exit_code

__all__ = ["Command", "UsageError", "complain", "end", "ending", "interrupted", "note", "teller", "words_of"]

# What the option parser raises has no public name in all versions of Typer; it is the base of one that has.
UsageError: type[typer.BadParameter] = typer.BadParameter.__base__  # type: ignore[assignment]
_WORDS = "kt.words"
_ONCE = {
    "space": "a run has one search space",
    "output": "a command has one output",
    "depfile": "an output has one of them",
}


def note(text: str) -> None:
    """Say something to the person at the terminal, never to the reader of the data."""
    print(f"kt: {printable(text)}", file=sys.stderr, flush=True)


def teller(*, quiet: bool) -> Callable[[str], None]:
    """`note`, or what says nothing."""
    return (lambda text: None) if quiet else note


def complain(error: KtError) -> None:
    """Print a failure and what to do about it."""
    print(f"kt: error: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)
    sys.stderr.flush()


def end(code: int) -> None:
    """End the command with this exit code, 0 included."""
    if code:
        raise typer.Exit(code)


@contextmanager
def ending(context: Context) -> Iterator[None]:
    """Ends a command: a `KtError` becomes one message, an interrupt one word, anything else is a bug and shows."""
    try:
        yield
    except KtError as error:
        complain(placed(error, context))
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        raise interrupted() from None


def interrupted() -> typer.Exit:
    """Says that Ctrl-C or SIGTERM ended the command; what to raise."""
    note(ended_by())
    return typer.Exit(exit_code())


class Command(TyperCommand):
    """A command of `kt`, which ends like all of them."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        try:
            self._check_repeated(ctx, args)
            return super().parse_args(ctx, args)
        except UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value does not say of which command
            raise

    def _check_repeated(self, ctx: Context, args: list[str]) -> None:
        """Raises InputError if of several files that are named the last one would count without a word."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        names = [param.name for param in given]
        for name, why in _ONCE.items():
            if names.count(name) > 1:
                raise InputError(f"--{name} is given twice, and {why}", hint="leave one of them out")

    def invoke(self, ctx: Context) -> Any:
        with ending(ctx):
            _check_standard_input(ctx.params)
            return super().invoke(ctx)


def words_of(context: Context) -> list[str]:
    """The words of the command line behind the command, as they were given."""
    words: list[str] = context.meta.get(_WORDS, [])
    return words


def _check_standard_input(values: Mapping[str, Any]) -> None:
    """Raises InputError if standard input, which can be read once, stands for two files."""
    shapes = [str(path) for path in values.get("shapes") or ()]
    tables = [str(name) for name in values.get("files") or ()]
    named = ["FILE"] * tables.count("-") + ["--shapes"] * shapes.count("-")
    named += ["--space"] * (str(values.get("space")) == "-")
    if len(named) > 1:
        raise InputError(
            f"{' and '.join(named)} both name standard input, which can be read once",
            hint="name a file in place of one",
        )
