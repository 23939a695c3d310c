"""`Nvrtc`: the few functions of the run-time compiler that kt uses, through ctypes.

CuPy has a binding too, but its first call imports all of CuPy: 0.12 to 0.45 s and 36 MB for every compiler process,
against 0.01 s here; and it may load another libnvrtc than the one whose version names the results.
"""

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMPILATION_ERROR", "Compilation", "Nvrtc", "load_builtins"]

COMPILATION_ERROR = 6  # NVRTC_ERROR_COMPILATION: the source is at fault, not the installation


@dataclass(frozen=True)
class Compilation:
    """What one call of the compiler gave.

    Attributes:
        result: NVRTC's result code, 0 for success.
        result_name: its name, e.g. "NVRTC_ERROR_COMPILATION".
        log: what the compiler and ptxas printed.
        cubin: the binary; empty unless `result` is 0.
    """

    result: int
    result_name: str
    log: str
    cubin: bytes


class Nvrtc:
    """One loaded libnvrtc.

    Args:
        library: path of the shared library.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is too old to have the functions that kt needs (CUDA 11.2 and newer have them).
    """

    def __init__(self, library: str) -> None:
        self._lib = ctypes.CDLL(library)
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.version = self._version()
        self.archs = self._archs()

    def _version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._must(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def _archs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._must(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        archs = (ctypes.c_int * count.value)()
        self._must(self._lib.nvrtcGetSupportedArchs(archs))
        return tuple(archs)

    def compile(self, source: str, options: Sequence[str], name: str = "kernel.cu") -> Compilation:
        """Compile `source` for the `sm_…` target among `options`; a failure is in the result, not raised."""
        program = ctypes.c_void_p()
        text, label = source.encode(), name.encode()
        self._must(self._lib.nvrtcCreateProgram(ctypes.byref(program), text, label, 0, None, None))
        try:
            # fsencode: an include path is bytes to the operating system, whatever its characters
            encoded = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
            result = int(self._lib.nvrtcCompileProgram(program, len(options), encoded))
            log = self._bytes(program, "ProgramLog").decode(errors="replace").replace("\0", "")
            cubin = self._bytes(program, "CUBIN") if result == 0 else b""
            return Compilation(result, self._name(result), log, cubin)
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._must(getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._must(getattr(self._lib, f"nvrtcGet{what}")(program, data))
        return data.raw

    def _name(self, result: int) -> str:
        return str(self._lib.nvrtcGetErrorString(result).decode())

    def _must(self, result: int) -> None:
        if result != 0:
            raise OSError(f"{self._lib._name}: {self._name(result)}")


def load_builtins(library: str) -> None:
    """Load the library of built-in functions that lies beside `library`, so that NVRTC finds it in any layout."""
    for path in Path(library).parent.glob("libnvrtc-builtins.so.*"):
        with suppress(OSError):  # NVRTC then looks for it itself, and says so if it fails
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
