"""`kt repro`: one winner as a stand-alone program that anybody can build and run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.given import tune_command
from kt.cli.listing import listed
from kt.cli.outcome import note, teller
from kt.errors import InputError, KtError, OptionError, OutOfDate, ShapesMissing
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kt.cache.entries import Entry, Selection

__all__ = ["repro"]

LISTED = 8  # shapes that a message names


def repro(
    shape: Annotated[
        list[str],
        typer.Argument(metavar="SHAPE…", help="Words of the shape as kt show-cache has it: bf16 4096x4096x4096."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the program; made if missing.")
    ],
    device_filter: options.DeviceFilter = None,
    predicted: Annotated[bool, typer.Option("--predicted", help="Also a winner that only the model ranked.")] = False,
    space: options.Space = None,
    templates: options.Templates = None,
    cache_dir: options.CacheDir = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a tuned kernel as a program of its own, with a Makefile: source, launches, check and timing.

    SHAPE is one or more words that the shape's name has, and only one shape. The program says whether every element is
    right, and its time beside the one that kt measured.
    """
    from kt.cache.entries import select
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli import inputs
    from kt.cli.cache_entries import (
        current_spaces,
        digests,
        entry_filter,
        judged_entries,
        other_spaces,
    )
    from kt.cli.left_out import say_warnings
    from kt.cli.measurements import device_of
    from kt.export.repro import render_repro

    if not output.strip():
        raise OptionError("output", "is empty", hint="-o names the folder of the program, for example -o repro")
    if output == "-":
        raise OptionError("output", "is standard output, and a program is a folder", hint="for example -o repro")
    spaces = current_spaces(space)
    folders = inputs.check_folders(templates)
    others = other_spaces(space, folders)
    keep = _named(shape, entry_filter(device=device_filter))
    with Store.open(cache_folder(cache_dir), read_only=True, tell=teller(quiet=quiet)) as store:
        found = [entry for entry in judged_entries(store, digests(spaces, folders), spaces, others) if keep(entry)]
        say_warnings(store.warnings, quiet=quiet)
    best = _one(
        select(found, predicted=predicted), " ".join(shape), tune_command(cache_dir, None, None, space, templates)
    ).best
    device = device_of(best.key.device)
    if device is None:
        raise KtError(
            f"kt does not know the limits of {best.key.device.label}, by which the launches are computed",
            hint="run kt repro on a machine with that GPU",
        )
    _write(Path(output), render_repro(best, spaces[best.config.family], device, folders))
    if not quiet:
        command = f"make -C {shlex.quote(output)} run"
        note(f"{best.key.problem.label} on {best.key.device.name}: `{command}` builds and runs it")


def _named(words: Sequence[str], keep: Callable[[Entry], bool]) -> Callable[[Entry], bool]:
    """Whether an entry passes a filter and its shape's name has all the words; those of one argument are split."""
    wanted = {word for text in words for word in text.split()}
    if not wanted:
        raise InputError("SHAPE is empty", hint="for example kt repro bf16 4096x4096x4096 -o repro")
    return lambda entry: keep(entry) and wanted <= set(entry.best.key.problem.label.split())


def _one(selection: Selection, asked: str, tune: str) -> Entry:
    """The one winner that was asked for.

    Args:
        tune: the command that makes a new one.

    Raises:
        ShapesMissing: there is none.
        OutOfDate: it is stale.
        InputError: several have that name.
    """
    from kt.devices.device import told_apart

    chosen = selection.chosen
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = told_apart(entry.best.key.device for entry in chosen)
        labels = [f"{entry.best.key.problem.label} on {names[entry.best.key.device]}" for entry in chosen]
        text = "\n".join([f"{asked} is the name of {plural(len(chosen), 'winner')}", *listed(labels, LISTED)])
        raise InputError(text, hint="add words of the one that is meant, or --device")
    states = {entry.state: entry for entry in selection.passed_over}
    if "stale" in states:
        reason = states["stale"].reason
        raise OutOfDate(f"the winner for {asked} is stale: {reason}", hint=f"{tune} makes a new one")
    shapes = "`kt show-cache` lists the shapes, of whose names SHAPE is one or more whole words"
    hint = "--predicted takes what only the model ranked" if "predicted" in states else shapes
    raise ShapesMissing(f"the cache has no winner for {asked}", hint=hint)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files, none of which may take the place of somebody else's.

    Raises:
        InputError: the folder cannot be made or is none, or has a file of that name that is not of `kt repro`.
    """
    from kt.export.write_file import check_output, write_if_changed

    _make_folder(folder)
    for name in files:
        _check_own(folder / name)
        check_output(folder / name)
    for name, text in files.items():
        write_if_changed(folder / name, text)


def _make_folder(folder: Path) -> None:
    """Makes the folder, not the ones above it: a slip in a long path would leave a tree of them."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        above = folder.parent
        raise InputError(
            f"{folder} cannot be made: there is no folder {above}", hint=f"mkdir -p {shlex.quote(str(above))}"
        ) from error
    except OSError as error:
        reason = "a file of that name is there" if isinstance(error, FileExistsError) else error.strerror or error
        raise InputError(f"{folder} cannot be a folder: {reason}", hint="name another with -o") from error


def _check_own(path: Path) -> None:
    from kt.export.repro import BANNER

    if path.exists() and not path.is_file():
        raise InputError(f"{path} is there, and no file", hint="name another folder with -o")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not first.lstrip("/# ").startswith(BANNER):
        raise InputError(f"{path} is not of kt repro, and would be lost", hint="name another folder with -o")
