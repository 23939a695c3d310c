"""Where a template or header is found: the user's template folders first, then the built-in ones."""

import difflib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kt.errors import InputError

__all__ = ["BUILTIN", "find_file"]

BUILTIN = Path(__file__).parent


def find_file(name: str, template_dirs: Sequence[Path], asked_by: str = "") -> Path:
    """The file called `name` (with `/`) in the first folder that has it.

    Args:
        name: path below a template folder, e.g. "include/kt/common.cuh".
        template_dirs: folders searched before the built-in one.
        asked_by: what refers to it, for messages.

    Raises:
        InputError: there is none, or the name leaves the folders.
    """
    by = f" ({asked_by})" if asked_by else ""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/"):
        raise InputError(f"{name!r} is not the name of a file below a template folder{by}")
    folders = [*template_dirs, BUILTIN]
    for folder in folders:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    searched = ", ".join(str(folder) for folder in template_dirs) or "only the built-in templates were searched"
    raise InputError(f"there is no template {name}{by}; searched: {searched}", hint=_similar(name, folders))


def _similar(name: str, folders: Sequence[Path]) -> str | None:
    present = {
        path.relative_to(folder).as_posix()
        for folder in folders
        for pattern in ("**/*.cu.j2", "**/*.cuh")
        for path in Path(folder).glob(pattern)
    }
    close = difflib.get_close_matches(name, sorted(present), n=1)
    return f"did you mean {close[0]}? Folders are added with --templates DIR" if close else None
