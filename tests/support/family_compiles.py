"""What the compile tests of every kernel family need: a sample that covers a space, and the compilation of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kt.devices.catalog import modelled
from kt.devices.device import Device
from kt.problems import Problem
from kt.search_spaces.enumeration import Enumeration, enumerate_space
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config, SearchSpace
from kt.templates.render import render
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.toolchain import compile_job, toolchain

__all__ = ["builtin", "compile_all", "covering", "device_of", "job", "valid"]

H200 = modelled("h200")


def builtin(family: str) -> SearchSpace:
    return next(space for space in builtin_spaces() if space.family == family)


def device_of(arch: str) -> Device:
    """The H200 with another compute capability: only that decides what code is rendered."""
    number = int("".join(filter(str.isdigit, arch)))
    return replace(H200, compute_capability=(number // 10, number % 10))


def valid(space: SearchSpace, problem: Problem, device: Device) -> Enumeration:
    return enumerate_space(space, {**device.names(), **problem.names()})


def covering(survivors: Enumeration, names: Sequence[str] = ()) -> list[Config]:
    """Valid configurations, first and last of the space among them, in which every value that survives occurs.

    Args:
        names: of the parameters whose values are to occur; all of them if none is given.
    """
    columns = {name: survivors.columns[name] for name in names or survivors.space.parameters}
    wanted = {(name, value) for name, column in columns.items() for value in set(column.tolist())}
    chosen = [survivors.config(0), survivors.config(len(survivors) - 1)]
    for config in chosen:
        wanted -= set(config.parameters)
    while wanted:
        name, value = min(wanted, key=str)
        # The last one with the value: large tiles, where code and registers are longest.
        config = survivors.config(int((columns[name] == value).nonzero()[0][-1]))
        chosen.append(config)
        wanted -= set(config.parameters)
    return chosen


def compile_all(jobs: Sequence[CompileJob], folder: Path) -> list[Binary]:
    """The outcome of each job, in their order; `folder` takes the cubins."""
    done: dict[str, Binary] = {}
    with CompilePool(2, CubinCache(folder), 120.0) as pool:
        for job in jobs:
            pool.submit(job)
        while pool.pending:
            done |= {binary.digest: binary for binary in pool.poll(1.0)}
    return [done[job.digest] for job in jobs]


def job(space: SearchSpace, config: Config, problem: Problem, arch: str) -> CompileJob:
    return compile_job(render(space, config, problem.signature, arch), arch, toolchain())
