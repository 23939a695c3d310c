"""Whether a stored winner still answers the question: made from the sources of today, by the families asked for."""

from collections.abc import Mapping

from kt.cache.records import BestConfig

__all__ = ["changed_since", "serves"]


def serves(sources: Mapping[str, str], family: str, asked: Mapping[str, str]) -> bool:
    """True if a winner of `family` among `sources` is the winner among the families `asked` for, as they are today.

    All that are asked for must have competed in their present form. Families beyond those may have competed too: the
    winner among many is also the winner among fewer, if it is one of them.
    """
    return family in asked and all(sources.get(name) == digest for name, digest in asked.items())


def changed_since(best: BestConfig, current: Mapping[str, str]) -> str:
    """Why the winner is stale against the sources of today, "" if it is not."""
    unknown = sorted(name for name in best.sources if name not in current)
    changed = sorted(name for name, digest in best.sources.items() if name in current and current[name] != digest)
    reasons = [f"template or space of {name} changed" for name in changed]
    reasons += [f"family {name} is not among the present ones" for name in unknown]
    return "; ".join(reasons)
