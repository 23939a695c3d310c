"""What the driver is told of a launch: structures are CUDA's, and only grids that wait themselves may start early."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kt.search_spaces.space import Launch
from kt.tuner import kernel_launch
from kt.tuner.kernel_launch import KernelLaunch, Parameters

EARLY = Launch("kt_gemm", 7, 256, 4096, programmatic=True)


class Driver:
    """In the driver's place: remembers launches, those with attributes as the bytes of their configuration."""

    class CUDADriverError(Exception):
        """With the driver's number."""

    def __init__(self) -> None:
        self.plain: list[tuple[int, ...]] = []
        self.told: list[tuple[bytes, bytes, int, int]] = []
        self.answer = 0
        self.version = 13000

    def launchKernel(self, *figures: int) -> None:
        self.plain.append(figures)

    def driverGetVersion(self) -> int:
        return self.version

    def launch_kernel_ex(self, config: int, function: int, parameters: int, extra: object) -> int:
        assert extra is None
        of_config = ctypes.string_at(config, 56)
        attributes = int.from_bytes(of_config[40:48], "little")
        self.told.append((of_config, ctypes.string_at(attributes, 72), function, parameters))
        return self.answer


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(kernel_launch, "driver", driver)
    monkeypatch.setattr(kernel_launch, "runtime", driver)
    monkeypatch.setattr(kernel_launch, "_launch_kernel_ex", lambda: driver.launch_kernel_ex)
    return driver


def words(of: bytes, count: int) -> list[int]:
    return [int(word) for word in np.frombuffer(of[: 4 * count], np.uint32)]


def test_a_grid_that_waits_itself_is_launched_with_the_attribute(cuda: Driver) -> None:
    """Fields lie where CUlaunchConfig and CUlaunchAttribute have them: 56 and 72 bytes."""
    assert ctypes.sizeof(kernel_launch._Config) == 56
    assert ctypes.sizeof(kernel_launch._Attribute) == 72
    KernelLaunch(0x77, EARLY).enqueue(0x57, 0x99)
    ((config, attribute, function, parameters),) = cuda.told
    assert words(config, 7) == [7, 1, 1, 256, 1, 1, 4096]
    assert int.from_bytes(config[32:40], "little") == 0x57
    assert int.from_bytes(config[48:52], "little") == 1
    assert words(attribute, 18) == [6, 0, 1] + [0] * 15
    assert (function, parameters) == (0x77, 0x99)
    assert cuda.plain == []


@pytest.mark.parametrize(("programmatic", "version"), [(False, 13000), (True, 12020)])
def test_others_and_old_drivers_launch_in_order(cuda: Driver, programmatic: bool, version: int) -> None:
    cuda.version = version
    KernelLaunch(0x77, Launch("kt_gemm", 7, 256, 4096, programmatic=programmatic)).enqueue(0x57, 0x99)
    assert cuda.plain == [(0x77, 7, 1, 1, 256, 1, 1, 4096, 0x57, 0x99, 0)]
    assert cuda.told == []


def test_what_the_driver_refuses_is_raised(cuda: Driver) -> None:
    cuda.answer = 701
    with pytest.raises(Driver.CUDADriverError, match="701"):
        KernelLaunch(0x77, EARLY).enqueue(0x57, 0x99)


def test_launches_of_different_streams_do_not_share_their_configuration(cuda: Driver) -> None:
    launch = KernelLaunch(0x77, EARLY)
    for stream in (1, 2):
        launch.enqueue(stream, 0x99)
    assert [int.from_bytes(config[32:40], "little") for config, *_ in cuda.told] == [1, 2]


def test_parameters_are_copies_whose_addresses_stand_in_order() -> None:
    values: list[Any] = [np.arange(4, dtype=np.int32), np.zeros(2, "V128")[0]]
    parameters = Parameters(values)
    values[0][:] = 0
    first, second = ctypes.cast(parameters.address, ctypes.POINTER(ctypes.c_void_p))[:2]
    assert np.frombuffer(ctypes.string_at(first or 0, 16), np.int32).tolist() == [0, 1, 2, 3]
    assert ctypes.string_at(second or 0, 128) == bytes(128)


def test_every_space_whose_kernels_wait_says_so_from_hopper_on() -> None:
    from kt.devices.catalog import modelled
    from kt.problems import Problem
    from kt.search_spaces.launch import resolve
    from kt.search_spaces.loader import builtin_spaces

    for name, early in (("h200", True), ("a100", False)):
        device = SimpleNamespace(names=modelled(name).names)
        for space in builtin_spaces():
            if not early and space.min_compute_capability > (8, 9):
                continue
            dtype = space.dtypes[0]
            config = space.config(dict(space.default))
            launches, _ = resolve(space, config, {**device.names(), **Problem(512, 64, 512, dtype=dtype).names()})
            assert {launch.programmatic for launch in launches} == {early}
