"""The header with kernels, for `kt export --header`: all of the winners', or few, and then what that loses."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kt.cli.export_forms import FormsCompiled, FormsKnown, compilers_of, digest_of
from kt.cli.outcome import note, teller
from kt.errors import CompilerUnavailable, OptionError
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kt.cache.records import BestConfig
    from kt.export.contents import Contents, Search, Source
    from kt.export.kernels import Kernel
    from kt.export.portfolio import Portfolio
    from kt.problems.ranges import RangedShape
    from kt.search_spaces.space import SearchSpace

__all__ = ["Few", "Making", "few_kernels", "kernels_header", "tell_buckets"]

# How a time is known, in words.
_SOURCES: dict[Source, str] = {
    "measured": "measured",
    "alike": "measured of a kernel of that layout alone",
    "expected": "expected",
    "predicted": "predicted",
}
_PERCENT = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)[ ]?%?")


@dataclass(frozen=True)
class Few:
    """How few kernels are asked for.

    Attributes:
        most: at most so many.
        within: no shape may take longer by more than this part.
    """

    most: int | None
    within: float | None


@dataclass(frozen=True)
class Making:
    """What kernels are made from, and where compiled ones are kept.

    Attributes:
        check: nothing may be written, so nothing is compiled.
    """

    spaces: Mapping[str, SearchSpace]
    template_dirs: tuple[Path, ...]
    cache_dir: Path
    quiet: bool = False
    check: bool = False


def few_kernels(most: int | None, within: str | None) -> Few | None:
    """`--max-kernels` and `--within`; None if neither is given.

    Raises:
        OptionError: one is no number that can be.
    """
    if most is None and within is None:
        return None
    if most is not None and most < 1:
        raise OptionError("max-kernels", f"{most} leaves no kernel", hint="at least 1")
    if within is None:
        return Few(most, None)
    form = _PERCENT.fullmatch(within.strip())
    if form is None:
        raise OptionError("within", f"{within!r} is no percentage", hint="for example 3%")
    return Few(most, float(form["number"]) / 100)


def kernels_header(
    bests: Sequence[BestConfig],
    namespace: str,
    made: Making,
    searches: Sequence[Search],
    few: Few | None,
    ranged: Sequence[RangedShape] = (),
    unseen: Sequence[BestConfig] = (),
) -> tuple[str, int]:
    """The header's text and how many kernels it has.

    What few kernels lose is told, and what a range loses between the shapes that were tuned.
    """
    from kt.export.collect import collect
    from kt.export.kernel_header import kernel_header

    if few is None:
        known = collect(bests, made.spaces, searches, ranged, unseen)
    else:
        known = _few(bests, made, searches, few, ranged, unseen)
    if not made.quiet:
        tell_buckets(known)
    text = kernel_header(known, template_dirs=made.template_dirs, namespace=namespace)
    return text, len({kernel.code for kernel in known.kernels.kernels})


def _few(
    bests: Sequence[BestConfig],
    made: Making,
    searches: Sequence[Search],
    few: Few,
    ranged: Sequence[RangedShape],
    unseen: Sequence[BestConfig],
) -> Contents:
    """With few kernels; of several forms there are none without a compiler that fits, which is told."""
    from kt.export.collect import collect_few

    choose = partial(collect_few, bests, made.spaces, searches, ranged, unseen, most=few.most, within=few.within)
    tell = teller(quiet=made.quiet)
    try:
        with _forms(bests, made) as forms:
            known, found = choose(admits=forms, expect=forms.expect)
            several = {one.kernel.code: forms.told(one.kernel) for one in found.known if one.kernel.forms}
    except CompilerUnavailable as error:
        tell(f"each kernel has one layout, for those of several are compiled first: {error}")
        known, found = choose()
        several = {}
    if not made.quiet:
        _tell(found, made, several)
    return known


def _forms(bests: Sequence[BestConfig], made: Making) -> FormsKnown:
    """What tells whether kernels of several forms may be taken."""
    if made.check:
        return FormsKnown(made.template_dirs, made.cache_dir, compilers_of(bests))
    return FormsCompiled(made.template_dirs, made.cache_dir, tell=teller(quiet=made.quiet))


def tell_buckets(known: Contents) -> None:
    """Each bucket of a range, or part of one, with the shape whose winner serves it, and what that loses on the other
    tuned one."""
    from kt.export.buckets import computes_all

    where = _where(known.winners)
    for served in known.buckets:
        name, bucket = served.shape.name, served.bucket
        size, other = (getattr(known.winners[entry].key.problem, name) for entry in (served.entry, served.other))
        sizes = f"{bucket.first}" if bucket.first == bucket.last else f"{bucket.first} to {bucket.last}"
        label = f"{served.shape.at(bucket.last).label}{where(known.winners[served.entry])}"
        text = f"{label}, {name} {sizes}: as for {name} {size}"
        if not computes_all(known, served):
            text += " where its kernel can compute them"
        if other != size:
            loss = f"{served.loss:.1%} slower" if math.isfinite(served.loss) else "unknown loss"
            text += f", {loss} at {other}" + (f", {served.source}" if math.isfinite(served.loss) else "")
        note(text)


def _where(winners: Sequence[BestConfig]) -> Callable[[BestConfig], str]:
    """Tells of which GPU a winner is, if they are of several."""
    from kt.devices.device import told_apart

    names = told_apart(best.key.device for best in winners)
    return lambda best: f" on {names[best.key.device]}" if len(names) > 1 else ""


def _tell(found: Portfolio, made: Making, several: Mapping[tuple[object, ...], str]) -> None:
    """Each shape with what serves it, then kernels of several forms, of which `several` says what each is, then all
    together."""
    where = _where([one.winner for one in found.served])
    numbers = {one: number for number, one in enumerate(dict.fromkeys(one.kernel.code for one in found.known), 1)}
    for one in found.served:
        by = "the generic kernel" if one.generic else f"kernel {numbers[one.kernel.code]}"
        loss = "unknown loss" if one.generic else f"{one.loss:.1%} slower, {_SOURCES[one.source]}"
        note(f"{one.winner.key.problem.label}{where(one.winner)}: {by}, {loss}")
    for code, text in several.items():
        note(f"kernel {numbers[code]} {text}")
    note(f"{plural(found.kernels, 'kernel')} in place of {found.before}: {_losses(found, where)}")
    _tell_size(found, made)


def _losses(found: Portfolio, where: Callable[[BestConfig], str]) -> str:
    """What is lost on all shapes together, and how that is known."""
    parts = []
    if found.known:
        worst = max(found.known, key=lambda one: one.loss)
        label = f"{worst.winner.key.problem.label}{where(worst.winner)}"
        parts += [f"{found.mean_loss:.1%} slower (geometric mean), at most {worst.loss:.1%} ({label})"]
    counts = Counter(one.source for one in found.known)
    if set(counts) - {"measured"}:
        told = [f"{counts[source]} {text}" for source, text in _SOURCES.items() if counts[source]]
        parts += [f"times: {', '.join(told)}"]
    unknown = len(found.served) - len(found.known)
    if unknown:
        parts += [f"shapes with the generic kernel, of unknown loss and not in the mean: {unknown}"]
    return "; ".join(parts)


def _tell_size(found: Portfolio, made: Making) -> None:
    """Bytes of the compiled kernels, where the cache has them."""
    from kt.export.kernels import of_winner

    few = {one.kernel.code: one.kernel for one in found.served}
    every = {kernel.code: kernel for one in found.served for kernel in [of_winner(one.winner, made.spaces)]}
    sizes = [_bytes(kernels.values(), made) for kernels in (few, every)]
    if None in sizes:
        note("size of the compiled kernels: unknown, for the cache does not have all of them")
    else:
        note(f"size of the compiled kernels: {sizes[0]:,} bytes in place of {sizes[1]:,}")


def _bytes(kernels: Iterable[Kernel], made: Making) -> int | None:
    """Bytes of the compiled kernels together; None if one of them is not in the cache."""
    from pathlib import Path

    from kt.tuner.cubin_cache import CubinCache

    cubins, total = CubinCache(made.cache_dir), 0
    for kernel in kernels:
        try:
            binary = cubins.get(digest_of(kernel, made.template_dirs))
        except CompilerUnavailable:
            return None
        if binary is None or not binary.path:
            return None
        total += Path(binary.path).stat().st_size
    return total
