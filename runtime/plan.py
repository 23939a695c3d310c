"""`Plan`: a loaded kernel sequence for one problem, and its launch with nothing done twice.

What a call adds to the launches themselves: six numbers go into an argument block, the addresses in tensor maps are
exchanged where operands have moved, and sequences that need a workspace get it from a pool, in the stream's order.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kt.tuner.arguments import gemm_arguments
from kt.tuner.cuda import cupy, driver, runtime
from kt.tuner.loaded_candidate import LoadedCandidate
from kt.tuner.tensor_map import TMA_ALIGNMENT, MapFigures, TensorMapRefused, encode, map_figures

if TYPE_CHECKING:
    from kt.problems import Problem
    from kt.tuner.messages import Candidate

__all__ = ["Plan"]

_FIRST_FIELDS = struct.Struct("<4Q2d")  # of `GemmArguments`: a, b, c, workspace, alpha, beta
_MAP_BYTES = 128
_KEEP_ALL = 2**64 - 1  # bytes that the pool of workspaces keeps when the GPU is idle


class Plan:
    """How one problem is computed on one GPU.

    Attributes:
        problem: what it is for; alpha and beta stand for all of their kind.
        found: where the configuration is from, as `kt.runtime.choice` says.
        whole: alpha and beta must be whole numbers, as the sums are.

    Raises:
        LaunchRefused: the kernel cannot be loaded.
        TensorMapRefused: TMA cannot address an operand, wherever it lies.
    """

    def __init__(self, problem: Problem, found: str, candidate: Candidate, device: int) -> None:
        self.problem, self.found = problem, found
        self.whole = problem.accumulator == "int32"
        with cupy.cuda.Device(device):
            self._loaded = LoadedCandidate(candidate)  # keeps the module
            self._pool = _pool(device) if candidate.workspace_bytes else 0
        self._workspace_bytes = candidate.workspace_bytes
        maps = [[map_figures(one, problem) for one in launch.tensor_maps] for launch in candidate.launches]
        arguments = gemm_arguments(problem, dict.fromkeys(("a", "b", "c", "workspace"), 0), candidate.runtime).tobytes()
        self._own = _Own(arguments, maps)  # of each thread
        self._launches = self._loaded.launches

    def run(self, a: int, b: int, c: int, alpha: float, beta: float, stream: int) -> None:
        """Enqueue the product of operands at these addresses; their GPU is the current one.

        Raises:
            CUDADriverError, CUDARuntimeError: CUDA refuses the workspace or a launch.
            TensorMapRefused: the driver refuses a tensor map.
        """
        if not self._workspace_bytes:
            self._enqueue(a, b, c, 0, alpha, beta, stream)
            return
        workspace = runtime.mallocFromPoolAsync(self._workspace_bytes, self._pool, stream)
        try:
            self._enqueue(a, b, c, workspace, alpha, beta, stream)
        finally:
            runtime.freeAsync(workspace, stream)

    def _enqueue(self, a: int, b: int, c: int, workspace: int, alpha: float, beta: float, stream: int) -> None:
        own = self._own
        _FIRST_FIELDS.pack_into(own.arguments, 0, a, b, c, workspace, alpha, beta)
        for one in own.maps:
            one.show(a, b, c, workspace)
        for launch, parameters in zip(self._launches, own.parameters, strict=True):
            launch.enqueue(stream, parameters)


class _Own(threading.local):
    """What the launches of one thread are given: CUDA reads it while it takes a launch, without Python's lock."""

    def __init__(self, arguments: bytes, maps: Sequence[Sequence[MapFigures]]) -> None:
        if driver.ctxGetCurrent() == 0:  # a thread that has done nothing with CUDA yet, as the driver sees it
            runtime.memGetInfo()
        self.arguments = ctypes.create_string_buffer(arguments, len(arguments))
        of_launches = [[_Shown(figures) for figures in of_launch] for of_launch in maps]
        self.maps = [one for of_launch in of_launches for one in of_launch]
        address = ctypes.addressof(self.arguments)
        self._arrays = [_addresses([address, *(one.address for one in of_launch)]) for of_launch in of_launches]
        self.parameters = [ctypes.addressof(array) for array in self._arrays]


def _addresses(values: Sequence[int]) -> Any:
    return (ctypes.c_void_p * len(values))(*values)


class _Shown:
    """A tensor map in memory, encoded when it is first shown a matrix, and told when that lies elsewhere."""

    def __init__(self, figures: MapFigures) -> None:
        self._figures = figures
        self._operand = ("a", "b", "c").index(figures.operand) if figures.offset is None else 3
        self._offset = figures.offset or 0
        self._memory = ctypes.create_string_buffer(2 * _MAP_BYTES)
        self._at = -1
        self.address = ctypes.addressof(self._memory) + -ctypes.addressof(self._memory) % _MAP_BYTES

    def show(self, *addresses: int) -> None:
        at = addresses[self._operand] + self._offset
        if at == self._at:
            return
        if self._at < 0 or (at - self._at) % TMA_ALIGNMENT:  # a class of rows would have other rows
            ctypes.memmove(self.address, self._encoded(at), _MAP_BYTES)
        elif code := _replace_address()(self.address, self._figures.begin(at)):
            raise TensorMapRefused(f"the driver refuses address {at:#x} in a tensor map with error {code}")
        self._at = at

    def _encoded(self, at: int) -> bytes:
        one, begin = self._figures.shown_at(at), self._figures.begin(at)
        shown = encode(begin, one.extents, one.strides, one.box, one.swizzle, one.element_bytes, one.rounds_tf32)
        return bytes(shown.tobytes())


@cache
def _replace_address() -> Any:
    """`cuTensorMapReplaceAddress` of the driver library, which is quicker than encoding anew."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapReplaceAddress
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return function


@cache
def _pool(device: int) -> int:
    """A pool of device memory for workspaces: what a stream has freed is there for its next call at once.

    Of its own, so that nobody else's settings change; it keeps what it has got. Under capture, an allocation becomes a
    part of the graph.
    """
    kind = (runtime.cudaMemAllocationTypePinned, runtime.cudaMemHandleTypeNone, runtime.cudaMemLocationTypeDevice)
    pool = runtime.memPoolCreate(runtime.MemPoolProps(*kind, device))
    runtime.memPoolSetAttribute(pool, runtime.cudaMemPoolAttrReleaseThreshold, _KEEP_ALL)
    return int(pool)
