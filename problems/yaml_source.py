"""Strict YAML: values that mean the same to every reader, each with the line and column it stands at."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kt.errors import InputError
from kt.problems.whole_input import name_of, read_whole
from kt.problems.yaml_scalars import Ambiguous, plain_value
from kt.wording import plural

if TYPE_CHECKING:
    import yaml

__all__ = ["Document", "Key", "Refusal", "joined", "path_text", "read_yaml"]

Key = str | int

MAX_DEPTH = 20
SHOWN_ERRORS = 10  # of one file in one message
MAX_BYTES = 64 * 2**20  # far above a file of the most shapes
_PLAIN = "kt:plain"  # the tag that our loader gives to unquoted scalars, whatever they look like
_TEXT = "tag:yaml.org,2002:str"
_LIST = "tag:yaml.org,2002:seq"
_MAP = "tag:yaml.org,2002:map"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# By their byte-order marks; that of UTF-16 is the begin of one of UTF-32.
_OTHER_ENCODINGS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
MAX_KEY = 1024  # characters, as YAML has it
_LONG_KEY = re.compile(r"""([^\s,:\[\]{}"']{1025,}|"[^"]{1025,}"|'[^']{1025,}')(?=\s*:)""")

_HINTS = (
    ("mapping values are not allowed", "put text that has a colon in it in quotes, and each key on its own line"),
    ("',' or '}'", "separate the entries of {...} with commas, and close the brace"),
    ("',' or ']'", "separate the entries of [...] with commas, and close the bracket"),
    ("cannot start any token", "indent with spaces, not tabs; put text that begins with a special character in quotes"),
    ("expected a single document", "keep one document in one file: remove the second `---`"),
)


@dataclass(frozen=True)
class Refusal:
    """A value that YAML readers disagree on, where it stands, and the error that says so."""

    keys: tuple[Key, ...]
    error: InputError


@dataclass(frozen=True)
class Document:
    """A YAML file as plain Python values that remember where they were written.

    Attributes:
        data: dicts with text keys, lists, text, int, float, bool and None.
        path: the file as it was named, or `<stdin>`.
        refusals: what could not be read, in the order of the file; None stands for it in `data`.
    """

    data: Any
    path: str
    refusals: tuple[Refusal, ...] = ()
    _root: Any = field(repr=False, compare=False, default=None)

    def where(self, *keys: Key) -> str:
        """`file:line:column` of the value at `keys`, or of its closest parent that exists."""
        return self._place(self._find(keys)[1])

    def where_key(self, *keys: Key) -> str:
        """`file:line:column` of the key that leads to the value at `keys`; for a list's entry, of the entry."""
        return self._place(self._find(keys)[0])

    def text(self, *keys: Key) -> str:
        """The scalar at `keys` as it was written, quotes included; "" where no scalar stands."""
        node = self._find(keys)[1]
        if not isinstance(node.value, str):
            return ""
        return node.value if node.tag == _PLAIN else f'"{node.value}"'

    def _place(self, node: Any) -> str:
        return f"{self.path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def _find(self, keys: tuple[Key, ...]) -> tuple[Any, Any]:
        """The nodes of the last key and its value."""
        at = node = self._root
        for key in keys:
            found = _child(node, key)
            if found is None:
                break
            at, node = found
        return at, node


def path_text(keys: tuple[Key, ...]) -> str:
    """`("shapes", 3, "m")` as `shapes[3].m`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


def joined(errors: list[InputError], heading: str) -> InputError:
    """The only error as it is, or `heading` and up to ten of them as one."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{error.message} ({error.hint})" if error.hint else error.message for error in errors[:SHOWN_ERRORS]]
    more = [f"and {len(errors) - SHOWN_ERRORS} more"] if len(errors) > SHOWN_ERRORS else []
    return InputError("\n".join([heading, *lines, *more]))


def read_yaml(path: Path | str, *, lenient: bool = False) -> Document:
    """Read the YAML file `path`; "-" is standard input.

    Args:
        lenient: leave what readers disagree on to the caller, in `refusals`.

    Raises:
        InputError: the file cannot be read, is too large or empty, is not YAML, or says something that YAML readers
            disagree on (`no`, `010`, `1:30`, `1_000`, a repeated key); the message begins with file, line and column,
            or has up to ten lines that do.
    """
    import yaml

    name = name_of(path)
    text = _decode(_read_bytes(path, name), name)
    try:
        root = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name) from None
    except RecursionError:
        raise InputError(f"{name}: lists and mappings are nested too deep") from None
    reader = _Reader(name)
    data = None if root is None else reader.value(root, ())
    if reader.refusals and (data is None or not lenient):
        errors = [refusal.error for refusal in reader.refusals]
        raise joined(errors, f"{name}: {plural(len(errors), 'value')} cannot be read")
    if data is None:
        raise InputError(
            f"{name}: the file is empty", hint="`kt schema shapes`, or `kt schema space`, tells what it may hold"
        )
    return Document(data, name, tuple(reader.refusals), root)


@lru_cache(maxsize=1)
def _loader() -> Any:
    """A loader that tells unquoted scalars from quoted ones and leaves their meaning to `plain_value`."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("PlainLoader", (base,), {"yaml_implicit_resolvers": {None: [(_PLAIN, re.compile(""))]}})


def _read_bytes(path: Path | str, name: str) -> bytes:
    try:
        return read_whole(path, MAX_BYTES)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _decode(raw: bytes, name: str) -> str:
    if encoding := next((known for mark, known in _OTHER_ENCODINGS if raw.startswith(mark)), ""):
        raise InputError(f"{name}:1:1: the file is {encoding}", hint="save it as UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_of(raw[: error.start].decode("utf-8", "replace"), name)
        message = f"{place}: byte 0x{raw[error.start]:02x} is not UTF-8"
        raise InputError(message, hint="save the file as UTF-8") from None
    bad = _UNPRINTABLE.search(text)
    if bad:
        raise InputError(f"{_place_of(text[: bad.start()], name)}: control character {bad[0]!r}", hint="remove it")
    return text


def _place_of(before: str, name: str) -> str:
    lines = before.replace("\r\n", "\n").split("\n")
    return f"{name}:{len(lines)}:{len(lines[-1]) + 1}"


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if mark and "undefined alias" in problem:
        alias = re.match(r"\*([^\s,\[\]{}]+)", _line(text, mark)[mark.column :])
        shown = alias[1] if alias else ""
        return InputError(f"{place}: alias *{shown} has no anchor", hint=f"write &{shown} before the value it repeats")
    if mark and re.search("expected (':'|',' or '})|mapping values", problem):  # behind a key that is too long
        key = _LONG_KEY.search(_line(text, mark))
        if key:
            place = f"{name}:{mark.line + 1}:{key.start() + 1}"
            return InputError(f"{place}: a key of {len(key[0])} characters; YAML takes {MAX_KEY}", hint="shorten it")
    if error.context_mark and mark and error.context_mark.line != mark.line:
        problem += f" (it begins in line {error.context_mark.line + 1})"
    hint = next((advice for part, advice in _HINTS if part in problem), None)
    return InputError(f"{place}: not valid YAML: {problem}", hint=hint)


def _line(text: str, mark: yaml.Mark) -> str:
    """The line of a mark; "" if it stands behind the last one, where something is not closed."""
    return "".join(text.splitlines()[mark.line : mark.line + 1])


def _child(node: Any, key: Key) -> tuple[Any, Any] | None:
    if isinstance(key, int):
        fits = node.tag == _LIST and 0 <= key < len(node.value)
        return (node.value[key], node.value[key]) if fits else None
    pairs = node.value if node.tag == _MAP else []
    return next(((name, value) for name, value in pairs if name.value == key), None)


class _Reader:
    """Turns nodes into values; a value that an alias repeats is read once, and never inside itself.

    Attributes:
        refusals: what has no one meaning; it is read as None.
    """

    def __init__(self, name: str) -> None:
        self.refusals: list[Refusal] = []
        self._name = name
        self._done: dict[int, Any] = {}
        self._open: set[int] = set()
        self._refused: dict[int, InputError] = {}  # the first error in what an alias may repeat

    def value(self, node: Any, keys: tuple[Key, ...]) -> Any:
        if node.tag in (_PLAIN, _TEXT) and isinstance(node.value, str):
            return self._scalar(node, keys)
        if id(node) in self._refused:
            self.refusals.append(Refusal(keys, self._refused[id(node)]))
        if id(node) in self._done:
            return self._done[id(node)]
        if node.tag not in (_LIST, _MAP):
            return self._refuse(node, keys, f"has the tag {node.tag}", "remove the tag")
        if id(node) in self._open:
            return self._refuse(node, keys, "repeats itself through an alias", "write the value out")
        if len(keys) >= MAX_DEPTH:
            return self._refuse(node, keys, f"is nested deeper than {MAX_DEPTH} levels", "check the brackets")
        self._open.add(id(node))
        before = len(self.refusals)
        result = self._list(node, keys) if node.tag == _LIST else self._mapping(node, keys)
        self._open.discard(id(node))
        self._done[id(node)] = result
        if len(self.refusals) > before:
            self._refused[id(node)] = self.refusals[before].error
        return result

    def _scalar(self, node: Any, keys: tuple[Key, ...]) -> Any:
        if node.tag == _TEXT:
            return node.value
        try:
            return plain_value(node.value)
        except Ambiguous as error:
            shown = node.value if len(node.value) <= 40 else node.value[:40] + "…"
            return self._refuse(node, keys, f"is {shown}: {error.problem}", error.hint)

    def _list(self, node: Any, keys: tuple[Key, ...]) -> list[Any]:
        return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: Any, keys: tuple[Key, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, item in node.value:
            name = self._key(key, keys)
            if name is None:
                continue
            if name in result:
                self._refuse(key, (*keys, name), f"is given twice, first in line {lines[name]}", "remove one")
                continue
            lines[name] = key.start_mark.line + 1
            result[name] = self.value(item, (*keys, name))
        return result

    def _key(self, node: Any, keys: tuple[Key, ...]) -> str | None:
        """The key as a name; None if it is refused."""
        fault = _key_fault(node)
        if fault:
            self._refuse(node, keys, *fault)
        return None if fault else node.value

    def _refuse(self, node: Any, keys: tuple[Key, ...], problem: str, hint: str) -> None:
        place = f"{self._name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
        error = InputError(f"{place}: {path_text(keys) or 'the file'} {problem}", hint=hint)
        self.refusals.append(Refusal(keys, error))


def _key_fault(node: Any) -> tuple[str, str] | None:
    """What is wrong with a key, and what to do about it."""
    if not isinstance(node.value, str) or node.tag not in (_PLAIN, _TEXT):
        return "has a key that is not a name", "write keys as plain words"
    if node.value == "<<":
        hint = "write the keys out, or give them once as defaults at the top of the file"
        return "has a merge key `<<`, which YAML 1.2 does not know", hint
    problem = f"has the key `{node.value}`, which is not a name"
    if node.tag == _PLAIN and re.search(r"[()*/<>=+]", node.value):
        return problem, 'put text that has a comma in it in quotes: {grid: "cdiv(m, 64)"}'
    if node.tag == _PLAIN and not re.match(r"[^\W\d]", node.value):
        return problem, "write keys as plain words, and numbers without thousands separators"
    return None
