"""The compiler process: `python -m kt.tuner.compiler` answers each `CompileRequest` with a `CompileReply`.

Compilers are processes because NVRTC holds a lock: threads gain nothing, and only a process can be ended in the middle
of a compilation. It imports neither CuPy nor numpy, and reads and writes nothing but the cubin cache.
"""

import os
import re
import resource
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache

from kt.tuner.child_process import serve
from kt.tuner.compile_messages import CompileReply, CompileRequest
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary
from kt.tuner.nvrtc import COMPILATION_ERROR, Compilation, Nvrtc, load_builtins
from kt.tuner.ptxas_log import error_text, read_log

__all__ = ["compile_source"]

_NICENESS = 5  # the thread that launches kernels goes first when there are as many compilers as cores
_MEMORY_LIMIT = 2 * 2**30  # a body unrolled without end takes 0.1 GB a second; kernels that are worth it take 0.2 GB
_MISSING_FILE = re.compile(r"(?:could not|cannot) open source file")


def compile_source(request: CompileRequest) -> CompileReply:
    """Compile and store; a source that does not compile is a `Binary` with an error."""
    job = request.job
    began = time.perf_counter()
    result = _nvrtc(request.library).compile(job.source, (f"--gpu-architecture={job.arch}", *job.options))
    binary = replace(_outcome(job.digest, result), seconds=time.perf_counter() - began)
    cubin, cache_error, cubins = result.cubin, "", CubinCache(request.cache_dir)
    if _repeatable(result):
        try:
            binary = cubins.put(binary, result.cubin, result.log)
            cubin = b""
        except OSError as error:
            cache_error = f"{cubins.root}: {error.strerror or error}"
    return CompileReply(binary, cubin, cache_error, _resident_bytes())


def _outcome(digest: str, result: Compilation) -> Binary:
    report = read_log(result.log)
    if result.result != 0:
        return Binary(digest, warnings=report.warnings, error=error_text(result.log) or result.result_name)
    return Binary(
        digest,
        registers={name: kernel.registers for name, kernel in report.kernels.items()},
        spill_bytes={name: kernel.spill_bytes for name, kernel in report.kernels.items()},
        static_smem_bytes={name: kernel.static_smem_bytes for name, kernel in report.kernels.items()},
        warnings=report.warnings,
    )


def _repeatable(result: Compilation) -> bool:
    """Whether the same source would end so again: it compiled, or it is at fault itself, not what is installed."""
    own_fault = result.result == COMPILATION_ERROR and not _MISSING_FILE.search(result.log)
    return result.result == 0 or own_fault


@cache
def _nvrtc(library: str) -> Nvrtc:
    load_builtins(library)
    return Nvrtc(library)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _skip_nvrtc_cache() -> None:
    """NVRTC 12.9 and later answer from a cache of their own, and then without the ptxas log that candidates need."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"


def _limit_itself() -> None:
    """Be polite to the processor, and end alone rather than take the machine's memory."""
    with suppress(OSError):
        os.nice(_NICENESS)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(_MEMORY_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


if __name__ == "__main__":
    _limit_itself()
    _skip_nvrtc_cache()
    serve(compile_source)
