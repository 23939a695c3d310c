"""Problems that decide which code of a kernel runs: formats, layouts, alignments, ragged and tiny sizes, scalars."""

from collections.abc import Sequence
from dataclasses import dataclass

from kt.devices.device import Device
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.problems.dtypes import OUTPUT_BYTES

__all__ = [
    "RAGGED",
    "Formats",
    "aligned",
    "every_alignment",
    "every_scalar",
    "formats_of",
    "has_instructions",
    "main_formats",
    "misaligned_bases",
    "ragged",
    "very_long_sums",
    "with_label",
]

# Tiny, a single row, primes, k below any tile's, and one element more or less than whole tiles.
RAGGED = ((1, 1, 1), (1, 105, 107), (2, 4, 3), (130, 259, 67), (257, 96, 304), (64, 127, 1031))
SCALARS = ((2.0, 0.0), (1.0, 1.0), (-1.0, 3.0))
ALIGNMENTS = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Formats:
    """The formats of operands, sums and C."""

    dtype: str
    accumulator: str
    out_dtype: str

    @property
    def label(self) -> str:
        return f"{self.dtype}-{self.accumulator}-{self.out_dtype}"

    @property
    def alignments(self) -> tuple[int, ...]:
        """Of operands, widest first."""
        return tuple(align for align in ALIGNMENTS if align >= DTYPES[self.dtype].bytes)

    def problem(self, m: int, n: int, k: int, layout: str = "nn", **values: float) -> Problem:
        names = {"accumulator": self.accumulator, "out_dtype": self.out_dtype}
        return Problem(m, n, k, self.dtype, layout, **{**values, **names})  # type: ignore[arg-type]


def formats_of(dtypes: Sequence[str]) -> tuple[Formats, ...]:
    """Every combination of formats, those with the default format of C first."""
    every = [
        Formats(dtype, accumulator, out)
        for dtype in dtypes
        for accumulator in DTYPES[dtype].accumulators
        for out in DTYPES[dtype].outputs
    ]
    return tuple(sorted(every, key=lambda formats: DTYPES[formats.dtype].outputs.index(formats.out_dtype) > 0))


def ragged(formats: Formats, layouts: Sequence[str] = LAYOUTS) -> list[Problem]:
    """Dense operands of ragged sizes: their rows begin and end anywhere."""
    return [formats.problem(m, n, k, layout) for layout in layouts for m, n, k in RAGGED]


def aligned(formats: Formats, layout: str, aligns: tuple[int, int, int], m: int, n: int, k: int) -> Problem:
    """A problem whose rows of A, B and C are aligned to so many bytes and no more; extents are multiples of 16."""
    sizes = {"a": DTYPES[formats.dtype].bytes, "b": DTYPES[formats.dtype].bytes, "c": OUTPUT_BYTES[formats.out_dtype]}
    dense = formats.problem(m, n, k, layout)
    pitches = {
        f"ld{name}": dense.stored_extents[name][1] + max(align, sizes[name]) // sizes[name]
        for (name, align) in zip("abc", aligns, strict=True)
    }
    return formats.problem(m, n, k, layout, **pitches)


def every_alignment(formats: Formats, layouts: Sequence[str] = LAYOUTS) -> list[Problem]:
    """Each alignment of each operand in each layout, in different company."""
    of_c = tuple(align for align in ALIGNMENTS if align >= OUTPUT_BYTES[formats.out_dtype])
    problems = []
    for number, layout in enumerate(layouts):
        for index, align in enumerate(formats.alignments):
            other = formats.alignments[(index + 1 + number) % len(formats.alignments)]
            aligns = align, other, of_c[(index + number) % len(of_c)]
            problems.append(aligned(formats, layout, aligns, 80, 144, 208))
    return problems


def misaligned_bases(formats: Formats) -> list[Problem]:
    """Operands that begin at no more than an element's alignment, in rows of whole 16 bytes, three times."""
    least = max(DTYPES[formats.dtype].bytes, OUTPUT_BYTES[formats.out_dtype])
    narrow = [align for align in ALIGNMENTS if least <= align < 16]
    return [
        formats.problem(96, 80, 112, layout, batch=3, base_alignment=align)
        for layout, align in zip(LAYOUTS, narrow, strict=False)
    ]


def every_scalar(formats: Formats) -> list[Problem]:
    """alpha and beta, also with k = 0, where the result is beta * C."""
    return [
        formats.problem(70, 66, k, layout, alpha=alpha, beta=beta)
        for layout, (alpha, beta) in zip(LAYOUTS, SCALARS, strict=False)
        for k in (0, 40)
    ]


def very_long_sums(formats: Formats) -> list[Problem]:
    """Few results, each the sum of hundreds of thousands of products."""
    return [formats.problem(16, 24, 524288, "nt"), formats.problem(9, 8, 300001, "tn")]


def with_label(formats: Formats) -> str:
    """Of a parametrized test."""
    return formats.label


def main_formats(formats: tuple[Formats, ...]) -> tuple[Formats, ...]:
    """Those whose C has the first format that the dtype offers."""
    return tuple(one for one in formats if one.out_dtype == DTYPES[one.dtype].outputs[0])


def has_instructions(device: Device, formats: Formats) -> bool:
    """Whether a GPU since sm_80 has tensor-core instructions for the operands."""
    return not formats.dtype.startswith("fp8") or device.compute_capability >= (8, 9)
