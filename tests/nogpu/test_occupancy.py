"""Occupancy follows the allocation rules of the CUDA programming guide."""

import numpy as np
import pytest

from kt.devices.catalog import catalog
from kt.tuner.occupancy import MAX_REGISTERS, limiter, occupancy, registers_for

H200, T4, A10 = (catalog()[key] for key in ("h200", "t4", "a10"))


@pytest.mark.parametrize(
    ("threads", "registers", "smem", "blocks", "limit"),
    [
        (256, 32, 0, 8, "threads"),  # 2048 threads
        (256, 128, 0, 2, "registers"),  # 65536 / (256 * 128)
        (256, 129, 0, 1, "registers"),  # rounded up to 136
        (256, 168, 0, 1, "registers"),
        (32, 16, 0, 32, "blocks"),
        (128, 32, 232448, 1, "shared memory"),
        (128, 32, 113 * 1024, 2, "shared memory"),  # 2 * (113 + 1) KiB is all of it
        (128, 32, 113 * 1024 + 1, 1, "shared memory"),
        (1024, 64, 0, 1, "registers"),
        (1024, 65, 0, 0, "registers"),  # cannot be launched: 72 * 1024 registers
        (128, 32, 232449, 0, "shared memory"),
        (2048, 16, 0, 0, "threads"),
        (128, 256, 0, 0, "registers"),
    ],
)
def test_blocks_on_an_h200(threads: int, registers: int, smem: int, blocks: int, limit: str) -> None:
    assert occupancy(H200, threads, registers, smem) == blocks
    assert limiter(H200, threads, registers, smem) == limit


def test_smaller_gpus_hold_fewer() -> None:
    assert occupancy(T4, 256, 32, 0) == 4
    assert occupancy(A10, 256, 32, 0) == 6
    assert occupancy(T4, 128, 32, 32 * 1024) == 2  # no reserved KiB before 8.0
    assert occupancy(A10, 128, 32, 50 * 1024) == 1


def test_a_partial_warp_counts_as_a_whole_one() -> None:
    assert occupancy(H200, 33, 32, 0) == occupancy(H200, 64, 32, 0)


@pytest.mark.parametrize(
    ("threads", "blocks", "registers"),
    [(192, 3, 96), (96, 3, 168), (64, 3, 255), (160, 3, 128), (224, 2, 128), (160, 2, 168), (96, 7, 80), (256, 2, 128)],
)
def test_registers_for_blocks_are_what_the_compiler_allows(threads: int, blocks: int, registers: int) -> None:
    """As NVRTC 13.5 compiles a kernel of many registers with these launch bounds; the blocks do fit then."""
    assert registers_for(H200, threads, blocks) == registers
    assert occupancy(H200, threads, registers, 0) >= blocks
    assert registers == MAX_REGISTERS or occupancy(H200, threads, registers + 1, 0) < blocks


def test_arrays_broadcast_and_agree_with_scalars() -> None:
    threads, registers = np.array([64, 128, 256]), np.array([40, 96, 200])
    together = occupancy(H200, threads, registers, 8192)
    one_by_one = [int(occupancy(H200, t, r, 8192)) for t, r in zip(threads, registers, strict=True)]
    assert together.tolist() == one_by_one


def test_more_of_anything_never_raises_occupancy() -> None:
    registers = np.arange(16, 256)
    for threads in (32, 96, 128, 256, 512):
        assert (np.diff(occupancy(H200, threads, registers, 0)) <= 0).all()
    assert (np.diff(occupancy(H200, 128, 32, np.arange(0, 232448, 512))) <= 0).all()
