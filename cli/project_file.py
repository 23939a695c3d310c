"""`kt.toml`: a project's own defaults for options, below flags and `KT_*` variables and above the built-in defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE_NAME", "find_project_file", "project_defaults"]

FILE_NAME = "kt.toml"
_PATHS = ("cache_dir", "space", "templates")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "budget": (str, int),
    "cache_dir": str,
    "device": str,
    "jobs": int,
    "peers": str,
    "progress": str,
    "seed": int,
    "space": str,
    "strategy": str,
    "templates": list,
}


def find_project_file() -> Path | None:
    """The nearest `kt.toml` in the working folder or above it; a folder that was removed meanwhile has none."""
    try:
        start = Path.cwd()
    except OSError:
        return None
    return next((folder / FILE_NAME for folder in [start, *start.parents] if _is_file(folder / FILE_NAME)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder above that may not be searched is nobody's project here
        return False


def project_defaults(path: Path) -> dict[str, Any]:
    """Option defaults by parameter name; relative paths are relative to the file.

    Raises:
        InputError: unreadable, not TOML, an unknown key, or a value of the wrong kind.
    """
    values = _parsed(path)
    for name, value in values.items():
        _check(path, name, value)
    return {name: _resolved(path.parent, name, value) for name, value in values.items()}


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise InputError(f"{path}: lists and tables are nested too deep") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise InputError(f"{path}: {error}") from error


def for_commands(names: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """`values` nested as the command line nests its commands: what Typer takes as default map."""
    return {name: for_commands(inner, values) if inner else values for name, inner in names.items()}


def _check(path: Path, name: str, value: object) -> None:
    if name not in _KINDS:
        from difflib import get_close_matches

        close = get_close_matches(name, _KINDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(_KINDS)}"
        raise InputError(f"{path}: unknown key {name!r}", hint=hint)
    if not _fits(value, _KINDS[name]) or (name in _PATHS and _names_nothing(value)):
        raise InputError(
            f"{path}: {name} is {_shown(value)}", hint="see docs/commands.md for the values of each option"
        )


def _fits(value: object, kinds: type | tuple[type, ...]) -> bool:
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


def _resolved(folder: Path, name: str, value: Any) -> Any:
    if name not in _PATHS:
        return str(value)
    if isinstance(value, list):
        return [str(folder / item) for item in value]
    return str(folder / value)
