"""`gemm` and `warmup`: kt's winners called from Python, on arrays of CuPy, PyTorch and whatever else speaks DLPack."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kt.errors import InputError, KtError
from kt.runtime.arrays import Array, Form, read
from kt.runtime.current_gpu import ordinal_of, refusal
from kt.runtime.outputs import copy_matrix, new_output
from kt.runtime.placed_problem import Bases, bases_of
from kt.runtime.planner import OnMiss, check_on_miss, planner
from kt.runtime.problem_of import problem_of, result_shape, standing_for
from kt.runtime.shapes import Shapes, problems_of
from kt.runtime.streams import current_stream
from kt.tuner.cuda import CUDA_ERRORS, cupy, runtime

if TYPE_CHECKING:
    from kt.problems import Problem
    from kt.runtime.plan import Plan
    from kt.runtime.planner import Planner

__all__ = ["calls", "gemm", "warmup"]


class _Call(NamedTuple):
    """All of a call that decides its plan."""

    a: Form
    b: Form
    c: Form
    alpha_is_one: bool
    beta_use: int
    bases: Bases
    dtype: str
    on_miss: OnMiss
    accumulator: str


_plans: dict[_Call, Plan] = {}
_calls: Counter[str] = Counter()
_counting = threading.Lock()


def gemm(
    a: Any,
    b: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    *,
    dtype: str = "",
    accumulator: str = "",
    on_miss: OnMiss = "nearest",
) -> Any:
    """alpha A B + beta C, on the current stream, by the configuration that kt has found fastest.

    Args:
        a, b: [m, k] and [k, n], or with the same batch in front; rows or columns contiguous, so `x.T` will do.
        out: where the result goes, with contiguous rows; by default a new array of the library that `a` is of.
        c: what is added; by default what is in `out`. It is copied into `out` first, which takes a copy.
        dtype: format of A and B in place of the arrays' own: "tf32" of fp32 arrays, "fp8_e4m3" or "fp8_e5m2" of bytes.
        accumulator: format of the sums in place of the usual one: "fp32_fast" of 8-bit floats, "fp16" of fp16.
        on_miss: without a winner for this very shape, "nearest": what the exported header would take; "tune": tune it
            now, which takes seconds; "error": raise.

    Returns:
        `out`.

    Raises:
        InputError: the arrays do not fit together, or are none on a GPU.
        NoUsableGpu: there is no GPU here that CUDA can use.
        NoValidConfiguration: there is no winner and `on_miss` is "error", or no kernel can compute it.
        KtError: the kernel cannot be compiled or loaded, or this shape is new while a graph is being captured.
    """
    address_a, form_a = read(a)
    address_b, form_b = read(b)
    if out is None and beta and c is None:
        raise InputError("beta is given, and neither c nor out to multiply it with")
    try:
        if out is None:
            out = new_output(a, form_a, Array.of(form_a), Array.of(form_b), dtype)
        stream = current_stream(form_a.kind, form_a.device)
        is_current = runtime.getDevice() == form_a.device
    except CUDA_ERRORS as error:
        raise refusal(error, form_a.device) from error
    address_c, form_c = read(out)
    use = 0 if beta == 0 else 1 if beta == 1 else 2
    bases = bases_of(address_a, address_b, address_c)
    call = _Call(form_a, form_b, form_c, alpha == 1, use, bases, dtype, on_miss, accumulator)
    if is_current:
        _run(call, address_a, address_b, address_c, alpha, beta, c if c is not out else None, stream)
    else:
        with cupy.cuda.Device(form_a.device):
            _run(call, address_a, address_b, address_c, alpha, beta, c if c is not out else None, stream)
    return out


def _run(call: _Call, a: int, b: int, out: int, alpha: float, beta: float, c: Any, stream: int) -> None:
    plan = _plans.get(call) or _planned(call, stream)
    if plan is None:  # C has no elements
        return
    if plan.whole and not (_is_int(alpha) and _is_int(beta)):
        raise InputError(f"alpha and beta are {alpha} and {beta}; sums of whole numbers take whole numbers of 32 bits")
    if beta and c is not None:
        address, form = read(c)
        copy_matrix(Array.of(form), address, Array.of(call.c), out, stream)
    with _counting:
        _calls[plan.found] += 1
    plan.run(a, b, out, alpha, beta, stream)


def _is_int(value: float) -> bool:
    return float(value).is_integer() and -(2**31) <= value < 2**31


def _planned(call: _Call, stream: int) -> Plan | None:
    """The plan of a call that has none yet; None if C has no elements."""
    check_on_miss(call.on_miss)
    a, b, c = map(Array.of, (call.a, call.b, call.c))
    if 0 in c.shape and c.shape == result_shape(a, b):
        return None
    problem = problem_of(
        a, b, c, alpha_is_one=call.alpha_is_one, beta_use=call.beta_use, bases=call.bases, dtype=call.dtype,
        accumulator=call.accumulator,
    )  # fmt: skip
    plans = planner(call.a.device)
    plan = plans.known(problem, call.on_miss)
    if plan is None:
        if _is_captured(stream):
            raise KtError(
                f"{problem.label} is new, and a graph is being captured: nothing can be loaded now",
                hint="call kt.warmup([...]) or kt.gemm with such arrays once before",
            )
        (plan,) = _made(plans, [problem], call.on_miss)
    _plans[call] = plan
    return plan


def _made(plans: Planner, problems: list[Problem], on_miss: OnMiss) -> list[Plan]:
    """The plans; calls that have done with a stand-in for what is now tuned look again."""
    made = plans.plans(problems, on_miss)
    if on_miss == "tune":
        for call, plan in list(_plans.items()):
            if plan.found != "exact":
                _plans.pop(call, None)
    return made


def _is_captured(stream: int) -> bool:
    try:
        return bool(runtime.streamIsCapturing(stream))
    except runtime.CUDARuntimeError:  # the default stream, while another one is captured
        return True


def warmup(
    shapes: Shapes,
    *,
    on_miss: OnMiss = "nearest",
    device: int | None = None,
) -> int:
    """Make calls of `gemm` on such shapes as quick as they will ever be: choose, compile and load their kernels.

    After it, such a call can be captured into a CUDA graph, also when it is the first.

    Args:
        shapes: a shapes file, or problems: `Problem`s, or mappings of their fields as `{"m": 64, "n": 64, "k": 64,
            "dtype": "bf16", "layout": "nt"}`.
        on_miss: as for `gemm`; "tune" tunes all that are missing in one run.
        device: ordinal of the GPU; by default the current one.

    Returns:
        How many of the shapes have winners of their own.

    Raises:
        InputError: a shape is none, or `device` no number.
        NoUsableGpu: there is no such GPU here.
        NoValidConfiguration, KtError: as for `gemm`.
    """
    check_on_miss(on_miss)
    problems = [standing_for(problem) for problem in problems_of(shapes)]
    ordinal = ordinal_of(device)
    with cupy.cuda.Device(ordinal):
        plans = _made(planner(ordinal), problems, on_miss)
    return sum(plan.found == "exact" for plan in plans)


def calls() -> dict[str, int]:
    """How many calls of `gemm` in all threads have had their configuration from where.

    "exact": a winner of their own. "neighbour", "standard", "generic": none; see the header's dispatch.
    """
    with _counting:
        return dict(_calls)
