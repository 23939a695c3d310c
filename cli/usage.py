"""A command line that cannot be understood: told in the form of every other failure, with exit code 2."""

import sys

import typer

from kt.cli.options import NUMBERS
from kt.cli.origin import source_of
from kt.cli.outcome import complain
from kt.errors import InputError

__all__ = ["UsageError", "usage_failure"]

# What the option parser raises has no public name in all versions of Typer; it is the base of one that has.
UsageError: type[typer.BadParameter] = typer.BadParameter.__base__  # type: ignore[assignment]
_PARSER_WORDS = "Value error, "


def usage_failure(error: typer.BadParameter) -> int:
    """Print the failure, or the help of a command group that was called by itself; the exit code."""
    param = getattr(error, "param", None)
    if param is not None and param.name in NUMBERS:
        error.message = f"wanted is {NUMBERS[param.name]}"
    text = error.format_message()
    if text.startswith("Usage: "):
        print(text, file=sys.stderr)
    else:
        command = error.ctx.command_path if error.ctx else "kt"
        source = source_of(error.ctx, param) if error.ctx and param else ""
        said = f"{source}: {_plain(error.message)}" if source else _plain(text)
        complain(InputError(said, hint=f"`{command} --help` lists what there is"))
    return InputError.exit_code


def _plain(text: str) -> str:
    """The parser's sentence as kt writes its own: no capital, no stop, no class of an error."""
    text = text.replace(_PARSER_WORDS, "").rstrip(".")
    return text[:1].lower() + text[1:]
