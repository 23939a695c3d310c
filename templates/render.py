"""`render`: a configuration of a search space, a compile signature and a target become one CUDA C++ source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kt.errors import InputError
from kt.problems import DTYPES, Signature
from kt.problems.dtypes import ACCUMULATORS, OUTPUT_BYTES
from kt.search_spaces.launch import launchable
from kt.search_spaces.space import Config, SearchSpace
from kt.templates.includes import check_includes
from kt.templates.lookup import find_file
from kt.templates.source import Source

__all__ = ["render", "rendered_parts", "signature_names"]

# In include/kt/ptx/grid_dependency.cuh: the function, and the instruction that it consists of.
_FUNCTION, _WAIT = "wait_for_earlier_grids", "griddepcontrol.wait"
_CALL, _DEFINITION = re.compile(rf"\b{_FUNCTION}\s*\("), re.compile(rf"\bvoid\s+{_FUNCTION}\s*\(")
_COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


def render(
    space: SearchSpace,
    config: Config,
    signature: Signature,
    arch: str,
    template_dirs: Sequence[Path] = (),
    forms: Sequence[Signature] = (),
) -> Source:
    """The source of `config` for `signature` and `arch` (NVRTC's name of the target, e.g. "sm_90a").

    The template sees the compile-time parameters by name, the names of `signature_names`, and `kernels`: the names of
    the kernels that may be launched, so that what no run-time value asks for is not compiled. It also sees what
    `forms` have: `shared`, whether there are several, their `layouts`, and whether rows of C are aligned in some and
    narrower in others (`narrow_and_aligned`).

    Args:
        forms: signatures that one kernel is compiled for, in families that have such; they differ from `signature` in
            the layout and, upwards, in C's alignment. None: `signature` alone.

    Raises:
        InputError: the template is missing or unreadable, has a syntax error, uses a name that is not there, never
            ends, or includes what is not its own; the message has path and line. Or its kernels do not wait for earlier
            grids, as the space says.
    """
    folders, path = _places(space, template_dirs)
    text = _rendered(space.template, folders, _names(space, config, signature, arch, forms), path)
    check_includes(text, space.template, folders)
    _check_that_it_waits(space, text, path)
    return Source(text, path)


def rendered_parts(
    space: SearchSpace,
    config: Config,
    signature: Signature,
    arch: str,
    template_dirs: Sequence[Path] = (),
    forms: Sequence[Signature] = (),
) -> list[str]:
    """What `render` gives, cut where headers stand: text and names of headers take turns, beginning with text."""
    from kt.templates.environment import headers_apart

    folders, path = _places(space, template_dirs)
    names = _names(space, config, signature, arch, forms)
    return headers_apart(_rendered(space.template, folders, names, path, apart=True))


def _places(space: SearchSpace, template_dirs: Sequence[Path]) -> tuple[tuple[Path, ...], str]:
    """The folders that are searched before the built-in one, and where the space's template is."""
    folders = tuple(Path(folder).absolute() for folder in template_dirs)
    return folders, str(find_file(space.template, folders))


def signature_names(signature: Signature, arch: str) -> dict[str, int | str]:
    """What a template may name besides parameters.

    dtype, accumulator, out_dtype, layout, epilogue, align_a, align_b, align_c: of the signature.
    layout_a, layout_b: "n" or "t". type_in, type_acc, type_out: C++ types. sizeof_in, sizeof_acc, sizeof_out: bytes.
    header_in, header_out: the CUDA header that declares the type, or "".
    target: NVRTC's name of the target, e.g. "sm_90a". arch: its number, 90.
    """
    dtype, out = DTYPES[signature.dtype], signature.out_dtype
    sizeof_acc, type_acc = ACCUMULATORS[signature.accumulator]
    return {
        "dtype": signature.dtype, "accumulator": signature.accumulator, "out_dtype": out,
        "layout": signature.layout, "layout_a": signature.layout[0], "layout_b": signature.layout[1],
        "epilogue": signature.epilogue,
        "align_a": signature.align_a, "align_b": signature.align_b, "align_c": signature.align_c,
        "type_in": dtype.cuda, "type_acc": type_acc, "type_out": DTYPES[out].cuda if out in DTYPES else "int",
        "sizeof_in": dtype.bytes, "sizeof_acc": sizeof_acc, "sizeof_out": OUTPUT_BYTES[out],
        "header_in": dtype.header, "header_out": DTYPES[out].header if out in DTYPES else "",
        "target": arch, "arch": int("".join(filter(str.isdigit, arch)) or 0),
    }  # fmt: skip


def _check_that_it_waits(space: SearchSpace, text: str, path: str) -> None:
    """A grid that starts before earlier ones have ended must wait for them, or it reads what they have yet to write."""
    if any(rule.programmatic.text not in ("False", "0") for rule in space.launches) and not _waits(text):
        raise InputError(
            f"{path}: never waits for earlier grids, but launches of {space.source or space.family} are `programmatic`",
            hint="let each kernel call kt::wait_for_earlier_grids() of include/kt/ptx/grid_dependency.cuh first",
        )


def _waits(text: str) -> bool:
    """Whether the function is called, or its instruction used elsewhere. Definition and comments are no calls."""
    if _is_call(text, text.rfind(f"{_FUNCTION}(")):
        return True
    code = _COMMENT_OR_TEXT.sub(lambda found: " " if found[0].startswith("/") else found[0], text)
    defined = len(_DEFINITION.findall(code))
    return len(_CALL.findall(code)) > defined or code.count(_WAIT) > defined


def _is_call(text: str, at: int) -> bool:
    """Whether a call stands there plainly, without a look at the whole text: that takes as long as rendering it."""
    before = text[text.rfind("\n", 0, max(at, 0)) + 1 : max(at, 0)]
    in_comment = "//" in before or text.rfind("/*", 0, at) > text.rfind("*/", 0, at)
    return at >= 0 and not in_comment and before.strip() in ("", "kt::")


def _names(
    space: SearchSpace, config: Config, signature: Signature, arch: str, forms: Sequence[Signature]
) -> dict[str, Any]:
    known = signature_names(signature, arch)
    every = [signature_names(one, arch) for one in forms] or [known]
    kernels = frozenset[str]().union(*(launchable(space, config, one) for one in every))
    layouts = tuple(dict.fromkeys(one["layout"] for one in every))
    narrow_and_aligned = len({one["align_c"] for one in every}) > 1
    of_forms = {"shared": len(forms) > 1, "layouts": layouts, "narrow_and_aligned": narrow_and_aligned}
    names: dict[str, Any] = {**known, **of_forms, "kernels": kernels}
    for name, value in config.parameters:
        if name in names:
            raise InputError(f"{space.source or space.family}: a parameter cannot be called {name}; templates use it")
        names[name] = value
    return names


def _rendered(
    template: str, template_dirs: tuple[Path, ...], names: dict[str, Any], path: str, *, apart: bool = False
) -> str:
    import jinja2

    from kt.templates.environment import environment

    try:
        jinja = environment(template_dirs, apart)
        return jinja.rendered(jinja.get_template(template), names)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"{error.filename}:{error.lineno}: {error.message}") from error
    except RecursionError as error:
        message = "it includes, extends or calls itself without end, or is nested too deep"
        raise InputError(f"{_position(error, path)}: {message}") from error
    except SyntaxError as error:  # of the Python code that Jinja2 makes: blocks within blocks within blocks
        raise InputError(f"{_position(error, path)}: {error.msg}") from error
    except MemoryError as error:
        raise InputError(f"{_position(error, path)}: needs more memory than there is") from error
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise InputError(f"{_position(error, path)}: {error}", hint=_did_you_mean(str(error), names)) from error


def _position(error: BaseException, path: str) -> str:
    """Path and line of the innermost template in the error's traceback."""
    position, trace = path, error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if filename.endswith((".j2", ".cuh")):
            position = f"{filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return position


def _did_you_mean(message: str, names: dict[str, Any]) -> str | None:
    undefined = message.split("'")[1] if message.endswith("is undefined") and "'" in message else ""
    close = difflib.get_close_matches(undefined, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"a template may name: {', '.join(sorted(names))}" if undefined else None
