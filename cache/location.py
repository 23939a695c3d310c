"""Where the cache lies: `--cache-dir`, else `KT_CACHE_DIR`, else the user's own cache folder."""

import os
import shlex
from pathlib import Path

from kt.errors import CacheError

__all__ = ["DATABASE_NAME", "ELSEWHERE", "cache_dir", "database_path", "prune_command"]

DATABASE_NAME = "kt.sqlite3"
ELSEWHERE = "name another folder with --cache-dir or KT_CACHE_DIR"


def cache_dir(flag: Path | None = None) -> Path:
    """The absolute cache folder; it need not exist. An empty `KT_CACHE_DIR` counts as unset.

    Raises:
        CacheError: there is no home folder or working folder that the path could be resolved against.
    """
    chosen = str(flag) if flag is not None else os.environ.get("KT_CACHE_DIR", "")
    try:
        return Path(chosen).expanduser().absolute() if chosen else _user_cache_dir()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CacheError(f"the cache folder {chosen} cannot be found: {reason}", hint=ELSEWHERE) from error


def _user_cache_dir() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("kt", appauthor=False).absolute()


def database_path(path: Path) -> Path:
    """The SQLite file of a cache that is named by its folder or by the file itself."""
    if os.path.isdir(path):  # unlike Path.is_dir, no error where a folder above is closed to this user
        return path / DATABASE_NAME
    return path if os.path.isfile(path) or path.suffix == ".sqlite3" else path / DATABASE_NAME


def prune_command(file: Path, option: str) -> str:
    """The command line of `kt cache prune` that is about this very file, wherever it lies."""
    return f"kt cache prune {option}{'' if _is_usual(file) else f' --cache-dir {shlex.quote(_named(file))}'}"


def _is_usual(file: Path) -> bool:
    try:
        return database_path(cache_dir()) == file
    except CacheError:
        return False


def _named(file: Path) -> str:
    return str(file.parent if file.name == DATABASE_NAME else file)
