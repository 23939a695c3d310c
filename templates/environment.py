"""The Jinja2 environment of kernel templates: what gives the same text every time, within bounds of size and work.

A template is its author's own, so the bounds are no protection from attacks: they turn a slip, such as a template that
includes itself or a loop of a wrong length, into a message with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from kt.errors import InputError
from kt.templates.digest import included_names
from kt.templates.lookup import find_file, read_text, stamp

__all__ = ["MAX_CHARACTERS", "MAX_STEPS", "KernelEnvironment", "environment", "header_text", "headers_apart"]

MAX_CHARACTERS = 4 * 2**20  # of a source, and of any text that an operator makes
MAX_STEPS = 1_000_000  # calls, and turns of loops over ranges, of one rendering
_MAX_BITS = 4096  # of a number

_WIDE = re.compile(r"\d{5}")
_MARK = re.compile(r"\x02([^\x02\x03]*)\x03")  # stands for a header in a text that is rendered with these apart


@lru_cache(maxsize=8)
def environment(template_dirs: tuple[Path, ...], apart: bool = False) -> KernelEnvironment:
    """One environment for a list of folders; it keeps compiled templates and reads a file again when it changes.

    With `apart`, what it renders is for `headers_apart`.
    """
    return KernelEnvironment(template_dirs, apart)


def headers_apart(text: str) -> list[str]:
    """A text rendered with headers apart, cut: text and names of headers take turns; it begins and ends with text."""
    return _MARK.split(text)


def header_text(name: str, template_dirs: tuple[Path, ...]) -> str:
    """A header as it stands in a rendered source."""
    return _plain(read_text(find_file(name, template_dirs)))


class KernelEnvironment(SandboxedEnvironment):
    """Finds what a template includes in `template_dirs`, and renders within bounds; headers marked if `apart`."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, template_dirs: tuple[Path, ...], apart: bool = False) -> None:
        super().__init__(
            loader=jinja2.FunctionLoader(self._load), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        self._template_dirs = template_dirs
        self._apart = apart
        self._steps = 0
        # Only what gives the same text every time.
        self.globals = {"range": self._range, "dict": dict, "namespace": jinja2.utils.Namespace}
        del self.filters["random"]

    def rendered(self, template: jinja2.Template, names: Mapping[str, Any]) -> str:
        """The text of `template`.

        Raises:
            OverflowError: it is too long, or took too many steps.
        """
        self._steps = 0
        parts: list[str] = []
        size = 0
        stream = cast(Generator[str, None, None], template.generate(names))
        for part in stream:
            parts.append(part)
            size += len(part)
            if size > MAX_CHARACTERS:  # raised where the template stands, so that the message has this line
                stream.throw(OverflowError(f"the source becomes longer than {MAX_CHARACTERS:,} characters"))
        return "".join(parts)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Jinja2's hook of every call."""
        self._step(1)
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Jinja2's hook of the operators that can make much of little."""
        _check_size(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _range(self, *bounds: int) -> range:
        turns = range(*bounds)
        self._step(max(0, (turns.stop - turns.start) // turns.step))  # len() has no value beyond 2**63
        return turns

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > MAX_STEPS:
            raise OverflowError(f"rendering takes more than {MAX_STEPS:,} calls and turns of loops")

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]]:
        path = find_file(name, self._template_dirs)
        then = stamp(path)
        text = read_text(path)
        if path.suffix == ".cuh":
            text = f"\x02{name}\x03" if self._apart else _header(text)
        else:
            for other in included_names(text, str(path)):
                find_file(other, self._template_dirs, f"included by {path}")
        return text, str(path), lambda: _is_still(path, then)


def _is_still(path: Path, then: tuple[int, int]) -> bool:
    try:
        return stamp(path) == then
    except InputError:  # gone: the loader looks for it in the other folders
        return False


def _header(text: str) -> str:
    """Headers are plain C++: `{{` in an initialiser is not ours to read, and one unit needs no `#pragma once`."""
    return "{% raw %}" + _plain(text) + "{% endraw %}"


def _plain(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.split() != ["#pragma", "once"])


def _check_size(operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(right, 0) if operator == "**" else left.bit_length() + right.bit_length()
        if operator != "%" and bits > _MAX_BITS:
            raise OverflowError(f"{operator} makes a number of more than {_MAX_BITS} bits")
    elif operator == "%" and isinstance(left, str):
        if _WIDE.search(left) or "*" in left:
            raise OverflowError(f"the width in {left[:40]!r} is too large or not written out")
    elif operator == "*" and _length(left) * _length(right) > MAX_CHARACTERS:
        raise OverflowError(f"* makes something longer than {MAX_CHARACTERS:,}")


def _length(value: Any) -> int:
    if isinstance(value, (str, list, tuple)):
        return len(value)
    return max(value, 0) if isinstance(value, int) else 0
