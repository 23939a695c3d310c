"""Search-space files: one becomes a checked `SearchSpace`; which ones a run uses.

The checks are made by hand, not by pydantic: each message must name the line and column of one value, most rules bind
several parts of the file together, and a look-up in the cache has to read the spaces within milliseconds.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from kt.errors import InputError
from kt.problems.dtype_names import canonical_dtype
from kt.problems.dtypes import DTYPES
from kt.problems.yaml_source import Document, read_yaml
from kt.problems.yaml_values import check_keys, choice, describe, entries, fail, text, whole_number
from kt.search_spaces.expression import Expression, ExpressionError
from kt.search_spaces.launch import decided_by_parameters, first_broken
from kt.search_spaces.narrowing import narrow_by
from kt.search_spaces.schema import space_schema
from kt.search_spaces.scope import Scope
from kt.search_spaces.space import LaunchRule, SearchSpace
from kt.search_spaces.space_parts import (
    check_family,
    read_choices,
    read_constraints,
    read_default,
    read_derived,
    read_launches,
    read_starts,
    read_tiny,
)

__all__ = ["builtin_spaces", "load_space", "narrow", "resolve_spaces", "space_digest", "space_schema"]

BUILTIN = Path(__file__).resolve().parent

MAX_PARAMETERS = 30  # numpy 1 has at most 32 dimensions, one for each parameter

_NEEDED = ("op", "family", "template", "dtypes", "parameters", "default", "launches")
_OPTIONAL = ("min_compute_capability", "runtime", "derived", "constraints", "workspace_bytes", "starts", "tiny")
_NOT_OURS = ("compile_options", "compiler_options", "options", "flags", "nvcc_flags", "nvrtc_options")


def load_space(path: Path | str) -> SearchSpace:
    """The search space in the file `path`.

    Raises:
        InputError: the file is not a complete and consistent space; the message names line, column and key.
    """
    return _space(_read(path))


def builtin_spaces() -> list[SearchSpace]:
    """The spaces that come with kt, sorted by family."""
    spaces = [load_space(path) for path in sorted(BUILTIN.glob("*/*.yaml"))]
    return sorted(spaces, key=lambda space: space.family)


def narrow(space: SearchSpace, path: Path | str) -> SearchSpace:
    """`space` narrowed by a file without `template`: other lists of values, and further constraints.

    Raises:
        InputError: the file says something else, or nothing of the space is left.
    """
    return narrow_by(space, _read(path))


def resolve_spaces(path: Path | str | None, dtypes: Iterable[str] = ()) -> list[SearchSpace]:
    """The spaces of a run.

    Args:
        path: of `--space`: a complete file replaces the built-in spaces, one without `template` narrows the built-in
            space of its family and replaces them by that; None means the built-in ones.
        dtypes: number formats of the shapes; spaces that serve none of them are left out. None given keeps all.
    """
    wanted = set(dtypes)
    spaces = builtin_spaces() if path is None else [_given_space(_read(path))]
    return [space for space in spaces if not wanted or wanted & set(space.dtypes)]


def _given_space(document: Document) -> SearchSpace:
    if "template" in document.data:
        return _space(document)
    if "family" not in document.data:
        check_keys(document, (), document.data, _NEEDED + _OPTIONAL)  # that it has others says more, as a shapes file
        raise fail(document, (), "has no `family`", f"a complete space has {', '.join(_NEEDED)}; another names one")
    _, family = check_family(document)
    known = {space.family: space for space in builtin_spaces()}
    if family not in known:
        choice(document, ("family",), family, known)
    return narrow_by(known[family], document)


def space_digest(space: SearchSpace) -> str:
    """SHA-256, hexadecimal, of what may change which configuration wins: not comments, reasons, starts, tiny ones."""
    launches = [[rule.kernel, *(part.text for part in _parts(rule)), *_map_texts(rule)] for rule in space.launches]
    parts: list[Any] = [
        space.op, space.family, space.template, space.dtypes, space.min_compute_capability,
        list(space.parameters.items()), list(space.runtime.items()), sorted(space.default.items()),
        sorted((name, rule.text) for name, rule in space.derived.items()),
        [constraint.require.text for constraint in space.constraints], launches, space.workspace_bytes.text,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def _parts(rule: LaunchRule) -> tuple[Expression, ...]:
    return rule.grid, rule.block, rule.smem_bytes, rule.when, rule.programmatic


def _map_texts(rule: LaunchRule) -> list[list[str]]:
    return [
        [one.operand, *(getattr(one, field.name).text for field in fields(one) if field.name != "operand")]
        for one in rule.tensor_maps
    ]


def _read(path: Path | str) -> Document:
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        shown = describe(document, (), document.data)
        raise fail(document, (), f"is {shown}; a search space maps keys like family, parameters and constraints")
    for name in _NOT_OURS:
        if name in document.data:
            hint = "kt chooses the compiler's options for each GPU; write what the kernel needs into its template"
            raise InputError(f"{document.where_key(name)}: {name} is refused in a search space", hint=hint)
    return document


def _space(document: Document) -> SearchSpace:
    data = document.data
    check_keys(document, (), data, _NEEDED + _OPTIONAL)
    for name in _NEEDED:
        if name not in data:
            raise fail(document, (), f"has no `{name}`", f"a complete space has {', '.join(_NEEDED)}")
    op, family = check_family(document)
    parameters = read_choices(document, "parameters", {}, numbers_only=False)
    runtime = read_choices(document, "runtime", parameters, numbers_only=True)
    if not parameters:
        raise fail(document, ("parameters",), "names no parameter", "list at least one with its values")
    offered = {**parameters, **runtime}
    if len(offered) > MAX_PARAMETERS:
        raise fail(document, ("parameters",), f"and `runtime` name {len(offered)}, more than {MAX_PARAMETERS}")
    default = read_default(document, offered)
    for name in offered:
        if name not in default:
            raise fail(document, ("default",), f"has no {name}", "give every parameter and run-time parameter a value")
    scope = Scope(document, offered)
    derived = read_derived(document, scope, offered)
    constraints = read_constraints(document, scope)
    space = SearchSpace(
        op=op,
        family=family,
        template=_template(document),
        dtypes=_dtypes(document),
        min_compute_capability=_capability(document),
        parameters=parameters,
        runtime=runtime,
        default=default,
        derived=derived,
        constraints=constraints,
        launches=read_launches(document, scope),
        workspace_bytes=scope.expression(("workspace_bytes",), data.get("workspace_bytes", 0)),
        starts=read_starts(document, offered),
        tiny=read_tiny(document, scope, offered, constraints),
        source=document.path,
    )
    _check_default(document, space)
    return space


def _check_default(document: Document, space: SearchSpace) -> None:
    """The default meets every constraint that parameters alone decide."""
    try:
        broken = first_broken(space, decided_by_parameters(space), space.default)
    except ExpressionError as error:
        raise fail(document, ("default",), f"gives a constraint no value: {error.message}") from None
    if broken is not None:
        problem = f"breaks the constraint `{broken.require.text}`: {broken.reason}"
        raise fail(document, ("default",), problem, "choose a valid combination as default")


def _template(document: Document) -> str:
    name = text(document, ("template",), document.data["template"])
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name:
        hint = "name it below the template folder and give the folder by --templates DIR"
        raise fail(document, ("template",), f"is {name}; it must be a path inside a template folder", hint)
    return name


def _dtypes(document: Document) -> tuple[str, ...]:
    names = entries(document, ("dtypes",), document.data["dtypes"], "number formats")
    known = [canonical_dtype(name) if isinstance(name, str) else name for name in names]
    read = [choice(document, ("dtypes", index), name, DTYPES) for index, name in enumerate(known)]
    return tuple(dict.fromkeys(read))


def _capability(document: Document) -> tuple[int, int]:
    value = document.data.get("min_compute_capability", [7, 5])
    if not isinstance(value, list) or len(value) != 2:
        shown = describe(document, ("min_compute_capability",), value)
        raise fail(
            document, ("min_compute_capability",), f"is {shown}; it must be [major, minor]", "for example [8, 0]"
        )
    major, minor = (
        whole_number(document, ("min_compute_capability", index), part, 0, 99) for index, part in enumerate(value)
    )
    return major, minor
