"""One configuration on one problem and device: what it derives, what it launches, and which rule it breaks."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from kt.errors import InputError
from kt.search_spaces.arithmetic import ExpressionError, truth
from kt.search_spaces.expression import Expression, compose
from kt.search_spaces.names import PROBLEM_SIZES, Names, lacks_sizes, leaves
from kt.search_spaces.space import (
    CLASSES,
    Config,
    Constraint,
    Launch,
    LaunchRule,
    OperandCopy,
    RowClass,
    SearchSpace,
    TensorMap,
    TensorMapRule,
    Value,
)
from kt.wording import plural

__all__ = [
    "always_launches",
    "decided_by_parameters",
    "derive",
    "first_broken",
    "launch_limits",
    "launchable",
    "resolve",
    "violated",
]

MAX_BLOCKS = 2**31 - 1
MAX_THREADS = 1024
MAX_BOX = 256  # elements along one side of what TMA copies at once
SWIZZLES = (0, 32, 64, 128)
# What a kernel may meet, whatever alignment it is compiled for.
_OPERAND_ALIGNMENTS: dict[str, tuple[int, ...]] = dict.fromkeys(
    ("operand_align_a", "operand_align_b"), (1, 2, 4, 8, 16)
)


def derive(space: SearchSpace, config: Config, names: Mapping[str, Any]) -> dict[str, Any]:
    """Every name with its value: parameters, problem and device as given, and the derived quantities.

    Derived quantities of the problem's size are left out if `names` has no sizes.

    Raises:
        InputError: the configuration lacks a parameter, or a derived quantity has no value for it.
    """
    values = _names(space, _choices(space, config), names)
    return {name: values[name] for name in values if not lacks_sizes([name], space.derived, values)}


def resolve(space: SearchSpace, config: Config, names: Mapping[str, Any]) -> tuple[tuple[Launch, ...], int]:
    """The launches whose `when` holds, in order, and the bytes of workspace that they share.

    Raises:
        InputError: the configuration lacks a parameter, or a launch is outside CUDA's limits (`violated` says so
            beforehand).
    """
    values = _names(space, _choices(space, config), names)
    with _of(space, config):
        launches = tuple(_launch(space, rule, values) for rule in space.launches if rule.when.evaluate(values))
        workspace = int(space.workspace_bytes.evaluate(values))
    if workspace < 0:
        raise InputError(f"{space.source or space.family}: workspace_bytes is {workspace} for {config.label}")
    return launches, workspace


@contextmanager
def _of(space: SearchSpace, config: Config) -> Iterator[None]:
    """An expression that has no value is told with its file and configuration."""
    try:
        yield
    except ExpressionError as error:
        hint = "add a constraint that rejects such configurations, or protect it: b != 0 and a % b == 0"
        message = f"{space.source or space.family}: {error.message} for {config.label}"
        raise ExpressionError(message, hint=hint) from None


def violated(space: SearchSpace, config: Config, names: Mapping[str, Any]) -> Constraint | None:
    """The first constraint that the configuration breaks on this problem and device, CUDA's launch limits last.

    Raises:
        InputError: the configuration lacks a parameter of the space.
    """
    values = _names(space, _choices(space, config), names)
    broken = _first_broken(space, space.constraints, values)
    if broken is not None or _keeps_limits(space, values):
        return broken
    return _first_broken(space, launch_limits(space), values)


def first_broken(
    space: SearchSpace,
    constraints: Iterable[Constraint],
    choices: Mapping[str, Value],
    names: Mapping[str, Any] | None = None,
) -> Constraint | None:
    """The first of `constraints` that these choices break; those that need sizes are skipped if there are none."""
    return _first_broken(space, constraints, _names(space, choices, names or {}))


def _first_broken(space: SearchSpace, constraints: Iterable[Constraint], values: Names) -> Constraint | None:
    has_sizes = all(name in values for name in PROBLEM_SIZES)
    for constraint in constraints:
        if not has_sizes and lacks_sizes(constraint.require.names, space.derived, values):
            continue
        if not truth(constraint.require.evaluate(values)):
            return constraint
    return None


def decided_by_parameters(space: SearchSpace) -> tuple[Constraint, ...]:
    """The constraints that name neither problem nor device, directly or through derived quantities."""
    own = space.parameters.keys() | space.runtime.keys()
    return tuple(rule for rule, names in space.rests_on if names <= own)


def launchable(space: SearchSpace, config: Config, names: Mapping[str, Any] | None = None) -> frozenset[str]:
    """The kernels that `config`'s compile-time choices may have launched, whatever the run-time ones and the sizes.

    A kernel is left out only if its `when` rests on what is known, and no run-time values of the space make it true
    that also keep those constraints which rest on nothing else.

    Args:
        names: what else is known when a kernel is compiled, as the problem's formats.
    """
    given = {**(names or {}), **dict(config.parameters)}
    with _of(space, config):
        return frozenset(rule.kernel for rule in space.launches if _may_launch(space, rule, given))


def _may_launch(space: SearchSpace, rule: LaunchRule, given: Mapping[str, Any]) -> bool:
    offered = {**space.runtime, **_OPERAND_ALIGNMENTS}
    runtime, needed = offered.keys(), leaves(rule.when.names, space.derived)
    known = given.keys() | runtime
    if not needed <= known:
        return True
    asked = needed & runtime
    kept = {one: names for one, names in space.rests_on if names & asked and names <= known} if asked else {}
    varied = [name for name in runtime if name in needed.union(*kept.values())]
    every = product(*(offered[name] for name in varied))
    tried = (_names(space, dict(zip(varied, values, strict=True)), given) for values in every)
    return any(truth(rule.when.evaluate(values)) and _keeps(kept, values) for values in tried)


def _keeps(constraints: Iterable[Constraint], values: Names) -> bool:
    """Whether they hold; also if one has no value, for another one may protect it."""
    try:
        return all(truth(one.require.evaluate(values)) for one in constraints)
    except ExpressionError:
        return True


def launch_limits(space: SearchSpace) -> tuple[Constraint, ...]:
    """CUDA's own limits on the space's launches, as constraints, each once: they hold whatever the file says.

    One more comes last where every launch has a condition: that some launch happens at all.
    """
    limits = tuple({limit.require.text: limit for rule in space.launches for limit in _limits(rule)}.values())
    return limits if always_launches(space) else (*limits, _some_launch(space.launches))


def always_launches(space: SearchSpace) -> bool:
    """Whether the space has a launch that needs no condition; else a configuration may compute nothing."""
    return any(rule.when.text == "True" for rule in space.launches)


@lru_cache(maxsize=64)
def _some_launch(rules: tuple[LaunchRule, ...]) -> Constraint:
    return Constraint(compose(" or ".join(f"({rule.when.text})" for rule in rules)), "some kernel is launched")


@lru_cache(maxsize=64)
def _limits(rule: LaunchRule) -> tuple[Constraint, ...]:
    guard = "" if rule.when.text == "True" else f"not ({rule.when.text}) or "
    return tuple(
        Constraint(compose(f"{guard}{bound.least} <= ({bound.value.text}) <= {bound.most}"), bound.reason)
        for bound in _bounds(rule)
    )


def _keeps_limits(space: SearchSpace, values: Names) -> bool:
    """Whether the launches keep CUDA's limits, found without parsing these; False also where it cannot be told."""
    try:
        launched = [rule for rule in space.launches if truth(rule.when.evaluate(values))]
        return bool(launched) and all(
            bound.least <= bound.value.evaluate(values) <= bound.limit(values)
            for rule in launched
            for bound in _bounds(rule)
        )
    except (ExpressionError, KeyError):
        return False


@dataclass(frozen=True)
class _Bound:
    """The least and the most that a part of a launch may be; the most may be a figure of the device."""

    least: int
    value: Expression
    most: int | str
    reason: str

    def limit(self, values: Names) -> Any:
        return self.most if isinstance(self.most, int) else values[self.most]


def _bounds(rule: LaunchRule) -> list[_Bound]:
    kernel = rule.kernel
    sides = [side for tensor_map in rule.tensor_maps for side in (tensor_map.columns, tensor_map.rows)]
    boxes = f"TMA copies boxes of 1 to {MAX_BOX} elements a side for {kernel}"
    memory = f"shared memory of a block of {kernel} fits the device"
    return [
        _Bound(1, rule.grid, MAX_BLOCKS, f"a launch of {kernel} has 1 to {MAX_BLOCKS} blocks"),
        _Bound(1, rule.block, MAX_THREADS, f"a block of {kernel} has 1 to {MAX_THREADS} threads"),
        _Bound(0, rule.smem_bytes, "device.smem_per_block_optin", memory),
        *(_Bound(1, side, MAX_BOX, boxes) for side in sides),
    ]


def _choices(space: SearchSpace, config: Config) -> dict[str, Value]:
    choices = config.as_dict()
    for name in (*space.parameters, *space.runtime):
        if name not in choices:
            raise InputError(
                f"the configuration `{config.label}` has no {name}, which the space {space.family} has",
                hint="it was made with another version of the space: tune again",
            )
    return choices


def _names(space: SearchSpace, choices: Mapping[str, Value], names: Mapping[str, Any]) -> Names:
    return Names({**names, **choices}, space.derived)


def _launch(space: SearchSpace, rule: LaunchRule, values: Names) -> Launch:
    grid, block, smem = (int(part.evaluate(values)) for part in (rule.grid, rule.block, rule.smem_bytes))
    if not (1 <= grid <= MAX_BLOCKS and 1 <= block <= MAX_THREADS and smem >= 0):
        raise InputError(
            f"{space.source or space.family}: {rule.kernel} cannot be launched with "
            f"{plural(grid, 'block')} of {plural(block, 'thread')} and {plural(smem, 'byte')} of shared memory",
            hint=f"CUDA takes 1 to {MAX_BLOCKS} blocks of 1 to {MAX_THREADS} threads: add a constraint to the space",
        )
    maps = [_tensor_map(space, one, values) for one in rule.tensor_maps if truth(one.when.evaluate(values))]
    return Launch(rule.kernel, grid, block, smem, tuple(maps), truth(rule.programmatic.evaluate(values)))


def _tensor_map(space: SearchSpace, rule: TensorMapRule, values: Names) -> TensorMap:
    columns, rows, swizzle = (int(part.evaluate(values)) for part in (rule.columns, rule.rows, rule.swizzle))
    if not (1 <= columns <= MAX_BOX and 1 <= rows <= MAX_BOX and swizzle in SWIZZLES):
        raise InputError(
            f"{space.source or space.family}: TMA cannot copy boxes of {columns} x {rows} elements "
            f"of {rule.operand.upper()} with a swizzle of {swizzle} bytes",
            hint=f"boxes have 1 to {MAX_BOX} elements a side, swizzles {', '.join(map(str, SWIZZLES))} bytes",
        )
    copy = None
    if truth(rule.copied.evaluate(values)):
        offset, pitch = int(rule.offset.evaluate(values)), int(rule.pitch.evaluate(values))
        copy = OperandCopy(offset, pitch, bool(truth(rule.turned.evaluate(values))), int(rule.width.evaluate(values)))
    return TensorMap(rule.operand, (columns, rows), swizzle, copy, _row_class(space, rule, values))


def _row_class(space: SearchSpace, rule: TensorMapRule, values: Names) -> RowClass | None:
    classes, number = int(rule.classes.evaluate(values)), int(rule.number.evaluate(values))
    if classes not in CLASSES or not 0 <= number < classes:
        raise InputError(
            f"{space.source or space.family}: rows of {rule.operand.upper()} have no class {number} of {classes}",
            hint=f"rows fall into {', '.join(map(str, CLASSES))} classes, which are counted from 0",
        )
    if classes > 1 and values["batch"] > 1:
        raise InputError(
            f"{space.source or space.family}: a map of one class of rows of {rule.operand.upper()} shows one batch",
            hint="rows of another batch may fall into other classes: add a constraint to the space, as `batch == 1`",
        )
    return RowClass(classes, number) if classes > 1 else None
