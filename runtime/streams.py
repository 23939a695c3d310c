"""The stream that is current where the arrays are from."""

from __future__ import annotations

import sys

from kt.tuner.cuda import cupy

__all__ = ["current_stream"]


def current_stream(kind: str, device: int) -> int:
    """The address of the stream that work of this kind of arrays goes to now; 0 is the default stream.

    PyTorch has a current stream of its own; everything else goes by CuPy's.
    """
    if kind == "torch":
        return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)
    return int(cupy.cuda.get_current_stream(device).ptr)
