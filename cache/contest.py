"""Two winners for one key: which one is kept, and why; what both sides have alike, and what is new."""

from dataclasses import dataclass, field, replace

from kt.cache.key import canonical
from kt.cache.ranking import rank
from kt.cache.records import BestConfig
from kt.cache.rows import BEST_QUERY, Stored, best_record, decode_best_row
from kt.cache.store import PUT_BEST, Store

__all__ = ["Conflict", "Contest"]

_Place = tuple[str, str, bool]  # digest of the key, sources, completeness: there is one winner for each


@dataclass(frozen=True)
class Conflict:
    """Two unlike winners for one key, made from the same sources: the one that is kept, the one that gives way.

    `kept_here`: the one that is kept was here already.
    """

    kept: BestConfig
    dropped: BestConfig
    kept_here: bool

    @property
    def reason(self) -> str:
        """What decided, in words that follow "because"."""
        kept, dropped = self.kept, self.dropped
        if kept.measurement.predicted != dropped.measurement.predicted:
            return "it was measured and the other predicted"
        if kept.measurement.time_us != dropped.measurement.time_us:
            return "it is faster"
        if kept.config.identity != dropped.config.identity:
            return "both are equally fast and it is first by its text"
        return "both have this time and configuration and it is first by its text"


@dataclass
class Contest:
    """Winners of elsewhere against those of `into`; nothing is stored before `settle`.

    Attributes:
        new: how many are for what has no winner here.
        same: how many both sides have alike.
        conflicts: those that both sides have unlike each other, in the order of coming.
    """

    into: Store
    new: int = 0
    same: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    _taken: dict[_Place, Stored] = field(default_factory=dict)

    def enter(self, winner: Stored) -> None:
        """Of two winners for one key with the same sources and completeness, the one that `rank` puts first is kept."""
        place = (winner.digest, canonical(winner.best.sources), winner.best.complete)
        old = self._taken.get(place) or self._counterpart(place)
        if old is None:
            self.new += 1
        elif _is_same(old.best, winner.best):
            self.same += 1
        else:
            kept, dropped = sorted((old, winner), key=_standing)
            self.conflicts.append(Conflict(kept.best, dropped.best, kept is old))
        if old is None or _standing(winner) < _standing(old):
            self._taken[place] = winner

    def settle(self) -> None:
        """Stores what was taken; the caller holds the transaction."""
        for (_, sources, complete), winner in self._taken.items():
            key_id = self.into.key_id(winner.best.key)
            values = (key_id, sources, complete, best_record(winner.best), winner.made_at)
            self.into.connection.execute(PUT_BEST, values)

    def _counterpart(self, place: _Place) -> Stored | None:
        """The winner that `into` has there, if it can be read."""
        query = f"{BEST_QUERY} WHERE keys.digest = ? AND best.sources = ? AND best.complete = ?"
        row = self.into.connection.execute(query, place).fetchone()
        decoded = decode_best_row(row) if row else None
        return decoded if isinstance(decoded, Stored) else None


def _standing(row: Stored) -> tuple[object, ...]:
    unknown = row.best.measurement.screened_us is None
    return (*rank(row.best), unknown, best_record(row.best), -row.made_at)


def _is_same(one: BestConfig, other: BestConfig) -> bool:
    """Whether two winners say the same, as far as both say anything of the screening; old caches and tables do not."""
    both_known = None not in (one.measurement.screened_us, other.measurement.screened_us)
    return _compared(one, screening=both_known) == _compared(other, screening=both_known)


def _compared(best: BestConfig, *, screening: bool) -> str:
    measurement = best.measurement if screening else replace(best.measurement, screened_us=None)
    return best_record(replace(best, measurement=measurement, provenance={}))
