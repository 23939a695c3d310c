"""One kernel of several forms: for every layout, and for rows of C whether they are aligned or not.

A family says of which signatures it can have that by a derived quantity. What is launched for each of them is as for
the kernel of that signature alone; the kernel's code is there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kt.problems import LAYOUTS, Signature
from kt.problems.problem import MAX_ALIGNMENT
from kt.search_spaces.names import Names
from kt.search_spaces.space import Config, LaunchRule, SearchSpace
from kt.templates.render import signature_names

__all__ = ["SHARES", "forms_of", "most_smem"]

# The derived quantity by which a family says whether a kernel of several forms can have one.
SHARES = "shares"


def forms_of(space: SearchSpace, config: Config, signature: Signature, arch: str) -> tuple[Signature, ...]:
    """The signatures that one kernel can have which serves operands aligned as those of `signature`, the least aligned
    C first; none if there are not several."""
    if SHARES not in space.derived:
        return ()
    stores = sorted({signature.align_c, MAX_ALIGNMENT})
    every = [replace(signature, layout=layout, align_c=store) for store in stores for layout in LAYOUTS]
    found = tuple(one for one in every if _names(space, config, one, arch)[SHARES] == 1)
    return found if len(found) > 1 else ()


def most_smem(
    space: SearchSpace, config: Config, forms: tuple[Signature, ...], arch: str, rule: LaunchRule
) -> int | None:
    """Dynamic shared memory of a block: what that form takes which takes most; None for a kernel of one form."""
    if not forms:
        return None
    return max(int(rule.smem_bytes.evaluate(_names(space, config, one, arch))) for one in forms)


def _names(space: SearchSpace, config: Config, signature: Signature, arch: str) -> Mapping[str, Any]:
    return Names({**signature_names(signature, arch), **dict(config.parameters)}, space.derived)
