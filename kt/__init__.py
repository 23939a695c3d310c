"""kt finds the fastest configuration of a CUDA C++ GEMM kernel for your shapes on your GPU.

The command line (`kt --help`) is the main interface; `gemm`, `warmup` and `calls` run what it has found from Python.
The packages follow the flow of a request:
problems, devices -> search_spaces -> templates -> cache -> tuner -> export -> runtime, cli.
"""

TYPE_CHECKING = False  # as type checkers know it: typing nearly doubles what is loaded before kt listens to Ctrl-C

__version__ = "0.1.0"
__all__ = ["__version__", "calls", "gemm", "warmup"]

if TYPE_CHECKING:
    from kt.runtime.gemm import calls, gemm, warmup
else:

    def __getattr__(name: str) -> object:
        """What runs kernels is imported when it is asked for: it takes CuPy, which the command line does without."""
        if name in ("calls", "gemm", "warmup"):
            value = globals()[name] = _of_runtime(name)  # found without this from now on
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Also what is not imported yet: completion in a console goes by it."""
        return sorted({*globals(), *__all__})

    def _of_runtime(name: str) -> object:
        from kt.runtime.without_cupy import lacks_cupy, refuser

        try:
            from kt.runtime import gemm as module
        except ModuleNotFoundError as error:
            if not lacks_cupy(error):
                raise
            return refuser(name)
        return getattr(module, name)
