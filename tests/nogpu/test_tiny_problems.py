"""Tiny problems that were not tuned: which ones are, which kernel they get, and what a header has of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.catalog import modelled
from kt.export.collect import collect, collect_few
from kt.export.contents import Contents
from kt.export.dispatch import Pick, pick
from kt.export.kernel_header import kernel_header
from kt.export.kernels import Kernel, on_device
from kt.export.runnable import launches_of
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.problems.ranges import Range, RangedShape
from kt.search_spaces.expression import parse
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Constraint, SearchSpace

H200 = modelled("h200")
SPACES = {space.family: space for space in builtin_spaces()}
FORMATS = [
    (name, summed, output) for name, one in DTYPES.items() for summed in one.accumulators for output in one.outputs
]


def of_default(problem: Problem, time_us: float = 100.0, **choices: int) -> BestConfig:
    """A winner of a family that serves the formats: its default, and these choices."""
    family = next(name for name in ("simt", "mma") if problem.dtype in SPACES[name].dtypes)
    config = SPACES[family].config({**SPACES[family].default, **choices})
    return _won(problem, family, config.as_dict(), time_us)


def _won(problem: Problem, family: str, choices: Mapping[str, Any], time_us: float) -> BestConfig:
    key = CacheKey(problem, H200.identity, "nvrtc", "graph")
    config = SPACES[family].config(choices)
    return BestConfig(key, config, Measurement("ok", time_us, samples=9), {family: "digest"}, complete=True)


def header_of(dtype: str = "fp32", *more: BestConfig, **given: Any) -> Contents:
    """Of one large shape's winner, and of others."""
    return collect([of_default(Problem(2048, 2048, 2048, dtype)), *more], SPACES, **given)


def kernel_of(known: Contents, chosen: Pick) -> Kernel:
    return known.kernels.kernels[known.kernels.variants[chosen.variant].kernel]


def is_taken(known: Contents, problem: Problem) -> bool:
    """Whether it gets the kernel of tiny problems, as a standard one that was taken from no shape."""
    chosen = pick(known, problem, H200)
    if chosen.variant not in known.tiny:
        return False
    assert (chosen.found, chosen.entry) == ("standard", -1)
    return kernel_of(known, chosen).tiny


@pytest.mark.parametrize(
    ("dtype", "most_k"), [("fp32", 256), ("tf32", 256), ("bf16", 512), ("fp64", 128), ("int8", 1024)]
)
def test_the_borders_of_tiny(dtype: str, most_k: int) -> None:
    """Eight rows or columns, a row of 1 KiB along k, two blocks of 32 rows for each of 132 multiprocessors."""
    known = header_of(dtype)
    whole, long = most_k, 2 * 132 * 32
    for inside in ((8, 64, whole), (64, 8, whole), (1, 1, 0), (8, 8, 1), (8, long, 16), (long, 8, 16), (1, 33, 7)):
        assert is_taken(known, Problem(*inside, dtype)), inside
    for beyond in (
        (9, 64, whole),
        (64, 9, whole),
        (8, 64, whole + 1),
        (64, 8, whole + 1),
        (8, long + 1, 16),
        (9, 9, 9),
    ):
        assert not is_taken(known, Problem(*beyond, dtype)), beyond
    assert is_taken(known, Problem(8, 64, 16, dtype, batch=132))
    assert not is_taken(known, Problem(8, 64, 16, dtype, batch=133))


@pytest.mark.parametrize(("dtype", "accumulator", "output"), FORMATS)
def test_every_format_that_the_family_serves_has_them(dtype: str, accumulator: str, output: str) -> None:
    """In every layout, whatever the scalars, whoever of both sides is longer; sums in fp16 skinny has not."""
    formats: dict[str, Any] = {"accumulator": accumulator, "out_dtype": output}
    problem = Problem(2048, 2048, 2048, dtype, **formats)
    known = collect(
        [_won(problem, "mma", SPACES["mma"].default, 100.0)] if dtype != "fp32" else [of_default(problem)], SPACES
    )
    taken = [
        is_taken(known, Problem(m, n, k, dtype, layout, alpha=2.0, beta=beta, **formats))
        for layout in LAYOUTS
        for m, n, k in ((1, 1, 1), (8, 8, 8), (3, 300, 5), (300, 3, 5), (16, 8, 64))
        for beta in (0.0, 1.0)
    ]
    assert set(taken) == {accumulator != "fp16"}


def test_what_was_tuned_goes_before() -> None:
    """The very problem, the same with other scalars, and what serves a range."""
    tiny, small = Problem(4, 64, 64), Problem(2, 64, 64)
    ranged = [RangedShape("m", Range(2, 4, 1), {"n": 64, "k": 64})]
    known = header_of("fp32", of_default(tiny), of_default(small), ranged=ranged)
    found = {
        problem.label: pick(known, problem, H200).found
        for problem in (tiny, replace(tiny, alpha=2.0, beta=1.0), replace(tiny, m=3), replace(tiny, m=5))
    }
    assert list(found.values()) == ["exact", "neighbour", "neighbour", "standard"]


@pytest.mark.parametrize(
    ("layout", "sizes", "strides", "rows"),
    [
        ("nn", (8, 64, 64), {}, (16, 16, 16)),
        ("nn", (64, 8, 64), {}, (16, 16, 16)),
        ("nn", (8, 64, 63), {}, (2, 4, 2)),  # A is held, B is copied
        ("nn", (8, 63, 64), {}, (2, 2, 2)),
        ("nn", (64, 7, 62), {}, (4, 2, 2)),  # B is held
        ("tt", (64, 8, 63), {}, (4, 2, 2)),
        ("nt", (64, 8, 63), {}, (2, 2, 2)),
        ("nn", (8, 64, 64), {"ldb": 66}, (2, 4, 2)),
        ("nn", (8, 64, 64), {"base_alignment": 8}, (2, 4, 2)),
        ("nn", (8, 64, 64), {"base_alignment": 2}, (2, 2, 2)),
    ],
)
def test_rows_decide_which_kernel_it_is(
    layout: str, sizes: tuple[int, int, int], strides: dict[str, Any], rows: tuple[int, int, int]
) -> None:
    """The one for the most aligned rows that these are: of all three, of those that are copied, or of none."""
    known = header_of("bf16")
    signature = kernel_of(known, pick(known, Problem(*sizes, "bf16", layout, **strides), H200)).signature
    assert (signature.align_a, signature.align_b, signature.align_c) == rows


def everything() -> Iterator[Problem]:
    for layout in LAYOUTS:
        for short in range(1, 11):
            for long, k in ((1, 1), (31, 255), (33, 256), (300, 257), (8449, 3), (8448, 5)):
                yield Problem(short, long, k, "fp32", layout, ldc=max(short, long) + short % 3, batch=1 + short % 2)
                yield Problem(long, short, k, "fp32", layout, base_alignment=4 << short % 3)


def test_a_kernel_is_given_nothing_that_it_cannot_run() -> None:
    """The family's own constraints count as ever, but for the one that is slower and not wrong."""
    known, space = header_of(), SPACES["skinny"]
    assert space.tiny is not None
    strict = [rule for rule in space.constraints if rule not in space.tiny.although]
    assert len(strict) == len(space.constraints) - 1
    for problem in everything():
        chosen = pick(known, problem, H200)
        if chosen.variant in known.tiny:
            kernel = replace(kernel_of(known, chosen), space=replace(space, constraints=tuple(strict)))
            assert launches_of(kernel, kernel.config.runtime, problem, H200) == chosen.launches
            assert chosen.launches is not None
            assert chosen.launches[1] == 0


@pytest.mark.parametrize(("dtype", "kernels"), [("fp32", 16), ("bf16", 24), ("fp64", 16), ("int8", 20)])
def test_how_many_kernels_a_format_has(dtype: str, kernels: int) -> None:
    """Two for each layout and three alignments of rows; two where elements are words; not where rows never are such.

    Formats that are not in the table have none.
    """
    known = header_of(dtype)
    mine = [one for one in known.kernels.kernels if one.tiny]
    assert len(mine) == len({one.code for one in mine}) == len(known.tiny) == kernels
    assert {one.signature.dtype for one in mine} == {dtype}


def test_a_winners_kernel_is_compiled_once() -> None:
    """It serves tiny problems as such, and others as a winner's."""
    problem = Problem(8, 64, 1000, "bf16")
    space = SPACES["skinny"]
    assert space.tiny is not None
    same = _won(problem, "skinny", {**space.default, **space.tiny.choose, "streamed": "b"}, 3.0)
    known, without = header_of("bf16", same), header_of("bf16")
    kernels = known.kernels.kernels
    assert len(kernels) - len({one.code for one in kernels}) >= 1
    assert f"Kernels: {len({one.code for one in kernels})}, as kt renders them" in kernel_header(known)
    assert len(known.tiny) == len(without.tiny)
    assert not kernel_of(known, pick(known, problem, H200)).tiny
    assert is_taken(known, replace(problem, k=500))


def test_few_kernels_have_none() -> None:
    """How many there are is what was asked for."""
    known, found = collect_few([of_default(Problem(2048, 2048, 2048))], SPACES, most=4)
    assert (found.kernels, known.tiny) == (1, [])
    assert pick(known, Problem(8, 8, 8), H200).found == "neighbour"


def _without(**parameters: tuple[int, ...]) -> dict[str, SearchSpace]:
    skinny = SPACES["skinny"]
    return {**SPACES, "skinny": replace(skinny, tiny=None, parameters={**skinny.parameters, **parameters})}


def test_a_family_that_names_none_has_none() -> None:
    """As one that was narrowed to other choices."""
    known = collect([of_default(Problem(2048, 2048, 2048))], _without(tile_s=(16,)))
    assert known.tiny == []


def test_the_kernel_is_one_that_a_search_may_find() -> None:
    """On its own sizes it breaks none of the rules, and what the space names is all offered."""
    space = SPACES["skinny"]
    assert space.tiny is not None
    for dtype, streamed, sizes in (("bf16", "b", (1, 64, 64)), ("fp32", "a", (64, 5, 64))):
        config = space.config({**space.default, **space.tiny.choose, "streamed": streamed})
        kernel = on_device(space, config, Problem(*sizes, dtype).signature, (9, 0))
        assert launches_of(kernel, config.runtime, Problem(*sizes, dtype), H200) is not None


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ("m == 1", Problem(1, 200, 16)),
        ("short <= 8 and k <= 32 and long <= 32", Problem(4, 8, 16)),
        ("short <= 8 and beta != 0", Problem(8, 64, 64, beta=1.0)),
        ("short <= 8 and batch > 1", Problem(8, 64, 64, batch=3)),
        ("short <= 8 and 100 // (m - 8) > 0", Problem(64, 4, 64)),
    ],
)
def test_a_space_says_itself_what_is_tiny(when: str, problem: Problem) -> None:
    """Whatever its condition: also if few problems meet it, or it has no value for some."""
    skinny = SPACES["skinny"]
    assert skinny.tiny is not None
    spaces = {**SPACES, "skinny": replace(skinny, tiny=replace(skinny.tiny, when=parse(when, "here")))}
    known = collect([of_default(Problem(2048, 2048, 2048))], spaces)
    assert is_taken(known, problem)
    assert not is_taken(known, Problem(8, 4096, 4096))


def test_a_constraint_without_a_value_for_small_problems_does_not_end_an_export() -> None:
    skinny = SPACES["skinny"]
    rule = Constraint(parse("n // 64 % (m // 16) == 0", "here"), "ours")
    spaces = {**SPACES, "skinny": replace(skinny, constraints=(*skinny.constraints, rule))}
    assert not is_taken(collect([of_default(Problem(2048, 2048, 2048))], spaces), Problem(8, 64, 64))


def test_what_narrows_a_space_counts_for_tiny_problems_whatever_its_reason() -> None:
    """`although` means the rules of the space that has it."""
    skinny = SPACES["skinny"]
    assert skinny.tiny is not None
    reason = skinny.tiny.although[0].reason
    rule = Constraint(parse("m > 100 or tile_s < 8", "here"), reason)
    spaces = {**SPACES, "skinny": replace(skinny, constraints=(*skinny.constraints, rule))}
    known = collect([of_default(Problem(2048, 2048, 2048))], spaces)
    assert not is_taken(known, Problem(4, 64, 64))
    assert is_taken(known, Problem(200, 4, 64))
