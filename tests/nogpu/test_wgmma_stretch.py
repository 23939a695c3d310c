"""A dense, narrow B that comes to its stages in stretches, of wgmma: copied and unpacked on the CPU; its space."""

from pathlib import Path

import pytest

from kt.problems import Problem
from kt.search_spaces.launch import resolve, violated
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls
from support.wgmma_tiles import DEVICE, SPACE, choices, table

KERNELS = INCLUDE / "kernels"
HEADERS = (
    INCLUDE / "common.cuh", INCLUDE / "barrier_ring.cuh", KERNELS / "wgmma_operand.cuh", KERNELS / "wgmma_stretch.cuh",
    KERNELS / "wgmma_walk.cuh", KERNELS / "wgmma_shared.cuh", KERNELS / "wgmma_unpacker.cuh",
)  # fmt: skip


def run(calls: list[str], folder: Path) -> None:
    before, after = on_cpu("stretch").split("// headers\n")
    run_calls([before, *(header.read_text() for header in HEADERS), after], calls, folder)


@needs_compiler
def test_every_width_begin_and_end(tmp_path: Path) -> None:
    """Each number of columns, at each distance from a multiple of 16 bytes, whatever is left of k in the last step."""
    calls = []
    for tile in (16, 32, 48, 64):
        for n in range(1 if tile == 16 else tile // 2 + 1, tile):
            calls.append(f"stretches<{tile}, 64, 4>({n}, {64 + (5 * n) % 64}, {n % 8})")
            calls.append(f"stretches<{tile}, 128, 3>({n}, {128 + (7 * n) % 128}, {(n + 3) % 8 * (n % 2)})")
    run(calls, tmp_path)


@needs_compiler
def test_few_elements(tmp_path: Path) -> None:
    """B of a few elements, of no whole bulk copy or of one: at each distance from a multiple of 16 bytes."""
    calls = [f"stretches<16, 64, 3>({n}, {k}, {s})" for n in (1, 3, 7) for k in (1, 2, 3, 8, 9, 64) for s in range(8)]
    run(calls, tmp_path)


@needs_compiler
def test_rings_go_round(tmp_path: Path) -> None:
    """Many steps, tiles, slices of k and batches, which begin at other distances from multiples of 16 bytes."""
    calls = [
        "stretches<48, 64, 7>(35, 64 * 29 + 5, 0)",
        "stretches<48, 64, 3>(35, 64 * 5, 0, 4)",
        "stretches<16, 128, 8>(3, 128 * 9 + 1, 0, 3)",
        "stretches<32, 64, 4>(17, 479, 0, 3, 3)",
        "stretches<32, 64, 5>(18, 65, 2, 2, 1, 5, 1)",
        "stretches<64, 64, 4>(63, 200, 1, 2, 2, 3)",
        "stretches<48, 64, 4>(47, 3 * 64 - 1, 0, 1, 5, 2)",  # a slice without steps
    ]
    run(calls, tmp_path)


@pytest.mark.parametrize("tile_k_bytes", [128, 256])
@pytest.mark.parametrize("tile_n", [16, 32, 48, 64])
def test_shared_memory_is_what_the_kernel_uses(tile_n: int, tile_k_bytes: int) -> None:
    problem = Problem(8457, tile_n - 1, 2560, "bf16", "nn")
    config = choices(tile_n=tile_n, tile_k_bytes=tile_k_bytes, stages=3, stretch_b=1)
    names = {**DEVICE.names(), **problem.names()}
    launch = resolve(SPACE, config, names)[0][-1]
    more = (
        'extern "C" __constant__ long long kt_slots[] = {Traits::Slots::kBytes, kt::WgmmaShared<Traits>::kBarriers};\n'
    )
    slots, barriers = table(config, problem, more)["kt_slots"]
    assert slots == tile_n * tile_k_bytes * (6 if tile_k_bytes == 128 else 4)
    rest = launch.smem_bytes - barriers
    assert 1008 + 8 * (2 * 3 + 2 * 4 + 2 + 2 * 6) <= rest <= 2048


@pytest.mark.parametrize(("layout", "operands"), [("nn", "a"), ("tn", "a")])
def test_no_tensor_map_shows_b_and_nothing_is_copied_before(layout: str, operands: str) -> None:
    problem = Problem(8456, 35, 2560, "bf16", layout)
    config = choices(tile_n=48, stages=7, stretch_b=1)
    assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is None
    launches, workspace = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    assert [one.kernel for one in launches] == ["kt_gemm"]
    assert "".join(one.operand for one in launches[0].tensor_maps) == operands
    assert workspace == 0


@pytest.mark.parametrize("problem", [
    Problem(8457, 40, 2560, "bf16"), Problem(8457, 35, 2560, "bf16", "nt"), Problem(8457, 35, 2560, "bf16", ldb=36),
    Problem(8457, 35, 2561, "bf16"), Problem(8457, 35, 2560, "int8"), Problem(8457, 35, 2560, "tf32"),
    Problem(8457, 65, 2560, "bf16"),
], ids=lambda problem: problem.label)  # fmt: skip
def test_other_operands_do_not_come_in_stretches(problem: Problem) -> None:
    """An aligned B, one along k or with gaps, an A that TMA does not read as it lies, other formats, more columns."""
    for tile_n in (48, 64, 80):
        config = choices(tile_n=tile_n, stretch_b=1)
        assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is not None
