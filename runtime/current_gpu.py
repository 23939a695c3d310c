"""Which GPU a call is for, and kt's words for what CUDA says where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kt.errors import InputError, KtError, NoUsableGpu
from kt.runtime.whole import whole
from kt.tuner.cuda import CUDA_ERRORS, in_words, runtime

if TYPE_CHECKING:
    from kt.devices.device import Device

__all__ = ["ordinal_of", "refusal", "usable_gpu"]

HINT = "kt.gemm runs kernels, which takes a GPU; `kt doctor` says what is missing"


def usable_gpu(ordinal: int) -> Device:
    """The GPU of that number.

    Raises:
        NoUsableGpu: there is none; the way out of the command line, a model, is none here.
    """
    from kt.devices.local import local_device

    try:
        return local_device(ordinal)
    except NoUsableGpu as error:
        raise NoUsableGpu(error.message, hint=HINT) from None


def ordinal_of(device: Any) -> int:
    """The number of the GPU that a caller means; None is the current one.

    Raises:
        InputError: it is no number.
        NoUsableGpu: there is no such GPU.
    """
    if device is None:
        try:
            device = int(runtime.getDevice())
        except CUDA_ERRORS as error:
            raise refusal(error, 0) from error
    ordinal = whole(device)
    if ordinal is None:
        raise InputError(
            f"device is {device!r}; it must be the number of a GPU, or None for the current one",
            hint="models have no GPU to load kernels on; kt doctor lists the GPUs",
        )
    usable_gpu(ordinal)
    return ordinal


def refusal(error: Exception, ordinal: int) -> KtError:
    """The error to raise where CUDA refuses what comes before any kernel: mostly, there is no GPU that can be used."""
    try:
        usable_gpu(ordinal)
    except NoUsableGpu as reason:
        return reason
    return KtError(f"GPU {ordinal} cannot be used: {in_words(error)}", hint="kt doctor says what is missing")
