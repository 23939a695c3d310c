"""A `--space` file without `template`: it narrows the built-in space of its family."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations

import kt.search_spaces.launch as launch
from kt.devices.device import Device
from kt.problems.dtypes import DTYPES
from kt.problems.problem import Problem
from kt.problems.yaml_source import Document
from kt.problems.yaml_values import check_keys, fail, mapping
from kt.search_spaces.arithmetic import ExpressionError
from kt.search_spaces.names import PROBLEM_SIZES
from kt.search_spaces.scope import Scope
from kt.search_spaces.space import SearchSpace, Value
from kt.search_spaces.space_parts import (
    Choices,
    check_family,
    read_constraints,
    read_default,
    read_values,
    unknown_parameter,
)

__all__ = ["NARROWING_KEYS", "narrow_by"]

LET_GO = 2  # values of the default that give way together, before all of the space is looked through

NARROWING_KEYS = ("op", "family", "parameters", "runtime", "default", "constraints")


def narrow_by(space: SearchSpace, document: Document) -> SearchSpace:
    """`space` with the file's lists of values and its constraints added.

    Words that a template does not know are refused; other numbers than the built-in ones are allowed, for the
    constraints protect them. A default that is no longer offered or valid gives way to the valid combination that
    keeps most of it, the first in file order among equals.
    """
    data = document.data
    check_keys(document, (), data, NARROWING_KEYS)
    _, family = check_family(document)
    if family != space.family:
        raise fail(document, ("family",), f"is {family}; it would narrow the space of {space.family}")
    parameters = _other_values(document, "parameters", space.parameters, space.runtime)
    runtime = _other_values(document, "runtime", space.runtime, space.parameters)
    offered = {**parameters, **runtime}
    constraints = space.constraints + read_constraints(document, Scope(document, offered, space.derived))
    starts = tuple(start for start in space.starts if _are_offered(start, offered))
    tiny = space.tiny if space.tiny and _are_offered(space.tiny.choose, offered) else None
    narrowed = replace(space, parameters=parameters, runtime=runtime, constraints=constraints, starts=starts, tiny=tiny)
    narrowed = replace(narrowed, source=document.path)
    asked = {**space.default, **read_default(document, offered)}
    return replace(narrowed, default=_default(document, narrowed, asked))


def _are_offered(choices: Mapping[str, Value], offered: Mapping[str, Collection[Value]]) -> bool:
    return all(value in offered[name] for name, value in choices.items())


def _other_values(document: Document, key: str, known: Choices, elsewhere: Choices) -> dict[str, tuple[Value, ...]]:
    result = dict(known)
    for name, value in mapping(document, (key,), document.data.get(key, {}), "names to lists of values").items():
        if name in elsewhere:
            other = "runtime" if key == "parameters" else "parameters"
            raise fail(document, (key, name), f"belongs under `{other}`", f"move it to `{other}:`")
        if name not in known:
            raise unknown_parameter(document, (key, name), {**known, **elsewhere})
        result[name] = read_values(document, (key, name), value, numbers_only=isinstance(known[name][0], int))
        for index, item in enumerate(result[name]):
            if isinstance(item, str) and item not in known[name]:
                listed = ", ".join(map(str, known[name]))
                raise fail(document, (key, name, index), f"is {item}; the template knows {listed}", "choose of these")
    return result


def _default(document: Document, space: SearchSpace, asked: Mapping[str, Value]) -> dict[str, Value]:
    """`asked` if it is offered and breaks nothing that parameters decide; else the nearest valid combination."""
    offered = {**space.parameters, **space.runtime}
    certain = launch.decided_by_parameters(space)
    if all(asked[name] in offered[name] for name in offered) and not _is_broken(document, space, asked):
        return dict(asked)
    pinned = document.data.get("default", {})
    open_space = replace(space, parameters=_pin(space.parameters, pinned), runtime=_pin(space.runtime, pinned))
    nearest = _nearest(open_space, asked, _least_device(space))
    nearest = nearest or _nearest(replace(open_space, constraints=certain), asked, {})
    if nearest is None:
        keys = ("default",) if pinned else ()
        raise fail(document, keys, "leaves no valid configuration", "widen the lists of values or the constraints")
    return nearest


def _is_broken(document: Document, space: SearchSpace, asked: Mapping[str, Value]) -> bool:
    """Whether `asked` breaks a constraint that parameters alone decide.

    Raises:
        InputError: a constraint has no value for it; the message says where it stands, if it is the file's own.
    """
    certain = launch.decided_by_parameters(space)
    first = len(space.constraints) - len(document.data.get("constraints", ()))
    for index, rule in enumerate(space.constraints):
        try:
            broken = rule in certain and launch.first_broken(space, [rule], asked)
        except ExpressionError as error:
            if index < first:
                raise fail(document, (), f"gives a constraint no value: {error.message}") from None
            keys = ("constraints", index - first, "require")
            raise fail(document, keys, f"has no value for the default: {error.message}") from None
        if broken:
            return True
    return False


def _pin(choices: Choices, pinned: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
    return {name: (pinned[name],) if name in pinned else values for name, values in choices.items()}


def _nearest(space: SearchSpace, asked: Mapping[str, Value], names: Mapping[str, object]) -> dict[str, Value] | None:
    """The first of the valid combinations that keep most of `asked`.

    What is still offered is kept, then all of it but one, but two: the whole space may be too large to look through.
    """
    offered = {**space.parameters, **space.runtime}
    kept = {name: asked[name] for name in offered if asked[name] in offered[name]}
    for count in range(LET_GO + 1):
        every = (_first(space, _without(kept, names_let_go), names) for names_let_go in combinations(kept, count))
        found = [one for one in every if one is not None]
        if found:
            return min(found, key=lambda one: [offered[name].index(one[name]) for name in offered])
    return _nearest_of_all(space, asked, names)


def _without(kept: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    return {name: value for name, value in kept.items() if name not in names}


def _first(space: SearchSpace, pinned: Mapping[str, Value], names: Mapping[str, object]) -> dict[str, Value] | None:
    """The first valid combination with these values."""
    from kt.search_spaces.enumeration import enumerate_space

    rest = replace(space, parameters=_pin(space.parameters, pinned), runtime=_pin(space.runtime, pinned))
    found = enumerate_space(rest, names)
    return found.config(0).as_dict() if len(found) else None


def _nearest_of_all(
    space: SearchSpace, asked: Mapping[str, Value], names: Mapping[str, object]
) -> dict[str, Value] | None:
    import numpy as np

    from kt.search_spaces.enumeration import enumerate_space

    found = enumerate_space(space, names)
    if not len(found):
        return None
    kept = np.sum([found.choices[name] == value for name, value in asked.items()], axis=0)
    return found.config(int(np.argmax(kept))).as_dict()


def _least_device(space: SearchSpace) -> dict[str, object]:
    """Names of the least GPU that the template compiles for, and of its widest elements, without sizes."""
    widest = max(space.dtypes, key=lambda name: DTYPES[name].bytes)
    device = Device("", space.min_compute_capability, 1, 2**30)
    problem = Problem(1, 1, 1, dtype=widest).names()
    return {**device.names(), **{name: value for name, value in problem.items() if name not in PROBLEM_SIZES}}
