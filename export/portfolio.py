"""`portfolio`: few kernels for all tuned shapes: at most a number of them, or as few as lose no more than a part.

Which kernel does how well on which shape is measured where a search has tried it, and else expected
(`kt.export.expected_time`): each time says which. Kernels that are rendered for less aligned rows than a winner's serve
more shapes; they are among those that are chosen from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from kt.cache.records import BestConfig, Measurement
from kt.devices.device import DeviceIdentity
from kt.errors import NoValidConfiguration
from kt.export.contents import Contents, Source, formats_of, known_device, narrowing
from kt.export.covering import best_of, cheapest_alike, smallest_cover
from kt.export.expected_time import Costs, Point, costs_of_each, doubt, expected, unlikeness
from kt.export.forms import forms_of, most_smem
from kt.export.kernels import Kernel, generic, on_device
from kt.export.runnable import launches_of, names_of, never_runs
from kt.export.standards import ABSENT
from kt.problems import Signature
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.copies import COPYING, copying_for, without_copies
from kt.search_spaces.names import Names
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["IDLE_COPY", "NOT_MEASURED", "SEVERAL_FORMS", "UNTRIED", "Admits", "Portfolio", "Served", "portfolio"]

# Least time of what was not timed on a shape, in the winner's, for shapes just like those where it was: the search has
# not tried it, and of many kernels those are taken whose time is underestimated.
UNTRIED = 1.08

# By which part, and at most by how many microseconds, a kernel takes longer that may copy operands and has none to copy
# than one that cannot; and one of several forms than one of that form alone. By what few kernels took on an H200.
IDLE_COPY = 0.125, 0.8
SEVERAL_FORMS = 0.04, 1.0

# Least time of what was not measured of the very kernel, in the winner's: screened times are lower than those of
# finals, and a winner is not given up for what seems as fast.
NOT_MEASURED = 1.001

Runtime = tuple[tuple[str, Value], ...]
Offer = tuple[float, Runtime, Source]  # microseconds, with which run-time choices, and how that is known
Admits = Callable[[Kernel], bool]
Expect = Callable[[Sequence[Kernel]], None]
Parameters = tuple[str, tuple[tuple[str, Value], ...]]  # with the family


@dataclass(frozen=True)
class Served:
    """How one tuned shape is served.

    Attributes:
        winner: as it was tuned.
        kernel, runtime: what serves it.
        time_us: of that.
        source: "expected" if the time was carried over from another shape; "alike" if a kernel of one form was measured
            and one of several serves; "predicted" if the model's is behind it, or behind the winner's own.
        generic: none of the kernels serves it, so the generic one does, and its time is not known.
    """

    winner: BestConfig
    kernel: Kernel
    runtime: Runtime
    time_us: float
    source: Source
    generic: bool = False

    @property
    def loss(self) -> float:
        """By which part it is slower than the winner."""
        return max(0.0, self.time_us / (self.winner.measurement.time_us or self.time_us) - 1.0)


@dataclass(frozen=True)
class Portfolio:
    """Few kernels, and what they do.

    Attributes:
        served: every tuned shape, in the order of the table.
        before: kernels of the winners themselves.
    """

    served: tuple[Served, ...]
    before: int

    @property
    def kernels(self) -> int:
        """How many there are, generic ones apart."""
        return len({one.kernel.code for one in self.known})

    @property
    def known(self) -> tuple[Served, ...]:
        """The shapes whose loss is known at all."""
        return tuple(one for one in self.served if not one.generic)

    @property
    def mean_loss(self) -> float:
        """Of the geometric mean, over the shapes whose loss is known."""
        logs = [math.log1p(one.loss) for one in self.known]
        return math.expm1(math.fsum(logs) / len(logs)) if logs else 0.0

    def winners(self) -> list[BestConfig]:
        """The entries of the table: each shape with what serves it."""
        return [_entry(one) for one in self.served]


def portfolio(
    known: Contents,
    times: Sequence[Mapping[str, float]],
    *,
    most: int | None = None,
    within: float | None = None,
    admits: Admits | None = None,
    expect: Expect = lambda kernels: None,
) -> Portfolio:
    """The kernels to take.

    Args:
        known: the winners.
        times: for each winner, microseconds by configuration.
        most: take at most so many, and lose as little as can be on the mean.
        within: take as few as can be so that no shape loses more than this part; of equally many, such as lose little.
        admits: whether a kernel of several forms may be taken, asked of those that would be; without it none is.
        expect: is told of the kernels that `admits` is asked about next, which may be compiled at once.
    """
    offers = _Offers(known, times, forms=admits is not None)
    while True:
        chosen = _chosen(offers, most or len(known.winners), within)
        served = tuple(offers.served(index, chosen) for index in range(len(known.winners)))
        several = {one.kernel.code: one.kernel for one in served if one.kernel.forms}
        expect(list(several.values()))
        refused = {code for code, kernel in several.items() if admits is None or not admits(kernel)}
        if not refused:
            return Portfolio(served, len({known.kernels.variants[entry].kernel for entry in known.entries}))
        offers.leave_out(refused)


def _chosen(offers: _Offers, most: int, within: float | None) -> list[int]:
    """Numbers of the offers to take; one of several forms of which one is used becomes that one alone."""
    if within is not None:
        chosen = [one for part in offers.parts() for one in offers.fewest(part, 1.0 + within)]
    else:
        chosen = best_of(offers.matrix(), most, math.log(ABSENT))
    return offers.narrowed(chosen)


class _Offers:
    """Every kernel that may serve a shape, with the times."""

    def __init__(self, known: Contents, times: Sequence[Mapping[str, float]], *, forms: bool) -> None:
        self._known, self._times, self._forms = known, times, forms
        self._kernels: list[Kernel] = []
        self._best: list[dict[int, tuple[Offer, Kernel]]] = []  # of each kernel, by shape, and in which form
        self._known_times: dict[tuple[tuple[object, ...], int], Offer | None] = {}
        self._points: dict[tuple[object, DeviceIdentity], list[Point]] = {}
        self._devices = {best.key.device: known_device(best.key.device) for best in known.winners}
        self._runtimes = _runtimes(known.winners)
        self._known_choices: dict[tuple[tuple[object, ...], int], dict[Runtime, float]] = {}
        self._by_kernel = [self._of_kernels(of_shape) for of_shape in times]
        for members in self._parts(by_layout=True):
            for kernel in self._of_part(members):
                self._add(kernel, members)
        if forms:
            for members in self.parts():
                for kernel in self._of_several_forms(members):
                    self._add(kernel, members)

    def _add(self, kernel: Kernel, members: Sequence[int]) -> int:
        """Offers a kernel for those shapes that it can compute; its number."""
        best = {index: one for index in members if (one := self._offer(kernel, index)) is not None}
        if best:
            self._kernels.append(kernel)
            self._best.append(best)
        return len(self._kernels) - 1

    def leave_out(self, codes: AbstractSet[tuple[object, ...]]) -> None:
        """Offers these no more."""
        kept = [number for number, kernel in enumerate(self._kernels) if kernel.code not in codes]
        self._kernels = [self._kernels[number] for number in kept]
        self._best = [self._best[number] for number in kept]

    def narrowed(self, chosen: Sequence[int]) -> list[int]:
        """The same choice, but a kernel of several forms is one of the only form that any shape takes of it."""
        used: dict[int, dict[tuple[object, ...], Kernel]] = {}
        for index in range(len(self._known.winners)):
            number = self._server(index, chosen)
            if number is not None:
                kernel = self._best[number][index][1]
                used.setdefault(number, {})[kernel.identity] = kernel
        return [self._alone(number, list(used.get(number, {}).values())) for number in chosen]

    def _alone(self, number: int, used: Sequence[Kernel]) -> int:
        """The number of the kernel of one form, if that is the only one of several which are used."""
        if len(used) != 1 or not used[0].forms:
            return number
        single = replace(used[0], forms=())
        known = (other for other, one in enumerate(self._kernels) if one.identity == single.identity)
        found = next(known, None)
        return self._add(single, sorted(self._best[number])) if found is None else found

    def _of_kernels(self, of_shape: Mapping[str, float]) -> dict[Parameters, dict[Runtime, float]]:
        """The times of a shape, by family and parameters."""
        found: dict[Parameters, dict[Runtime, float]] = {}
        for identity, time_us in of_shape.items():
            config = self._known.configs[identity]
            found.setdefault((config.family, config.parameters), {})[config.runtime] = time_us
        return found

    def parts(self) -> list[list[int]]:
        """Numbers of the winners that a kernel may share: of one device and formats, and of one layout unless kernels
        may have several."""
        return self._parts(by_layout=not self._forms)

    def _parts(self, *, by_layout: bool) -> list[list[int]]:
        parts: dict[object, list[int]] = {}
        for index, best in enumerate(self._known.winners):
            key = (best.key.device, formats_of(best.key.problem), best.key.problem.layout if by_layout else "")
            parts.setdefault(key, []).append(index)
        return list(parts.values())

    def matrix(self) -> list[dict[int, float]]:
        """For each kernel and shape the logarithm of how many times as long as the winner it takes."""
        return [
            {index: math.log(self._ratio(index, offer[0])) for index, (offer, _) in best.items()} for best in self._best
        ]

    def fewest(self, part: Sequence[int], ratio: float) -> list[int]:
        """The fewest kernels that serve each shape of a part at most so many times slower than the winner."""
        wanted, most = set(part), math.log(ratio)
        every = {
            number: {index: cost for index, cost in one.items() if index in wanted and cost <= most}
            for number, one in enumerate(self.matrix())
        }
        costs = {number: one for number, one in every.items() if one}
        return cheapest_alike(smallest_cover({number: frozenset(one) for number, one in costs.items()}), costs)

    def served(self, index: int, chosen: Sequence[int]) -> Served:
        """What serves a shape best; the generic kernel if nothing that was chosen does."""
        winner = self._known.winners[index]
        number = self._server(index, chosen)
        if number is not None:
            (time_us, runtime, source), kernel = self._best[number][index]
            source = "predicted" if winner.measurement.predicted else source
            return Served(winner, kernel, runtime, time_us, source)
        slow = generic(tuple(self._known.spaces.values()), winner.key.problem.signature)
        if slow is None:
            raise NoValidConfiguration(f"no generic kernel serves {winner.key.problem.label}", hint="take more kernels")
        return Served(winner, slow, slow.config.runtime, ABSENT * self._won(index), "expected", generic=True)

    def _server(self, index: int, chosen: Sequence[int]) -> int | None:
        """Which of the chosen serves a shape in the least time."""
        able = [number for number in chosen if index in self._best[number]]
        return min(able, key=lambda number: (self._best[number][index][0][0], number), default=None)

    def _ratio(self, index: int, time_us: float) -> float:
        return max(1.0, time_us / self._won(index))

    def _won(self, index: int) -> float:
        return self._known.winners[index].measurement.time_us or 1.0

    def _of_part(self, members: Sequence[int]) -> Iterator[Kernel]:
        """The parameters of kernels that have won somewhere, as they were measured on the part's shapes, for all
        alignments that these have: what wins none of them may do well on many."""
        device = self._known.winners[members[0]].key.device
        for space, config, signature in self._rendered(members):
            yield replace(on_device(space, config, signature, device.compute_capability), lenient=True)

    def _of_several_forms(self, members: Sequence[int]) -> Iterator[Kernel]:
        """The same for kernels of several forms, where the family has such."""
        device, known = self._known.winners[members[0]].key.device, set[tuple[object, ...]]()
        for space, config, signature in self._rendered(members):
            alone = on_device(space, config, signature, device.compute_capability)
            kernel = replace(alone, forms=forms_of(space, config, signature, alone.arch), lenient=True)
            if kernel.forms and kernel.code not in known and self._has_room(kernel, device):
                known.add(kernel.code)
                yield kernel.of_form(kernel.rendered)

    def _has_room(self, kernel: Kernel, device: DeviceIdentity) -> bool:
        """Whether a block's shared memory suffices for each form."""
        most = self._devices[device].smem_per_block_optin
        needs = (
            most_smem(kernel.space, kernel.config, kernel.forms, kernel.arch, rule) for rule in kernel.space.launches
        )
        return all((one or 0) <= most for one in needs)

    def _rendered(self, members: Sequence[int]) -> Iterator[tuple[SearchSpace, Config, Signature]]:
        """Of which configurations, for which alignments there might be kernels."""
        signatures = dict.fromkeys(self._known.winners[index].key.problem.signature for index in members)
        plain: dict[str, Config] = {}
        for config in self._measured_on(members):
            plain.setdefault(config.kernel.identity, config)
        for config in plain.values():
            space = self._known.spaces[config.family]
            for signature in signatures:
                for one in dict.fromkeys((config, _packed(space, config, signature))):
                    yield space, one, signature

    def _measured_on(self, members: Sequence[int]) -> Iterator[Config]:
        """Configurations that were measured on the part's shapes; those of winners first."""
        yield from (self._known.winners[index].config for index in members)
        yield from (self._known.configs[identity] for index in members for identity in self._times[index])

    def _offer(self, kernel: Kernel, index: int) -> tuple[Offer, Kernel] | None:
        """The least time of the kernel on a shape, and in which form: of each that of a kernel of it alone."""
        layout = self._known.winners[index].key.problem.layout
        found: list[tuple[Offer, Kernel]] = []
        for form in kernel.forms or (kernel.signature,):
            offer = (
                self._time_alone(replace(kernel, signature=form, forms=()), index) if form.layout == layout else None
            )
            if offer is not None:
                time_us, runtime, source = offer
                if kernel.forms:
                    time_us, source = _longer(time_us, *SEVERAL_FORMS), "alike" if source == "measured" else source
                if source != "measured":
                    time_us = max(time_us, NOT_MEASURED * self._won(index))
                found.append(((time_us, runtime, source), kernel.of_form(form)))
        return min(found, key=lambda one: one[0][0], default=None)

    def _time_alone(self, kernel: Kernel, index: int) -> Offer | None:
        name = (kernel.identity, index)
        if name not in self._known_times:
            self._known_times[name] = self._time(kernel, index)
        return self._known_times[name]

    def _time(self, kernel: Kernel, index: int) -> Offer | None:
        """The least time of the kernel on a shape, with the run-time choices, and where the time is from."""
        key = self._known.winners[index].key
        if never_runs(kernel, key.problem, self._devices[key.device]):
            return None
        measured = self._measured_time(kernel, index)
        if measured is not None and measured[2] == "measured":
            return measured
        found = [one for one in (measured, self._expected_time(kernel, index)) if one is not None]
        return min(found, key=lambda one: one[0], default=None)

    def _measured_time(self, kernel: Kernel, index: int) -> Offer | None:
        """The least that was measured of the parameters on the shape, of what the kernel can run."""
        problem = self._known.winners[index].key.problem
        own = problem.signature == kernel.signature
        choices = self._choices(kernel, index)
        for runtime, time_us in sorted(choices.items(), key=lambda choice: choice[1]):
            if self._can_run(kernel, runtime, index):
                if own and not self._is_idle(kernel, index):
                    return time_us, runtime, "measured"
                return self._with_idle(kernel, index, time_us * narrowing(kernel, problem)), runtime, "expected"
        return None

    def _expected_time(self, kernel: Kernel, index: int) -> Offer | None:
        """The least that the kernel is expected to take with run-time choices that were not measured on the shape."""
        family, best = kernel.config.family, self._known.winners[index]
        known = self._choices(kernel, index)
        others = [one for one in self._runtimes.get(family, ()) if one not in known]
        points = self._points_of(kernel, best.key.device)
        failed = any(
            self._known.may_fail(config, index) for config in (kernel.config, self._as_measured(kernel, index))
        )
        if failed or not (others and points):
            return None
        names = names_of(kernel, others[0], best.key.problem, self._devices[best.key.device])
        traffic = self._known.traffic[best.key.device]
        alike: dict[Costs, list[Runtime]] = {}
        every = costs_of_each(self._known.cost_rules[family], [{**names, **dict(one)} for one in others])
        for costs, runtime in zip(every, others, strict=True):
            alike.setdefault(costs, []).append(runtime)
        times = [(*expected(points, costs, traffic), costs) for costs in alike]
        for ps, entry, costs in sorted(times, key=lambda one: one[0]):
            for runtime in (one for one in alike[costs] if self._can_run(kernel, one, index)):
                behind = self._known.winners[entry].measurement.predicted
                time_us = max(ps / 1e6, self._least_us(kernel, index, points, costs))
                time_us = self._with_idle(kernel, index, time_us)
                return time_us, runtime, "predicted" if behind else "expected"
        return None

    def _least_us(self, kernel: Kernel, index: int, points: Sequence[Point], costs: Costs) -> float:
        """What was not timed on a shape is slower than the winner, the more the less alike the shapes are on which it
        was; and no faster than what was given up there of the kernel, with other run-time choices."""
        given_up = self._known.given_up.get((index, self._as_measured(kernel, index).kernel), 0.0)
        least = min(unlikeness(point, costs) for point in points)
        return max(UNTRIED * self._won(index) * doubt(least), given_up)

    def _with_idle(self, kernel: Kernel, index: int, time_us: float) -> float:
        """The time of a kernel of which that without copies is known."""
        return _longer(time_us, *IDLE_COPY) if self._is_idle(kernel, index) else time_us

    def _is_idle(self, kernel: Kernel, index: int) -> bool:
        """Whether it may copy operands, has none to copy on a shape, and is known by its like that never does."""
        return self._as_measured(kernel, index).parameters != kernel.config.parameters

    def _can_run(self, kernel: Kernel, runtime: Runtime, index: int) -> bool:
        key = self._known.winners[index].key
        return launches_of(kernel, runtime, key.problem, self._devices[key.device]) is not None

    def _choices(self, kernel: Kernel, index: int) -> dict[Runtime, float]:
        """Run-time choices with which what the kernel does on a shape was measured there, and the times."""
        name = (kernel.identity, index)
        if name not in self._known_choices:
            config = self._as_measured(kernel, index)
            self._known_choices[name] = self._by_kernel[index].get((config.family, config.parameters), {})
        return self._known_choices[name]

    def _as_measured(self, kernel: Kernel, index: int) -> Config:
        """The parameters with which a search has measured what the kernel does on a shape.

        Where it copies nothing, it is as fast as one that never copies.
        """
        key, config = self._known.winners[index].key, kernel.config
        if COPYING in kernel.space.derived:
            names = names_of(kernel, config.runtime, key.problem, self._devices[key.device])
            if not Names(names, kernel.space.derived)[COPYING]:
                config = without_copies(kernel.space, config)
        return config

    def _points_of(self, kernel: Kernel, device: DeviceIdentity) -> list[Point]:
        """Where the kernel's parameters were measured on a device, in any layout of its formats."""
        name = (kernel.identity, device)
        if name not in self._points:
            self._points[name] = self._known.points(kernel, list(self._measured(kernel, device)))
        return self._points[name]

    def _measured(self, kernel: Kernel, device: DeviceIdentity) -> Iterator[tuple[int, Config, float]]:
        family, parameters = kernel.config.family, kernel.config.parameters
        for index, best in enumerate(self._known.winners):
            if best.key.device == device and formats_of(best.key.problem) == kernel.formats:
                for runtime, time_us in self._choices(kernel, index).items():
                    yield index, Config(family, parameters, runtime), time_us


def _longer(time_us: float, part: float, most_us: float) -> float:
    return time_us + min(part * time_us, most_us)


def _packed(space: SearchSpace, config: Config, signature: Signature) -> Config:
    """The configuration with copies of the operands whose rows are not aligned, in families that copy only these."""
    if COPYING not in space.derived or (signature.align_a, signature.align_b) == (MAX_ALIGNMENT, MAX_ALIGNMENT):
        return config
    return copying_for(space, config, {"a": signature.align_a, "b": signature.align_b})


def _runtimes(winners: Sequence[BestConfig]) -> dict[str, list[Runtime]]:
    """The run-time choices of the winners of each family."""
    found: dict[str, dict[Runtime, None]] = {}
    for best in winners:
        found.setdefault(best.config.family, {})[best.config.runtime] = None
    return {family: list(runtimes) for family, runtimes in found.items()}


def _entry(served: Served) -> BestConfig:
    """The winner of a shape as it is served: the table says what is launched."""
    winner, kernel = served.winner, served.kernel
    config = Config(kernel.config.family, kernel.config.parameters, served.runtime)
    if config.identity == winner.config.identity and not kernel.forms:
        return winner
    launches = launches_of(kernel, served.runtime, winner.key.problem, known_device(winner.key.device))
    assert launches is not None
    return replace(
        winner,
        config=config,
        measurement=Measurement("ok", served.time_us, predicted=served.source != "measured"),
        launches=launches[0],
        workspace_bytes=launches[1],
        ties=(),
    )
