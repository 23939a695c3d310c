"""A dependency file for make, as compilers write it with -MMD -MP: what an output was made from.

Each prerequisite also stands as a target without a recipe, so that make goes on when one of them is removed.
"""

import re
from collections.abc import Iterable

from kt.errors import InputError

__all__ = ["check_makeable", "render_depfile"]

# GNU make has no way to write these in a name, and (…) at its end is the member of an archive. The last range are bytes
# that are not UTF-8.
_UNSPEAKABLE = re.compile("[\t\n\r;=|\\\\\ud800-\udfff]|\\([^()]*\\)$")
_WITH_BACKSLASH = re.compile(r"[ #:*?\[\]]")


def render_depfile(target: str, prerequisites: Iterable[str]) -> str:
    """The rule `target: prerequisites`, one to a line in their order, then the targets without a recipe.

    Raises:
        InputError: a name cannot be written in a makefile.
    """
    names = list(dict.fromkeys(prerequisites))
    for name in (target, *names):
        check_makeable(name)
    lines = [f"{_as_target(target)}:", *(f"  {_as_prerequisite(name)}" for name in names)]
    phony = [f"\n{_as_target(name)}:\n" for name in names if name != target]
    return " \\\n".join(lines) + "\n" + "".join(phony)


def check_makeable(name: str) -> None:
    """Raises InputError if make has no way to name the file."""
    if not name or _UNSPEAKABLE.search(name):
        raise InputError(
            f"{name!r} cannot be named in a makefile",
            hint=r"rename it: no tab, newline, ; = | or \, and no (…) at the end; or leave out --depfile",
        )


def _as_prerequisite(name: str) -> str:
    here = f"./{name}" if name.startswith("~") else name  # else make would put the home folder there
    return _WITH_BACKSLASH.sub(r"\\\g<0>", here).replace("$", "$$")


def _as_target(name: str) -> str:
    return _as_prerequisite(name).replace("%", r"\%")  # else it would be a pattern
