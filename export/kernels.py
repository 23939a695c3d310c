"""Which kernels a header carries: those of the winners, and for each number format one that is always right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kt.cache.records import BestConfig
from kt.devices.catalog import catalog
from kt.devices.device import Device
from kt.errors import InputError
from kt.problems import DTYPES, LAYOUTS, Problem, Signature
from kt.problems.dtypes import OUTPUT_BYTES
from kt.search_spaces.launch import violated
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["Kernel", "Kernels", "Variant", "generic", "of_winner", "on_device", "problem_of"]

NEWEST = 999  # a compute capability beyond all

# Sizes that the generic kernel must be able to do, whatever else it is asked for.
_LARGEST = 2**31 - 1
_PROBES = (
    (1, 1, 0), (1, 1, 1), (3, 5000, 7), (5000, 1, 100_000), (65_537, 65_537, 3), (_LARGEST, 1, 1), (1, _LARGEST, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One rendered source, and where it runs.

    Attributes:
        config: its parameters; run-time choices are those of the default and count for nothing.
        arch: target that it is rendered for, e.g. "sm_90a".
        least, most: compute capabilities, e.g. 90.
        forms: signatures that its code is compiled for, `signature` among them; none if that is the only one.
        lenient: it may be given what a search would not try it for, as one of few.
        tiny: it is given nothing but tiny problems; its space has what these are among the constraints.
    """

    space: SearchSpace
    config: Config
    signature: Signature
    arch: str
    least: int
    most: int
    forms: tuple[Signature, ...] = ()
    lenient: bool = False
    tiny: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        return (*self.code, self.signature, self.tiny)

    @property
    def code(self) -> tuple[object, ...]:
        """The identity of what is compiled, which kernels of several forms have in common."""
        parameters = self.config.kernel.identity
        return (parameters, self.forms or self.signature, self.arch, self.least, self.most)

    @property
    def rendered(self) -> Signature:
        """What the source is rendered for."""
        return self.forms[0] if self.forms else self.signature

    @property
    def searching(self) -> int:
        """As the expressions of a space name it."""
        return 0 if self.lenient else 1

    def of_form(self, form: Signature) -> Kernel:
        """The same code for another of its forms."""
        return replace(self, signature=form)

    @property
    def formats(self) -> tuple[str, str, str, str]:
        """As `kt.export.contents.formats_of` has them of a problem."""
        one = self.signature
        return one.dtype, one.accumulator, one.out_dtype, one.epilogue

    @property
    def capability(self) -> int:
        """The one compute capability that it is for; 0 if there are several."""
        return self.least if self.least == self.most else 0


@dataclass(frozen=True)
class Variant:
    """A kernel (index) with its run-time choices: what a problem is dispatched to."""

    kernel: int
    runtime: tuple[tuple[str, Value], ...]


@dataclass
class Kernels:
    """Distinct kernels and variants, numbered in the order in which they were added."""

    kernels: list[Kernel] = field(default_factory=list)
    variants: list[Variant] = field(default_factory=list)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _variants: dict[Variant, int] = field(default_factory=dict)

    def add(self, kernel: Kernel, runtime: tuple[tuple[str, Value], ...]) -> int:
        """The number of the variant."""
        number = self._numbers.setdefault(kernel.identity, len(self.kernels))
        if number == len(self.kernels):
            self.kernels.append(kernel)
        variant = Variant(number, runtime)
        index = self._variants.setdefault(variant, len(self.variants))
        if index == len(self.variants):
            self.variants.append(variant)
        return index


def of_winner(best: BestConfig, spaces: Mapping[str, SearchSpace]) -> Kernel:
    """The kernel of a winner, for the compute capability that it was tuned on.

    Raises:
        InputError: its family is not among `spaces`.
    """
    config, device = best.config, best.key.device
    if config.family not in spaces:
        raise InputError(
            f"family {config.family} is not there to render {best.key.problem.label}", hint="give its --space"
        )
    return on_device(spaces[config.family], config, best.key.problem.signature, device.compute_capability)


def on_device(space: SearchSpace, config: Config, signature: Signature, capability: tuple[int, int]) -> Kernel:
    """The kernel of a configuration for one compute capability."""
    number = capability[0] * 10 + capability[1]
    return Kernel(space, config, signature, Device("", capability, 1, 1).arch, number, number)


def generic(spaces: Sequence[SearchSpace], signature: Signature) -> Kernel | None:
    """The default configuration of a family that serves any size and alignment of the formats of `signature`.

    The family that serves the oldest GPU goes before. None if there is none.
    """
    size_in, size_out = DTYPES[signature.dtype].bytes, OUTPUT_BYTES[signature.out_dtype]
    loosest = replace(signature, align_a=size_in, align_b=size_in, align_c=size_out)
    for space in sorted(spaces, key=lambda space: (space.min_compute_capability, space.family)):
        if signature.dtype not in space.dtypes:
            continue
        for device in _devices(space):
            if all(violated(space, space.default_config, names) is None for names in _probes(loosest, device)):
                return Kernel(space, space.default_config, loosest, device.arch, _number(device), NEWEST)
    return None


def layouts_of(signature: Signature) -> tuple[Signature, ...]:
    """The signature in every layout."""
    return tuple(replace(signature, layout=layout) for layout in LAYOUTS)


def problem_of(signature: Signature, m: int, n: int, k: int, **others: int) -> Problem:
    """A dense problem of the signature's formats and layout; `others` are further fields of `Problem`."""
    dtype, layout, epilogue = signature.dtype, signature.layout, signature.epilogue
    accumulator, output = signature.accumulator, signature.out_dtype
    return Problem(m, n, k, dtype, layout, accumulator=accumulator, out_dtype=output, epilogue=epilogue, **others)


def _number(device: Device) -> int:
    return device.compute_capability[0] * 10 + device.compute_capability[1]


def _devices(space: SearchSpace) -> list[Device]:
    """One GPU of each compute capability that the space serves, the oldest first."""
    known = {device.compute_capability: device for device in catalog().values()}
    return [known[capability] for capability in sorted(known) if capability >= space.min_compute_capability]


def _probes(signature: Signature, device: Device) -> Iterator[dict[str, int | float | str]]:
    for m, n, k in _PROBES:
        problem = problem_of(signature, m, n, k)
        aligned = {f"align_{name}": getattr(signature, f"align_{name}") for name in "abc"}
        yield {**device.names(), **problem.names(), **aligned}
