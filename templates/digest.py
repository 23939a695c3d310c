"""`template_digest`: the identity of a family's code, over its template, all that this includes, and its space.

It does not import Jinja2, so that a look-up in the cache costs nothing of the kind. Therefore a template names what it
includes by quoted literals only; `render` refuses others.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from kt.errors import InputError
from kt.search_spaces.space import SearchSpace
from kt.templates.lookup import Stamp, find_file, read_bytes, read_text, stamp

__all__ = ["included_names", "template_digest", "template_files"]

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_REFERENCE = re.compile(r"\{%[-+]?\s*(include|import|from|extends)\b(.*?)[-+]?%\}", re.DOTALL)
_LITERAL = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)')(?=\s*(?:$|(?:import|as|with|without)\b))""")


def template_digest(space: SearchSpace, template_dirs: Sequence[Path] = ()) -> str:
    """SHA-256, hexadecimal, over names and bytes of the space's template and all that it includes, and over the space.

    Raises:
        InputError: a file is missing or unreadable, or a template refers to one other than by a quoted name.
    """
    from kt.search_spaces.loader import space_digest

    digest = hashlib.sha256(b"kt template 1\0")
    for name, path in template_files(space.template, template_dirs).items():
        digest.update(f"{name}\0".encode())
        digest.update(_content_digest(path, stamp(path)))
    digest.update(space_digest(space).encode())
    return digest.hexdigest()


def template_files(template: str, template_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """The template and all that it includes, however deep: name -> path, sorted by name."""
    files: dict[str, Path] = {}
    waiting = [(template, "")]
    while waiting:
        name, asked_by = waiting.pop()
        if name in files:
            continue
        path = files[name] = find_file(name, template_dirs, asked_by)
        waiting += [(other, f"included by {path}") for other in _included(path, stamp(path))]
    return dict(sorted(files.items()))


def included_names(text: str, path: str) -> list[str]:
    """Names that the template `text` includes, imports or extends; `path` is for messages."""
    plain = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    names = []
    for match in _REFERENCE.finditer(plain):
        literal = _LITERAL.match(match[2])
        if literal is None:
            line = plain.count("\n", 0, match.start()) + 1
            raise InputError(
                f"{path}:{line}: {match[1]}{match[2].rstrip()} names its file by an expression",
                hint='write the name as one quoted literal, {% include "include/kt/common.cuh" %}, so that kt knows '
                "when results become stale",
            )
        names.append(literal[1] or literal[2])
    return names


# Both are remembered by path, time and size: a run asks for the same files for each of its shapes.
@lru_cache(maxsize=256)
def _content_digest(path: Path, _: Stamp) -> bytes:
    return hashlib.sha256(read_bytes(path)).digest()


@lru_cache(maxsize=256)
def _included(path: Path, _: Stamp) -> tuple[str, ...]:
    if path.suffix == ".cuh":
        return ()  # headers are plain C++ and are not read as templates
    return tuple(included_names(read_text(path), str(path)))
