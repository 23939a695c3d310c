"""Where the value of an option came from: a message about it names the place where a person can change it."""

from typing import Any

from kt.errors import CacheError, InputError, KtError, OptionError

__all__ = ["Context", "placed", "source_of"]

Context = Any  # the option parser's, which has no public name in all versions of Typer


def source_of(context: Context, parameter: Any) -> str:
    """The environment variable, or the project file and its key, that gave a parameter its value; else ""."""
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "DEFAULT_MAP":
        return f"{context.obj}: {parameter.name}"
    return str(parameter.envvar) if source is not None and source.name == "ENVIRONMENT" else ""


def placed(error: KtError, context: Context) -> KtError:
    """The error, told of the place where the value at fault was given, if that was not the command line."""
    if isinstance(error, OptionError) and (source := _source_of_option(context, f"--{error.option}")):
        return InputError(f"{source} {error.text}", hint=error.hint)
    if isinstance(error, CacheError) and (source := _source_of_option(context, "--cache-dir")):
        return CacheError(f"{error.message} (named by {source})", hint=error.hint)
    return error


def _source_of_option(context: Context, option: str) -> str:
    parameters = [parameter for parameter in context.command.params if option in parameter.opts]
    return source_of(context, parameters[0]) if parameters else ""
