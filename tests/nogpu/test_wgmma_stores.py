"""How tiles of family wgmma become C, run on the CPU: every way but TMA, for rows of a warp that are neighbours, and
for those that lie 2, 4 or 8 apart (`shift_a`)."""

import re
from pathlib import Path

import pytest

from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls

HEADERS = (
    "common.cuh", "convert.cuh", "epilogue.cuh", "kernels/wgmma_epilogue.cuh", "kernels/wgmma_windows.cuh",
    "kernels/wgmma_pairs.cuh", "kernels/wgmma_slices.cuh",
)  # fmt: skip
# What single instructions do, in place of their text: the lane's number, and four words that are stored.
INSTRUCTIONS = (
    (r'asm volatile\("mov.u32 %0, %%laneid[^;]*;\\n" : "=r"\(lane\)\);', "lane = int(threadIdx.x) % 32;"),
    (r'asm volatile\("st.global.v4.b32 .*?: "memory"\);', "ptx::store_words(target, words);"),
    (r'asm volatile\("" ::: "memory"\);', ""),
    (r"__shared__ ", "static "),
)


def header(name: str) -> str:
    text = (INCLUDE / name).read_text()
    for pattern, replacement in INSTRUCTIONS:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text


def program() -> list[str]:
    before, after = on_cpu("stores").split("// headers\n")
    return [on_cpu("wide_loads"), before, *map(header, HEADERS), after]


@needs_compiler
@pytest.mark.parametrize("apart", [1, 2, 4, 8])
def test_every_element_of_a_tile_is_written_where_it_belongs(apart: int, tmp_path: Path) -> None:
    """Whole tiles, and such as C ends within: after a few rows or columns, in a second tile, behind every shift."""
    calls = []
    for tiles in (1, 2):
        order = f"{apart}, {tiles}"
        calls += [f"by_rows<{order}>(141, 200, 8, 0, 0)", f"by_rows<{order}>(150, 136, 0, 128, 128)"]
        calls += [f"directly<{order}>(128, 128, 0, 0, 0)", f"directly<{order}>(237, 200, 8, 128, 128)"]
        calls += [f"directly<{order}, float>(128, 128, 0, 0, 0)", f"directly<{order}, float>(237, 200, 4, 128, 128)"]
        calls += [f"by_rows<{order}, float>(141, 200, 8, 0, 0)", f"by_rows<{order}, float>(150, 136, 0, 128, 128)"]
        calls += [f"by_windows<{order}, {64 * tiles}>(131, {129 + 2 * tiles}, 0, 0, 0)"]
        calls += [f"by_windows<{order}, {64 * tiles}>(149, 219, 2, 128, 128)", f"by_pairs<{order}>(141, 131, 0, 0, 0)"]
    calls += [f"in_slices<{apart}>({m}, {n}, {gap}, 3)" for m, n, gap in ((128, 128, 0), (61, 99, 1))]
    run_calls(program(), calls, tmp_path)


@needs_compiler
def test_rows_behind_a_tile_s_last_one_are_not_written(tmp_path: Path) -> None:
    """They belong to the next tile; the tile ends within a warp's strips, or with all strips of some warps."""
    calls = []
    for height in (80, 96, 112):
        for tiles in (1, 2):
            order, of_height = f"1, {tiles}", f"height = {height}, "
            calls += [
                f"{of_height}by_rows<{order}>(300, 136, 0, 80, 128)",
                f"{of_height}by_rows<{order}, float>(85, 140, 8, 0, 0)",
            ]
            calls += [
                f"{of_height}by_windows<{order}, 64>(300, 131, 0, 96, 0)",
                f"{of_height}by_pairs<{order}>(300, 131, 0, 112, 0)",
            ]
        calls += [f"height = {height}, directly<1, 1>(300, 128, 0, 80, 0)"]
    run_calls(program(), calls, tmp_path)
