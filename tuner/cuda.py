"""The CUDA calls of the worker process, through CuPy: memory, launches, errors in words, the health of the context.

Nothing here, nor in what builds on it, uses CuPy's arrays, whose kernels are compiled at run time and cached on disk.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from kt.tuner.memory_plan import check_fits

__all__ = [
    "CUDA_ERRORS",
    "MOST_DYNAMIC_SMEM",
    "Block",
    "Gpu",
    "arch_of",
    "context_is_dead",
    "cupy",
    "driver",
    "in_words",
    "runtime",
]

# CuPy is compiled and has no type stubs: it enters here, as `Any`, and nowhere else.
cupy: Any = import_module("cupy")
driver: Any = import_module("cupy_backends.cuda.api.driver")
runtime: Any = import_module("cupy_backends.cuda.api.runtime")

CUDA_ERRORS: tuple[type[Exception], ...] = (driver.CUDADriverError, runtime.CUDARuntimeError)

MOST_DYNAMIC_SMEM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor and -Minor
_SMEM_PER_BLOCK_OPTIN = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin


def in_words(error: BaseException) -> str:
    """One line: CUDA's name of the error and what it says about it."""
    text = " ".join(str(error).split())
    return f"there is no CUDA driver, or one too old for this CuPy ({text})" if "InsufficientDriver" in text else text


def context_is_dead() -> bool:
    """Whether an earlier error, such as an illegal access, has made every further call fail."""
    try:
        runtime.deviceSynchronize()
    except CUDA_ERRORS:
        return True
    return False


def arch_of(index: int) -> str:
    """NVRTC's name of a GPU's architecture, e.g. `sm_90`; asks for no CUDA context, which takes long to make."""
    major, minor = (runtime.deviceGetAttribute(attribute, index) for attribute in (_MAJOR, _MINOR))
    return f"sm_{major}{minor}"


class Block:
    """Device memory of its own allocation, freed with the object: no pool keeps it.

    Raises:
        DoesNotFit: the driver would have to give more than is free.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        check_fits(size, *gpu.memory())
        self.size = size
        self._memory = cupy.cuda.Memory(size)
        self.address: int = self._memory.ptr


class LoadedModule:
    """A cubin whose kernels each take one struct."""

    def __init__(self, cubin: bytes) -> None:
        self._module = cupy.cuda.function.Module()
        self._module.load(cubin)
        self._functions: dict[str, Any] = {}

    def launch(self, kernel: str, blocks: int, threads: int, argument: Any, smem_bytes: int = 0) -> None:
        """Enqueue `kernel` on the current stream, with `argument` by value and as much dynamic shared memory."""
        if kernel not in self._functions:
            self._functions[kernel] = self._module.get_function(kernel)
        function = self._functions[kernel]
        if smem_bytes:
            driver.funcSetAttribute(function.ptr, MOST_DYNAMIC_SMEM, smem_bytes)
        function((blocks,), (threads,), (argument,), shared_mem=smem_bytes)


class Gpu:
    """The GPU of this process: its figures, its CUDA context, and the one stream that all work goes through.

    Attributes:
        sm_count: multiprocessors.
        smem_per_block: bytes of shared memory that a block can ask for.
        l2_bytes: level-two cache.
    """

    def __init__(self, index: int) -> None:
        self.device = cupy.cuda.Device(index)
        self.device.use()
        self.sm_count: int = self.device.attributes["MultiProcessorCount"]
        self.smem_per_block: int = runtime.deviceGetAttribute(_SMEM_PER_BLOCK_OPTIN, index)
        self.l2_bytes: int = self.device.attributes["L2CacheSize"]
        self.stream: Any = cupy.cuda.Stream(non_blocking=True)  # not the default one, which cannot be captured
        self.stream.use()

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = runtime.memGetInfo()
        return int(free), int(total)

    def allocate(self, size: int) -> Block:
        """A block of `size` bytes; raises DoesNotFit."""
        return Block(self, size)

    def synchronize(self) -> None:
        """Wait for all work; an error of a kernel shows here."""
        self.stream.synchronize()

    def clear(self, address: int, size: int) -> None:
        """Write zeros."""
        runtime.memsetAsync(address, 0, size, self.stream.ptr)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory, after all work before."""
        self.synchronize()
        host = np.empty(size, np.uint8)
        runtime.memcpy(host.ctypes.data, address, size, runtime.memcpyDeviceToHost)
        return host.tobytes()

    def load(self, cubin: bytes) -> LoadedModule:
        """The kernels of a cubin of our own, e.g. of the reference."""
        return LoadedModule(cubin)

    def release_pools(self) -> None:
        """Give back what libraries on CuPy's allocators have kept."""
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
