"""Families that copy operands only where they must: one kernel's parameters, with copies and without."""

from collections.abc import Mapping

from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["COPYING", "copying_for", "without_copies"]

# The derived quantity by which a family says so: whether a kernel that may copy operands does, for those it is given.
COPYING = "copying"


def copying_for(space: SearchSpace, config: Config, alignments: Mapping[str, int]) -> Config:
    """The configuration with copies of those operands whose rows are not aligned.

    Args:
        alignments: of the rows of "a" and "b", in bytes.
    """
    if COPYING not in space.derived:
        return config
    return _with(space, config, {name: alignments[name] < MAX_ALIGNMENT for name in "ab"})


def without_copies(space: SearchSpace, config: Config) -> Config:
    return _with(space, config, {"a": False, "b": False})


def _with(space: SearchSpace, config: Config, copied: Mapping[str, bool]) -> Config:
    choices = config.as_dict()
    as_it_lies = {"a": choices.get("shift_a") == 1, "b": choices.get("stretch_b") == 1}  # wherever its rows begin
    packed = {f"pack_{name}": int(copied[name] and not as_it_lies[name]) for name in "ab"}
    return space.config({**choices, **packed})
