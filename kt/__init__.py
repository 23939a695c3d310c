"""kt finds the fastest configuration of a CUDA C++ GEMM kernel for your shapes on your GPU.

The command line (`kt --help`) is the main interface. The packages follow the flow of a request:
problems, devices -> search_spaces -> templates -> cache -> tuner -> export -> cli.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
