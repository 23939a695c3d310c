"""Options as they were given, for a hint that can be typed as it stands."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["cache_option", "repeated", "tune_command"]


def repeated(option: str, values: Sequence[object] | None) -> str:
    """` --shapes a.yaml --shapes b.yaml`; "" for none."""
    return "".join(f" {option} {shlex.quote(str(value))}" for value in values or ())


def tune_command(
    cache_dir: Path | None,
    shapes: Sequence[object] | None,
    ranges: Sequence[object] | None = None,
    space: Path | None = None,
    templates: Sequence[object] | None = None,
) -> str:
    """The `kt tune gemm` that finds what a command with these options lacks, "…" for shapes that it does not know."""
    shown = repeated("--shapes", shapes) + repeated("--range", ranges) if shapes else " --shapes …"
    shown += repeated("--space", [space] if space else None) + repeated("--templates", templates)
    return f"kt tune gemm{shown}{cache_option(cache_dir)}"


def cache_option(cache_dir: Path | None) -> str:
    """` --cache-dir DIR`; "" if it was not given, or by the variable, which every command reads."""
    named = cache_dir is not None and str(cache_dir) != os.environ.get("KT_CACHE_DIR")
    return repeated("--cache-dir", [cache_dir] if named else None)
