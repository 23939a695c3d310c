"""`kt show-cache`: what the cache holds, and which shapes of a file it lacks."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kt.cli import options
from kt.cli.outcome import note, reported
from kt.errors import KtError, NoValidConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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


@reported
def show_cache(
    shapes: options.OptionalShapes = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only this operand format.")] = None,
    layout: Annotated[str | None, typer.Option(metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")] = None,
    device_filter: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Only this device: part of its name, local, or model:NAME."),
    ] = None,
    family: Annotated[str | None, typer.Option(metavar="NAME", help="Only winners of this kernel family.")] = None,
    state: Annotated[list[StateName] | None, typer.Option(help="Only these states; may be repeated.")] = None,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """List the winners in the cache, or with --shapes the shapes of a file that have none.

    With --shapes, only the shapes of the file are listed, and the exit code is 3 if some have no measured winner.
    """
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli import inputs

    problems = inputs.read_shapes(shapes, None) if shapes else None
    sources = inputs.current_sources(space, inputs.check_folders(templates))
    keep = _filter(dtype, layout, device_filter, family, state)
    with Store.open(cache_folder(cache_dir), read_only=True) as store:
        found = [entry for entry in _judged(store, sources) if keep(entry)]
        lacking: list[Missing] | None = None
        if problems is not None:
            lacking = _missing(store, problems, found, sources, device_filter)
            found = _only(found, problems)
        warnings = [str(warning) for warning in store.warnings]
    if as_json:
        _print_document(store.file, found, problems, lacking, warnings)
    else:
        _print_table(store.file, found, lacking, verbose=verbose)
    for warning in warnings:
        note(f"warning: {warning}")
    if lacking:
        raise _lacking_error(lacking, len(problems or ()))


def _judged(store: Store, sources: dict[str, str]) -> list[Entry]:
    from kt.cache.entries import entries
    from kt.tuner.method import METHOD_LABEL

    return entries(store, sources, method=METHOD_LABEL)


def _filter(
    dtype: str | None, layout: str | None, device: str | None, family: str | None, states: list[StateName] | None
) -> Callable[[Entry], bool]:
    """Whether an entry meets every filter that was given."""
    from kt.cli.inputs import device_matcher
    from kt.problems.dtype_names import check_dtype

    wanted_dtype = check_dtype(dtype) if dtype else None
    on_device = device_matcher(device) if device else None

    def keep(entry: Entry) -> bool:
        problem = entry.best.key.problem
        return (
            wanted_dtype in (None, problem.dtype)
            and layout in (None, problem.layout)
            and family in (None, entry.best.config.family)
            and (on_device is None or on_device(entry.best.key.device))
            and (not states or entry.state in states)
        )

    return keep


def _missing(
    store: Store, problems: Sequence[Problem], found: Sequence[Entry], sources: dict[str, str], asked: str | None
) -> list[Missing]:
    from kt.cache.missing import Missing, missing
    from kt.cli.inputs import device_for_lookup
    from kt.tuner.method import METHOD_LABEL

    device = device_for_lookup(asked, [entry.best.key.device for entry in found])
    if device is None:
        return [Missing(problem, "never tuned") for problem in problems]
    return missing(store, problems, device, sources, method=METHOD_LABEL)


def _only(found: Sequence[Entry], problems: Sequence[Problem]) -> list[Entry]:
    from kt.cache.key import problem_digest

    wanted = {problem_digest(problem) for problem in problems}
    return [entry for entry in found if problem_digest(entry.best.key.problem) in wanted]


def _print_document(
    file: Path,
    found: Sequence[Entry],
    problems: Sequence[Problem] | None,
    lacking: Sequence[Missing] | None,
    warnings: Sequence[str],
) -> None:
    from kt.cli.output import print_json
    from kt.export.json_table import table_row

    document: dict[str, Any] = {
        "schema": SCHEMA,
        "cache": str(file),
        "entries": [{"state": entry.state, "reason": entry.reason} | table_row(entry.best) for entry in found],
        "warnings": list(warnings),
    }
    if lacking is not None and problems is not None:
        document["shapes"] = len(problems)
        document["missing"] = [{"problem": item.problem.as_dict(), "reason": item.reason} for item in lacking]
    print_json(document)


def _print_table(file: Path, found: Sequence[Entry], lacking: Sequence[Missing] | None, *, verbose: bool) -> None:
    from kt.cli.result_table import ResultLine, known_device, print_results

    if not found and not lacking:
        note(f"no results in {file}")
        return
    lines = [
        ResultLine(entry.best.key.problem, entry.best, known_device(entry.best.key.device), entry.state, entry.reason)
        for entry in found
    ]
    lines += [ResultLine(item.problem, None, None, "missing", item.reason) for item in lacking or ()]
    print_results(lines, verbose=verbose, with_device=len({entry.best.key.device for entry in found}) > 1 or verbose)


def _lacking_error(lacking: Sequence[Missing], total: int) -> KtError:
    return NoValidConfiguration(
        f"{len(lacking)} of {total} shapes have no measured winner", hint="kt tune gemm --shapes … measures them"
    )
