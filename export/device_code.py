"""The device code of several kernels in one header: shared headers once, each kernel in a namespace of its own.

A rendered source is a translation unit: CUDA's includes, macros, kt's headers, and a few lines that instantiate a
kernel. Sources of one template that need the same macros share one copy of the headers. A kernel becomes a template, so
that it may stand in any number of translation units, and its body is compiled only for the compute capabilities that it
was rendered for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from kt.errors import InputError

__all__ = ["Group", "Piece", "grouped", "kernels_as_templates", "piece", "tidy", "undefined"]

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(<[^>\n]+>)[ \t]*\n?", re.MULTILINE)
_DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)")
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s')
_LINKAGE = re.compile(r'extern\s+"C"')
_NO_CODE = re.compile(
    r"""(?<!\w)(?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | //[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)
_BLANK_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True)
class Piece:
    """What one rendered source adds to a header.

    Attributes:
        template: what it was rendered from: headers that no template includes together need not go together.
        includes: CUDA's headers, in angle brackets.
        prologue: macros, one a line, that stand before kt's headers; or other code there, which is kept in its place.
        headers: names of kt's headers, in order.
        own: whether it shares no headers with others, because code of its own stands among them; then `prologue` is
            empty and `headers` are in `code`.
        code: what follows the headers, its kernels not yet transformed.
    """

    template: str
    includes: tuple[str, ...]
    prologue: tuple[str, ...]
    headers: tuple[str, ...]
    code: str
    own: bool = False


@dataclass(frozen=True)
class Group:
    """Sources that share headers.

    Attributes:
        prologue: macros before the headers.
        headers: names, in an order that suits all members.
        members: indices of the pieces.
        macros: names to undefine behind it.
    """

    prologue: tuple[str, ...]
    headers: tuple[str, ...]
    members: tuple[int, ...]
    macros: tuple[str, ...]


def piece(template: str, parts: Sequence[str], header_text: Callable[[str], str]) -> Piece:
    """The piece of a source that was rendered in `parts`: text and names of headers take turns."""
    texts, headers = parts[0::2], tuple(parts[1::2])
    includes = tuple(dict.fromkeys(name for text in texts for name in _INCLUDE.findall(text)))
    plain = [_INCLUDE.sub("", text) for text in texts]
    before = [line for text in plain[:-1] for line in _code_lines(text)]
    if all(_DEFINE.match(line) for line in before):
        return Piece(template, includes, tuple(before), headers, plain[-1].strip("\n"))
    whole = "".join(text + header_text(name) for text, name in zip(plain, headers, strict=False)) + plain[-1]
    return Piece(template, includes, (), (), whole.strip("\n"), own=True)


def grouped(pieces: Sequence[Piece]) -> list[Group]:
    """The pieces by what they share, in the order of their first members."""
    shared: dict[tuple[object, ...], list[int]] = {}
    for index, one in enumerate(pieces):
        shared.setdefault((one.template, one.prologue, index if one.own else -1), []).append(index)
    return [group for members in shared.values() for group in _groups(pieces, members)]


def kernels_as_templates(code: str, condition: str, where: str) -> str:
    """The code with each kernel as a template whose body stands under `#if condition`, and is a trap elsewhere.

    Clusters are asked for by a macro of the header, since compilers refuse them for GPUs that have none.

    Raises:
        InputError: something is `extern "C"` that cannot be had in a namespace.
    """
    return "".join(_transformed(code, condition, where))


def undefined(code: str) -> tuple[str, ...]:
    """The macros that the code leaves defined."""
    return tuple(dict.fromkeys(_DEFINE.findall(_without(code))))


def tidy(text: str) -> str:
    """The text with at most one blank line in a row, and no blanks at the ends of lines."""
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in text.strip("\n").split("\n")))


def _code_lines(text: str) -> Iterator[str]:
    return (line.strip() for line in _without(text).split("\n") if line.strip())


def _groups(pieces: Sequence[Piece], members: list[int]) -> list[Group]:
    """One group, or one for each member if they have the same headers in contrary orders."""
    try:
        headers = _merged([pieces[index].headers for index in members])
    except CycleError:
        return [group for index in members for group in _groups(pieces, [index])]
    first = pieces[members[0]]
    macros = [*first.prologue, *(pieces[index].code for index in members)]
    names = tuple(dict.fromkeys(name for text in macros for name in undefined(text)))
    return [Group(first.prologue, headers, tuple(members), names)]


def _merged(orders: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each behind those that precede it in any of the orders."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for order in orders:
        for before, name in zip(("", *order), order, strict=False):
            sorter.add(name, *([before] if before else []))
    return tuple(sorter.static_order())


def _transformed(code: str, condition: str, where: str) -> Iterator[str]:
    bare = _without(code)
    position = 0
    for match in _KERNEL.finditer(code):
        if bare[match.start()] != code[match.start()]:
            continue  # within a comment
        begin = bare.index("{", match.end())
        end = _closing(bare, begin, where)
        yield _checked(code[position : match.start()], where)
        body = code[begin + 1 : end].strip("\n")
        declared = code[match.end() : begin].replace("__cluster_dims__", "KT_CLUSTER_DIMS")
        otherwise = "#elif defined(__CUDA_ARCH__)\n__trap();\n#endif"
        yield f"template <int>\n__global__ {declared}{{\n#if {condition}\n{body}\n{otherwise}\n}}"
        position = end + 1
    yield _checked(code[position:], where)


def _checked(code: str, where: str) -> str:
    """The code between kernels."""
    bare = _without(code)
    if any(bare[match.start()] == "e" for match in _LINKAGE.finditer(code)):
        raise InputError(f'{where}: what is extern "C" and no kernel cannot be exported', hint="leave extern out")
    return code


def _closing(bare: str, begin: int, where: str) -> int:
    depth = 0
    for match in re.finditer(r"[{}]", bare[begin:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return begin + match.start()
    raise InputError(f"{where}: a kernel's body does not end")


def _without(code: str) -> str:
    """The code with comments and the insides of texts blanked; every character keeps its place."""
    return _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
