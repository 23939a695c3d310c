"""A command line that cannot be understood: told in the form of every other failure, with exit code 2."""

import os
import re
import shlex
import sys
from typing import Any

import typer

from kt.cli.options import NUMBERS
from kt.cli.origin import Context, source_of
from kt.cli.outcome import UsageError, complain, words_of
from kt.errors import InputError

__all__ = ["UsageError", "usage_failure"]

_PARSER_WORDS = "Value error, "
_ENVIRONMENT = re.compile(r" \(env var: '\w+'\)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_FILE = re.compile(r"[^-].*\.ya?ml", re.IGNORECASE)


def usage_failure(error: typer.BadParameter) -> int:
    """Print the failure, or the help of a command group that was called by itself; the exit code."""
    param = getattr(error, "param", None)
    if param is not None and param.name in NUMBERS:
        given = _given(error.ctx, param) if error.ctx else ""
        error.message = f"{given} is not {NUMBERS[param.name]}" if given else f"wanted is {NUMBERS[param.name]}"
    text = _ENVIRONMENT.sub("", error.format_message())  # told where it gave the value, and only then
    if text.startswith("Usage: "):
        print(text, file=sys.stderr)
    else:
        command = error.ctx.command_path if error.ctx else "kt"
        source = source_of(error.ctx, param) if error.ctx and param else ""
        said = f"{source}: {_plain(error.message)}" if source else _plain(text)
        complain(InputError(said, hint=_file_hint(error) or f"`{command} --help` lists what there is"))
    return InputError.exit_code


def _given(context: Context, param: Any) -> str:
    """The value that was given, from whatever place, as a message shows it: in quotes unless it is a number."""
    source = context.get_parameter_source(param.name)
    if source is None or source.name == "COMMANDLINE":  # known only once all are parsed
        values, _, _ = context.command.make_parser(context).parse_args(args=list(words_of(context)))
        text = values.get(param.name)
    elif source.name == "ENVIRONMENT":
        text = os.environ.get(str(param.envvar))
    else:
        text = context.lookup_default(param.name)
    return "" if text is None else str(text) if _NUMBER.fullmatch(str(text)) else repr(text)


def _file_hint(error: typer.BadParameter) -> str:
    """How to give the shapes file that stands there without its option; "" if none does."""
    if error.ctx is None or "--shapes" not in {name for one in error.ctx.command.params for name in one.opts}:
        return ""
    words = words_of(error.ctx)
    if "--shapes" in words:
        return ""
    before = ["", *words]
    named = [word for last, word in zip(before, words, strict=False) if _FILE.fullmatch(word) and last[:1] != "-"]
    return f"give the shapes file with its option: --shapes {shlex.quote(named[0])}" if named else ""


def _plain(text: str) -> str:
    """The parser's sentence as kt writes its own: no capital, no stop, no class of an error."""
    text = " ".join(text.replace(_PARSER_WORDS, "").split()).rstrip(".")
    return text[:1].lower() + text[1:]
