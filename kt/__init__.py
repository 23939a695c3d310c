"""kt finds the fastest configuration of a CUDA C++ GEMM kernel for your shapes on your GPU.

The command line (`kt --help`) is the main interface; `gemm`, `warmup` and `calls` run what it has found from Python.
The packages follow the flow of a request:
problems, devices -> search_spaces -> templates -> cache -> tuner -> export -> runtime, cli.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "calls", "gemm", "warmup"]

if TYPE_CHECKING:
    from kt.runtime.gemm import calls, gemm, warmup
else:

    def __getattr__(name: str) -> object:
        """What runs kernels is imported when it is asked for: it takes CuPy, which the command line does without."""
        if name in ("calls", "gemm", "warmup"):
            from kt.runtime import gemm as module

            value = globals()[name] = getattr(module, name)  # found without this from now on
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
