"""The kernels of tiny problems: a header takes them without asking what is expected of others.

Where a problem takes some two microseconds, expected times are far from what is measured, since latency is all there is
of it; and shapes near it were seldom tried. One configuration does well on all such problems: a family says in its
search space which, and which problems it is for (`Tiny`). It is rendered for every layout of a table's formats, and for
three alignments of rows, which decide how operands come to shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Literal, get_args

from kt.export.contents import Contents, formats_of, known_device
from kt.export.kernels import Kernel, on_device, problem_of
from kt.export.runnable import launches_of
from kt.problems import DTYPES, LAYOUTS, Problem, Signature
from kt.problems.dtypes import OUTPUT_BYTES
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.space import Config, Constraint, SearchSpace, Tiny

__all__ = ["add_tiny"]

WORD = 4  # bytes: what is aligned to less comes to shared memory by way of registers, which takes 0.7 to 2.4 µs longer

Rows = Literal["all", "copied", "none"]
_ROWS: tuple[Rows, ...] = get_args(Rows)

# Sizes of which a kernel computes some if it can compute any problem at all, those of the built-in spaces first.
_PROBES = ((8, 64, 64), (64, 8, 64), *product((1, 8, 64, 256), (1, 8, 64, 256), (1, 16, 64)))
_USES: tuple[dict[str, int], ...] = ({}, {"beta": 1}, {"batch": 2})


def add_tiny(result: Contents) -> None:
    """Adds the kernels to the contents, for the number formats of each device's winners."""
    samples = {(best.key.device, formats_of(best.key.problem)): best.key.problem for best in result.measured}
    for (identity, _), sample in samples.items():
        device = known_device(identity)
        for kernel in _kernels(result, sample, device.compute_capability):
            if any(launches_of(kernel, kernel.config.runtime, probe, device) for probe in _probes(kernel.signature)):
                variant = result.kernels.add(kernel, kernel.config.runtime)
                if variant not in result.tiny:
                    result.tiny.append(variant)


def _kernels(result: Contents, sample: Problem, capability: tuple[int, int]) -> Iterator[Kernel]:
    """What may serve problems of the formats of `sample`, those for the most aligned operands first."""
    spaces = [result.spaces[family] for family in sorted(result.spaces)]
    served = [one for one in spaces if sample.dtype in one.dtypes and capability >= one.min_compute_capability]
    configs = [(_narrowed(space, space.tiny), one) for space in served if space.tiny for one in _configs(space)]
    for rows, layout, (space, config) in product(_ROWS, LAYOUTS, configs):
        signature = _signature(sample, layout, rows, config)
        yield replace(on_device(space, config, signature, capability), tiny=True)


def _configs(space: SearchSpace) -> Iterator[Config]:
    """What the space names for tiny problems, with everything that this leaves out chosen in every way."""
    chosen = space.tiny.choose if space.tiny else {}
    offered = {**space.parameters, **space.runtime}
    ways = [(chosen[name],) if name in chosen else values for name, values in offered.items()]
    for way in product(*ways):
        yield space.config(dict(zip(offered, way, strict=True)))


def _narrowed(space: SearchSpace, tiny: Tiny) -> SearchSpace:
    """The space of tiny problems: so what a kernel can compute says which ones it is taken for, in C++ as well."""
    kept = [rule for rule in space.constraints if rule not in tiny.although]
    return replace(space, constraints=(*kept, Constraint(tiny.when, "tiny problems")))


def _signature(sample: Problem, layout: str, rows: Rows, config: Config) -> Signature:
    """With rows aligned as is said: all of them; those alone that are copied; or none."""
    of_inputs, of_output = DTYPES[sample.dtype].bytes, OUTPUT_BYTES[sample.out_dtype]
    aligned = dict.fromkeys("ab", of_inputs) | {"c": of_output}
    if rows == "all":
        aligned = dict.fromkeys("abc", MAX_ALIGNMENT)
    elif rows == "copied":
        copied = str(config.as_dict().get("streamed", "ab"))
        aligned |= dict.fromkeys(copied, max(WORD, of_inputs))
    dtype, accumulator, output, epilogue = formats_of(sample)
    return Signature(dtype, accumulator, output, layout, epilogue, aligned["a"], aligned["b"], aligned["c"])


def _probes(signature: Signature) -> Iterator[Problem]:
    for use, (m, n, k) in product(_USES, _PROBES):
        yield problem_of(signature, m, n, k, **use)
