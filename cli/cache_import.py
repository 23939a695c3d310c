"""`kt cache import`: winners of JSON tables into the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.outcome import note, teller
from kt.cli.printable import printable
from kt.errors import InputError
from kt.wording import plural, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kt.cache.merge import MergeReport, Source
    from kt.cache.records import BestConfig
    from kt.cache.waiting import Tell
    from kt.search_spaces.space import SearchSpace

__all__ = ["import_tables"]

SCHEMA = "kt.cache-import/1"


def import_tables(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Tables (kt.table/1) to bring in; - is standard input.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be brought in.")] = False,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Bring the winners of JSON tables into the cache: of all of them, or if one cannot be read, of none.

    Where the cache has another winner for a shape, the rule of kt cache merge decides, and both are named. A row whose
    configuration or launches cannot be those of its kernel is left out and named."""
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.merge import of_winners
    from kt.cli import inputs
    from kt.cli.cache_entries import current_spaces, digests

    if len(set(files)) < len(files):
        raise InputError(f"{next(name for name in files if files.count(name) > 1)} is named twice")
    spaces = current_spaces(space)
    sources = digests(spaces, inputs.check_folders(templates))
    rows = [(name, best) for name in files for best in _table(name)]
    unusable = dict(_unusable(rows, spaces, sources))
    accepted = [best for number, (_, best) in enumerate(rows) if number not in unusable]
    stale = sum(bool(_stale(best, sources)) for best in accepted)
    report = _brought_in(cache_folder(cache_dir), of_winners(accepted), teller(quiet=quiet), dry_run=dry_run)
    _report(report, list(unusable.values()), stale, dry_run=dry_run, as_json=as_json, quiet=quiet)


def _table(name: str) -> list[BestConfig]:
    """The rows of one table.

    Raises:
        InputError: it is none, or a field of it is wrong.
    """
    from kt.export.json_table import read_table

    try:
        return read_table(name)
    except InputError as error:
        raise InputError(f"{error.message}; nothing was imported", hint=error.hint) from error


def _unusable(
    rows: Sequence[tuple[str, BestConfig]], spaces: Mapping[str, SearchSpace], sources: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Number of each row that cannot be what it says, and why."""
    from kt.cli.misfit import misfit

    for number, (name, best) in enumerate(rows):
        if reason := misfit(best, spaces, sources):
            file = "<stdin>" if name == "-" else name
            yield number, f"{file}: {best.key.problem.label} on {best.key.device.name} was left out: {reason}"


def _stale(best: BestConfig, sources: Mapping[str, str]) -> str:
    from kt.cache.validity import changed_since
    from kt.tuner.method import METHOD_LABEL

    other_method = not best.measurement.predicted and best.key.method != METHOD_LABEL
    return changed_since(best, sources) or ("another method" if other_method else "")


def _brought_in(folder: Path, source: Source, tell: Tell, *, dry_run: bool) -> MergeReport:
    from kt.cache.merge import foresee, merge
    from kt.cache.store import Store

    with Store.open(folder, read_only=dry_run, tell=tell) as store:
        report = foresee(store, [source]) if dry_run else merge(store, [source])
        for warning in store.warnings:
            tell(f"warning: {warning}")
    return report


def _report(
    report: MergeReport, warnings: Sequence[str], stale: int, *, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    from kt.cli.cache import conflict_text
    from kt.cli.output import print_json

    conflicts = [conflict_text(conflict) for conflict in report.conflicts]
    if as_json:
        counts = {"winners": report.winners, "same": report.same, "stale": stale}
        print_json({"schema": SCHEMA, "dry_run": dry_run, **counts, "conflicts": conflicts, "warnings": list(warnings)})
    elif not quiet:
        would = "would be imported" if dry_run else "imported"
        winners = plural(report.winners, "new winner")
        print(f"{winners} {would}, {report.same} already here, {len(conflicts)} in conflict")
        for text in conflicts:
            print(printable(text))
    for text in warnings:
        note(f"warning: {text}")
    if stale and not quiet:
        those, used = (f"{stale} of them {verb(stale, 'is', 'are')}", verb(stale, "it", "them"))
        note(f"{those} of other sources or methods than today's: nothing uses {used}, as kt show-cache says")
