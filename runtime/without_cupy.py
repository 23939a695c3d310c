"""What `kt.gemm`, `kt.warmup` and `kt.calls` are where CuPy is not installed: functions that say what to install."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from kt.errors import KtError
from kt.tuner.extras import install

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["lacks_cupy", "refuser"]


def lacks_cupy(error: ModuleNotFoundError) -> bool:
    """Whether it is CuPy that was not found: anything else is a fault of kt's or of another package's install."""
    return (error.name or "").partition(".")[0] in ("cupy", "cupy_backends")


def refuser(name: str) -> Callable[..., Any]:
    """A function in place of `kt.<name>`: the name is there, as for completion, and a call is a `KtError`."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise KtError(f"kt.{name} needs CuPy, which is not installed", hint=install())

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raises KtError: {name} needs CuPy."
    return refuse
