"""One launch sequence on memory from the host, in allocations of its own: nothing lies before or after an operand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kt.problems import Problem
from kt.tuner.messages import Candidate

if TYPE_CHECKING:
    from kt.tuner.cuda import Gpu

__all__ = ["launched"]

Bytes = npt.NDArray[np.uint8]
POISON = 0x7F  # of each byte of the workspace: NaN in floating formats


def launched(
    gpu: Gpu,
    problem: Problem,
    candidate: Candidate,
    memory: Mapping[str, Bytes],
    scalars: tuple[float, float],
    *,
    raw: bool = False,
) -> Bytes:
    """C's memory after the launches of `candidate`.

    Args:
        memory: of "a", "b" and "c".
        raw: leave C and the workspace as they are allocated, for tools that watch what is read before it is written.
    """
    from kt.tuner.arguments import gemm_arguments
    from kt.tuner.loaded_candidate import LoadedCandidate

    blocks = {name: _Allocation(gpu, len(memory[name]), problem.base_alignment) for name in "abc"}
    workspace = _Allocation(gpu, candidate.workspace_bytes, 256)
    for name in "ab" if raw else "abc":
        blocks[name].upload(memory[name])
    if not raw:
        workspace.fill(POISON)
    pointers = {**{name: block.address for name, block in blocks.items()}, "workspace": workspace.address}
    with LoadedCandidate(candidate) as loaded:
        loaded.enqueue(loaded.bind(problem, gemm_arguments(problem, pointers, loaded.runtime, scalars)))
        gpu.synchronize()
    return blocks["c"].download()


class _Allocation:
    """Device memory that ends with its contents, and begins at no more than the alignment that is asked for."""

    def __init__(self, gpu: Gpu, size: int, alignment: int) -> None:
        from kt.tuner.cuda import cupy

        before = alignment if alignment < 256 else 0
        self._gpu, self.size = gpu, size
        memory: Any = cupy.cuda.Memory(before + size) if size else None  # a cudaMalloc of its own, no pool
        self._memory = memory
        self.address: int = memory.ptr + before if size else 0

    def upload(self, data: Bytes) -> None:
        from kt.tuner.cuda import runtime

        if self.size:
            runtime.memcpy(self.address, data.ctypes.data, self.size, runtime.memcpyHostToDevice)

    def fill(self, byte: int) -> None:
        from kt.tuner.cuda import runtime

        if self.size:
            runtime.memsetAsync(self.address, byte, self.size, self._gpu.stream.ptr)

    def download(self) -> Bytes:
        return np.frombuffer(self._gpu.read(self.address, self.size), np.uint8)
