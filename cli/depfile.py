"""`--depfile`: what an output was made from, for make."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kt.cli.output import is_stdout
from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DepfilePlan", "plan_depfile"]


@dataclass(frozen=True)
class DepfilePlan:
    """A dependency file that can be written once the output is; its text is known before any work is done."""

    path: str
    text: str

    def write(self) -> None:
        """Writes it, unless it is there already with these contents."""
        from kt.export.write_file import write_if_changed

        write_if_changed(self.path, self.text, option="--depfile")


def plan_depfile(
    depfile: str | None,
    target: str | None,
    output: str | None,
    read: Iterable[Path],
    cache_dir: Path | None,
) -> DepfilePlan | None:
    """What `--depfile` and `--depfile-target` ask for, None if nothing.

    Args:
        output: of `--output`.
        read: the files that the output is made from.
        cache_dir: of `--cache-dir`; the depfile must not be the cache.

    Raises:
        InputError: there is no output to depend on anything, a name cannot stand in a makefile, or the depfile would
            take the place of the output or of what the command reads.
    """
    from kt.cli.target import check_target
    from kt.export.depfile import render_depfile

    if depfile is None:
        if target is not None:
            raise InputError("--depfile-target is for --depfile", hint="leave it out, or name a file with --depfile")
        return None
    if output is None or is_stdout(output):
        raise InputError("--depfile needs an output file", hint="name one with -o")
    if is_stdout(depfile):
        raise InputError("--depfile writes a file, not standard output", hint="name a file, as table.json.d")
    read = list(read)
    check_target(depfile, cache_dir, read, option="--depfile")
    if os.path.realpath(depfile) == os.path.realpath(output):
        raise InputError(f"{depfile} is both the output and its depfile", hint="name another file with --depfile")
    return DepfilePlan(depfile, render_depfile(output if target is None else target, _named(read)))


def _named(read: Iterable[Path]) -> list[str]:
    """The names of the files, each file once and as it was given first; standard input has none."""
    names: dict[str, str] = {}
    for path in read:
        if str(path) not in ("/dev/stdin", "<stdin>"):
            names.setdefault(os.path.realpath(path), os.fspath(path))
    return list(names.values())
