"""The wgmma family's tiles that threads write themselves: each element of C is written once, rightly, and nothing else.

A model of `WgmmaDirectStore` in templates/include/kt/kernels/wgmma_epilogue.cuh for one warp and its strip of 16 rows:
which accumulators lie in which lane, where they go in shared memory, and which 16 bytes of that a lane writes.
"""

import itertools

import pytest

ROWS, LANES = 16, range(32)
Place = tuple[int, int]  # row and column of the strip


def swizzle_of(row: int, row_bytes: int) -> int:
    return row * row_bytes // 128 % (row_bytes // 16) << 4


def staged(size: int, row_bytes: int, columns: int) -> dict[int, Place]:
    """Which element lies at which byte of a panel after all lanes have put theirs of the first `columns` there."""
    memory: dict[int, Place] = {}

    def put(address: int, element: Place) -> None:
        assert address not in memory, "written once"
        assert 0 <= address < ROWS * row_bytes, "within the panel"
        memory[address] = element

    for column in range(0, columns, 16 if size == 2 else 8):
        if size == 2:
            for lane in LANES:  # stmatrix: lane l has the address of row l % 8 of matrix l / 8
                matrix, row = divmod(lane, 8)
                place_row = lane % 16
                start = place_row * row_bytes + (lane // 16 * 16 ^ swizzle_of(place_row, row_bytes)) ^ column * 2
                for source, half in itertools.product(range(4), range(2)):  # lanes 4 row + source hold the words
                    element = row + 8 * (matrix % 2), column + 8 * (matrix // 2) + 2 * source + half
                    put(start + 4 * source + 2 * half, element)
        else:
            for lane, half, second in itertools.product(LANES, range(2), range(2)):
                row = lane // 4
                place = row * row_bytes + (lane % 4 * 8 ^ swizzle_of(row, row_bytes))
                address = (place ^ column * 4) + 8 * half * row_bytes + 4 * second
                put(address, (row + 8 * half, column + lane % 4 * 2 + second))
    return memory


def written(size: int, row_bytes: int, tile: int, rows: int, columns: int) -> dict[Place, Place]:
    """Element of C, counted from the strip's first one, -> element of the strip. C ends after `rows` and `columns`.

    The strip has `tile` columns; the last of its panels may reach beyond them.
    """
    units, width, found = row_bytes // 16, 16 // size, {}
    at_once, panel_columns = 32 // units, row_bytes // size
    panels = -(-tile // panel_columns)
    memories = [staged(size, row_bytes, min(panel_columns, tile - panel * panel_columns)) for panel in range(panels)]
    whole = rows >= ROWS and columns >= tile
    for lane, panel, times in itertools.product(LANES, range(panels), range(ROWS // at_once)):
        own_row, unit = divmod(lane, units)
        row, left = own_row + times * at_once, min(columns, tile) - unit * width - panel * panel_columns
        if times * at_once >= rows - own_row if not whole else left <= 0:
            continue
        address = row * row_bytes + (unit * 16 ^ swizzle_of(row, row_bytes))
        for i in range(width if whole else min(width, max(left, 0))):
            target = row, panel * panel_columns + unit * width + i
            assert target not in found, "written once"
            staged_row, staged_column = memories[panel][address + i * size]
            found[target] = staged_row, staged_column + panel * panel_columns
    return found


WHOLE = [(size, row, panels * row // size) for size in (2, 4) for row in (32, 64, 128) for panels in (1, 3)]
REACHING_BEYOND = [(2, 64, 24), (2, 128, 40), (2, 128, 56), (2, 128, 72), (2, 128, 120)]


@pytest.mark.parametrize(("size", "row_bytes", "width"), [*WHOLE, *REACHING_BEYOND])
def test_every_element_is_written_once_where_it_belongs(size: int, row_bytes: int, width: int) -> None:
    for rows, columns in itertools.product(
        [1, 5, 8, 15, 16, 40], {1, 7, 8, width - 3, width - 1, width, width + 9, -4}
    ):
        expected = {(row, column) for row in range(min(rows, ROWS)) for column in range(min(columns, width))}
        found = written(size, row_bytes, width, rows, columns)
        assert found.keys() == expected
        assert all(source == target for target, source in found.items())
