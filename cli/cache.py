"""`kt cache`: merge, prune and locate the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.outcome import note, teller
from kt.cli.printable import printable
from kt.wording import plural

if TYPE_CHECKING:
    from datetime import timedelta

    from kt.cache.merge import Conflict
    from kt.cache.prune import PruneRule
    from kt.cache.waiting import Tell

__all__ = ["conflict_text", "merge", "path", "prune"]


def path(
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="As always: there is nothing but data.")] = False,
) -> None:
    """Print the folder of the cache; it need not exist."""
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.location import database_path
    from kt.cli.output import print_json

    folder = cache_folder(cache_dir)
    if as_json:
        database = database_path(folder)
        print_json(
            {
                "schema": "kt.cache-path/1",
                "path": str(folder),
                "database": str(database),
                "exists": os.path.isfile(database),
            }
        )
    else:
        print(folder)


def merge(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", parser=options.path_of, help="Caches to bring in: folders or files."),
    ],
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Bring the results of other caches into this one: of all of them, or if one cannot be read, of none.

    Where both have a winner for a shape, a fixed rule decides and the shape is named: finished before unfinished,
    then the fastest."""
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.location import database_path
    from kt.cache.merge import merge as merge_caches
    from kt.cache.merge import read_sources
    from kt.cache.store import Store
    from kt.cli.output import print_json

    folder, tell = cache_folder(cache_dir), teller(quiet=quiet)
    found = read_sources(sources, database_path(folder), tell)  # first: a cache is not made for nothing
    with Store.open(folder, tell=tell) as store:
        report = merge_caches(store, found)
    conflicts = [conflict_text(conflict) for conflict in report.conflicts]
    warnings = [str(warning) for warning in report.warnings]
    if as_json:
        counts = {"winners": report.winners, "same": report.same, "measurements": report.measurements}
        print_json({"schema": "kt.cache-merge/1", **counts, "conflicts": conflicts, "warnings": warnings})
    elif not quiet:
        winners, measurements = plural(report.winners, "new winner"), plural(report.measurements, "measurement")
        print(f"{winners}, {report.same} already here, {measurements}")
        for text in conflicts:
            print(printable(text))
    for text in warnings:
        note(f"warning: {text}")


def conflict_text(conflict: Conflict) -> str:
    """Both winners, which of them is kept and why."""
    kept, dropped = conflict.kept, conflict.dropped
    here, there = ("the one here", "the other") if conflict.kept_here else ("the other", "the one here")
    return (
        f"{kept.key.problem.label} on {kept.key.device.name}: both sides had a winner; "
        f"kept {kept.measurement.time_us:g} us ({kept.config.label}), {here}, because {conflict.reason}; "
        f"dropped {dropped.measurement.time_us:g} us ({dropped.config.label}), {there}"
    )


def prune(
    stale: Annotated[bool, typer.Option("--stale", help="Winners whose template, headers or space changed.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Winners of searches that did not finish.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Measurements that failed; they are tried again.")] = False,
    predicted: Annotated[bool, typer.Option("--predicted", help="What only the model ranked.")] = False,
    older_than: Annotated[str | None, typer.Option(metavar="SPAN", help="Stored longer ago: 90d, 12h, 30m.")] = None,
    device_filter: options.DeviceFilter = None,
    unreadable: Annotated[bool, typer.Option("--unreadable", help="What cannot be read or used, alone.")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="Set a damaged file aside, alone.")] = False,
    cubins: Annotated[bool, typer.Option("--cubins", help="Compiled kernels not used for an hour, alone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove what meets all conditions that are given.

    At least one is needed. --unreadable, --damaged and --cubins each stand alone; the first two may be dry runs."""
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.prune import PruneRule
    from kt.cache.validity import OtherSpaces
    from kt.cli import inputs
    from kt.cli.cache_entries import current_sources, device_part, other_spaces
    from kt.errors import InputError

    alone = [name for name, given in (("unreadable", unreadable), ("damaged", damaged), ("cubins", cubins)) if given]
    folders = inputs.check_folders(templates)
    sources = current_sources(space, folders) if stale else None
    age: timedelta | None = inputs.read_age(older_than) if older_than is not None else None
    part = device_part(device_filter) if device_filter is not None else ""
    others = other_spaces(space, folders) if stale else OtherSpaces()
    rule = PruneRule(sources, partial, failed, predicted, age, part, others)
    if len(alone) > 1 or (alone and rule != PruneRule()) or (cubins and dry_run):
        raise InputError(f"--{alone[0]} stands alone", hint="run kt cache prune once for each of them")
    folder = cache_folder(cache_dir)
    _check_place(folder)
    tell = teller(quiet=quiet)
    if unreadable:
        document = _prune_unreadable(folder, space, folders, tell, dry_run=dry_run)
    elif damaged:
        document = _prune_damaged(folder, tell, dry_run=dry_run)
    elif cubins:
        document = _prune_cubins(folder)
    else:
        document = _prune_by(rule, folder, tell, dry_run=dry_run)
    _report(document, as_json=as_json, quiet=quiet)


def _prune_by(rule: PruneRule, folder: Path, tell: Tell, *, dry_run: bool) -> dict[str, object]:
    from kt.cache.prune import prune as prune_cache
    from kt.cache.store import Store

    only_look = dry_run or not _exists(folder)  # to make a cache in order to prune it would be a surprise
    with Store.open(folder, read_only=only_look, tell=tell) as store:
        report = prune_cache(store, rule, dry_run=only_look)
        warnings = [str(warning) for warning in store.warnings]
    for warning in warnings:
        tell(f"warning: {warning}")
    of_what = "prediction" if rule.predicted else "measurement"
    what = f"{plural(report.winners, 'winner')} and {plural(report.measurements, of_what)}"
    text = f"{what} would be removed" if dry_run else f"{what} removed, {plural(report.freed_bytes, 'byte')} freed"
    return {"text": text, "dry_run": dry_run, **vars(report), "warnings": warnings}


def _check_place(folder: Path) -> None:
    """Raises CacheError if the system refuses to look at the folder; one that is not there is empty."""
    from kt.cache.location import ELSEWHERE
    from kt.errors import CacheError

    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise CacheError(f"{folder} cannot be looked at: {error.strerror or error}", hint=ELSEWHERE) from None


def _exists(folder: Path) -> bool:
    from kt.cache.location import database_path

    return os.path.lexists(database_path(folder))  # what cannot be opened is told by opening it


def _prune_unreadable(
    folder: Path, space: Path | None, templates: tuple[Path, ...], tell: Tell, *, dry_run: bool
) -> dict[str, object]:
    from kt.cache.prune import Unreadable, prune_unreadable
    from kt.cache.store import Store
    from kt.cli.cache_entries import current_spaces, digests

    spaces = current_spaces(space)
    sources = digests(spaces, templates)
    found = Unreadable([], 0)
    if _exists(folder):
        with Store.open(folder, read_only=dry_run, tell=tell) as store:
            store.expect(spaces, sources)
            found = prune_unreadable(store, dry_run=dry_run)
    removed = [str(warning) for warning in found.winners]
    what = f"{plural(len(removed), 'winner')} and {plural(found.measurements, 'measurement')}"
    what += f" {'would be ' if dry_run else ''}removed"
    text = "\n".join([what, *removed])
    return {"text": text, "dry_run": dry_run, "removed": removed, "measurements": found.measurements}


def _prune_damaged(folder: Path, tell: Tell, *, dry_run: bool) -> dict[str, object]:
    from kt.cache.prune import find_damage, prune_damaged

    if dry_run:
        damaged, aside = find_damage(folder, tell), None
        text = "the file is damaged and would be set aside" if damaged else "the file is sound"
    else:
        aside = prune_damaged(folder, tell)
        damaged = aside is not None
        text = f"the file was damaged and is now {aside}" if aside else "the file is sound; nothing was changed"
    return {"text": text, "dry_run": dry_run, "damaged": damaged, "set_aside": str(aside) if aside else None}


def _prune_cubins(folder: Path) -> dict[str, object]:
    from kt.tuner.cubin_cache import CubinCache

    freed = CubinCache(folder).prune(0)
    return {"text": f"{plural(freed, 'byte')} of compiled kernels removed", "freed_bytes": freed}


def _report(document: dict[str, object], *, as_json: bool, quiet: bool) -> None:
    from kt.cli.output import print_json

    text = document.pop("text")
    if as_json:
        print_json({"schema": "kt.cache-prune/1", **document})
    elif not quiet:
        print(printable(str(text)))
