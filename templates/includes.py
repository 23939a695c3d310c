"""`check_includes`: a rendered source reads no file but CUDA's own number-format headers.

Its text is its identity: what it read besides could change while results in the cache still seemed to be of its code.
Hence `#include` is refused in all its spellings, and so is a question whether a file exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kt.errors import InputError
from kt.problems import DTYPES
from kt.templates.digest import template_files
from kt.templates.lookup import read_text

__all__ = ["CUDA_HEADERS", "check_includes"]

CUDA_HEADERS = tuple(sorted({dtype.header for dtype in DTYPES.values() if dtype.header}))

# In angle brackets only: a quoted name is looked for in the working folder first.
_ALLOWED = "<(?:" + "|".join(map(re.escape, CUDA_HEADERS)) + ")>"
_USUAL = re.compile("#include " + _ALLOWED)
_JOINED_LINE = re.compile(r"\\\r?\n")
_NO_CODE = re.compile(
    r"""
      (?<!\w)(?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"   # raw string
    | "(?:\\[^\n]|[^"\\\n])*"? | '(?:\\[^\n]|[^'\\\n])*'?               # string, character, to the end of line at most
    | (?<!\w)\d(?:'?[\w.])*                                             # number: 1'000 begins no character
    | //[^\n]* | /\*.*?(?:\*/|\Z)                                       # comment
    """,
    re.DOTALL | re.VERBOSE,
)
_READS = re.compile(
    r"^[ \t\f\v]*(?:\#|%:)[ \t\f\v]*include(?P<file>.*)$|__has_include(?P<asked>\w*[ \t]*(?:\([^)\n]*\)?)?)",
    re.MULTILINE,
)


def check_includes(text: str, template: str, template_dirs: Sequence[Path]) -> None:
    """Refuse a source that reads other files.

    Raises:
        InputError: the message has the file, below the template folders, and the line that the `#include` comes from.
    """
    whole = _JOINED_LINE.sub("", text)
    if whole.count("include") == len(_USUAL.findall(whole)):
        return  # in a hundredth of the time
    for reads, name in _files_read(_NO_CODE.sub(_without_comment, whole)):
        place = _place(name, template_files(template, template_dirs), template)
        raise InputError(
            f"{place}: {reads} {name}: a source may include only {', '.join(f'<{one}>' for one in CUDA_HEADERS)}",
            hint='put the code into a header below a template folder and include it by {% include "include/….cuh" %}, '
            "so that kt knows when results become stale",
        )


def _files_read(code: str) -> Iterator[tuple[str, str]]:
    """What asks for a file that is not allowed, and the name as it is written."""
    for match in _READS.finditer(code):
        if match["file"] is not None and not re.fullmatch(_ALLOWED, match["file"].strip()):
            yield "#include", match["file"].strip()
        elif match["file"] is None and not re.fullmatch(rf"\(\s*{_ALLOWED}\s*\)", match["asked"].strip()):
            yield "__has_include", match["asked"].strip()


def _without_comment(match: re.Match[str]) -> str:
    found = match[0]
    if found.startswith(("//", "/*")):
        return " "
    return '""' if match["mark"] is not None else found


def _place(name: str, files: dict[str, Path], template: str) -> str:
    """`path:line` of what became the `#include` of `name`; the template alone if a computed text did."""
    lines = list(_lines([files[template], *(path for key, path in files.items() if key != template)]))
    bare = name.strip('<>"() ')
    directives = [(place, line) for place, line in lines if re.search(r"include(?!.*%\})", line)]
    written = [place for place, line in directives if bare in line] or [place for place, line in lines if bare in line]
    computed = [place for place, line in directives if "{{" in line]
    return next(iter(written or computed), str(files[template]))


def _lines(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        for number, line in enumerate(read_text(path).split("\n"), 1):
            yield f"{path}:{number}", line
