"""Which entries of the cache a command is about: those of today's sources that pass its filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.errors import InputError, NoUsableGpu, OptionError
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from kt.cache.entries import Entry
    from kt.cache.store import Store
    from kt.cache.validity import OtherSpaces
    from kt.devices.device import DeviceIdentity
    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace

__all__ = [
    "check_family",
    "current_sources",
    "current_spaces",
    "device_for_lookup",
    "device_part",
    "digests",
    "entries_of",
    "entry_filter",
    "judged_entries",
    "other_spaces",
    "selected_shapes",
]


def current_sources(space: Path | None, folders: tuple[Path, ...]) -> dict[str, str]:
    """Digest of template, headers and space of each family as they are today."""
    return digests(current_spaces(space), folders)


def current_spaces(space: Path | None) -> dict[str, SearchSpace]:
    """The spaces of today by family: the built-in ones, and those of a file, which go before."""
    from kt.cli.inputs import check_space
    from kt.search_spaces.loader import builtin_spaces, resolve_spaces

    check_space(space)
    spaces = {item.family: item for item in builtin_spaces()}
    if space is not None:
        spaces |= {item.family: item for item in resolve_spaces(space, ())}
    return spaces


def digests(spaces: Mapping[str, SearchSpace], folders: tuple[Path, ...]) -> dict[str, str]:
    """Digest of template, headers and space by family."""
    from kt.templates.digest import template_digest

    return {family: template_digest(item, folders) for family, item in spaces.items()}


def other_spaces(space: Path | None, folders: tuple[Path, ...]) -> OtherSpaces:
    """Tells winners of another space than the one that is asked about from stale ones."""
    from kt.cache.validity import OtherSpaces

    return OtherSpaces(space.name if space else "", current_sources(None, folders) if space else {})


def device_part(text: str) -> str:
    """The part of a device's label that a filter means: as given, or all of it for a device named as for `kt tune`.

    Raises:
        OptionError: the filter is empty, as of a shell variable that is not set; it would mean every device.
    """
    if not text:
        raise OptionError("device", "is empty", hint="leave it out for all devices")
    return _selected(text).label if _is_selector(text) else text


def device_for_lookup(asked: str | None, known: Sequence[DeviceIdentity]) -> DeviceIdentity | None:
    """The one device for which results are looked up; None if nothing says which.

    Args:
        asked: the filter of the command line; None means the GPU of this machine, or without one what the cache has.
        known: devices of the results that fit.

    Raises:
        InputError: results of several devices fit.
        NoUsableGpu: the filter asks for the GPU of this machine, and there is none.
    """
    from kt.devices.local import local_device

    if asked is not None and _is_selector(asked):
        return _selected(asked)
    if asked is None:
        try:
            return local_device().identity
        except NoUsableGpu:
            pass  # then the cache decides
    distinct = list(dict.fromkeys(known))
    if len(distinct) > 1:
        names = "; ".join(device.label for device in distinct)
        hint = f"choose one by --device with any part of its name that no other has: --device '{distinct[0].label}'"
        raise InputError(f"the cache has results of {len(distinct)} devices: {names}", hint=hint)
    return distinct[0] if distinct else None


def _selected(text: str) -> DeviceIdentity:
    """The device that is named as for `kt tune`; without a GPU, the way out is another name and not a model."""
    from kt.devices.local import select_device

    try:
        return select_device(text).identity
    except NoUsableGpu as error:
        raise NoUsableGpu(error.message, hint="a part of a name finds results of other GPUs: --device h200") from None


def _is_selector(text: str) -> bool:
    return text in ("local", "auto") or text.isdecimal() or text.startswith("model:")


def judged_entries(
    store: Store, sources: dict[str, str], spaces: Mapping[str, SearchSpace], others: OtherSpaces
) -> list[Entry]:
    """Every entry, with what is stale against today's sources and method, or of another space, marked so.

    What says that it is of today's sources and is not of today's `spaces` is named in `store.warnings` only.
    """
    from kt.cache.entries import entries
    from kt.tuner.method import METHOD_LABEL

    store.expect(spaces, sources)
    return entries(store, sources, method=METHOD_LABEL, other_spaces=others)


def entry_filter(
    *,
    dtype: str | None = None,
    layout: str | None = None,
    device: str | None = None,
    family: str | None = None,
    states: Sequence[str] | None = None,
) -> Callable[[Entry], bool]:
    """Whether an entry meets every filter that was given; "partial" is asked for as of `kt cache prune --partial`.

    Raises:
        InputError: a filter names a format or layout that does not exist.
    """
    of_problem = _problem_filter(dtype, layout)
    part = device_part(device) if device is not None else ""

    def keep(entry: Entry) -> bool:
        return (
            of_problem(entry.best.key.problem)
            and family in (None, entry.best.config.family)
            and entry.best.key.device.matches(part)
            and (not states or entry.state in states or ("partial" in states and entry.best.unfinished))
        )

    return keep


def selected_shapes(
    paths: Sequence[Path],
    *,
    dtype: str | None = None,
    layout: str | None = None,
    ranges: Sequence[str] | None = None,
) -> list[Problem]:
    """The shapes of the files as these state them, of which the filters keep some.

    Args:
        ranges: of `--range`.

    Raises:
        InputError: a file or a filter cannot be used, or no shape is left.
    """
    from kt.cli.inputs import read_shapes

    keep = _problem_filter(dtype, layout)
    problems = read_shapes(paths, None, ranges)
    kept = [problem for problem in problems if keep(problem)]
    if not kept:
        asked = " and ".join(f"{name} {value}" for name, value in (("dtype", dtype), ("layout", layout)) if value)
        files = ", ".join("<stdin>" if str(path) == "-" else str(path) for path in paths)
        none = f"none of the {plural(len(problems), 'shape')}" if len(problems) > 1 else "no shape"
        raise InputError(
            f"{none} of {files} has {asked}",
            hint="here, options only select among what a file says; shapes tuned with `kt tune --dtype` are "
            "found without --shapes, or by a file that says so",
        )
    return kept


def _problem_filter(dtype: str | None, layout: str | None) -> Callable[[Problem], bool]:
    """Raises InputError if the format or the layout does not exist."""
    from kt.cli.inputs import read_dtype
    from kt.problems import LAYOUTS

    wanted = read_dtype(dtype)
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"--layout {layout!r} is unknown", hint=f"use one of {', '.join(LAYOUTS)}")
    return lambda problem: wanted in (None, problem.dtype) and layout in (None, problem.layout)


def check_family(family: str | None, known: Collection[str]) -> None:
    """Raises OptionError if there is no such family, neither today nor among the results."""
    from kt.problems.yaml_values import closest

    if family is None or family in known:
        return
    match = closest(family, known)
    listed = f"known: {', '.join(sorted(known))}"
    raise OptionError("family", f"{family!r} is unknown", hint=f"did you mean {match}?" if match else listed)


def entries_of(found: Iterable[Entry], problems: Iterable[Problem]) -> list[Entry]:
    """The entries whose problem is one of these."""
    from kt.cache.key import problem_digest

    wanted = {problem_digest(problem) for problem in problems}
    return [entry for entry in found if problem_digest(entry.best.key.problem) in wanted]
