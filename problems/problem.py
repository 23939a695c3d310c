"""`Problem`: one GEMM that is to be tuned, and the `Signature` that kernels for it are compiled for."""

from dataclasses import dataclass, fields
from typing import Any

from kt.errors import InputError
from kt.problems.dtypes import ACCUMULATORS, DTYPES, OUTPUT_BYTES
from kt.wording import plural

__all__ = ["LAYOUTS", "Problem", "Signature"]

LAYOUTS = ("nn", "nt", "tn", "tt")
MAX_EXTENT = 2**31 - 1
MAX_ALIGNMENT = 16  # the widest load of one thread, in bytes


@dataclass(frozen=True)
class Signature:
    """What a kernel is compiled for; problems with equal signatures share their cubins.

    Attributes:
        dtype, accumulator, out_dtype, layout, epilogue: as in `Problem`.
        align_a, align_b, align_c: bytes (a power of two, at most 16) to which start and end of every row of the stored
            operand are aligned.
    """

    dtype: str
    accumulator: str
    out_dtype: str
    layout: str
    epilogue: str
    align_a: int
    align_b: int
    align_c: int


@dataclass(frozen=True)
class Problem:
    """C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + beta * C[m,n], row-major, `batch` times.

    Attributes:
        m, n, k: extents; m, n >= 1 and k >= 0, each at most 2**31 - 1.
        dtype: format of A and B, a key of `DTYPES`.
        layout: first letter A: n = stored [m,k], t = stored [k,m]; second B: n = stored [k,n], t = stored [n,k].
        batch: number of independent products, >= 1.
        lda, ldb, ldc: elements between rows as stored; 0 in the constructor means dense.
        stride_a, stride_b, stride_c: elements between batches; 0 in the constructor means dense (batch > 1 only).
        alpha, beta: scalars; with beta = 0, C is written and never read.
        accumulator, out_dtype: "" in the constructor means the dtype's default.
        epilogue: what is done to the accumulated product; "linear" is alpha * AB + beta * C.
        base_alignment: bytes to which the base pointers are aligned, a power of two.

    Raises:
        InputError: a value is outside these limits; the message names the field.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    layout: str = "nn"
    batch: int = 1
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    accumulator: str = ""
    out_dtype: str = ""
    epilogue: str = "linear"
    base_alignment: int = 256

    def __post_init__(self) -> None:
        self._check_extents()
        self._check_formats()
        self._fill_strides()

    def _check_extents(self) -> None:
        for name, least in (("m", 1), ("n", 1), ("k", 0), ("batch", 1)):
            value = getattr(self, name)
            if not least <= value <= MAX_EXTENT:
                raise InputError(f"{name} is {value}; it must lie between {least} and {MAX_EXTENT}")
        if self.base_alignment < 1 or self.base_alignment & (self.base_alignment - 1):
            raise InputError(f"base_alignment is {self.base_alignment}; it must be a power of two, in bytes")

    def _check_formats(self) -> None:
        _check_choice("dtype", self.dtype, tuple(DTYPES))
        _check_choice("layout", self.layout, LAYOUTS)
        _check_choice("epilogue", self.epilogue, ("linear",))
        dtype = DTYPES[self.dtype]
        object.__setattr__(self, "accumulator", self.accumulator or dtype.accumulators[0])
        object.__setattr__(self, "out_dtype", self.out_dtype or dtype.outputs[0])
        _check_choice(f"accumulator of {self.dtype}", self.accumulator, dtype.accumulators)
        _check_choice(f"out_dtype of {self.dtype}", self.out_dtype, dtype.outputs)
        if self.base_alignment < max(dtype.bytes, OUTPUT_BYTES[self.out_dtype]):
            raise InputError(f"base_alignment is {plural(self.base_alignment, 'byte')}; an element needs its own size")
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            object.__setattr__(self, name, float(value))
            if self.accumulator == "int32" and not float(value).is_integer():
                raise InputError(f"{name} is {value}; int32 accumulation takes whole numbers only")
            if self.accumulator == "int32" and not -(2**31) <= value < 2**31:
                raise InputError(f"{name} is {value:g}; int32 accumulation takes whole numbers of 32 bits")

    def _fill_strides(self) -> None:
        for name, (rows, columns) in self.stored_extents.items():
            pitch = getattr(self, f"ld{name}") or max(columns, 1)
            if pitch < columns:
                length = plural(columns, "element")
                raise InputError(f"ld{name} is {pitch}; rows of {name.upper()} as stored have {length}")
            object.__setattr__(self, f"ld{name}", pitch)
            stride = getattr(self, f"stride_{name}")
            if stride < 0:
                raise InputError(f"stride_{name} is {stride}; it must be 1 or more")
            if self.batch == 1:
                stride = 0
            elif stride == 0:
                stride = rows * pitch
            if name == "c" and self.batch > 1 and stride < (rows - 1) * pitch + columns:
                raise InputError(f"stride_c is {stride}; batches of C would overlap")
            object.__setattr__(self, f"stride_{name}", stride)

    @property
    def formats(self) -> tuple[str, str, str, str]:
        """dtype, accumulator, output and epilogue: what kernels for it have in common besides the layout."""
        return self.dtype, self.accumulator, self.out_dtype, self.epilogue

    @property
    def stored_extents(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each operand as it lies in memory, keyed "a", "b", "c"."""
        return {
            "a": (self.m, self.k) if self.layout[0] == "n" else (self.k, self.m),
            "b": (self.k, self.n) if self.layout[1] == "n" else (self.n, self.k),
            "c": (self.m, self.n),
        }

    @property
    def element_bytes(self) -> dict[str, int]:
        """Bytes of one element of each operand."""
        size = DTYPES[self.dtype].bytes
        return {"a": size, "b": size, "c": OUTPUT_BYTES[self.out_dtype]}

    def footprint(self, operand: str) -> int:
        """Bytes that `operand` ("a", "b" or "c") spans in memory, all batches, padding between rows included."""
        rows, columns = self.stored_extents[operand]
        if rows == 0 or columns == 0:
            return 0
        pitch, stride = getattr(self, f"ld{operand}"), getattr(self, f"stride_{operand}")
        elements = (self.batch - 1) * stride + (rows - 1) * pitch + columns
        return int(elements * self.element_bytes[operand])

    def alignment(self, operand: str) -> int:
        """Bytes, at most 16, to which the start and the end of every stored row of `operand` are aligned.

        Rows that also end on the boundary consist of whole accesses, so a kernel needs no partial one.
        """
        end = self.stored_extents[operand][1] * self.element_bytes[operand] | MAX_ALIGNMENT
        return min(self.start_alignment(operand), end & -end)

    def start_alignment(self, operand: str) -> int:
        """Bytes, at most 16, to which the start of every stored row of `operand` is aligned, wherever rows end.

        More than `alignment` where rows that end anywhere are padded; TMA asks for no more than this.
        """
        size = self.element_bytes[operand]
        pitch, stride = getattr(self, f"ld{operand}") * size, getattr(self, f"stride_{operand}") * size
        bits = pitch | stride | self.base_alignment | MAX_ALIGNMENT
        return int(bits & -bits)

    @property
    def signature(self) -> Signature:
        return Signature(
            self.dtype, self.accumulator, self.out_dtype, self.layout, self.epilogue,
            self.alignment("a"), self.alignment("b"), self.alignment("c"),
        )  # fmt: skip

    @property
    def flops(self) -> int:
        """Arithmetic operations: one multiplication and one addition per product."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def bytes(self) -> int:
        """The fewest bytes through device memory: A and B read once, C written once, and read once if beta != 0."""
        size = self.element_bytes
        reads_c = 2 if self.beta != 0 else 1
        elements = self.m * self.k * size["a"] + self.k * self.n * size["b"] + reads_c * self.m * self.n * size["c"]
        return elements * self.batch

    @property
    def label(self) -> str:
        """A short name for people, for example `fp32 nn 4096x4096x4096`."""
        text = f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"
        dense = Problem(self.m, self.n, self.k, self.dtype, self.layout, self.batch)
        for field in fields(self)[5:]:
            value = getattr(self, field.name)
            if value != getattr(dense, field.name) or (field.name == "batch" and value > 1):
                text += f" {field.name}={value:g}" if isinstance(value, float) else f" {field.name}={value}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Every field in declaration order, defaults filled in; `Problem(**problem.as_dict()) == problem`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def names(self) -> dict[str, int | float | str]:
        """The names that search-space expressions may use for the problem."""
        return {
            "m": self.m, "n": self.n, "k": self.k, "batch": self.batch,
            "lda": self.lda, "ldb": self.ldb, "ldc": self.ldc,
            "align_a": self.alignment("a"), "align_b": self.alignment("b"), "align_c": self.alignment("c"),
            "operand_align_a": self.start_alignment("a"), "operand_align_b": self.start_alignment("b"),
            "searching": 1, "beta": self.beta, "layout_a": self.layout[0], "layout_b": self.layout[1],
            "dtype": self.dtype, "accumulator": self.accumulator, "out_dtype": self.out_dtype,
            "sizeof_in": self.element_bytes["a"], "sizeof_out": self.element_bytes["c"],
            "sizeof_acc": ACCUMULATORS[self.accumulator][0],
        }  # fmt: skip


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
