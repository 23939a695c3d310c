"""The value types of a search space: `SearchSpace`, `Constraint`, `LaunchRule`, `Config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kt.search_spaces.names import leaves

if TYPE_CHECKING:
    from kt.search_spaces.expression import Expression

__all__ = [
    "CLASSES",
    "Config",
    "Constraint",
    "Launch",
    "LaunchRule",
    "OperandCopy",
    "RowClass",
    "SearchSpace",
    "TensorMap",
    "TensorMapRule",
    "Value",
]

Value = int | str


@dataclass(frozen=True)
class Config:
    """One choice of every parameter of a family.

    Attributes:
        family: the kernel family, e.g. "simt".
        parameters: compile-time choices as (name, value), in the order of the space's file.
        runtime: run-time arguments as (name, value); they cost no compile.
    """

    family: str
    parameters: tuple[tuple[str, Value], ...]
    runtime: tuple[tuple[str, Value], ...] = ()

    def as_dict(self) -> dict[str, Value]:
        """Both kinds of choice by name."""
        return dict(self.parameters + self.runtime)

    @property
    def kernel(self) -> Config:
        """What is compiled of it: the same without its run-time arguments."""
        return Config(self.family, self.parameters)

    @property
    def identity(self) -> str:
        """A canonical text; equal configurations have equal texts, whatever the order of their parameters."""
        parts = [self.family, dict(self.parameters), dict(self.runtime)]
        return json.dumps(parts, sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        """A text for people: `simt tile_m=128 tile_n=128 …`."""
        return " ".join([self.family, *(f"{name}={value}" for name, value in self.parameters + self.runtime)])


@dataclass(frozen=True)
class Constraint:
    """A condition that every configuration must meet, with the reason that is shown for those that do not."""

    require: Expression
    reason: str


@dataclass(frozen=True)
class Tiny:
    """What a header takes for tiny problems that were not tuned, whatever else is expected of its kernels.

    Attributes:
        choose: values of parameters and run-time parameters; what it leaves out is chosen in every way.
        when: whether a problem is tiny.
        although: constraints that need not be met: what breaks them is slower, and not wrong.
    """

    choose: Mapping[str, Value]
    when: Expression
    although: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class OperandCopy:
    """A copy of an operand in the workspace, one batch right behind the other.

    Attributes:
        offset: bytes from the start of the workspace.
        pitch: elements between rows.
        turned: rows of the copy are columns of the operand as stored.
        width: elements of a row where the copy has more or fewer than the operand; 0: as many.
    """

    offset: int
    pitch: int
    turned: bool = False
    width: int = 0


CLASSES = (1, 2, 4, 8)  # into which rows of elements of 2 bytes, or larger, may fall


@dataclass(frozen=True)
class RowClass:
    """Every `of`-th row of an operand: those that begin equally far behind a multiple of 16 bytes.

    TMA reads rows from multiples of 16 bytes on only. Rows of other operands fall into classes, and a map of one class
    begins where its first row does, rounded down: what it shows before each row belongs to the row before.

    Attributes:
        of: how many classes there are: 2, 4 or 8. Their rows begin 0, 16/of, 2 * 16/of … bytes behind multiples of 16.
        number: which of them, in that order. The operand's address decides which row is its first.
    """

    of: int
    number: int


@dataclass(frozen=True)
class TensorMap:
    """How the tensor memory accelerator (TMA) is to see an operand, or the copy of it in the workspace.

    Attributes:
        operand: "a", "b" or "c".
        box: elements of a row, and rows, that are copied at once.
        swizzle: bytes within which 16-byte units change places in shared memory: 0, 32, 64 or 128.
        copy: the copy that is meant; None: the operand itself.
        rows: the class of rows that is meant; None: all of them.
    """

    operand: str
    box: tuple[int, int]
    swizzle: int
    copy: OperandCopy | None = None
    rows: RowClass | None = None


@dataclass(frozen=True)
class Launch:
    """One resolved kernel launch: name, thread blocks, threads of a block, dynamic shared memory in bytes, the tensor
    maps that the kernel gets behind its arguments, and whether it may start while earlier grids still run."""

    kernel: str
    grid: int
    block: int
    smem_bytes: int
    tensor_maps: tuple[TensorMap, ...] = ()
    programmatic: bool = False


@dataclass(frozen=True)
class TensorMapRule:
    """A tensor map of a launch, as expressions.

    Attributes:
        operand: "a", "b" or "c".
        columns, rows: of the box.
        swizzle: in bytes.
        copied: whether the map is of the operand's copy in the workspace, which `offset` (bytes), `pitch`, `width`
            (elements) and `turned` describe.
        classes, number: into how many classes rows fall, 1, 2, 4 or 8, and which of them the map is of.
        when: the kernel takes this map if this is true.
    """

    operand: str
    columns: Expression
    rows: Expression
    swizzle: Expression
    copied: Expression
    offset: Expression
    pitch: Expression
    turned: Expression
    width: Expression
    classes: Expression
    number: Expression
    when: Expression


@dataclass(frozen=True)
class LaunchRule:
    """One kernel launch of a configuration, as expressions over parameters, derived values and the problem.

    Attributes:
        kernel: the `extern "C"` name of the kernel.
        grid: thread blocks, one-dimensional.
        block: threads of a block.
        smem_bytes: dynamic shared memory of a block, in bytes.
        when: the launch happens if this is true.
        programmatic: whether the grid may start while earlier ones in its stream still run, because its kernel waits
            for them itself (`griddepcontrol.wait`; CUDA's programmatic dependent launch, compute capability 9.0).
        tensor_maps: what the kernel takes behind its arguments, in order.
    """

    kernel: str
    grid: Expression
    block: Expression
    smem_bytes: Expression
    when: Expression
    programmatic: Expression
    tensor_maps: tuple[TensorMapRule, ...] = ()


@dataclass(frozen=True)
class SearchSpace:
    """The parameters of one kernel family, their values, and what binds them.

    Attributes:
        op: "gemm".
        family: name of the family; one configuration space and one template each.
        template: path of the Jinja2 template below the template folders.
        dtypes: operand formats that the template serves.
        min_compute_capability: lowest (major, minor) that the template compiles for.
        parameters: compile-time parameters with their values, in file order.
        runtime: parameters that are arguments of the launch, with their values.
        default: one value of every parameter and run-time parameter: the configuration that runs everywhere, so a
            kernel compiles alone; the baseline that a winner must not lose to.
        derived: quantities computed from parameters, problem and device, in file order.
        constraints: conditions with reasons. One that names a quantity of the problem's size (m, n, k, batch, ld*)
            is checked per problem, the others once per compile signature and device.
        launches: the kernel launches, in order.
        workspace_bytes: device memory that one launch sequence needs besides the operands.
        starts: partial choices that have won elsewhere; a search tries the best predicted completions of each first.
            They decide nothing but the order of a search.
        tiny: what a header takes for tiny problems; no search looks at it.
        source: where the space was read from, for messages.
    """

    op: str
    family: str
    template: str
    dtypes: tuple[str, ...]
    min_compute_capability: tuple[int, int]
    parameters: Mapping[str, tuple[Value, ...]]
    runtime: Mapping[str, tuple[Value, ...]]
    default: Mapping[str, Value]
    derived: Mapping[str, Expression]
    constraints: tuple[Constraint, ...]
    launches: tuple[LaunchRule, ...]
    workspace_bytes: Expression
    starts: tuple[Mapping[str, Value], ...] = ()
    tiny: Tiny | None = None
    source: str = ""

    @property
    def size(self) -> int:
        """Number of combinations before any constraint, run-time values included."""
        count = 1
        for values in [*self.parameters.values(), *self.runtime.values()]:
            count *= len(values)
        return count

    @cached_property
    def rests_on(self) -> tuple[tuple[Constraint, frozenset[str]], ...]:
        """Each constraint with the names that it rests on, derived quantities traced to what they are computed from."""
        return tuple((one, leaves(one.require.names, self.derived)) for one in self.constraints)

    @property
    def default_config(self) -> Config:
        return self.config(self.default)

    def config(self, values: Mapping[str, Value]) -> Config:
        """The configuration with these values; every parameter and run-time parameter must be named."""
        return Config(
            self.family,
            tuple((name, values[name]) for name in self.parameters),
            tuple((name, values[name]) for name in self.runtime),
        )
