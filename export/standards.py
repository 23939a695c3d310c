"""The standard configurations: kernels of a header for any shape, beside those that won in a layout.

For the number formats of a device's winners they are those of the winners' configurations that together lose least
(geometric mean), in whatever layout these are: `MOST_ALIGNED` for rows that are aligned to 16 bytes and `MOST_ANY` for
any rows, rendered for every layout. What counts is the loss over all tuned shapes; or, where shapes were tried that
stand for those that nobody lists, the loss over these, for a listed shape has its own kernel. Then there are more
standard configurations, and what the listed shapes' kernels do well needs none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from kt.devices.device import Device, DeviceIdentity
from kt.export.contents import Candidate, Contents, Formats, formats_of, group_of, known_device, narrowing
from kt.export.covering import best_of
from kt.export.expected_time import Point, costs_of_each, expected
from kt.export.kernels import Kernel, on_device
from kt.export.runnable import names_of, which_run
from kt.problems import DTYPES, LAYOUTS, Problem, Signature
from kt.problems.dtypes import OUTPUT_BYTES
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["add_standards"]

MOST_ALIGNED, MOST_ANY = 4, 3
UNSEEN_ALIGNED, UNSEEN_ANY = 5, 7  # where shapes that stand for others say which do well
UNTRIED = 1.15  # times as long as the winner: what a configuration takes at least that was not timed on a shape
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
        for any_rows in (True, False):
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
        """Adds those that lose least together, each in every layout in which it computes a measured shape's sizes."""
        configs = list(self._configurations())
        there = self._losses_of_groups() if self._unseen else {}
        losses = [self._losses(config) for config in configs]
        together = [
            {index: min(one.get(index, ABSENT), there.get(index, ABSENT)) for index in {**there, **one}}
            for one in losses
        ]
        for number in best_of(together, self._most, math.log(ABSENT)):
            if losses[number]:
                self._add_everywhere(configs[number])

    @cached_property
    def _unseen(self) -> list[int]:
        """The shapes that stand for those that nobody lists."""
        return [index for index in self._entries if self._result.measured[index].unseen]

    @property
    def _most(self) -> int:
        if self._unseen:
            return UNSEEN_ANY if self._any_rows else UNSEEN_ALIGNED
        return MOST_ANY if self._any_rows else MOST_ALIGNED

    def _losses_of_groups(self) -> dict[int, float]:
        """Of each shape that counts what the best kernel loses that is there already."""
        found: dict[int, float] = {}
        sample = self._result.measured[self._entries[0]]
        for layout, entries in self._by_layout.items():
            for candidate in self._result.groups.get((*group_of(sample)[:-1], layout), []):
                kernel = self._result.kernels.kernels[self._result.kernels.variants[candidate.variants[0]].kernel]
                for index, loss in self._losses_in(kernel, entries).items():
                    found[index] = min(loss, found.get(index, loss))
        return found

    def _add_everywhere(self, config: Config) -> None:
        for layout in LAYOUTS:
            kernel = self._kernel(config, layout)
            if any(which_run(kernel, config.runtime, list(self._problems(layout)), self._device)):
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
        """Of each measured shape that the configuration can compute, the logarithm of how many times as long as the
        winner it takes."""
        found: dict[int, float] = {}
        for layout, entries in self._by_layout.items():
            found |= self._losses_in(self._kernel(config, layout), entries)
        return found

    def _losses_in(self, kernel: Kernel, entries: Sequence[int]) -> dict[int, float]:
        """The same of shapes of the kernel's layout."""
        problems = [self._result.measured[index].key.problem for index in entries]
        runs = which_run(kernel, kernel.config.runtime, problems, self._device)
        times = self._times_of(kernel, [index for index, can in zip(entries, runs, strict=True) if can])
        won = {index: self._result.measured[index].measurement.time_us or 1.0 for index in times}
        return {index: max(0.0, math.log(time_us / won[index])) for index, time_us in times.items()}

    @cached_property
    def _by_layout(self) -> dict[str, list[int]]:
        """The shapes that count, by layout."""
        found: dict[str, list[int]] = {}
        for index in self._unseen or self._entries:
            problem = self._result.measured[index].key.problem
            if self._any_rows or all(problem.alignment(name) >= MAX_ALIGNMENT for name in "abc"):
                found.setdefault(problem.layout, []).append(index)
        return found

    def _times_of(self, kernel: Kernel, entries: Sequence[int]) -> dict[int, float]:
        """Microseconds on measured shapes, of which a kernel can compute all: measured there, or expected."""
        measured = self._measured.get((kernel.config.family, kernel.config.parameters), {})
        found = {
            index: min(time_us for _, time_us in measured[index])
            * narrowing(kernel, self._result.measured[index].key.problem)
            for index in entries
            if index in measured
        }
        others = [index for index in entries if index not in found]
        for index, time_us in zip(others, self._expected(kernel, others), strict=True):
            found[index] = max(time_us, UNTRIED * (self._result.measured[index].measurement.time_us or 0.0))
        return found

    def _expected(self, kernel: Kernel, entries: Sequence[int]) -> Iterator[float]:
        """Microseconds with the best number of slices."""
        if not entries:
            return
        choices = runtimes(kernel.space)
        names = [
            {
                **names_of(kernel, kernel.config.runtime, self._result.measured[index].key.problem, self._device),
                **dict(one),
            }
            for index in entries
            for one in choices
        ]
        every = costs_of_each(self._result.cost_rules[kernel.config.family], names)
        points = self._points(kernel)
        for first in range(0, len(every), len(choices)):
            costs = dict.fromkeys(every[first : first + len(choices)])
            yield min(expected(points, one, self._traffic)[0] for one in costs) / 1e6

    def _points(self, kernel: Kernel) -> tuple[Point, ...]:
        """Where the same parameters were measured, whatever the layout and the run-time choices."""
        if kernel.identity not in self._known_points:
            measured = self._measured.get((kernel.config.family, kernel.config.parameters), {})
            every = [(index, config, time_us) for index, times in measured.items() for config, time_us in times]
            self._known_points[kernel.identity] = tuple(self._result.points(kernel, every))
        return self._known_points[kernel.identity]

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
            least = min(DTYPES[problem.dtype].bytes, OUTPUT_BYTES[problem.out_dtype])
            whole = 1 if self._any_rows else MAX_ALIGNMENT // least
            m, n, k = (-(-size // whole) * whole for size in (problem.m, problem.n, problem.k))
            summed, output = problem.accumulator, problem.out_dtype
            yield Problem(m, n, k, problem.dtype, layout, accumulator=summed, out_dtype=output)

    def _space(self, config: Config) -> SearchSpace:
        return self._result.spaces[config.family]
