"""What `--device` means: the local GPU, its number, or a modelled one."""

from kt.devices.catalog import modelled
from kt.devices.device import Device
from kt.devices.local import local_device
from kt.errors import InputError, NoUsableGpu

__all__ = ["AUTO_MODEL", "select_device"]

AUTO_MODEL = "h200"


def select_device(text: str) -> Device:
    """The device that `text` names.

    Args:
        text: `local` (the first visible GPU), a number (that one), `auto` (the first visible GPU, or without a usable
            one `model:h200`), or `model:NAME`.

    Raises:
        NoUsableGpu: a local GPU is asked for and none can be used.
        InputError: `text` is none of these.
    """
    kind, _, name = text.strip().partition(":")
    if kind == "model" and name:
        return modelled(name)
    if text.strip().isdecimal():
        return local_device(int(text))
    if text.strip() == "auto":
        return _auto()
    if text.strip() == "local":
        return local_device()
    hint = "use local, a number, auto, or model:NAME, for example model:h200"
    raise InputError(f"--device {text!r} names no device", hint=hint)


def _auto() -> Device:
    try:
        return local_device()
    except NoUsableGpu:
        return modelled(AUTO_MODEL)
