"""The file that a command writes: one that can be written, and neither the cache nor what the command reads."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kt.cli.output import is_stdout
from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kt.search_spaces.space import SearchSpace

__all__ = ["check_target", "files_read"]


def check_target(target: str | None, cache_dir: Path | None, read: Iterable[Path], *, option: str = "-o") -> None:
    """Refuse an output file before any work is done for it.

    Args:
        target: of `--output`; None and standard output are nobody's file.
        cache_dir: of `--cache-dir`.
        read: the files that the command reads.
        option: that named it, for messages.

    Raises:
        InputError: it is a folder, its folder is missing, the rights are, or to write it would destroy the cache or an
            input.
    """
    if target is None or is_stdout(target):
        return
    from kt.export.write_file import check_output

    another = f"name another file with {option}"
    check_output(target, option=option)
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise InputError(f"{target} cannot be written: no permission", hint=another)
    if any(_is_same(target, file) for file in _cache_files(cache_dir)):
        raise InputError(f"{target} is the cache, whose results would be lost", hint=another)
    if _is_of_kt(target):
        raise InputError(f"{target} is a file of kt itself", hint=another)
    for file in read:
        if _is_same(target, file):
            raise InputError(f"{target} is an input of this command: {file}", hint=another)


def files_read(
    shapes: Sequence[Path] | None, space: Path | None, spaces: Iterable[SearchSpace], folders: tuple[Path, ...]
) -> Iterator[Path]:
    """The files that decide what a command does: shapes, spaces, their templates, and the project's `kt.toml`."""
    from kt.cli.project_file import find_project_file
    from kt.templates.digest import template_files

    spaces = tuple(spaces)
    named = [*(shapes or ()), *([space] if space else ()), *(Path(one.source) for one in spaces)]
    yield from (Path("/dev/stdin") if str(path) == "-" else path for path in named)
    for one in spaces:
        yield from template_files(one.template, folders).values()
    project = find_project_file()
    if project is not None:
        yield project


def _cache_files(cache_dir: Path | None) -> Iterator[Path]:
    from kt.cache.damage import SIDECARS
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.location import database_path

    database = database_path(cache_folder(cache_dir))
    yield from (Path(f"{database}{suffix}") for suffix in ("", *SIDECARS))


def _is_of_kt(target: str) -> bool:
    """Whether the file is one of an installed package of kt: templates, spaces, figures of GPUs, or code."""
    import kt

    where = Path(os.path.realpath(target))
    folders = {Path(os.path.realpath(entry)) for folder in kt.__path__ for entry in (folder, *os.scandir(folder))}
    return where.exists() and any(folder in where.parents for folder in folders)


def _is_same(target: str, file: Path) -> bool:
    """One regular file under two names, or the same name for one that is not there yet."""
    try:
        there, other = os.stat(target), os.stat(file)
    except OSError:
        return os.path.realpath(target) == os.path.realpath(file)
    return stat.S_ISREG(there.st_mode) and os.path.samestat(there, other)
