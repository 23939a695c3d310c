"""The wgmma family's rows of C that begin anywhere: whatever shift and width, each column is written once, rightly.

A model of what templates/include/kt/kernels/wgmma_windows.cuh does with one row: four lanes, their words, and what they
exchange. Columns have the numbers 1, 2, ...; memory around the row of the tile belongs to others.
"""

import numpy as np
import numpy.typing as npt
import pytest

LANES = range(4)
Words = list[tuple[int, int]]  # two columns each


class Row:
    """A row of a tile, of which `width` columns lie within C; it begins `shift` columns behind a multiple of 16 B."""

    def __init__(self, block_n: int, width: int, shift: int) -> None:
        self.end, self.shift = min(block_n, width), shift
        self.columns = 64 if block_n % 64 == 0 else 32  # of a piece
        self.block_n = block_n
        words = shift // 2
        self.part = [(lane + words) & 3 for lane in LANES]
        self.late = [lane + words >= 4 for lane in LANES]
        self.turn = [(lane + 3) & 3 for lane in LANES]
        self.neighbour = [((self.part[lane] ^ 1) - words) & 3 for lane in LANES]
        self.far = [((self.part[lane] ^ 2) - words) & 3 for lane in LANES]
        self.before: Words = [(0, 0)] * 4
        self.turned_before: Words = [(0, 0)] * 4
        self.memory = np.zeros(block_n + 32, np.int64)  # the row begins at 16 + shift

    def word(self, column: int) -> tuple[int, int]:
        return (column + 1, column + 2) if column < self.block_n else (0, 0)

    def write(self) -> npt.NDArray[np.int64]:
        """What lies in memory from the row's first column on."""
        for piece in range(0, self.block_n, self.columns):
            each = range(self.columns // 8)
            words = [[self.word(piece + 8 * j + 2 * lane) for j in each] for lane in LANES]
            windows = self.shifted(words)
            for j in each[::4]:
                self.write_windows(piece + 8 * j, self.transposed([of_lane[j : j + 4] for of_lane in windows]))
            if piece == 0 or piece + self.columns + 6 >= self.end:
                for j in each:
                    if piece + j == 0 or piece + 8 * j + 14 >= self.end:
                        self.write_ends(words, piece, j)
        return self.memory

    def shifted(self, words: list[Words]) -> list[Words]:
        windows: list[Words] = [[(0, 0)] * len(words[0]) for _ in LANES]
        for j in range(len(words[0])):
            turned = [words[self.turn[lane]][j] for lane in LANES]
            for lane in LANES:
                low = self.before[lane] if self.late[lane] else words[lane][j]
                high = self.turned_before[lane] if self.late[lane] or lane == 0 else turned[lane]
                windows[lane][j] = low if self.shift % 2 == 0 else (high[1], low[0])
            self.before, self.turned_before = [words[lane][j] for lane in LANES], turned
        return windows

    def transposed(self, windows: list[Words]) -> list[Words]:
        second, last = [part % 2 for part in self.part], [part // 2 for part in self.part]
        sent = [[windows[n][2 * i + 1 - second[n]] for i in range(2)] for n in LANES]
        got = [sent[self.neighbour[n]] for n in LANES]
        low = [[got[n][i] if second[n] else windows[n][2 * i] for i in range(2)] for n in LANES]
        high = [[windows[n][2 * i + 1] if second[n] else got[n][i] for i in range(2)] for n in LANES]
        sent = [[pair[n][1 - last[n]] for pair in (low, high)] for n in LANES]
        got = [sent[self.far[n]] for n in LANES]
        return [[*got[n], low[n][1], high[n][1]] if last[n] else [low[n][0], high[n][0], *got[n]] for n in LANES]

    def write_windows(self, piece: int, windows: list[Words]) -> None:
        for lane in LANES:
            first = piece + 8 * self.part[lane] - self.shift
            if first >= 0 and first + 8 <= self.end:
                for i, value in enumerate(np.ravel(windows[lane])):
                    self.put(first + i, int(value))
                assert (16 + self.shift + first) % 8 == 0

    def write_ends(self, words: list[Words], piece: int, j: int) -> None:
        begin, last = -self.shift & 7, self.end - (self.end + self.shift & 7)
        for lane in LANES:
            for i in range(2):
                column = piece + 8 * j + 2 * lane + i
                if column < self.end and (column < begin or column >= last):
                    self.put(column, words[lane][j][i])

    def put(self, column: int, value: int) -> None:
        assert self.memory[16 + self.shift + column] == 0, "written once"
        self.memory[16 + self.shift + column] = value


@pytest.mark.parametrize("block_n", [16, 24, 32, 48, 56, 64, 80, 256])
@pytest.mark.parametrize("shift", range(8))
def test_every_column_is_written_once_and_nothing_else(block_n: int, shift: int) -> None:
    for width in {*range(1, min(block_n, 50) + 1), *range(max(1, block_n - 40), block_n + 1), block_n + 9}:
        memory = Row(block_n, width, shift).write()
        end, first = min(block_n, width), 16 + shift
        assert (memory[first : first + end] == 1 + np.arange(end)).all()
        assert not memory[:first].any()
        assert not memory[first + end :].any()


def pairs_of(block_n: int, width: int, shift: int) -> npt.NDArray[np.int64]:
    """Memory after templates/include/kt/kernels/wgmma_pairs.cuh has written a row, which begins at 16."""
    end, memory, before = min(block_n, width), np.zeros(block_n + 32, np.int64), 0
    last = end - (end + shift & 1)

    def put(column: int, value: int) -> None:
        assert memory[16 + column] == 0, "written once"
        memory[16 + column] = value

    for j in range(-(-block_n // 32) * 4):
        results = [(column + 1, column + 2) if column < block_n else (0, 0) for column in range(8 * j, 8 * j + 8, 2)]
        for lane, (first, second) in enumerate(results):
            column, turned = 8 * j + 2 * lane, results[lane - 1][1] if lane else before
            if column >= shift and column - shift + 2 <= end:
                put(column - shift, turned if shift else first)
                put(column - shift + 1, first if shift else second)
            if column < shift or last <= column < end:
                put(column, first)
            if last <= column + 1 < end:
                put(column + 1, second)
        before = results[3][1]
    return memory


@pytest.mark.parametrize("block_n", [16, 48, 64, 256])
@pytest.mark.parametrize("shift", [0, 1])
def test_every_column_of_32_bits_is_written_once_and_nothing_else(block_n: int, shift: int) -> None:
    for width in {*range(1, min(block_n, 50) + 1), *range(max(1, block_n - 40), block_n + 1), block_n + 9}:
        memory, end = pairs_of(block_n, width, shift), min(block_n, width)
        assert (memory[16 : 16 + end] == 1 + np.arange(end)).all()
        assert not memory[:16].any()
        assert not memory[16 + end :].any()
