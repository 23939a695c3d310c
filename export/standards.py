"""The standard configurations: what a header falls back to where no winner's kernel serves the layout or the alignment.

For the number formats of a device's winners there are two, one for rows that are aligned to 16 bytes and one for any
rows: each the winners' configuration that is expected to lose least over all tuned shapes (geometric mean), rendered
for every layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kt.devices.device import Device, DeviceIdentity
from kt.export.contents import Candidate, Contents, Formats, formats_of, group_of, known_device
from kt.export.expected_time import Point, costs_of, expected_ps, nearest
from kt.export.kernels import Kernel, on_device
from kt.export.runnable import launches_of, names_of
from kt.problems import DTYPES, LAYOUTS, Problem, Signature
from kt.problems.dtypes import OUTPUT_BYTES
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["add_standards"]

SPLITS = (1, 4, 16, 64)  # slices of k that a standard configuration may have
NARROW = 1.5  # times as long, where a kernel that was measured with aligned rows is rendered for any
ABSENT = 8.0  # times as long as the winner: what a shape counts that a configuration cannot compute

Runtime = tuple[tuple[str, Value], ...]


def add_standards(result: Contents, times: Sequence[dict[str, float]]) -> None:
    """Adds the standard configurations to the groups.

    Args:
        times: for each entry, microseconds by configuration.
    """
    members: dict[tuple[DeviceIdentity, Formats], list[int]] = {}
    for index, best in enumerate(result.winners):
        members.setdefault((best.key.device, formats_of(best.key.problem)), []).append(index)
    for entries in members.values():
        for any_rows in (False, True):
            _Standard(result, entries, times, any_rows=any_rows).add()


class _Standard:
    """The search for one standard configuration.

    Args:
        entries: numbers of the winners of one device and of the same formats.
        any_rows: for rows of any alignment.
    """

    def __init__(
        self, result: Contents, entries: list[int], times: Sequence[dict[str, float]], *, any_rows: bool
    ) -> None:
        self._result, self._entries, self._times, self._any_rows = result, entries, times, any_rows
        self._device: Device = known_device(result.winners[entries[0]].key.device)
        self._traffic = result.traffic[self._device.identity]

    def add(self) -> None:
        """Adds the best configuration in every layout in which it computes a tuned shape's sizes."""
        scores = [(self._score(config), number, config) for number, config in enumerate(self._configurations())]
        score, _, config = min(scores, key=lambda item: item[:2], default=(math.inf, 0, None))
        if config is None or score >= math.log(ABSENT):
            return
        points = self._points(config)
        for layout in LAYOUTS:
            kernel = self._kernel(config, layout)
            if any(self._computes(kernel, config.runtime, problem) for problem in self._problems(layout)):
                self._add(kernel, config, points, layout)

    def _add(self, kernel: Kernel, config: Config, points: tuple[Point, ...], layout: str) -> None:
        sample = self._result.winners[self._entries[0]]
        key = (*group_of(sample)[:-1], layout)
        group = self._result.groups.setdefault(key, [])
        for runtime in self._runtimes(config):
            variant = self._result.kernels.add(kernel, runtime)
            if all(one.variant != variant for one in group):
                group.append(Candidate(variant, points, standard=True))

    def _configurations(self) -> Iterator[Config]:
        """The winners' distinct parameters, with the run-time choices of their family's default."""
        found = {}
        for index in self._entries:
            config = self._result.winners[index].config
            space = self._result.spaces[config.family]
            plain = space.config({**space.default, **dict(config.parameters)})
            found[plain.identity] = plain
        return iter(found.values())

    def _score(self, config: Config) -> float:
        """The mean logarithm of how many times as long as the winner the configuration is expected to take."""
        points = self._points(config)
        losses = []
        for index in self._entries:
            best = self._result.winners[index]
            problem = best.key.problem
            kernel = self._kernel(config, problem.layout)
            if not self._any_rows and any(problem.alignment(name) < MAX_ALIGNMENT for name in "abc"):
                continue
            if not self._computes(kernel, config.runtime, problem):
                losses.append(ABSENT)
                continue
            ps = min(self._expected(kernel, runtime, points, problem) for runtime in self._runtimes(config))
            losses.append(ps / 1e6 / (best.measurement.time_us or 1.0))
        return math.fsum(map(math.log, losses)) / len(losses) if losses else math.inf

    def _expected(self, kernel: Kernel, runtime: Runtime, points: Sequence[Point], problem: Problem) -> int:
        names = names_of(kernel, runtime, problem, self._device)
        costs = costs_of(self._result.cost_rules[kernel.config.family], names)
        return expected_ps(nearest(points, costs), costs, self._traffic)

    def _points(self, config: Config) -> tuple[Point, ...]:
        """Where the same parameters were measured, whatever the layout and the run-time choices."""
        found = []
        for index in self._entries:
            best = self._result.winners[index]
            kernel = on_device(self._space(config), config, best.key.problem.signature, self._device.compute_capability)
            for identity, time_us in self._times[index].items():
                measured = self._result.configs[identity]
                if measured.family == config.family and measured.parameters == config.parameters:
                    point = self._result.point(kernel, measured, best.key.problem, time_us, index)
                    found.append(replace(point, rate=point.rate * NARROW) if self._any_rows else point)
        return tuple(found)

    def _kernel(self, config: Config, layout: str) -> Kernel:
        problem = self._result.winners[self._entries[0]].key.problem
        of_inputs, of_output = DTYPES[problem.dtype].bytes, OUTPUT_BYTES[problem.out_dtype]
        if not self._any_rows:
            of_inputs = of_output = MAX_ALIGNMENT
        dtype, accumulator, output, epilogue = formats_of(problem)
        signature = Signature(dtype, accumulator, output, layout, epilogue, of_inputs, of_inputs, of_output)
        return on_device(self._space(config), config, signature, self._device.compute_capability)

    def _problems(self, layout: str) -> Iterator[Problem]:
        """The sizes of the tuned shapes in a layout; dense, as any rows."""
        for index in self._entries:
            problem = self._result.winners[index].key.problem
            whole = 1 if self._any_rows else MAX_ALIGNMENT
            m, n, k = (-(-size // whole) * whole for size in (problem.m, problem.n, problem.k))
            summed, output = problem.accumulator, problem.out_dtype
            yield Problem(m, n, k, problem.dtype, layout, accumulator=summed, out_dtype=output)

    def _runtimes(self, config: Config) -> list[Runtime]:
        """The default's run-time choices, with several slices of k."""
        offered = self._space(config).runtime.get("split_k", ())
        splits = [split for split in SPLITS if split in offered] or [1]
        return [
            tuple((name, split if name == "split_k" else value) for name, value in config.runtime) for split in splits
        ]

    def _computes(self, kernel: Kernel, runtime: Runtime, problem: Problem) -> bool:
        return launches_of(kernel, runtime, problem, self._device) is not None

    def _space(self, config: Config) -> SearchSpace:
        return self._result.spaces[config.family]
