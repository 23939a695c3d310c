"""`kt show-cache`: what the cache holds, and which shapes of a file it lacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kt.cli import options
from kt.cli.given import tune_command
from kt.cli.outcome import note, teller
from kt.errors import KtError, NoUsableGpu, ShapesMissing
from kt.wording import part, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kt.cache.entries import Entry
    from kt.cache.missing import Missing
    from kt.cache.store import Store
    from kt.cache.validity import OtherSpaces
    from kt.devices.device import DeviceIdentity
    from kt.problems import Problem

__all__ = ["show_cache"]

SCHEMA = "kt.cache/1"


def show_cache(
    shapes: options.OptionalShapes = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only this operand format.")] = None,
    ranges: options.Ranges = None,
    layout: Annotated[str | None, typer.Option(metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")] = None,
    device_filter: options.DeviceFilter = None,
    family: Annotated[str | None, typer.Option(metavar="NAME", help="Only winners of this kernel family.")] = None,
    state: options.State = None,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """List the winners in the cache, or those of a file.

    With --shapes, the shapes of the file that have no measured winner of a finished search are listed too, with the
    reason, and the exit code is 5 if there are any.
    """
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli import inputs
    from kt.cli.cache_entries import (
        check_family,
        current_spaces,
        digests,
        entries_of,
        entry_filter,
        judged_entries,
        other_spaces,
        selected_shapes,
    )
    from kt.cli.left_out import say_warnings

    inputs.check_ranges(ranges, shapes)
    problems = selected_shapes(shapes, dtype=dtype, layout=layout, ranges=ranges) if shapes else None
    inputs.check_space(space)
    folders = inputs.check_folders(templates)
    keep = entry_filter(dtype=dtype, layout=layout, device=device_filter, family=family, states=state)
    with Store.open(cache_folder(cache_dir), read_only=True, tell=teller(quiet=quiet)) as store:
        judging = store.has_winners() or space is not None or family is not None  # else no space is asked about
        spaces = current_spaces(space) if judging else {}
        sources, others = digests(spaces, folders), other_spaces(space, folders)
        stored = judged_entries(store, sources, spaces, others)
        check_family(family, {*spaces, *(entry.best.config.family for entry in stored)})
        found = [entry for entry in stored if keep(entry)]
        lacking: list[Missing] | None = None
        device: DeviceIdentity | None = None
        if problems is not None:
            of_device = filter(entry_filter(device=device_filter), stored)
            lacking, device = _missing(store, problems, found or list(of_device), sources, others, device_filter)
            found = entries_of(found, problems)
        warnings = store.warnings
    if as_json:
        _print_document(store.file, found, problems, lacking, list(map(str, warnings)))
    else:
        _print_tables(found, lacking, verbose=verbose)
    say_warnings(warnings, quiet=quiet, verbose=verbose)
    if not (quiet or found or lacking):
        note(_nothing(stored, store.file, by_device=device_filter is not None))
    if lacking:
        command = tune_command(cache_dir, shapes, ranges, space, templates)
        raise _lacking_error(lacking, len(problems or ()), device, command)


def _missing(
    store: Store,
    problems: Sequence[Problem],
    found: Sequence[Entry],
    sources: dict[str, str],
    others: OtherSpaces,
    asked: str | None,
) -> tuple[list[Missing], DeviceIdentity | None]:
    """The shapes without a winner, and the device that they were looked up for, if anything says which."""
    from kt.cache.key import problem_digest
    from kt.cache.missing import NEVER, UNREADABLE, Missing, missing, unreadable_problems
    from kt.cli.cache_entries import device_for_lookup
    from kt.tuner.method import METHOD_LABEL

    device = device_for_lookup(asked, [entry.best.key.device for entry in found])
    if device is None:
        unreadable = unreadable_problems(store)
        reasons = [UNREADABLE if problem_digest(problem) in unreadable else NEVER for problem in problems]
        return list(map(Missing, problems, reasons)), None
    lacking = missing(store, problems, device, sources, method=METHOD_LABEL, partial=False, other_spaces=others)
    return lacking, device


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
    """What there is, then what there is not: a shape whose state stands in the first table is not listed again."""
    from kt.cache.key import problem_digest
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
    listed = {(problem_digest(entry.best.key.problem), entry.state) for entry in found}
    rows = [
        (item.problem.label, item.reason)
        for item in lacking or ()
        if (problem_digest(item.problem), item.state) not in listed
    ]
    if rows:
        print_table(("missing", "why"), rows, left=frozenset({"missing", "why"}))


def _nothing(stored: Sequence[Entry], file: Path, *, by_device: bool) -> str:
    """That nothing is listed; and where a device was asked for, which there are."""
    from kt.devices.device import told_apart

    if not stored:
        return f"no results in {file}"
    names = told_apart(entry.best.key.device for entry in stored)
    devices, alone = ", ".join(dict.fromkeys(names.values())), len(stored) == 1
    there = f"; {'it is' if alone else 'they are'} of {devices}" if by_device else ""
    if alone:
        return f"the only result in {file} does not match{there}"
    return f"none of the {plural(len(stored), 'result')} in {file} match{there}"


def _lacking_error(lacking: Sequence[Missing], total: int, device: DeviceIdentity | None, command: str) -> KtError:
    states = Counter(item.state for item in lacking)
    predicted = f"; {states['predicted']} only predicted" if states["predicted"] else ""
    unfinished = f"; of {states['partial']} the search was cut short" if states["partial"] else ""
    hint = f"`{command}` measures what is missing{_where(device)}"
    if predicted:
        hint += "; `kt export --predicted` takes what the model ranked, too"
    return ShapesMissing(
        f"{part(len(lacking), total, 'shape', 'has', 'have')} no measured winner of a finished search"
        f"{predicted}{unfinished}",
        hint=hint,
    )


def _where(device: DeviceIdentity | None) -> str:
    """Where that can be measured, if not here."""
    from kt.devices.local import local_device

    try:
        here = device in (None, local_device().identity)
    except NoUsableGpu:
        here = False
    return "" if here else f", on a machine with {device.name if device else 'a GPU'}"
