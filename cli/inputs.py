"""The input files and values of a command, read and checked before any device or cache is touched."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from kt.cli.output import is_stdout
from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kt.devices.device import DeviceIdentity
    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.request import Budget

__all__ = [
    "check_folders",
    "check_streams",
    "current_sources",
    "device_for_lookup",
    "device_matcher",
    "read_age",
    "read_budget",
    "read_peers",
    "read_shapes",
    "read_spaces",
]

PEERS = ("cublas", "cublaslt")
_BUDGET = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|h|)")
_AGE = re.compile(r"(?P<number>\d+)(?P<unit>d|h|m)")
_AGE_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def check_streams(output: str | None, *, as_json: bool) -> None:
    """Refuse two documents on one standard output."""
    if as_json and is_stdout(output):
        raise InputError("--json and --output - both write to standard output", hint="leave out one of them")


def read_shapes(path: Path, dtype: str | None) -> list[Problem]:
    from kt.problems.shapes_file import load_shapes

    return load_shapes(path, dtype=dtype)


def read_spaces(path: Path | None, problems: Sequence[Problem]) -> list[SearchSpace]:
    """The built-in spaces, or what `--space` makes of them, that may serve these problems."""
    from kt.search_spaces.loader import resolve_spaces

    return resolve_spaces(path, tuple(dict.fromkeys(problem.dtype for problem in problems)))


def check_folders(folders: Sequence[Path] | None) -> tuple[Path, ...]:
    """The `--templates` folders.

    Raises:
        InputError: one is not a folder.
    """
    for folder in folders or ():
        if not folder.is_dir():
            raise InputError(f"--templates {folder} is not a folder", hint="name the folder that holds gemm/….cu.j2")
    return tuple(folder.resolve() for folder in folders or ())


def read_peers(text: str) -> tuple[str, ...]:
    """`cublas,cublaslt` as names; an empty text or `none` is no peer."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("none",):
        return ()
    for name in names:
        if name not in PEERS:
            raise InputError(f"--peers {text!r}: {name!r} is unknown", hint=f"known: {', '.join(PEERS)}, or none")
    return names


def read_budget(text: str | None) -> Budget:
    """`--budget`: a limit of time (`60s`, `5m`, `1h`) or of candidates per shape (`500`); no text means no limit.

    Raises:
        InputError: another form, a fraction of a candidate, or nothing at all to spend.
    """
    from kt.tuner.request import Budget

    if text is None:
        return Budget()
    form = _BUDGET.fullmatch(text.strip())
    if form is None:
        raise InputError(f"--budget {text!r} is neither a time nor a number", hint="for example 60s, 5m, 1h or 500")
    number, unit = float(form["number"]), form["unit"]
    if number == 0:
        raise InputError(f"--budget {text!r} leaves nothing to spend", hint="leave the option out for no limit")
    if unit:
        return Budget(seconds=number * _SECONDS[unit])
    if not number.is_integer():
        raise InputError(f"--budget {text!r}: candidates come whole", hint="for a time, add s, m or h")
    return Budget(evaluations=int(number))


def read_age(text: str) -> timedelta:
    """`90d`, `12h` or `30m` as a time span.

    Raises:
        InputError: another form.
    """
    form = _AGE.fullmatch(text.strip())
    if form is None:
        raise InputError(f"--older-than {text!r} is no time span", hint="for example 90d, 12h or 30m")
    return timedelta(**{_AGE_UNITS[form["unit"]]: int(form["number"])})


def current_sources(space: Path | None, folders: tuple[Path, ...]) -> dict[str, str]:
    """Digest of template, headers and space of each family as they are today."""
    from kt.search_spaces.loader import builtin_spaces, resolve_spaces
    from kt.templates.digest import template_digest

    spaces = {item.family: item for item in builtin_spaces()}
    if space is not None:
        spaces |= {item.family: item for item in resolve_spaces(space, ())}
    return {family: template_digest(item, folders) for family, item in spaces.items()}


def device_matcher(text: str) -> Callable[[DeviceIdentity], bool]:
    """Whether a device in the cache is the one that a filter names: a device as for `kt tune`, or part of a name."""
    if _is_selector(text):
        from kt.devices.local import select_device

        identity = select_device(text).identity
        return lambda device: device == identity
    return lambda device: text.casefold() in device.name.casefold()


def device_for_lookup(asked: str | None, known: Sequence[DeviceIdentity]) -> DeviceIdentity | None:
    """The one device for which results are looked up; None if nothing says which.

    Args:
        asked: the filter of the command line; None means the GPU of this machine, or without one what the cache has.
        known: devices of the results that fit.

    Raises:
        InputError: results of several devices fit.
        NoUsableGpu: the filter asks for the GPU of this machine, and there is none.
    """
    from kt.devices.local import local_device, select_device
    from kt.errors import NoUsableGpu

    if asked is not None and _is_selector(asked):
        return select_device(asked).identity
    if asked is None:
        try:
            return local_device().identity
        except NoUsableGpu:
            pass  # then the cache decides
    distinct = list(dict.fromkeys(known))
    if len(distinct) > 1:
        from kt.cache.missing import device_label

        names = "; ".join(device_label(device) for device in distinct)
        raise InputError(f"the cache has results of {len(distinct)} devices: {names}", hint="choose one by --device")
    return distinct[0] if distinct else None


def _is_selector(text: str) -> bool:
    return text in ("local", "auto") or text.isdecimal() or text.startswith("model:")
