"""`kt.toml`: a project's own defaults for options, below flags and `KT_*` variables and above the built-in defaults.

A value is checked when a command needs it: what goes before it, or belongs to another command, is no obstacle.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kt.cli.options import NUMBERS, ProgressMode, StrategyName
from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE_NAME", "ProjectValue", "find_project_file", "project_defaults"]

FILE_NAME = "kt.toml"


class _Kind(NamedTuple):
    """Types of a value in the file, and what is wanted in words."""

    types: tuple[type, ...]
    wanted: str


def _names(choices: type[ProgressMode | StrategyName]) -> str:
    return "one of " + ", ".join(f'"{choice}"' for choice in choices)


_PATHS = ("cache_dir", "space", "templates")
_KINDS = {
    "budget": _Kind((str, int), 'a time such as "60s", "5m" or "1h", or a number of candidates such as 500'),
    "cache_dir": _Kind((str,), "a path in quotes"),
    "device": _Kind((str,), 'a name in quotes: "local", "0", "auto" or "model:NAME"'),
    "jobs": _Kind((int,), NUMBERS["jobs"]),
    "peers": _Kind((str,), 'names in quotes: "cublas", "cublaslt", "cublas,cublaslt" or "none"'),
    "progress": _Kind((str,), _names(ProgressMode)),
    "seed": _Kind((int,), NUMBERS["seed"]),
    "space": _Kind((str,), "a path in quotes"),
    "strategy": _Kind((str,), _names(StrategyName)),
    "templates": _Kind((list,), 'a list of paths: ["templates"]'),
}


@dataclass(frozen=True)
class ProjectValue:
    """A default of an option: called for the value when no flag and no variable gives another."""

    path: Path
    name: str
    value: Any

    def __call__(self) -> Any:
        """The value as the command line would give it; relative paths are relative to the file, `~` is expanded.

        Raises:
            InputError: it is of the wrong kind, or names the home folder of a user who is not there.
        """
        _check(self.path, self.name, self.value)
        return self._resolved(self.value) if self.name in _PATHS else str(self.value)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._resolved(item) for item in value]
        expanded = os.path.expanduser(value)
        if expanded.startswith("~"):
            hint = "write ./~… for a folder of that name"
            raise InputError(f"{self.path}: {self.name} is {value!r}; there is no such home folder", hint=hint)
        return str(self.path.parent / expanded)

    def __str__(self) -> str:
        """For the help of the option."""
        return ", ".join(map(str, self.value)) if isinstance(self.value, list) else _shown(self.value).strip("'")


def find_project_file() -> Path | None:
    """The nearest `kt.toml` in the working folder or above it; a folder that was removed meanwhile has none."""
    try:
        start = Path.cwd()
    except OSError:
        return None
    return next((folder / FILE_NAME for folder in [start, *start.parents] if _is_file(folder / FILE_NAME)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() or path.is_symlink()  # one that leads nowhere is told of, not passed over
    except OSError:  # a folder above that may not be searched is nobody's project here
        return False


def project_defaults(path: Path) -> dict[str, ProjectValue]:
    """Option defaults by parameter name.

    Raises:
        InputError: unreadable, not TOML, or an unknown key.
    """
    values = _parsed(path)
    for name in values:
        _check_name(path, name)
    return {name: ProjectValue(path, name, value) for name, value in values.items()}


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise InputError(f"{path}: lists and tables are nested too deep") from None
    except UnicodeDecodeError as error:
        text = f"{path}: byte {error.object[error.start]:#04x} at {error.start} is not UTF-8"
        raise InputError(text, hint="save the file as UTF-8") from None
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise InputError(f"{path}: {error}") from error


def for_commands(names: Mapping[str, Any], values: Mapping[str, ProjectValue]) -> dict[str, Any]:
    """`values` nested as the command line nests its commands: what Typer takes as default map."""
    return {name: for_commands(inner, values) if inner else values for name, inner in names.items()}


def _check_name(path: Path, name: str) -> None:
    if name not in _KINDS:
        from difflib import get_close_matches

        close = get_close_matches(name, _KINDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(_KINDS)}"
        raise InputError(f"{path}: unknown key {name!r}", hint=hint)


def _check(path: Path, name: str, value: object) -> None:
    kind = _KINDS[name]
    if not _fits(value, kind.types) or (name in _PATHS and _names_nothing(value)):
        raise InputError(f"{path}: {name} is {_shown(value)}; wanted is {kind.wanted}")


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    if isinstance(value, int):
        return -(2**63) <= value < 2**63  # as TOML has it
    names = value if isinstance(value, list) else [value]
    return all(isinstance(name, str) and "\0" not in name for name in names)


def _names_nothing(value: object) -> bool:
    """An empty path would mean the folder of the file."""
    return not all(value) if isinstance(value, list) else not value


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # thousands of digits, which Python does not write out
        return "out of range"
