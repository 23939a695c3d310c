"""The options that several commands share, each spelled once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "NUMBERS",
    "Budget",
    "CacheDir",
    "Depfile",
    "DepfileTarget",
    "Device",
    "DeviceFilter",
    "DtypeOverride",
    "Jobs",
    "Json",
    "OptionalShapes",
    "Output",
    "Peers",
    "Progress",
    "ProgressMode",
    "Quiet",
    "Seed",
    "Shapes",
    "Space",
    "State",
    "StateName",
    "Strategy",
    "StrategyName",
    "Templates",
    "Unseen",
    "Verbose",
    "path_of",
]

MOST_JOBS = 256  # each takes some hundred MB; more of them than cores gain nothing
MOST_UNSEEN = 1000
NUMBERS = {  # wanted, in words
    "jobs": f"a whole number from 0 to {MOST_JOBS}",
    "max_kernels": "a whole number, 1 or more",
    "seed": "a whole number, 0 or more",
    "unseen": f"a whole number from 0 to {MOST_UNSEEN}",
}


class ProgressMode(StrEnum):
    """How progress is drawn on standard error."""

    auto = "auto"
    plain = "plain"
    none = "none"


class StrategyName(StrEnum):
    """How candidates are chosen."""

    auto = "auto"
    exhaustive = "exhaustive"
    random = "random"


class StateName(StrEnum):
    """The states of a cached winner."""

    valid = "valid"
    partial = "partial"
    predicted = "predicted"
    stale = "stale"
    other_space = "other-space"
    unseen = "unseen"


def path_of(text: str) -> Path:
    """A path as given; an empty text, as of a shell variable that is not set, would mean the working folder."""
    if not text:
        raise typer.BadParameter("a path is empty")
    return Path(text)


_SHAPES_HELP = "Shapes file (YAML); - is standard input. May be repeated: the files count as one."
Shapes = Annotated[list[Path], typer.Option("--shapes", metavar="FILE", parser=path_of, help=_SHAPES_HELP)]
OptionalShapes = Annotated[
    list[Path] | None, typer.Option("--shapes", metavar="FILE", parser=path_of, help=_SHAPES_HELP)
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="RANGE",
        help="A size that varies at run time, in place of the file's: m=1:4096, or m=1:4096:12 for 12 buckets.",
    ),
]
DtypeOverride = Annotated[
    str | None, typer.Option("--dtype", metavar="NAME", help="Operand format, in place of the shapes file's default.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        envvar="KT_DEVICE",
        help="local or an index: that GPU. auto: the GPU, or else the model of an H200. model:NAME: that GPU's model.",
    ),
]
DeviceFilter = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Only this device: part of its name, or what tells it apart (140 GiB); local, or model:NAME.",
    ),
]
Space = Annotated[
    Path | None,
    typer.Option(
        "--space", metavar="FILE", parser=path_of, help="Search space (YAML) that replaces or narrows the built-in one."
    ),
]
Templates = Annotated[
    list[Path] | None,
    typer.Option(
        "--templates", metavar="DIR", parser=path_of, help="Folder searched for templates before the built-in ones."
    ),
]
Strategy = Annotated[
    StrategyName, typer.Option(help="auto: the most promising, then around the best measured. exhaustive. random.")
]
Budget = Annotated[
    str | None, typer.Option(metavar="LIMIT", help="Time of the run (60s, 5m, 1h) or candidates a shape (500).")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the search and of the operands, 0 or more.")]
Unseen = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=MOST_UNSEEN,
        help="Also try N shapes of each format that nobody lists, briefly: the choice for others rests on them.",
    ),
]
State = Annotated[
    list[StateName] | None,
    typer.Option(metavar="STATE", help=f"Only these states: {', '.join(StateName)}; may be repeated."),
]
CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", metavar="DIR", parser=path_of, envvar="KT_CACHE_DIR", help="Folder of the cache."),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=0,
        max=MOST_JOBS,
        metavar="N",
        envvar="KT_JOBS",
        help=f"Compiler processes, {MOST_JOBS} at most; 0: one per core.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")
]
Depfile = Annotated[
    str | None,
    typer.Option("--depfile", metavar="FILE", help="Also write what the output was made from, as gcc -MMD -MP."),
]
DepfileTarget = Annotated[
    str | None,
    typer.Option("--depfile-target", metavar="NAME", help="Target in the depfile, as a stamp.  [default: the output]"),
]
Peers = Annotated[
    str,
    typer.Option(metavar="NAMES", help="Library baselines timed beside the finalists: cublas, cublaslt, or none."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but data and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: each candidate, full configurations.")]
Progress = Annotated[
    ProgressMode,
    typer.Option(
        "--progress", envvar="KT_PROGRESS", help="auto: bars on a terminal, else one line a shape. plain: lines."
    ),
]
