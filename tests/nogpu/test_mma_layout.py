"""How the mma family lays tiles out: each word of a fragment is what `mma` takes, and no read meets a bank twice.

Shared memory is modelled byte by byte: each byte knows which byte of which element it is. The formulas are those of
kernels/mma_operand.cuh, mma_fragment.cuh and mma_epilogue.cuh; the compiler checks here that the two agree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import pytest

from kt.templates.lookup import BUILTIN
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.toolchain import toolchain
from support.family_compiles import builtin

SPACE = builtin("mma")
LANES = range(32)
HEADERS = (
    "common", "convert", "ptx/cp_async", "ptx/computed_here", "ptx/shared_memory",
    "ptx/global_memory", "ptx/ldmatrix", "ptx/mma",
    "kernels/mma_operand", "kernels/mma_fragment", "kernels/mma_epilogue",
)  # fmt: skip
# Which bit of a row is bit 0, 1, 2, 3 of its place.
ORDERS = {"kPlain": (0, 1, 2, 3), "kBytePairs": (0, 2, 3, 1), "kFourApart": (2, 0, 1, 3)}

Word = tuple[tuple[int, int], ...]  # (element, byte of it) for each byte
Access = Sequence[int]  # the addresses of all lanes


@dataclass(frozen=True)
class Tile:
    """A tile of one operand in shared memory: rows along mn or along k."""

    size: int  # bytes of an element
    extent: int  # elements along mn
    depth: int  # elements along k
    along_k: bool
    tma: bool = False  # copied by TMA: rows in their order, those along mn in panels of 128 bytes

    @property
    def rows(self) -> int:
        return self.extent if self.along_k else self.depth

    @property
    def row_bytes(self) -> int:
        return 128 if self.tma and not self.along_k else (self.depth if self.along_k else self.extent) * self.size

    @property
    def order(self) -> str:
        if self.tma:
            return "kPlain"
        along_mn = {1: "kBytePairs", 2: "kPlain", 4: "kFourApart", 8: "kFourApart"}[self.size]
        return ("kFourApart" if self.size == 8 else "kPlain") if self.along_k else along_mn

    def offset(self, row: int, byte: int) -> int:
        if self.tma:
            panel, byte = divmod(byte, self.row_bytes)
            return swizzled_by_tma((panel * self.rows + row) * self.row_bytes + byte, self.row_bytes)
        return self.offset_at(place(self.order, row), byte)

    def offset_at(self, at: int, byte: int) -> int:
        return at * self.row_bytes + (byte // 16 ^ swizzle(self.row_bytes, at)) * 16 + byte % 16


def swizzled_by_tma(offset: int, span: int) -> int:
    """CUDA driver API, CUtensorMapSwizzle: the number of a 16-byte unit within the span is joined with that of the
    128-byte line that it lies in."""
    return offset ^ (offset // 128 % (span // 16)) * 16


@cache
def memory_of(tile: Tile) -> dict[int, tuple[int, int]]:
    """Address to (element, byte of it); element (mn, k) is number mn * depth + k."""
    found = {}
    for mn, k, byte in product(range(tile.extent), range(tile.depth), range(tile.size)):
        row, column = (mn, k) if tile.along_k else (k, mn)
        found[tile.offset(row, column * tile.size + byte)] = (mn * tile.depth + k, byte)
    return found


def place(order: str, row: int) -> int:
    return row // 16 * 16 + sum((row >> bit & 1) << at for at, bit in enumerate(ORDERS[order]))


def swizzle(row_bytes: int, at: int) -> int:
    units = row_bytes // 16
    span = min(units & -units, 8)
    return at // (8 // span) % span


def position(spread: int, octet: int, g: int) -> int:
    return octet // spread * 8 * spread + g * spread + octet % spread


def spread(tile: Tile, side: str) -> int:
    if tile.along_k:
        return 1
    return 2 if tile.size == 1 or (tile.size == 4 and side == "a") else 1


# --- the readers: accesses of a warp, and the words that they leave in its lanes, by (octet, half) --------------------


def read(tile: Tile, side: str, first: int, extent: int, step: int) -> Iterator[tuple[Access, int]]:
    """Accesses of one k step of a warp, with the bytes that a lane's address stands for."""
    groups, lanes = range(extent // 16), [(lane // 8, lane % 8) for lane in LANES]
    if tile.size == 8:
        yield from _doubles(tile, first, extent, step)
    elif tile.along_k:
        start = [tile.offset(first + _octet(side, q) * 8 + i, _half(side, q) * 16) ^ step * 32 for q, i in lanes]
        yield from (([x + group * 16 * tile.row_bytes for x in start], 16) for group in groups)
    elif tile.size == 2:
        for group in groups:
            rows = [(_half(side, q) * 8 + i, (first + group * 16 + _octet(side, q) * 8) * 2) for q, i in lanes]
            yield [tile.offset(*row) + step * 16 * tile.row_bytes for row in rows], 16
    elif tile.size == 1:
        for group in groups:
            yield [tile.offset_at(x, first + group * 16) + step * 32 * tile.row_bytes for x in LANES], 16
    else:
        yield from _words(tile, 4 * spread(tile, side), first, extent, step)


def _words(tile: Tile, width: int, first: int, extent: int, step: int) -> Iterator[tuple[Access, int]]:
    together = 128 // (8 * width)  # groups whose units differ within 128 bytes
    for group, half in product(range(extent * 4 // (8 * width)), range(2)):
        rows = [(half * 4 + x % 4, first * 4 + (group % together * 8 + x // 4) * width) for x in LANES]
        yield [tile.offset(*row) + group // together * 128 + step * 8 * tile.row_bytes for row in rows], width


def _doubles(tile: Tile, first: int, extent: int, step: int) -> Iterator[tuple[Access, int]]:
    for octet, part in product(range(extent // 8), range(4)):
        if tile.along_k:
            start = [tile.offset(first + x // 4, x % 4 * 8) ^ (step * 128 + part * 32) for x in LANES]
            yield [x + octet * 8 * tile.row_bytes for x in start], 8
        else:
            start = [tile.offset(part % 2 * 4 + x % 4, (first + octet % 2 * 8 + x // 4) * 8) for x in LANES]
            yield [x + octet // 2 * 128 + (step * 16 + part // 2 * 8) * tile.row_bytes for x in start], 8


def _octet(side: str, matrix: int) -> int:
    return matrix % 2 if side == "a" else matrix // 2


def _half(side: str, matrix: int) -> int:
    return matrix // 2 if side == "a" else matrix % 2


def fragments(tile: Tile, side: str, first: int, extent: int, step: int) -> dict[tuple[int, int, int], Word]:
    """The word of each (octet, half, lane)."""
    memory, words = memory_of(tile), {}
    for number, (access, _) in enumerate(read(tile, side, first, extent, step)):
        if tile.size == 8:
            for lane in LANES:
                words[number // 4, number % 4, lane] = tuple(memory[access[lane] + byte] for byte in range(8))
        elif tile.size == 4 and not tile.along_k:
            for lane, i in product(LANES, range(spread(tile, side))):
                octet = number // 2 * spread(tile, side) + i
                words[octet, number % 2, lane] = tuple(memory[access[lane] + 4 * i + byte] for byte in range(4))
        else:
            transposed = not tile.along_k
            got = [_ldmatrix(memory, access, transposed, lane) for lane in LANES]
            for lane in LANES:
                words |= {(number * 2 + o, h, lane): w for (o, h), w in _arranged(tile, side, got[lane]).items()}
    return words


def _ldmatrix(memory: dict[int, tuple[int, int]], access: Access, transposed: bool, lane: int) -> list[Word]:
    g, t = lane // 4, lane % 4
    words = []
    for matrix in range(4):
        rows = access[matrix * 8 : matrix * 8 + 8]
        if transposed:
            addresses = [rows[2 * t + i // 2] + 2 * g + i % 2 for i in range(4)]
        else:
            addresses = [rows[g] + 4 * t + i for i in range(4)]
        words.append(tuple(memory[address] for address in addresses))
    return words


def _arranged(tile: Tile, side: str, matrices: list[Word]) -> dict[tuple[int, int], Word]:
    """The words of 16 neighbours by octet (0 or 1) and half; pairs of bytes are permuted."""
    if tile.size != 1 or tile.along_k:
        return {(_octet(side, q), _half(side, q)): matrices[q] for q in range(4)}
    both = [matrices[0] + matrices[1], matrices[2] + matrices[3]]
    return {(odd, half): tuple(both[half][odd::2]) for odd, half in product(range(2), range(2))}


def wanted(tile: Tile, side: str, octet: int, half: int, lane: int, first: int, step: int) -> Word:
    """What `mma` takes: PTX ISA, the matrix fragments of m16n8k16, m16n8k8, m16n8k32 and of fp64 (m16n8k16)."""
    g, t = lane // 4, lane % 4
    mn = first + position(spread(tile, side), octet, g)
    each = max(1, 4 // tile.size)  # elements of a word
    k = [(half * 4 + t) * each + i + step * (16 if tile.size == 8 else 8) * each for i in range(each)]
    return tuple((mn * tile.depth + x, byte) for x in k for byte in range(tile.size))


def wavefronts(access: Access, width: int) -> int:
    """Wavefronts beyond the fewest: banks of 4 bytes, 128 bytes at once, lanes in their order."""
    together, extra = 128 // width, 0
    for start in range(0, 32, together):
        banks: dict[int, set[int]] = {}
        for address in access[start : start + together]:
            for word in range(address // 4, (address + max(width, 4) - 1) // 4 + 1):
                banks.setdefault(word % 32, set()).add(word)
        extra += max(len(words) for words in banks.values()) - 1
    return extra


def tiles() -> list[Tile]:
    """Every tile extent and depth of the space, in each size and order."""
    extents = sorted({*SPACE.parameters["tile_m"], *SPACE.parameters["tile_n"]}, key=int)
    found = []
    for size, extent, row, along_k in product((1, 2, 4, 8), extents, SPACE.parameters["tile_k_bytes"], (False, True)):
        if (size < 8 or int(row) >= 128) and not (size == 4 and int(extent) % 32 and not along_k):
            found.append(Tile(size, int(extent), int(row) // size, along_k))
    return found


def tiles_of_tma() -> list[Tile]:
    """Those of them that TMA copies."""
    along_k = [Tile(one.size, one.extent, one.depth, True, True) for one in tiles() if one.along_k and one.size < 8]
    return along_k + [
        Tile(2, one.extent, one.depth, False, True)
        for one in tiles()
        if not one.along_k and one.size == 2 and one.extent % 64 == 0
    ]


@pytest.mark.parametrize("tile", [*tiles(), *tiles_of_tma()], ids=str)
def test_fragments_hold_what_mma_takes_and_reads_meet_each_bank_once(tile: Tile) -> None:
    warp = 32 if tile.extent % 32 == 0 else 16
    steps = tile.depth * tile.size // (128 if tile.size == 8 else 32)
    for side, first, step in product("ab", {0, tile.extent - warp}, {0, steps - 1}):
        words = fragments(tile, side, first, warp, step)
        assert set(words) == set(product(range(warp // 8), range(4 if tile.size == 8 else 2), LANES))
        for (octet, half, lane), word in words.items():
            assert word == wanted(tile, side, octet, half, lane, first, step)
        assert {wavefronts(access, width) for access, width in read(tile, side, first, warp, step)} == {0}


def test_spread_octets_are_a_permutation() -> None:
    for factor, count in product((1, 2), (2, 4, 8, 12)):
        found = [position(factor, octet, g) for octet in range(count) for g in range(8)]
        assert sorted(found) == list(range(8 * count))


# --- the copies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copies:
    """How `threads` threads copy a tile in chunks of `chunk` bytes."""

    tile: Tile
    chunk: int
    threads: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Lanes side by side, rows of a pass, pieces of a row, pieces of a pass."""
        chunks = self.tile.row_bytes // self.chunk
        lanes = min(chunks & -chunks, 32)
        rows = 1 << (min(self.tile.rows, self.threads // lanes).bit_length() - 1)
        pieces = chunks // lanes
        return lanes, rows, pieces, min(pieces, self.threads // (lanes * rows))

    def passes(self) -> Iterator[list[tuple[int, int, int] | None]]:
        """For each pass (row, byte, address) of every thread, None for one without work."""
        lanes, step, pieces, at_once = self.shape
        for piece_pass, row_pass in product(range(-(-pieces // at_once)), range(-(-self.tile.rows // step))):
            at = place(self.tile.order, row_pass * step)
            moved: list[tuple[int, int, int] | None] = []
            for thread in range(self.threads):
                row, piece = thread // lanes % step, thread // (lanes * step)
                byte = piece * lanes * self.chunk + thread % lanes * self.chunk
                columns = piece_pass * at_once * lanes * self.chunk
                address = self.tile.offset(row, byte) ^ swizzle(self.tile.row_bytes, at) * 16
                address += at * self.tile.row_bytes + columns
                works = piece < at_once and piece + piece_pass * at_once < pieces
                inside = row + row_pass * step < self.tile.rows
                moved.append((row + row_pass * step, byte + columns, address) if works and inside else None)
            yield moved


@pytest.mark.parametrize("threads", [32, 96, 128, 256])
@pytest.mark.parametrize("chunk", [4, 8, 16])
def test_copies_reach_each_place_of_a_tile_once(chunk: int, threads: int) -> None:
    """And without bank conflicts, but where more than two rows of bytes along mn are written at once."""
    for tile in tiles():
        if chunk < tile.size or (tile.extent > 96 and threads == 32):
            continue
        seen: set[int] = set()
        for moved in Copies(tile, chunk, threads).passes():
            for one in filter(None, moved):
                row, byte, address = one
                assert address == tile.offset(row, byte)
                assert address not in seen
                seen.add(address)
            warps = [moved[start : start + 32] for start in range(0, threads, 32)]
            whole = [[one[2] for one in warp if one] for warp in warps if all(warp)]
            extra = max((wavefronts(access, chunk) for access in whole), default=0)
            assert extra == 0 or (tile.order == "kBytePairs" and tile.row_bytes % 64 != 0)
        assert len(seen) == tile.rows * tile.row_bytes // chunk


# --- results on their way out ----------------------------------------------------------------------------------------


def pitch(size: int, columns: int, factor: int, shift: int) -> tuple[int, int]:
    """Bytes from row to row of a strip, and the elements that a lane writes at once."""
    together = 2 * factor
    vector = min(together, shift or together, 16 // size)
    row = columns * size + (16 if shift else 0)
    step = 4 * vector * size % 128 if vector == together else 16
    return row + (128 + step - row % 128) % 128, vector


@pytest.mark.parametrize(("size", "factor"), [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1)])
def test_results_are_written_to_the_strip_without_conflicts(size: int, factor: int) -> None:
    for columns in SPACE.parameters["tile_n"]:
        step, vector = pitch(size, int(columns), factor, 0)
        for first in range(0, 2 * factor, vector):
            access = [x // 4 * step + (x % 4 * 2 * factor + first) * size for x in LANES]
            assert wavefronts(access, vector * size) == 0


Store = tuple[int, int, tuple[int, int, int]]


def direct_stores(tile: tuple[int, int], warp: tuple[int, int]) -> Iterator[list[Store]]:
    """The stores of a warp at a time: row and column of the tile, and whose strip, half and octet go there."""
    warps_n = tile[1] // warp[1]
    for one in range(tile[0] // warp[0] * warps_n):
        for strip, half, octet in product(range(warp[0] // 16), range(2), range(warp[1] // 8)):
            stores = []
            for lane in LANES:
                index = one // warps_n * 16 + lane // 4 + half * 8
                row = index // 16 * warp[0] + position(1, 2 * strip + index // 8 % 2, index % 8)
                column = one % warps_n * warp[1] + lane % 4 * 2 + octet * 8
                stores.append((row, column, (one * 32 + lane, 2 * strip + half, octet)))
            yield stores


@pytest.mark.parametrize(("tile", "warp"), [((128, 96), (64, 48)), ((32, 64), (16, 32)), ((16, 16), (16, 16))])
def test_doubles_leave_registers_in_whole_sectors(tile: tuple[int, int], warp: tuple[int, int]) -> None:
    """Each pair of sums goes where `mma` computed it, each element of the tile is written once."""
    written = []
    for stores in direct_stores(tile, warp):
        for row, column, (thread, group, octet) in stores:
            one, lane = divmod(thread, 32)
            first = one // (tile[1] // warp[1]) * warp[0], one % (tile[1] // warp[1]) * warp[1]
            assert (row, column) == (first[0] + 8 * group + lane // 4, first[1] + 8 * octet + lane % 4 * 2)
            written += [(row, column), (row, column + 1)]
        sectors = {(row, column // 4) for row, column, _ in stores}
        assert len(sectors) == 16, "512 bytes in sectors of 32"
    assert sorted(written) == list(product(range(tile[0]), range(tile[1])))


# --- the model is that of the headers --------------------------------------------------------------------------------


def assertions() -> Iterator[str]:
    for order, row in product(ORDERS, range(32)):
        yield f"kt::row_place<kt::RowOrder::{order}>({row}) == {place(order, row)}"
    for tile, row, byte in product(tiles(), (0, 1, 6, 11), (0, 20, 62)):
        if byte < tile.row_bytes and row < tile.rows:
            places = f"kt::TilePlaces<{tile.row_bytes}, kt::RowOrder::{tile.order}>"
            yield f"{places}::offset({row}, {byte}) == {tile.offset(row, byte)}"
    for tile, row, byte in product(tiles_of_tma(), (0, 1, 6, 11), (0, 20, 62, 130)):
        if byte < (tile.depth if tile.along_k else tile.extent) * tile.size and row < tile.rows:
            places = (
                f"TilePlaces<{tile.row_bytes}, kt::RowOrder::kPlain>" if tile.along_k else f"PanelPlaces<{tile.rows}>"
            )
            yield f"kt::{places}::offset({row}, {byte}) == {tile.offset(row, byte)}"
    for factor, octet, g in product((1, 2), range(8), (0, 3, 7)):
        yield f"kt::octet_position<{factor}>({octet}, {g}) == {position(factor, octet, g)}"
    for (kind, size), factor, shift in product({"short": 2, "float": 4, "double": 8}.items(), (1, 2), (0, 1, 2)):
        step, vector = pitch(size, 96, factor, shift)
        strip = f"kt::EpilogueStrip<{kind}, 32, 96, {factor}, {shift}>"
        yield f"{strip}::kPitch == {step} && {strip}::kVector == {vector}"
    for tile, chunk, threads in product(tiles()[::5], (4, 8, 16), (96, 256)):
        lanes, rows, pieces, at_once = Copies(tile, chunk, threads).shape
        kind = {1: "signed char", 2: "short", 4: "float", 8: "double"}[tile.size]
        if chunk >= tile.size:
            contiguous, order = str(tile.along_k).lower(), f"kt::RowOrder::{tile.order}"
            name = f"kt::MmaOperand<{kind}, {tile.extent}, {tile.depth}, {contiguous}, {chunk}, {threads}, {order}>"
            yield f"{name}::kLanes == {lanes} && {name}::kRowStep == {rows}"
            yield f"{name}::kPieces == {pieces} && {name}::kPieceStep == {at_once}"


def test_the_model_agrees_with_the_headers() -> None:
    headers = [(BUILTIN / f"include/kt/{name}.cuh").read_text() for name in HEADERS]
    source = "\n".join([*headers, *(f"static_assert({text});" for text in assertions())])
    tools = toolchain()
    load_builtins(tools.library)
    result = Nvrtc(tools.library).compile(source, ("--gpu-architecture=sm_80", "-std=c++17"), "layout.cu")
    assert (result.result, result.log) == (0, "")
