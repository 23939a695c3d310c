"""What the tuner and its child processes say to each other: small picklable values, nothing else.

The parent sends a request and gets exactly one reply for it. Paths of cubins travel, never their contents, and never
arrays: the worker makes its own operands from the problem and the seed.
"""

from dataclasses import dataclass, field

from kt.cache.records import Measurement
from kt.problems import Problem
from kt.search_spaces.space import Launch

__all__ = [
    "Binary",
    "Candidate",
    "CompileJob",
    "Failure",
    "MemoryReply",
    "Prepare",
    "Prepared",
    "Refine",
    "RefineReply",
    "Release",
    "Screen",
    "ScreenReply",
]


@dataclass(frozen=True)
class CompileJob:
    """Compile one source. `digest` names it; `arch` is NVRTC's target; `options` are the other options."""

    digest: str
    source: str
    arch: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Binary:
    """The outcome of one compilation.

    Attributes:
        digest: of source, target, options and compiler: the name of the cubin in the cubin cache.
        path: the cubin; "" if compilation failed.
        registers, spill_bytes, static_smem_bytes: by kernel name, from the ptxas log.
        warnings: ptxas warnings that mark a slow kernel.
        error: "" or the compiler's log, first error first.
        seconds: time the compiler took; 0 if the cubin came from the cache.
    """

    digest: str
    path: str = ""
    registers: dict[str, int] = field(default_factory=dict)
    spill_bytes: dict[str, int] = field(default_factory=dict)
    static_smem_bytes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: str = ""
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """One configuration ready to run on the prepared problem.

    Attributes:
        name: identity of the configuration (`Config.identity`); comes back in replies.
        cubin: path of its binary.
        launches: kernel launches in order, resolved to numbers.
        workspace_bytes: device memory it needs besides the operands.
        runtime: run-time arguments by name, passed in `GemmArguments`.
    """

    name: str
    cubin: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    runtime: dict[str, int]


@dataclass(frozen=True)
class Prepare:
    """Make operands, reference and buffers for `problem`, freeing those of the problem before.

    `peers` will be asked for in `Refine`: their libraries are loaded meanwhile.
    """

    problem: Problem
    seed: int
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """The problem is ready. `sets` operand sets rotate; `cold` says if they exceed three times the L2 cache."""

    sets: int
    cold: bool
    needed_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Failure:
    """The request could not be served: `status` is "out_of_memory" or "crashed"; `detail` has the figures.

    `candidate` names the one that was running, where that is known. After "crashed" the worker must be replaced.
    """

    status: str
    detail: str
    candidate: str = ""


@dataclass(frozen=True)
class Screen:
    """Verify one candidate on the exact operands, then time it; stop early if slower than `stop_above_us`."""

    candidate: Candidate
    stop_above_us: float | None


@dataclass(frozen=True)
class ScreenReply:
    """The measurement of a screened candidate."""

    name: str
    measurement: Measurement


@dataclass(frozen=True)
class Refine:
    """Verify in full, then time `candidates` interleaved with each other until told apart or out of rounds.

    `peers` are library baselines ("cublas", "cublaslt") timed in the same rounds.
    """

    candidates: tuple[Candidate, ...]
    peers: tuple[str, ...] = ()
    max_seconds: float = 2.0


@dataclass(frozen=True)
class RefineReply:
    """Measurements by candidate name, fastest first; names tied with the first; peers in microseconds."""

    measurements: dict[str, Measurement]
    ties: tuple[str, ...]
    peers: dict[str, float]
    peer_errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Release:
    """Free everything that belongs to the prepared problem."""


@dataclass(frozen=True)
class MemoryReply:
    """Free and total device memory in bytes, after `Release`."""

    free_bytes: int
    total_bytes: int
