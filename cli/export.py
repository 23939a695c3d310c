"""`kt export`: winners as a table (JSON, CSV), as a C++ header, or all that was tried (T4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.given import tune_command
from kt.cli.listing import listed
from kt.cli.outcome import note, teller
from kt.errors import InputError, ShapesMissing
from kt.wording import part, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.cache.entries import Entry
    from kt.cache.records import BestConfig
    from kt.export.t4_results import Search
    from kt.problems import Problem

__all__ = ["export"]


def export(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON table, schema kt.table/1.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same table, flat: a line for each winner.")] = False,
    as_t4: Annotated[
        bool, typer.Option("--t4", help="All that was tried for the winners' shapes, as Kernel Tuner writes results.")
    ] = False,
    header: Annotated[
        bool, typer.Option("--header", help="A CUDA C++17 header with kernels, launches, dispatch and the table.")
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="With --header: the table and its look-up alone, for any compiler.")
    ] = False,
    max_kernels: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --header: at most N kernels, those that lose least; generic ones apart."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="With --header: as few kernels as lose no more on any shape, e.g. 3%."),
    ] = None,
    shapes: options.OptionalShapes = None,
    ranges: options.Ranges = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only this operand format.")] = None,
    device_filter: options.DeviceFilter = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit 5 if shapes are missing, 6 if out of date."),
    ] = False,
    predicted: Annotated[bool, typer.Option("--predicted", help="Also what only the model ranked.")] = False,
    complete: Annotated[bool, typer.Option("--complete", help="Only winners of searches that finished.")] = False,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="C++ namespace of the header.  [default: kt]")
    ] = None,
    space: options.Space = None,
    templates: options.Templates = None,
    output: options.Output = None,
    depfile: options.Depfile = None,
    depfile_target: options.DepfileTarget = None,
    cache_dir: options.CacheDir = None,
    quiet: options.Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Name all that is left out, one by one.")] = False,
) -> None:
    """Write the winners as a table or a C++ header, or all that was tried for their shapes.

    One entry for each shape and device: measured before predicted, finished before unfinished, then the fastest. What
    is stale is left out and named. With --shapes only the shapes of the file, and if one has no winner nothing is
    written and the exit code is 5. With --check nothing is written at all: it says whether every shape has a winner of
    today's sources, and with -o whether the file is what an export would write.
    """
    from kt.cache.entries import select, stand_ins
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.location import database_path
    from kt.cache.store import Store
    from kt.cli import inputs
    from kt.cli.cache_entries import (
        current_spaces,
        digests,
        entries_of,
        entry_filter,
        judged_entries,
        other_spaces,
        selected_shapes,
    )
    from kt.cli.depfile import plan_depfile
    from kt.cli.export_check import check_file, check_shapes, check_there
    from kt.cli.export_kernels import Making, few_kernels, kernels_header
    from kt.cli.left_out import say_passed_over, say_warnings
    from kt.cli.measurements import searches, winners_elsewhere
    from kt.cli.output import is_stdout
    from kt.cli.target import check_target, files_read
    from kt.export.write_file import write_if_changed

    formats = [name for name, asked in (("json", as_json), ("csv", as_csv), ("t4", as_t4), ("header", header)) if asked]
    _check_formats(formats, output, depfile, check=check, with_shapes=bool(shapes))
    few = few_kernels(max_kernels, within)
    for option, given in (("--namespace", namespace), ("--table-only", table_only), ("--max-kernels or --within", few)):
        if given and not header:
            raise InputError(f"{option} goes with --header", hint=f"give --header too, or leave {option} out")
    if few and table_only:
        raise InputError("--table-only has no kernels to choose from", hint="leave out --max-kernels and --within")
    if namespace is not None:
        from kt.export.header import check_namespace

        check_namespace(namespace, with_kernels=not table_only)
    if ranges and not shapes:
        raise InputError("--range is for the shapes of a file", hint="give --shapes, as to kt tune")
    problems = selected_shapes(shapes, dtype=dtype, ranges=ranges) if shapes else None
    ranged = inputs.read_ranged(shapes, None, ranges)[1] if shapes and header else []
    spaces = current_spaces(space)
    folders = inputs.check_folders(templates)
    sources = digests(spaces, folders)
    keep = entry_filter(dtype=dtype, device=device_filter)
    folder, read = cache_folder(cache_dir), list(files_read(shapes, space, spaces.values(), folders))
    if not check:
        check_target(output, cache_dir, read)
    dependencies = plan_depfile(depfile, depfile_target, output, [*read, database_path(folder)], cache_dir)
    with Store.open(folder, read_only=True, tell=teller(quiet=quiet)) as store:
        found = judged_entries(store, sources, spaces, other_spaces(space, folders))
        unseen = stand_ins(found) if header and not table_only else []
        found = [entry for entry in found if entry.state != "unseen"]
        if problems is not None:
            found = entries_of(found, problems)
        selection = select(filter(keep, found), partial=not complete, predicted=predicted)
        bests = [entry.best for entry in selection.chosen]
        tried = searches(store, bests, spaces, folders, teller(quiet=quiet), verbose=verbose) if as_t4 else []
        elsewhere = winners_elsewhere(store, [*bests, *unseen], spaces, folders) if header and not table_only else []
        warnings = store.warnings
    if not (quiet or check):
        say_passed_over(selection, verbose=verbose)
    say_warnings(warnings, quiet=quiet, verbose=verbose)
    if check and problems is not None:
        check_shapes(problems, selection, tune_command(cache_dir, shapes, ranges, space, templates))
    if check and output is None:
        return
    way = _way(selection.passed_over, as_t4=as_t4, predicted=predicted, complete=complete)
    if not bests and problems is None:
        raise ShapesMissing(f"the cache has nothing to export{_filtered(dtype, device_filter)}", hint=way)
    if problems is not None:
        _require_all(problems, bests, way)
    silent = quiet or check
    if check and output is not None:
        check_there(output)
    name, kernels = "kt" if namespace is None else namespace, 0
    if header and not table_only:
        made = Making(spaces, folders, folder, quiet=silent, check=check)
        text, kernels = kernels_header(bests, name, made, elsewhere, few, ranged, unseen)
    elif header:
        text = _table_header(bests, name)
    else:
        text = _t4(tried, quiet=silent) if as_t4 else _table(bests, formats[0])
    if check and output is not None:
        check_file(output, text)
        return
    fresh = write_if_changed(output or "-", text)
    if dependencies is not None:
        dependencies.write()
    if not (quiet or output is None or is_stdout(output)):
        note(f"{'written' if fresh else 'unchanged'}: {output} ({_contents(bests, kernels, text)})")


def _contents(bests: Sequence[BestConfig], kernels: int, text: str) -> str:
    """How much a file holds."""
    from kt.cache.key import problem_digest

    shapes = len({problem_digest(best.key.problem) for best in bests})
    counts = [*([plural(kernels, "kernel")] if kernels else []), plural(shapes, "shape")]
    return ", ".join([*counts, plural(len(text.encode()), "byte")])


def _check_formats(
    formats: Sequence[str], output: str | None, depfile: str | None, *, check: bool, with_shapes: bool
) -> None:
    """One format, or none for a check of the cache alone."""
    if len(formats) > 1:
        given = " and ".join(f"--{name}" for name in formats)
        raise InputError(f"kt export writes one format, not {given}", hint="run it once for each of them")
    if not (formats or check):
        raise InputError("kt export needs one format", hint="give one of --json, --csv, --t4 and --header")
    if check:
        from kt.cli.export_check import check_asked

        check_asked(formats, output, with_shapes=with_shapes, with_depfile=depfile is not None)


def _filtered(dtype: str | None, device: str | None) -> str:
    """Of what there is nothing, if not everything was asked for."""
    given = [f"{name} {value}" for name, value in (("--dtype", dtype), ("--device", device)) if value is not None]
    return f" for {' and '.join(given)}" if given else ""


def _way(passed_over: Sequence[Entry], *, as_t4: bool, predicted: bool, complete: bool) -> str:
    """What to do about an export that lacks something."""
    ranked = [entry.best.complete for entry in passed_over if entry.state == "predicted"]
    partial = any(entry.state == "partial" for entry in passed_over)
    if not predicted and any(whole or not complete for whole in ranked):
        if as_t4:
            return "T4 has what ran, not what only the model ranked: --json --predicted has that"
        return "--predicted takes what only the model ranked, too"
    if complete and (partial or (predicted and ranked)):
        return "without --complete, winners of searches that have not finished are taken, too"
    if ranked and not as_t4:
        return "--predicted without --complete takes what only the model ranked, also in part"
    return "`kt show-cache` tells what the cache holds; with --shapes, why a shape has no winner"


def _require_all(problems: Sequence[Problem], bests: Sequence[BestConfig], hint: str) -> None:
    from kt.cache.key import problem_digest

    found = {problem_digest(best.key.problem) for best in bests}
    lacking = [problem for problem in problems if problem_digest(problem) not in found]
    if lacking:
        lines = [f"{part(len(lacking), len(problems), 'shape', 'has', 'have')} no winner to export"]
        lines += listed([problem.label for problem in lacking])
        raise ShapesMissing("\n".join(lines), hint=hint)


def _table(bests: Sequence[BestConfig], one_format: str) -> str:
    from kt.export.csv_table import render_csv
    from kt.export.json_table import render_table

    return render_csv(bests) if one_format == "csv" else render_table(bests)


def _t4(tried: Sequence[Search], *, quiet: bool) -> str:
    from kt.export.t4_results import measured_only, render_t4

    measured = measured_only(tried)
    ranked = sum(len(every) - len(ran) for (_, every), (_, ran) in zip(tried, measured, strict=True))
    if ranked and not quiet:
        note(f"left out: {plural(ranked, 'prediction')} of the model: T4 has what ran")
    if not any(measurements for _, measurements in measured):
        raise ShapesMissing(
            "the cache has no measurement of today's kernels for these shapes",
            hint="the model's predictions do not count, imported winners come without measurements; --json has them",
        )
    return render_t4(measured)


def _table_header(bests: Sequence[BestConfig], namespace: str) -> str:
    from kt.export.header import render_header

    return render_header(bests, predicted=True, namespace=namespace)
