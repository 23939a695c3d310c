"""`kt show-cache`: what the cache holds, and which shapes of a file it lacks."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kt.cli import options
from kt.cli.outcome import note, teller
from kt.errors import KtError, NoValidConfiguration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kt.cache.entries import Entry
    from kt.cache.missing import Missing
    from kt.cache.store import Store
    from kt.problems import Problem

__all__ = ["show_cache"]

SCHEMA = "kt.cache/1"


class StateName(StrEnum):
    """The states of a cached winner."""

    valid = "valid"
    partial = "partial"
    predicted = "predicted"
    stale = "stale"


def show_cache(
    shapes: options.OptionalShapes = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only this operand format.")] = None,
    layout: Annotated[str | None, typer.Option(metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")] = None,
    device_filter: options.DeviceFilter = None,
    family: Annotated[str | None, typer.Option(metavar="NAME", help="Only winners of this kernel family.")] = None,
    state: Annotated[list[StateName] | None, typer.Option(help="Only these states; may be repeated.")] = None,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """List the winners in the cache, or those of a file.

    With --shapes, the shapes of the file that have no measured winner of a finished search are listed too, with the
    reason, and the exit code is 3 if there are any.
    """
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli import inputs
    from kt.cli.cache_entries import current_spaces, digests, entries_of, entry_filter, judged_entries

    problems = inputs.read_shapes(shapes, dtype) if shapes else None
    spaces = current_spaces(space)
    sources = digests(spaces, inputs.check_folders(templates))
    keep = entry_filter(dtype=dtype, layout=layout, device=device_filter, family=family, states=state)
    with Store.open(cache_folder(cache_dir), read_only=True, tell=teller(quiet=quiet)) as store:
        stored = judged_entries(store, sources, spaces)
        found = [entry for entry in stored if keep(entry)]
        lacking: list[Missing] | None = None
        if problems is not None:
            lacking = _missing(store, problems, found, sources, device_filter)
            found = entries_of(found, problems)
        warnings = [str(warning) for warning in store.warnings]
    if as_json:
        _print_document(store.file, found, problems, lacking, warnings)
    else:
        _print_tables(found, lacking, verbose=verbose)
    if not quiet:
        _say(warnings, "" if found or lacking else _nothing(len(stored), store.file))
    if lacking:
        raise _lacking_error(lacking, len(problems or ()))


def _missing(
    store: Store, problems: Sequence[Problem], found: Sequence[Entry], sources: dict[str, str], asked: str | None
) -> list[Missing]:
    from kt.cache.missing import Missing, missing
    from kt.cli.cache_entries import device_for_lookup
    from kt.tuner.method import METHOD_LABEL

    device = device_for_lookup(asked, [entry.best.key.device for entry in found])
    if device is None:
        return [Missing(problem, "never tuned") for problem in problems]
    return missing(store, problems, device, sources, method=METHOD_LABEL, partial=False)


def _print_document(
    file: Path,
    found: Sequence[Entry],
    problems: Sequence[Problem] | None,
    lacking: Sequence[Missing] | None,
    warnings: Sequence[str],
) -> None:
    from kt.cli.output import print_json
    from kt.export.json_table import row

    document: dict[str, Any] = {
        "schema": SCHEMA,
        "cache": str(file),
        "entries": [{"state": entry.state, "reason": entry.reason} | row(entry.best) for entry in found],
        "warnings": list(warnings),
    }
    if lacking is not None and problems is not None:
        document["shapes"] = len(problems)
        document["missing"] = [{"problem": item.problem.as_dict(), "reason": item.reason} for item in lacking]
    print_json(document)


def _print_tables(found: Sequence[Entry], lacking: Sequence[Missing] | None, *, verbose: bool) -> None:
    """What there is, then what there is not."""
    from kt.cli.output import print_table
    from kt.cli.result_table import ResultLine, known_device, print_results

    if found:
        several = len({entry.best.key.device for entry in found}) > 1
        lines = [
            ResultLine(
                entry.best.key.problem, entry.best, known_device(entry.best.key.device), entry.state, entry.reason
            )
            for entry in found
        ]
        print_results(lines, verbose=verbose, with_device=several or verbose)
    if lacking:
        rows = [(item.problem.label, item.reason) for item in lacking]
        print_table(("missing", "why"), rows, left=frozenset({"missing", "why"}))


def _say(warnings: Sequence[str], text: str) -> None:
    for warning in warnings:
        note(f"warning: {warning}")
    if text:
        note(text)


def _nothing(stored: int, file: Path) -> str:
    return f"none of the {stored} results in {file} match" if stored else f"no results in {file}"


def _lacking_error(lacking: Sequence[Missing], total: int) -> KtError:
    unfinished = sum(item.partial for item in lacking)
    some = f"; of {unfinished} the search was cut short" if unfinished else ""
    return NoValidConfiguration(
        f"{len(lacking)} of {total} shapes have no measured winner of a finished search{some}",
        hint="kt tune gemm --shapes … measures what is missing",
    )
