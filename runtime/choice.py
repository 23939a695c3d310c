"""Which configuration computes a problem: the winner of the cache, else what the exported header's dispatch says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kt.cache.location import cache_dir
from kt.cache.store import Store
from kt.runtime.placed_problem import tuned_as
from kt.tuner.request import TuneRequest
from kt.tuner.run import stored_best

if TYPE_CHECKING:
    from kt.cache.records import BestConfig
    from kt.devices.device import Device
    from kt.export.contents import Contents, Search
    from kt.export.kernels import Kernel
    from kt.export.runnable import Launches
    from kt.problems import Problem, Signature
    from kt.search_spaces.space import Config, Launch, SearchSpace, Value

__all__ = ["Choice", "Chooser"]


@dataclass(frozen=True)
class Choice:
    """How a problem is computed.

    Attributes:
        found: "exact": by its own winner; "neighbour": by the kernel of another shape's; "standard": by the
            configuration that is best over all tuned shapes; "generic": by the kernel that can compute anything.
        config, signature: what is compiled.
        launches, workspace_bytes: for this very problem.
    """

    found: str
    space: SearchSpace
    config: Config
    signature: Signature
    launches: tuple[Launch, ...]
    workspace_bytes: int


class Chooser:
    """Chooses for one GPU. What the cache has for other shapes than tuned ones is read once; `forget` drops it.

    Attributes:
        spaces: the built-in ones, by family.
    """

    def __init__(self, device: Device) -> None:
        from kt.search_spaces.loader import builtin_spaces

        self.device = device
        self.spaces: dict[str, SearchSpace] = {space.family: space for space in builtin_spaces()}
        self._contents: dict[tuple[str, ...], Contents] = {}

    def request(self, problems: list[Problem]) -> TuneRequest:
        """What is asked of a tuner for these problems."""
        return TuneRequest(problems, list(self.spaces.values()), self.device)

    def forget(self) -> None:
        """Read the cache again for whatever comes next: it may have new winners."""
        self._contents.clear()

    def exact(self, problem: Problem) -> Choice | None:
        """By the problem's own winner, None without one, or if operands are less aligned than its kernel reads them."""
        with Store.open(cache_dir(), read_only=True) as store:
            bests = [stored_best(self.request([one]), store, one, partial=True) for one in tuned_as(problem)]
        listed = [best for best in bests if best and not best.unseen]
        return next((found for best in listed if (found := self._of_winner(best, problem))), None)

    def other(self, problem: Problem) -> Choice | None:
        """By the rule of the exported header for shapes that were not tuned; None if nothing can compute it."""
        from kt.export.dispatch import pick

        contents = self._contents_for(problem)
        chosen = pick(contents, problem, self.device)
        if chosen.launches is None:
            return self._generic(problem)
        variant = contents.kernels.variants[chosen.variant]
        return self._of_kernel(chosen.found, contents.kernels.kernels[variant.kernel], variant.runtime, chosen.launches)

    def _of_winner(self, best: BestConfig, problem: Problem) -> Choice | None:
        from kt.export.kernels import on_device
        from kt.export.runnable import launches_of

        capability = self.device.compute_capability
        kernel = on_device(self.spaces[best.config.family], best.config, best.key.problem.signature, capability)
        launches = launches_of(kernel, best.config.runtime, problem, self.device)
        return launches and self._of_kernel("exact", kernel, best.config.runtime, launches)

    def _generic(self, problem: Problem) -> Choice | None:
        """For formats that nothing was tuned of."""
        from kt.export.kernels import generic
        from kt.export.runnable import launches_of

        kernel = generic(tuple(self.spaces.values()), problem.signature)
        launches = kernel and launches_of(kernel, kernel.config.runtime, problem, self.device)
        return self._of_kernel("generic", kernel, kernel.config.runtime, launches) if kernel and launches else None

    def _of_kernel(
        self,
        found: str,
        kernel: Kernel,
        runtime: tuple[tuple[str, Value], ...],
        launches: Launches,
    ) -> Choice:
        config = replace(kernel.config, runtime=runtime)
        return Choice(found, kernel.space, config, kernel.signature, *launches)

    def _contents_for(self, problem: Problem) -> Contents:
        """What a header of this GPU's winners of the problem's formats has."""
        key = problem.formats  # what the kernels of a header for it depend on
        if key not in self._contents:
            from kt.export.collect import collect

            bests, unseen, searches = self._read(key)
            self._contents[key] = collect(bests, self.spaces, searches, unseen=unseen)
        return self._contents[key]

    def _read(self, group: tuple[str, ...]) -> tuple[list[BestConfig], list[BestConfig], list[Search]]:
        """The winners of a group, those of shapes that stand for others, and what was measured of their kernels on each
        other's shapes, as in an export."""
        from kt.cache.entries import entries, select, stand_ins
        from kt.export.elsewhere import measured_elsewhere
        from kt.tuner.current_measurements import CurrentMeasurements
        from kt.tuner.method import METHOD_LABEL

        sources = self.request([]).sources
        with Store.open(cache_dir(), read_only=True) as store:
            store.expect(self.spaces, sources)
            found = [
                entry
                for entry in entries(store, sources, method=METHOD_LABEL)
                if entry.best.key.device == self.device.identity and entry.best.key.problem.formats == group
            ]
            bests, unseen = [entry.best for entry in select(found).chosen], stand_ins(found)
            known = {best.key: store.measurements(best.key) for best in (*bests, *unseen)}
        searches = measured_elsewhere([*bests, *unseen], known, CurrentMeasurements(self.spaces), self.device)
        return bests, unseen, searches
