"""`Compilation`: configurations to binaries for a whole run; each distinct kernel is rendered and compiled once.

Problems with equal signatures share their kernels. The pool opens when `start` or a first kernel asks for it. What
failed is counted per signature: once every kernel of a signature fails for one cause, none of it is compiled any more.
A binary without a kernel that is to be launched counts as a failure, though the compiler has none to report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kt.errors import KtError
from kt.templates.render import render
from kt.tuner.causes import Causes
from kt.tuner.compile_failures import FailureGroups
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.pruning import lacking
from kt.tuner.toolchain import compile_job, toolchain

if TYPE_CHECKING:
    from kt.problems import Signature
    from kt.search_spaces.space import Config, Launch, SearchSpace, Value
    from kt.templates.source import Source

__all__ = ["Compilation", "Kernel", "Pool"]


class Pool(Protocol):
    """The part of `CompilePool` that a run uses."""

    compiled: int

    @property
    def pending(self) -> int: ...
    @property
    def connections(self) -> list[Connection]: ...
    def start(self, jobs: int | None) -> None: ...
    def submit(self, job: CompileJob) -> None: ...
    def poll(self, timeout: float = 0.0) -> list[Binary]: ...
    def cancel_pending(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Kernel:
    """One rendered source.

    Attributes:
        space, config, signature: what it is rendered from; run-time choices make no difference.
        source_digest: of its text.
        job_digest: of its compilation.
    """

    space: SearchSpace
    config: Config
    signature: Signature
    source_digest: str
    job_digest: str


@dataclass(frozen=True)
class _Asked:
    """What is being compiled: its text, and what the first to ask for it will launch."""

    text: str
    signature: Signature
    launches: Sequence[Launch]


@dataclass
class Compilation:
    """The kernels of a run.

    Attributes:
        arch: NVRTC's name of the target.
        open_pool: makes the compile pool when it is first needed.
        template_dirs: folders with templates of the user's own.
        report: called with compilations ended and asked for.
        failure_folder: where the first source and log of each cause of failure is kept.
        binaries: all that have come, by the digest of their compilation.
    """

    arch: str
    open_pool: Callable[[], Pool]
    template_dirs: Sequence[Path] = ()
    report: Callable[[int, int], None] = lambda done, total: None
    failure_folder: Path | None = None
    binaries: dict[str, Binary] = field(default_factory=dict)
    done: int = 0
    asked: int = 0
    _pool: Pool | None = None
    _kernels: dict[tuple[str, tuple[tuple[str, Value], ...], Signature], Kernel] = field(default_factory=dict)
    _latest: CompileJob | None = None  # rendered last, most likely to be asked for next; texts are too large to keep
    _waiting: dict[str, _Asked] = field(default_factory=dict)  # by digest
    _failures: dict[Signature, FailureGroups] = field(default_factory=dict)
    _asked_of: Counter[Signature] = field(default_factory=Counter)

    @property
    def pending(self) -> int:
        """Binaries that were asked for and have not come."""
        return len(self._waiting)

    @property
    def connections(self) -> list[Connection]:
        return self._pool.connections if self._pool else []

    @property
    def compiled(self) -> int:
        """Compilations done by a compiler; cubins from the cache not counted."""
        return self._pool.compiled if self._pool else 0

    def start(self, jobs: int | None) -> None:
        """Start the compilers that so many jobs want (None: all), before the first one is asked for."""
        self._opened().start(jobs)

    def kernel(self, space: SearchSpace, config: Config, signature: Signature) -> Kernel:
        """The kernel of `config`, rendered once.

        Raises:
            KtError: it cannot be rendered, or the compiler cannot serve the signature at all.
        """
        key = (config.family, config.parameters, signature)
        if key not in self._kernels:
            source, job = self._render(space, config, signature)
            self._kernels[key] = Kernel(space, config, signature, source.digest, job.digest)
        return self._kernels[key]

    def request(self, kernel: Kernel, launches: Sequence[Launch] = ()) -> None:
        """Have `kernel` compiled, unless it is or is being compiled; `launches` is what its binary is for."""
        if kernel.job_digest in self.binaries or kernel.job_digest in self._waiting:
            return
        job = self._latest
        if job is None or job.digest != kernel.job_digest:
            _, job = self._render(kernel.space, kernel.config, kernel.signature)
        self._submit(job, _Asked(job.source, kernel.signature, launches))

    def collect(self, timeout: float = 0.0) -> list[Binary]:
        """Binaries that have come since the last call; waits up to `timeout` seconds for the first one."""
        if self._pool is None or not self._waiting:
            return []
        arrived = self._pool.poll(timeout)
        for binary in arrived:
            self.binaries[binary.digest] = binary
            if binary.digest in self._waiting:  # else it was cancelled after a compiler had begun with it
                self._count(binary, self._waiting.pop(binary.digest))
        if arrived:
            self.report(self.done, self.asked)
        return arrived

    def hopeless(self, signature: Signature) -> KtError | None:
        """The error that all kernels of `signature` end with, once that is clear."""
        groups = self._failures.get(signature)
        if groups and groups.all_alike(self._asked_of[signature]):
            return groups.common_failure()
        return None

    def failure_summary(self, signature: Signature) -> list[str]:
        """What failed of `signature`: a line for each cause, most frequent first, with source and log of the first."""
        groups = self._failures.get(signature)
        return groups.summary() if groups else []

    def failure_counts(self) -> dict[str, int]:
        """The first error of each cause of a compile failure, and how often it was met."""
        causes = Causes()
        for groups in self._failures.values():
            causes.update(groups.counts())
        return causes.counts()

    def cancel(self) -> None:
        """Forget what no compiler works on yet; `request` asks for it again where it is still wanted."""
        if self._pool is None:
            return
        self._pool.cancel_pending()
        self.collect()
        for asked in self._waiting.values():
            self._asked_of[asked.signature] -= 1
        self.asked -= len(self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """End all compilers."""
        if self._pool is not None:
            self._pool.close()

    def _opened(self) -> Pool:
        self._pool = self._pool or self.open_pool()
        return self._pool

    def _render(self, space: SearchSpace, config: Config, signature: Signature) -> tuple[Source, CompileJob]:
        source = render(space, config, signature, self.arch, self.template_dirs)
        self._latest = compile_job(source, self.arch, toolchain())
        return source, self._latest

    def _submit(self, job: CompileJob, asked: _Asked) -> None:
        self._waiting[job.digest] = asked
        self._failures.setdefault(asked.signature, FailureGroups(self.failure_folder))
        self._asked_of[asked.signature] += 1
        self.asked += 1
        self._opened().submit(job)
        self.report(self.done, self.asked)

    def _count(self, binary: Binary, asked: _Asked) -> None:
        outcome = replace(binary, error=binary.error or lacking(binary, asked.launches))
        self._failures[asked.signature].add(outcome, asked.text)
        self.done += 1
