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
    for folder in [start, *start.parents]:
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def project_defaults(path: Path) -> dict[str, Any]:
    """Option defaults by parameter name; relative paths are relative to the file.

    Raises:
        InputError: not TOML, an unknown key, or a value of the wrong kind.
    """
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    for name, value in values.items():
        _check(path, name, value)
    return {name: _resolved(path.parent, name, value) for name, value in values.items()}


def for_commands(names: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """`values` nested as the command line nests its commands: what Typer takes as default map."""
    return {name: for_commands(inner, values) if inner else values for name, inner in names.items()}


def _check(path: Path, name: str, value: object) -> None:
    if name not in _KINDS:
        from difflib import get_close_matches

        close = get_close_matches(name, _KINDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(_KINDS)}"
        raise InputError(f"{path}: unknown key {name!r}", hint=hint)
    if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
        raise InputError(f"{path}: {name} is {value!r}", hint="see docs/commands.md for the values of each option")


def _resolved(folder: Path, name: str, value: Any) -> Any:
    if name not in _PATHS:
        return str(value)
    if isinstance(value, list):
        return [str(folder / item) for item in value]
    return str(folder / value)
