"""`ReferenceKernels`: the kernels of `reference.cu`, loaded for one pair of formats, as Python calls."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

from kt.problems import Problem
from kt.tuner.exact_values import ExactValues
from kt.tuner.memory_plan import SCRATCH_BYTES
from kt.tuner.reference import pack
from kt.tuner.tolerance import Tolerance

__all__ = ["NORMAL", "ReferenceKernels", "Report"]

NORMAL = ExactValues(0, 1.0, 0)  # asks for N(0,1) numbers instead of whole ones
_THREADS = 256
_FILL_THREADS = 512  # kFillThreads
_TILE = 64  # results of one block of the product, in each direction
_LEAST_SPLIT = 256  # products that are worth a block of their own


@dataclass(frozen=True)
class Report:
    """What a comparison found: elements that differ, index of the first, largest error as a multiple of the allowed."""

    count: int
    first: int
    worst: float

    @staticmethod
    def unpack(data: bytes) -> Report:
        count, not_first, worst_bits = struct.unpack("<QQQ", data)
        (worst,) = struct.unpack("<f", struct.pack("<I", worst_bits))
        return Report(count, not_first ^ (2**64 - 1), worst)


class Device(Protocol):
    """What the kernels need of the GPU."""

    @property
    def sm_count(self) -> int: ...
    @property
    def smem_per_block(self) -> int: ...
    def clear(self, address: int, size: int) -> None: ...


class Module(Protocol):
    """The compiled `reference.cu`."""

    def launch(self, kernel: str, blocks: int, threads: int, argument: Any, smem_bytes: int = 0) -> None: ...


class ReferenceKernels:
    """Launches of `module` on `device`; every method returns before its work is done."""

    def __init__(self, device: Device, module: Module) -> None:
        self._device = device
        self._module = module

    def fill_pattern(self, start: int, size: int, pattern: int) -> None:
        """Write the 16-bit `pattern` to `size` bytes, a multiple of 4, from `start`."""
        self._run("fill_pattern", size // 4, start=start, words=size // 4, pattern=pattern)

    def fill_multiprocessors(self, pattern: int) -> None:
        """Leave the 16-bit `pattern` in the shared memory and the registers of every multiprocessor."""
        size = self._device.smem_per_block
        argument = pack("fill_multiprocessor", {"words": size // 4, "pattern": pattern})
        self._module.launch("fill_multiprocessor", self._device.sm_count, _FILL_THREADS, argument, size)

    def fill(self, problem: Problem, operand: str, base: int, seed: int, values: ExactValues) -> None:
        """Write every element of `operand` ("a", "b", "c"), and nothing between its rows."""
        rows, columns = problem.stored_extents[operand]
        self._run(
            "fill_out" if operand == "c" else "fill_in", rows * columns * problem.batch,
            base=base, rows=rows, columns=columns, ld=getattr(problem, f"ld{operand}"),
            stride=getattr(problem, f"stride_{operand}"), batch=problem.batch, seed=seed,
            magnitude=values.c_magnitude if operand == "c" else values.magnitude,
            density=1.0 if operand == "c" else values.density,
        )  # fmt: skip

    def norms(self, problem: Problem, a: int, b: int, row_norms: int, column_norms: int) -> None:
        """Euclidean norms of the rows of op(A) and the columns of op(B), batch by batch."""
        steps = _steps(problem)
        for base, norms, count, across, along, stride in (
            (a, row_norms, problem.m, steps["a_row"], steps["a_column"], problem.stride_a),
            (b, column_norms, problem.n, steps["b_column"], steps["b_row"], problem.stride_b),
        ):
            self._run(
                "norms_in", count * problem.batch * 32, base=base, norms=norms, count=count, length=problem.k,
                vector_step=across, element_step=along, stride=stride, batch=problem.batch,
            )  # fmt: skip

    def multiply(
        self, kind: str, problem: Problem, pointers: dict[str, int], result: int, scratch: int,
        scalars: tuple[float, float],
    ) -> None:  # fmt: skip
        """The product of the operands, dense, at `result`: rounded to C's format ("exact"), or wide ("true")."""
        tiles = -(-problem.m // _TILE) * -(-problem.n // _TILE) * problem.batch
        splits = self._splits(problem, tiles)
        values = {
            "a": pointers["a"], "b": pointers["b"], "c": pointers["c"], "result": result, "scratch": scratch,
            "alpha": scalars[0], "beta": scalars[1], **_steps(problem),
            "a_batch": problem.stride_a, "b_batch": problem.stride_b, "ldc": problem.ldc, "c_batch": problem.stride_c,
            "m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.batch, "splits": splits,
        }  # fmt: skip
        elements = problem.m * problem.n * problem.batch
        if splits > 1:
            self._device.clear(scratch, elements * 8)
        self._launch(f"multiply_{kind}", min(tiles * splits, 2**30), values)
        if splits > 1:
            self._run(f"finish_{kind}", elements, **values)

    def compare(
        self, kind: str, problem: Problem, c: int, reference: int, norms: tuple[int, int], report: int,
        allowed: Tolerance,
    ) -> None:  # fmt: skip
        """Count the elements of C that differ from the reference ("exact"), or by more than `allowed` ("true")."""
        self._run(
            f"compare_{kind}", problem.m * problem.n * problem.batch, c=c, reference=reference, row_norms=norms[0],
            column_norms=norms[1], report=report, m=problem.m, n=problem.n, batch=problem.batch, ldc=problem.ldc,
            c_batch=problem.stride_c, product=allowed.product, relative=allowed.relative, absolute=allowed.absolute,
        )  # fmt: skip

    def check_pattern(self, problem: Problem, base: int, first: int, last: int, report: int, pattern: int) -> None:
        """Count the elements of [first, last), counted from C's base, that are not C's and lost the pattern."""
        self._run(
            "check_pattern", last - first, base=base, report=report, first=first, last=last, rows=problem.m,
            columns=problem.n, ld=problem.ldc, stride=problem.stride_c, batch=problem.batch, pattern=pattern,
        )  # fmt: skip

    def digest(self, start: int, size: int, result: int) -> None:
        """A 64-bit digest of `size` bytes, a multiple of 4, at `result`."""
        self._device.clear(result, 8)
        self._run("digest", size // 4, start=start, words=size // 4, sum=result)

    def _splits(self, problem: Problem, tiles: int) -> int:
        """Blocks that share the products of one tile, so that few tiles still fill the GPU."""
        wanted = 4 * self._device.sm_count // tiles
        fits = problem.m * problem.n * problem.batch * 8 <= SCRATCH_BYTES
        return max(1, min(wanted, problem.k // _LEAST_SPLIT)) if fits else 1

    def _run(self, kernel: str, threads: int, **values: int | float) -> None:
        if threads > 0:
            blocks = min(-(-threads // _THREADS), 32 * self._device.sm_count)
            self._launch(kernel, blocks, values)

    def _launch(self, kernel: str, blocks: int, values: dict[str, int | float]) -> None:
        self._module.launch(kernel, blocks, _THREADS, pack(kernel, values))


def _steps(problem: Problem) -> dict[str, int]:
    """Elements from one row, and one column, of op(A) and op(B) to the next."""
    return {
        "a_row": problem.lda if problem.layout[0] == "n" else 1,
        "a_column": 1 if problem.layout[0] == "n" else problem.lda,
        "b_row": problem.ldb if problem.layout[1] == "n" else 1,
        "b_column": 1 if problem.layout[1] == "n" else problem.ldb,
    }
