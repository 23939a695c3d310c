"""`CompilePool`: compiles jobs in several processes, each job once, each within a time limit.

One thread drives it: `submit` and `poll` hand waiting jobs to free compilers, collect what is done and end compilers
that are over their limit. Nothing else runs, so a caller that does other work for long should call `poll(0)` between.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Self

from kt.tuner.child_process import ChildProcess
from kt.tuner.compile_messages import CompileReply, CompileRequest
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.toolchain import toolchain

__all__ = ["CompilePool"]

_MODULE = "kt.tuner.compiler"
# glibc keeps the memory that one compilation frees for the next: 16 compilers then make 15% more kernels a second.
_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**25),
}
_MEMORY_LIMIT = 256 * 2**20  # a compiler that holds more after a job is replaced: NVRTC keeps what it once took


@dataclass
class _Compiler:
    """One compiler process; `job` is what it works on, until `deadline` (time.monotonic)."""

    process: ChildProcess
    job: CompileJob | None = None
    deadline: float = 0.0


class CompilePool:
    """A pool of compiler processes over one cubin cache.

    Args:
        workers: most processes at once; 0 means one per core that this process may use. They start when needed.
        cubins: where outcomes are looked up and stored. If it cannot be written, they go to a temporary folder that
            lives until `cubins.close()`, and `warn` is told once.
        limit_s: wall-clock seconds of one compilation; a compiler over its limit is killed, and its job has failed.
        warn: called with one line that a person should know.
    """

    def __init__(
        self, workers: int, cubins: CubinCache, limit_s: float = 30.0, *, warn: Callable[[str], None] = lambda _: None
    ) -> None:
        self._workers = workers or len(os.sched_getaffinity(0))
        self._cubins = cubins
        self._limit_s = limit_s
        self._warn = warn
        self._compilers: list[_Compiler] = []
        self._waiting: deque[CompileJob] = deque()
        self._under_way: set[str] = set()  # digests waiting or at a compiler
        self._ended: dict[str, Binary] = {}
        self._ready: dict[str, Binary] = {}
        self._can_write = True
        self.compiled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """Jobs whose outcome `poll` has not returned yet."""
        return len(self._under_way) + len(self._ready)

    @property
    def connections(self) -> list[Connection]:
        """What becomes readable when a compiler has an outcome, to wait on together with others."""
        return [compiler.process.connection for compiler in self._compilers if compiler.job]

    def start(self, jobs: int | None = None) -> None:
        """Start the compilers that so many jobs want (None: all), before the first job is there.

        A process needs as long to begin as for several compilations.
        """
        wanted = self._workers if jobs is None else min(jobs, self._workers)
        for _ in range(wanted - len(self._compilers)):
            self._compilers.append(_Compiler(ChildProcess(_MODULE, env=_ENVIRONMENT)))

    def submit(self, job: CompileJob) -> None:
        """Ask for the outcome of `job`, in the order of submission; `poll` gives it once, however often it is asked
        for meanwhile. An outcome from the cubin cache, or of an equal job before, is ready at once."""
        if job.digest not in self._under_way:
            known = self._ended.get(job.digest) or self._cubins.get(job.digest)
            if known:
                self._end(replace(known, seconds=0.0))
            else:
                self._under_way.add(job.digest)
                self._waiting.append(job)
        self._step(0.0)

    def poll(self, timeout: float = 0.0) -> list[Binary]:
        """Outcomes since the last call; waits up to `timeout` seconds for the first one."""
        until = time.monotonic() + timeout
        self._step(0.0)
        while not self._ready and self._under_way and (left := until - time.monotonic()) > 0:
            self._step(left)
        outcomes = list(self._ready.values())
        self._ready.clear()
        return outcomes

    def cancel_pending(self) -> None:
        """Forget the jobs that no compiler works on yet."""
        self._under_way.difference_update(job.digest for job in self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """End every compiler at once; jobs without an outcome are forgotten."""
        self.cancel_pending()
        for compiler in self._compilers:
            compiler.process.end()
        for compiler in self._compilers:
            compiler.process.kill()
        self._compilers.clear()
        self._under_way.clear()
        if self.compiled and self._can_write:
            self._cubins.prune()

    def _step(self, timeout: float) -> None:
        """Feed compilers, wait up to `timeout` for an outcome or the next deadline, collect and feed again."""
        self._feed()
        busy = {compiler.process.connection: compiler for compiler in self._compilers if compiler.job}
        if not busy:
            return
        next_deadline = min(compiler.deadline for compiler in busy.values())
        for connection in wait(list(busy), max(0.0, min(timeout, next_deadline - time.monotonic()))):
            assert isinstance(connection, Connection)
            self._collect(busy[connection])
        for compiler in list(self._compilers):
            if compiler.job and compiler.deadline <= time.monotonic() and not compiler.process.poll(0):
                self._end_over_limit(compiler)
        self._feed()

    def _feed(self) -> None:
        while self._waiting and (compiler := self._free_compiler()):
            job = self._waiting.popleft()
            compiler.job, compiler.deadline = job, time.monotonic() + self._limit_s
            try:
                compiler.process.send(CompileRequest(job, toolchain().library, str(self._cubins.cache_dir)))
            except EOFError as error:
                self._fail(compiler, f"the compiler process {error}")

    def _free_compiler(self) -> _Compiler | None:
        free = next((compiler for compiler in self._compilers if compiler.job is None), None)
        if free is None and len(self._compilers) < self._workers:
            self.start(len(self._compilers) + 1)
            free = self._compilers[-1]
        return free

    def _collect(self, compiler: _Compiler) -> None:
        try:
            reply: CompileReply = compiler.process.recv()
        except EOFError as error:
            self._fail(compiler, f"the compiler process {error}")
            return
        compiler.job = None
        self.compiled += 1
        binary = reply.binary
        if reply.cache_error:
            self._warn_once(reply.cache_error)
            binary = self._cubins.put_aside(binary, reply.cubin)
        if reply.memory_bytes > _MEMORY_LIMIT:
            self._discard(compiler)
        self._end(binary)

    def _end_over_limit(self, compiler: _Compiler) -> None:
        cause = f"compilation took longer than {self._limit_s:g} s and was ended"
        self._fail(compiler, cause, timed_out=True, seconds=self._limit_s)

    def _fail(self, compiler: _Compiler, error: str, *, timed_out: bool = False, seconds: float = 0.0) -> None:
        """The compiler is lost, and the job it worked on with it; the next job gets a fresh one."""
        assert compiler.job is not None
        digest = compiler.job.digest
        self._discard(compiler)
        self._end(Binary(digest, error=error, timed_out=timed_out, seconds=seconds))

    def _discard(self, compiler: _Compiler) -> None:
        compiler.process.kill()
        self._compilers.remove(compiler)

    def _end(self, binary: Binary) -> None:
        self._under_way.discard(binary.digest)
        self._ended[binary.digest] = binary
        self._ready[binary.digest] = binary

    def _warn_once(self, error: str) -> None:
        if self._can_write:
            self._can_write = False
            self._warn(f"the cubin cache cannot be written ({error}); compiled kernels are kept for this run only")
