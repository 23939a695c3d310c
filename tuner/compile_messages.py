"""What the compile pool and its compiler processes say to each other.

A module of its own, because the compiler process runs its own module as `__main__`, and pickle names types by module.
"""

from dataclasses import dataclass

from kt.tuner.messages import Binary, CompileJob

__all__ = ["CompileReply", "CompileRequest"]


@dataclass(frozen=True)
class CompileRequest:
    """Compile `job` with the NVRTC at `library`, and store the outcome in the cubin cache of `cache_dir`."""

    job: CompileJob
    library: str
    cache_dir: str


@dataclass(frozen=True)
class CompileReply:
    """The outcome.

    Attributes:
        binary: with its path, if it could be stored.
        cubin: empty, or the binary itself because the cache could not be written.
        cache_error: why not.
        memory_bytes: resident memory of this process.
    """

    binary: Binary
    cubin: bytes
    cache_error: str
    memory_bytes: int
