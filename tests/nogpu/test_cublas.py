"""The baselines call cuBLAS for the product that was asked for; a stand-in library computes what its arguments say."""

import ctypes
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import LAYOUTS, Problem
from kt.tuner import cublas
from kt.tuner.cublas import Algorithm, Cublas, CublasLt, formats_of
from kt.tuner.library_limits import unmet_requirements
from kt.tuner.refinement import PeerNotInstalled, PeerUnavailable

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 10: np.int32}


class StandIn:
    """A library whose functions succeed, but for those that are given."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            setattr(self, name, Function(function))

    def __getattr__(self, name: str) -> "Function":
        function = Function(lambda *_: 0)
        setattr(self, name, function)
        return function


class Function:
    """What ctypes gives for a function: called with arguments, and with attributes that can be set."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def column_major(operand: Any, rows: int, columns: int, batch: int) -> Any:
    """[batch, rows, columns] of column-major memory, shared."""
    address, dtype, ld, stride = operand
    kind = np.dtype(_TYPES[dtype])
    elements = (batch - 1) * stride + (columns - 1) * ld + rows
    raw = memoryview((ctypes.c_char * (elements * kind.itemsize)).from_address(address)).cast("B")
    strides = tuple(step * kind.itemsize for step in (stride, 1, ld))
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, kind), (batch, rows, columns), strides)


def gemm(
    m: int, n: int, k: int, ops: tuple[int, int], scalars: tuple[int, int], a: Any, b: Any, c: Any, batch: int
) -> int:
    """BLAS's definition: column-major C = alpha op(A) op(B) + beta C; an operand is (address, type, ld, stride)."""
    left = column_major(a, *((k, m) if ops[0] else (m, k)), batch)
    right = column_major(b, *((n, k) if ops[1] else (k, n)), batch)
    result = column_major(c, m, n, batch)
    kind: Any = ctypes.c_float if a[1] == 0 else ctypes.c_double
    alpha, beta = (kind.from_address(address).value for address in scalars)
    left = left.transpose(0, 2, 1) if ops[0] else left
    right = right.transpose(0, 2, 1) if ops[1] else right
    result[...] = alpha * (left @ right) + beta * result
    return 0


def gemm_ex(_h: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, *rest: int) -> int:
    a, b, beta, c = rest[0:3], rest[3:6], rest[6], rest[7:10]
    return gemm(m, n, k, (op_a, op_b), (alpha, beta), (*a, 0), (*b, 0), (*c, 0), 1)


def gemm_strided(_h: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, *rest: int) -> int:
    a, b, beta, c, batch = rest[0:4], rest[4:8], rest[8], rest[9:13], rest[13]
    return gemm(m, n, k, (op_a, op_b), (alpha, beta), a, b, c, batch)


def row_major(problem: Problem, operand: str, memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
    rows, columns = problem.stored_extents[operand]
    pitch, stride = getattr(problem, f"ld{operand}"), getattr(problem, f"stride_{operand}")
    strides = tuple(step * memory.itemsize for step in (stride, pitch, 1))
    return np.lib.stride_tricks.as_strided(memory, (problem.batch, rows, columns), strides)


class Descriptions:
    """The objects of cuBLASLt: numbers that stand for what they were created with and the attributes set since."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, ...]] = {}
        self.attributes: dict[tuple[int, int], int] = {}

    def create(self, handle: Any, *arguments: Any) -> int:
        number = len(self.made) + 1
        handle._obj.value = number
        self.made[number] = tuple(argument.value for argument in arguments)
        return 0

    def set(self, item: Any, attribute: int, value: Any, _size: Any) -> int:
        self.attributes[item.value, attribute] = value._obj.value
        return 0

    def operand(self, layout: Any, address: int) -> tuple[int, int, int, int]:
        """Address, type, leading dimension and stride of a matrix, as `gemm` takes them."""
        dtype, _columns, _rows, pitch = self.made[layout.value]
        return address, dtype, pitch, self.attributes.get((layout.value, 6), 0)

    def matmul(self, _handle: Any, operation: Any, alpha: int, *rest: Any) -> int:
        a, layout_a, b, layout_b, beta, c, layout_c = rest[:7]
        assert rest[7:9] == (c, layout_c)
        ops = self.attributes[operation.value, 3], self.attributes[operation.value, 4]
        _, rows, columns, _ = self.made[layout_c.value]
        k = self.made[layout_a.value][1 if ops[0] else 2]
        batch = self.attributes.get((layout_c.value, 5), 1)
        left, right, result = (self.operand(*pair) for pair in ((layout_a, a), (layout_b, b), (layout_c, c)))
        return gemm(rows, columns, k, ops, (alpha, beta), left, right, result, batch)

    @property
    def library(self) -> StandIn:
        kinds = ("MatmulDesc", "MatrixLayout", "MatmulPreference")
        functions: dict[str, Any] = {f"cublasLt{kind}Create": self.create for kind in kinds}
        functions |= {f"cublasLt{kind}SetAttribute": self.set for kind in kinds}
        return StandIn(cublasLtCreate=self.create, cublasLtMatmul=self.matmul, **functions)


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_library_is_asked_for_the_row_major_product(
    layout: str, batch: int, dtype: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = StandIn(cublasGemmEx=gemm_ex, cublasGemmStridedBatchedEx=gemm_strided)
    monkeypatch.setattr(cublas, "_library", lambda which: library if which == "cublas" else Descriptions().library)
    problem = Problem(5, 7, 3, layout=layout, dtype=dtype, lda=8, ldb=9, ldc=10, batch=batch, alpha=2.0, beta=0.5)
    kind = np.float32 if dtype == "fp32" else np.float64
    random = np.random.default_rng(1)
    memory = {name: random.standard_normal(problem.footprint(name) // kind().itemsize).astype(kind) for name in "abc"}
    a, b, c = (row_major(problem, name, memory[name]) for name in "abc")
    left = a if layout[0] == "n" else a.transpose(0, 2, 1)
    right = b if layout[1] == "n" else b.transpose(0, 2, 1)
    expected = 2.0 * (left @ right) + 0.5 * c.copy()
    scalars = np.array([2.0, 0.5], kind)
    first = scalars.ctypes.data
    pointers = {name: memory[name].ctypes.data for name in "abc"}
    if name == "cublas":
        blas = Cublas()
        blas.gemm(batch > 1, blas.arguments(problem, pointers, first, first + scalars.itemsize))
    else:
        lt = CublasLt(problem)
        lt.matmul(lt.arguments(pointers, first, first + scalars.itemsize, Algorithm(), 0, 0))
    np.testing.assert_allclose(c, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("problem", "compute"),
    [
        (Problem(8, 8, 8), 68),
        (Problem(8, 8, 8, dtype="tf32"), 77),
        (Problem(8, 8, 8, dtype="fp64"), 70),
        (Problem(8, 8, 8, dtype="fp16"), 68),
        (Problem(8, 8, 8, dtype="fp16", accumulator="fp16"), 64),
        (Problem(8, 8, 8, dtype="bf16"), 68),
        (Problem(8, 8, 8, dtype="int8"), 72),
        (Problem(8, 8, 8, dtype="fp8_e4m3"), 68),
    ],
    ids=lambda value: value.label.replace(" ", "-") if isinstance(value, Problem) else None,
)
def test_sums_are_as_precise_as_the_problem_says(problem: Problem, compute: int) -> None:
    """fp32 is fp32: only tf32 asks for TF32."""
    assert formats_of(problem).compute == compute


@pytest.mark.parametrize(
    ("dtype", "accumulator", "fast"), [("fp8_e4m3", "fp32", 0), ("fp8_e4m3", "fp32_fast", 1), ("bf16", "", None)]
)
def test_eight_bit_floats_are_summed_as_our_own_kernels_sum_them(
    dtype: str, accumulator: str, fast: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tensor cores alone where the problem says so; the attribute is CUBLASLT_MATMUL_DESC_FAST_ACCUM."""
    described = Descriptions()
    monkeypatch.setattr(cublas, "_library", lambda _: described.library)
    CublasLt(Problem(64, 64, 64, dtype=dtype, layout="nt", accumulator=accumulator))
    assert {value for (_, attribute), value in described.attributes.items() if attribute == 25} == {fast} - {None}


@pytest.mark.parametrize(
    ("library", "problem", "words"),
    [
        ("cublas", Problem(64, 64, 64, "fp8_e4m3", "nt"), "cublaslt does"),
        ("cublaslt", Problem(64, 64, 64, "fp8_e4m3", "nt"), ""),
        ("cublaslt", Problem(64, 64, 64, "fp8_e4m3", "nn"), "layout nt only"),
        ("cublaslt", Problem(64, 64, 60, "fp8_e4m3", "nt"), "aligned to 16 bytes"),
        ("cublaslt", Problem(64, 64, 64, "fp8_e5m2", "nt"), "e5m2 by e5m2"),
        ("cublaslt", Problem(64, 64, 64, "int8", "tn"), "layout nt only"),
        ("cublaslt", Problem(3, 64, 64, "int8", "nt"), ""),
        ("cublaslt", Problem(64, 66, 64, "int8", "nt"), "multiples of 4, and n, ldc are not"),
        ("cublas", Problem(64, 64, 63, "int8", "nt"), "multiples of 4, and lda, ldb are not"),
        ("cublas", Problem(64, 63, 64, "int8", "nt"), ""),
        ("cublas", Problem(64, 64, 64, "fp16", accumulator="fp16", out_dtype="fp32"), "C in fp16 only"),
        ("cublas", Problem(63, 61, 59, "bf16"), ""),
        ("cublaslt", Problem(63, 61, 59, "tf32"), ""),
    ],
    ids=lambda value: value.label.replace(" ", "-") if isinstance(value, Problem) else value.replace(" ", "-"),
)
def test_known_requirements_explain_a_refusal(library: str, problem: Problem, words: str) -> None:
    why = unmet_requirements(library, problem)
    assert words in why
    assert bool(why) == bool(words)


def test_a_refusal_by_the_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = pytest.importorskip("kt.tuner.library_peers", reason="needs CuPy")
    with (
        pytest.raises(PeerUnavailable, match=r"^cuBLAS: CUBLAS_STATUS_NOT_SUPPORTED \(it has no 8-bit floats; "),
        peers._explained("cublas", Problem(64, 64, 64, "fp8_e4m3", "nt")),
    ):
        raise PeerUnavailable("cuBLAS: CUBLAS_STATUS_NOT_SUPPORTED")
    with (
        pytest.raises(PeerUnavailable, match=r"^libcublas is not installed$"),
        peers._explained("cublas", Problem(8, 8, 8)),
    ):
        raise PeerUnavailable("libcublas is not installed")


def test_a_status_becomes_an_error_text(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn(cublasGemmEx=lambda *_: 15, cublasGetStatusName=lambda _: b"CUBLAS_STATUS_NOT_SUPPORTED")
    monkeypatch.setattr(cublas, "_library", lambda _: library)
    blas, problem = Cublas(), Problem(8, 8, 8)
    with pytest.raises(PeerUnavailable, match="cuBLAS: CUBLAS_STATUS_NOT_SUPPORTED"):
        blas.gemm(False, blas.arguments(problem, {"a": 1, "b": 2, "c": 3}, 4, 5))


def test_leading_dimensions_beyond_32_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "_library", lambda _: StandIn())
    with pytest.raises(PeerUnavailable, match=r"2\*\*31"):
        Cublas().arguments(Problem(2, 2, 2, ldb=2**31), {"a": 1, "b": 2, "c": 3}, 4, 5)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is for the CUDA version that CuPy was built for."""
    monkeypatch.setattr(cublas, "cupy_major", lambda: 12)
    with pytest.raises(PeerNotInstalled, match="libnowhere is not installed") as caught:
        cublas._library("nowhere")
    assert caught.value.remedy.startswith('pip install ".[cuda12,baseline12]"')


def test_a_library_that_is_not_installed_has_one_message_for_all_problems() -> None:
    """What it would have refused explains nothing; so a run says once that it is not there."""
    peers = pytest.importorskip("kt.tuner.library_peers", reason="needs CuPy")
    missing = PeerNotInstalled("libcublas", "pip install it")
    with pytest.raises(PeerNotInstalled) as caught, peers._explained("cublas", Problem(8, 8, 8, "fp8_e4m3")):
        raise missing
    assert caught.value is missing


def test_a_heuristic_result_is_as_large_as_in_c() -> None:
    assert ctypes.sizeof(Algorithm) == 96
    assert Algorithm.workspace_bytes.offset == 64


def test_a_warning_of_the_search_is_not_kts(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_PATH and CUDA_HOME may differ: CUDA's search tells Python's warnings so, which some environments raise."""

    def load(name: str) -> Any:
        warnings.warn("Multiple CUDA environment variables are set but differ", stacklevel=1)
        return SimpleNamespace(abs_path=f"/there/lib{name}.so.13")

    search = SimpleNamespace(load_nvidia_dynamic_lib=load)
    monkeypatch.setattr(cublas, "import_module", lambda name: search)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cublas._found("cublas") == ["/there/libcublas.so.13"]
