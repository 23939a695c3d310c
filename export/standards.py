"""The standard configurations: kernels of a header for any shape, beside those that won in a layout.

For the number formats of a device's winners they are those of the winners' configurations that together lose least
over all tuned shapes (geometric mean), in whatever layout these are: `MOST_ALIGNED` for rows that are aligned to 16
bytes and `MOST_ANY` for any rows, rendered for every layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kt.devices.device import Device, DeviceIdentity
from kt.export.contents import Candidate, Contents, Formats, formats_of, group_of, known_device, narrowing
from kt.export.covering import best_of
from kt.export.expected_time import Point, costs_of_each, expected
from kt.export.kernels import Kernel, on_device
from kt.export.runnable import launches_of, names_of
from kt.problems import DTYPES, LAYOUTS, Problem, Signature
from kt.problems.dtypes import OUTPUT_BYTES
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["add_standards"]

MOST_ALIGNED, MOST_ANY = 4, 3
ABSENT = 8.0  # times as long as the winner: what a shape counts that a configuration cannot compute

Runtime = tuple[tuple[str, Value], ...]


def add_standards(result: Contents, times: Sequence[dict[str, float]]) -> None:
    """Adds the standard configurations to the groups.

    Args:
        times: for each shape, microseconds by configuration.
    """
    members: dict[tuple[DeviceIdentity, Formats], list[int]] = {}
    for index, best in enumerate(result.measured):
        members.setdefault((best.key.device, formats_of(best.key.problem)), []).append(index)
    for entries in members.values():
        for any_rows in (False, True):
            _Standards(result, entries, times, any_rows=any_rows).add()


class _Standards:
    """The search for the standard configurations of one kind.

    Args:
        entries: numbers of the shapes of one device and of the same formats.
        any_rows: for rows of any alignment.
    """

    def __init__(
        self, result: Contents, entries: list[int], times: Sequence[dict[str, float]], *, any_rows: bool
    ) -> None:
        self._result, self._entries, self._times, self._any_rows = result, entries, times, any_rows
        self._device: Device = known_device(result.measured[entries[0]].key.device)
        self._traffic = result.traffic[self._device.identity]
        self._measured = self._by_parameters()
        self._known_points: dict[tuple[object, ...], tuple[Point, ...]] = {}

    def add(self) -> None:
        """Adds those that lose least together, each in every layout in which it computes a tuned shape's sizes."""
        configs = list(self._configurations())
        losses = [self._losses(config) for config in configs]
        most = MOST_ANY if self._any_rows else MOST_ALIGNED
        for number in best_of(losses, most, math.log(ABSENT)):
            if losses[number]:
                self._add_everywhere(configs[number])

    def _add_everywhere(self, config: Config) -> None:
        for layout in LAYOUTS:
            kernel = self._kernel(config, layout)
            if any(self._computes(kernel, config.runtime, problem) for problem in self._problems(layout)):
                self._add(kernel, config, layout)

    def _add(self, kernel: Kernel, config: Config, layout: str) -> None:
        sample = self._result.measured[self._entries[0]]
        key = (*group_of(sample)[:-1], layout)
        group = self._result.groups.setdefault(key, [])
        variants = [self._result.kernels.add(kernel, runtime) for runtime in runtimes(kernel.space)]
        known = {variant for one in group for variant in one.variants}
        if not known.issuperset(variants):
            group.append(Candidate(tuple(variants), self._points(kernel), standard=True))

    def _configurations(self) -> Iterator[Config]:
        """The winners' distinct parameters, with the run-time choices of their family's default."""
        found = {}
        for index in self._entries:
            config = self._result.measured[index].config
            space = self._result.spaces[config.family]
            plain = space.config({**space.default, **dict(config.parameters)})
            found[plain.identity] = plain
        return iter(found.values())

    def _losses(self, config: Config) -> dict[int, float]:
        """Of each tuned shape that the configuration can compute, the logarithm of how many times as long as the winner
        it takes."""
        found = {}
        for index in self._entries:
            best = self._result.measured[index]
            problem = best.key.problem
            if not self._any_rows and any(problem.alignment(name) < MAX_ALIGNMENT for name in "abc"):
                continue
            kernel = self._kernel(config, problem.layout)
            if self._computes(kernel, config.runtime, problem):
                time_us = self._time(kernel, config, index)
                found[index] = max(0.0, math.log(time_us / (best.measurement.time_us or 1.0)))
        return found

    def _time(self, kernel: Kernel, config: Config, index: int) -> float:
        """Microseconds on a tuned shape: measured there, or expected."""
        problem = self._result.measured[index].key.problem
        known = [time_us for _, time_us in self._measured.get((config.family, config.parameters), {}).get(index, ())]
        if known:
            return min(known) * narrowing(kernel, problem)
        return self._expected(kernel, problem) / 1e6

    def _expected(self, kernel: Kernel, problem: Problem) -> int:
        """Picoseconds with the best number of slices."""
        names = names_of(kernel, kernel.config.runtime, problem, self._device)
        every = costs_of_each(self._result.cost_rules[kernel.config.family], names, runtimes(kernel.space))
        points = self._points(kernel)
        return min(expected(points, costs, self._traffic)[0] for costs in every)

    def _points(self, kernel: Kernel) -> tuple[Point, ...]:
        """Where the same parameters were measured, whatever the layout and the run-time choices."""
        if kernel.identity not in self._known_points:
            self._known_points[kernel.identity] = tuple(self._points_of(kernel))
        return self._known_points[kernel.identity]

    def _points_of(self, kernel: Kernel) -> Iterator[Point]:
        measured = self._measured.get((kernel.config.family, kernel.config.parameters), {})
        return (
            self._result.point(kernel, config, time_us, index)
            for index, every in measured.items()
            for config, time_us in every
        )

    def _by_parameters(self) -> dict[tuple[object, ...], dict[int, list[tuple[Config, float]]]]:
        """What was measured of each kernel's parameters, shape by shape."""
        found: dict[tuple[object, ...], dict[int, list[tuple[Config, float]]]] = {}
        for index in self._entries:
            for identity, time_us in self._times[index].items():
                config = self._result.configs[identity]
                of_kernel = found.setdefault((config.family, config.parameters), {})
                of_kernel.setdefault(index, []).append((config, time_us))
        return found

    def _kernel(self, config: Config, layout: str) -> Kernel:
        problem = self._result.measured[self._entries[0]].key.problem
        of_inputs, of_output = DTYPES[problem.dtype].bytes, OUTPUT_BYTES[problem.out_dtype]
        if not self._any_rows:
            of_inputs = of_output = MAX_ALIGNMENT
        dtype, accumulator, output, epilogue = formats_of(problem)
        signature = Signature(dtype, accumulator, output, layout, epilogue, of_inputs, of_inputs, of_output)
        return on_device(self._space(config), config, signature, self._device.compute_capability)

    def _problems(self, layout: str) -> Iterator[Problem]:
        """The sizes of the tuned shapes in a layout; dense, as any rows."""
        for index in self._entries:
            problem = self._result.measured[index].key.problem
            whole = 1 if self._any_rows else MAX_ALIGNMENT
            m, n, k = (-(-size // whole) * whole for size in (problem.m, problem.n, problem.k))
            summed, output = problem.accumulator, problem.out_dtype
            yield Problem(m, n, k, problem.dtype, layout, accumulator=summed, out_dtype=output)

    def _computes(self, kernel: Kernel, runtime: Runtime, problem: Problem) -> bool:
        return launches_of(kernel, runtime, problem, self._device) is not None

    def _space(self, config: Config) -> SearchSpace:
        return self._result.spaces[config.family]
