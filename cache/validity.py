"""Whether a stored winner still answers the question: made from the sources of today, by the families asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kt.cache.records import BestConfig
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["SPACE", "OtherSpaces", "changed_since", "foreign_choice", "serves", "unfit"]

SPACE = "space"  # in a winner's provenance: the name of the file that `--space` has named


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
    reasons = [f"template or space of {', '.join(changed)} changed"] if changed else []
    reasons += [f"family {name} is not among the present ones" for name in unknown]
    return "; ".join(reasons)


@dataclass(frozen=True)
class OtherSpaces:
    """Tells winners of a space that nobody has asked about from those of one that has changed.

    Attributes:
        asked: name of the file that `--space` names now; "" without it.
        builtin: family to digest with the built-in spaces.
    """

    asked: str = ""
    builtin: Mapping[str, str] = field(default_factory=dict)

    def reason(self, best: BestConfig) -> str:
        """Which space a winner that is not of the present sources is of, "" if it is of the one that is asked about."""
        tuned_with = best.provenance.get(SPACE, "")
        if tuned_with == self.asked:
            return ""
        if tuned_with:
            return f"tuned with --space {tuned_with}"
        return "" if changed_since(best, self.builtin) else "tuned without --space"


def unfit(best: BestConfig, spaces: Mapping[str, SearchSpace], current: Mapping[str, str]) -> str:
    """Why the winner or one tied with it cannot be of the very space that it says it is from, "" if it can.

    Only spaces that are still the same are judged; a winner from another one is stale, not wrong.
    """
    for config in (best.config, *best.ties):
        space = spaces.get(config.family)
        if space is not None and best.sources.get(config.family) == current.get(config.family):
            reason = foreign_choice(config, space)
            if reason:
                return reason
    return ""


def foreign_choice(config: Config, space: SearchSpace) -> str:
    """The first choice of the configuration that the space does not offer, "" if it offers all."""
    for kind, choices, offered in (
        ("parameter", dict(config.parameters), space.parameters),
        ("run-time parameter", dict(config.runtime), space.runtime),
    ):
        for name in sorted(offered.keys() | choices.keys()):
            if name not in choices:
                return f"{kind} {name} is missing"
            if name not in offered:
                return f"family {space.family} has no {kind} {name}"
            if choices[name] not in offered[name]:
                return f"{kind} {name} is {choices[name]!r}, which family {space.family} does not offer"
    return ""
