"""`Names`: the values that an expression may name; derived quantities are computed when first asked for.

Lazy values give constraints their meaning: a constraint protects what stands below it. A derived quantity that has no
value for some configurations (a division by zero) does no harm if an earlier constraint rejects these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kt.search_spaces.arithmetic import is_scalar, leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kt.search_spaces.expression import Expression

__all__ = ["PROBLEM_SIZES", "Names", "in_columns", "lacks_sizes", "leaves"]

# What an expression may name that differs between problems of one compile signature.
PROBLEM_SIZES = frozenset(("m", "n", "k", "batch", "lda", "ldb", "ldc", "beta", "operand_align_a", "operand_align_b"))


def leaves(used: Iterable[str], derived: Mapping[str, Expression]) -> frozenset[str]:
    """The names that `used` rest on once derived quantities are traced to what they are computed from, each once."""
    found: set[str] = set()
    left = list(used)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += derived[name].names if name in derived else ()
    return frozenset(found - derived.keys())


def lacks_sizes(used: Iterable[str], derived: Mapping[str, Expression], given: Mapping[str, Any]) -> bool:
    """Whether `used` rests on a size of the problem that is not among the given names."""
    return not (leaves(used, derived) & PROBLEM_SIZES) <= given.keys()


def in_columns(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several values of each name in one: an array of them, or the value where it does not vary."""
    import numpy as np

    columns = {name: [one[name] for one in every] for name in (every[0] if every else ())}
    return {
        name: np.array(values) if any(one != values[0] for one in values) else values[0]
        for name, values in columns.items()
    }


class Names(Mapping[str, Any]):
    """Given values (scalars, or arrays that broadcast together), and derived quantities computed from them."""

    def __init__(self, given: Mapping[str, Any], derived: Mapping[str, Expression] | None = None) -> None:
        self._given = given
        self._derived = derived or {}
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            computed = name in self._derived and name not in self._given
            self._known[name] = self._derived[name].evaluate(self) if computed else leaf(self._given[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in self._derived

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        yield from (name for name in self._derived if name not in self._given)

    def __len__(self) -> int:
        return len(set(self._given) | set(self._derived))

    def restricted(self, used: Iterable[str], mask: NDArray[Any]) -> tuple[Names, NDArray[Any]]:
        """Names with the elements where `mask` is true, as far as `used` needs them, and the mask at full shape."""
        import numpy as np

        needed = leaves(used, {name: rule for name, rule in self._derived.items() if name not in self._given})
        values = {name: self[name] for name in needed}
        shapes = [value.shape for value in values.values() if not is_scalar(value)]
        full = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, *shapes))
        picked = {
            name: value if is_scalar(value) else np.broadcast_to(value, full.shape)[full]
            for name, value in values.items()
        }
        return Names(picked, self._derived), full
