"""`kt`: the command line's root, which knows the commands and nothing of what they do."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kt.cli import bench, cache, cache_import, doctor, export, plan, repro, schema, show_cache, tune
from kt.cli.origin import Context
from kt.cli.outcome import Command, complain, ending, interrupted
from kt.cli.project_file import find_project_file, for_commands, project_defaults
from kt.cli.streams import checked_streams
from kt.cli.usage import UsageError, usage_failure
from kt.errors import KtError

__all__ = ["app", "main"]


SUMMARY = """Find the fastest configuration of a CUDA GEMM kernel for your shapes on your GPU.

Data goes to standard output and everything else to standard error.

Exit codes: 0 ok, 1 failure, 2 usage or bad input file, 3 a shape has no valid configuration, 4 no usable GPU, 5 shapes
are not tuned, 6 a check found something out of date, 130 interrupted, 143 ended by SIGTERM.
"""
ORDER = ("tune", "show-cache", "export", "repro", "plan", "bench", "doctor", "cache", "schema")


class _Root(TyperGroup):
    """Lists the commands in the order of a person's work, and ends all of them in the same way."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(ORDER)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:  # of which the option parser says nothing
            raise interrupted() from None

    def invoke(self, ctx: Context) -> Any:
        with ending(ctx):
            return super().invoke(ctx)

    def main(self, *args: Any, **extra: Any) -> Any:
        sys.exit(self._exit_code(*args, **{**extra, "standalone_mode": False}))

    def _exit_code(self, *args: Any, **extra: Any) -> int:
        try:
            ended = super().main(*args, **extra)
        except UsageError as error:
            return usage_failure(error)
        except typer.Abort:  # as other versions of Typer have it: Ctrl-C between what is caught above
            return interrupted().exit_code
        return ended if isinstance(ended, int) else 0


def _app(summary: str, group: type[TyperGroup] = TyperGroup) -> typer.Typer:
    return typer.Typer(
        cls=group,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # rich costs a tenth of a second, which `kt --help` does not have
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _app(SUMMARY, _Root)
_tune = _app("Tune a kernel for the shapes of a file.")
_plan = _app("Show what a run would do, without a GPU.")
_bench = _app("Time the winners beside the vendor's library.")
_cache = _app("Look after the cache.")

_tune.command("gemm", cls=Command)(tune.gemm)
_plan.command("gemm", cls=Command)(plan.gemm)
_bench.command("gemm", cls=Command)(bench.gemm)
_cache.command("merge", cls=Command)(cache.merge)
_cache.command("import", cls=Command)(cache_import.import_tables)
_cache.command("prune", cls=Command)(cache.prune)
_cache.command("path", cls=Command)(cache.path)

app.add_typer(_tune, name="tune")
app.command("show-cache", cls=Command)(show_cache.show_cache)
app.command("export", cls=Command)(export.export)
app.command("repro", cls=Command)(repro.repro)
app.add_typer(_plan, name="plan")
app.add_typer(_bench, name="bench")
app.command("doctor", cls=Command)(doctor.doctor)
app.add_typer(_cache, name="cache")
app.command("schema", cls=Command)(schema.schema)


def _print_version(asked: bool) -> None:
    if asked:
        from kt import __version__

        print(f"kt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of `kt` itself, and the defaults of the project that it is called in."""
    file = find_project_file()
    if file is not None:
        context.obj = file  # for messages about its values
        context.default_map = for_commands(_command_names(context.command), project_defaults(file))


def _command_names(group: object) -> dict[str, object]:
    """The commands of a group, each with the commands below it."""
    commands: dict[str, object] = getattr(group, "commands", {})
    return {name: _command_names(command) for name, command in commands.items()}


def main() -> None:
    """The command line, up to the last byte of what it prints."""
    with checked_streams():
        code = _run()
    sys.exit(code)


def _run() -> int:
    try:
        code = _command()
        sys.stdout.flush()
    except KtError as error:
        complain(error)
        return error.exit_code
    except typer.Exit as end:
        return end.exit_code
    return code


def _command() -> int:
    try:
        app(prog_name="kt")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
