"""`kt.gemm` without a GPU: what is chosen, compiled and handed to the driver, in a driver's place that only listens."""

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kt
from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources, current_spaces
from kt.cli.measurements import winners_elsewhere
from kt.devices.catalog import modelled
from kt.errors import InputError, KtError, NoValidConfiguration
from kt.export.collect import collect
from kt.export.dispatch import pick
from kt.problems import Problem
from kt.runtime import gemm as calls_of_gemm
from kt.runtime import plan as plans
from kt.runtime import planner as planners
from kt.runtime.arrays import Form
from kt.runtime.choice import Chooser
from kt.runtime.placed_problem import placed
from kt.runtime.problem_of import standing_for
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.space import Config, Launch
from kt.templates.render import render
from kt.tuner.arguments import gemm_arguments, gemm_arguments_dtype
from kt.tuner.launched import launched_digest
from kt.tuner.messages import Candidate
from kt.tuner.method import METHOD_LABEL
from kt.tuner.tensor_map import map_figures
from kt.tuner.toolchain import toolchain

Make = Callable[..., BestConfig]
H200 = replace(modelled("h200"), modelled=False)
SPACES = current_spaces(None)


class Listener:
    """In place of the driver, of CuPy and of the CUDA runtime: remembers what it is told."""

    CUDARuntimeError = RuntimeError
    cudaMemAllocationTypePinned, cudaMemHandleTypeNone, cudaMemLocationTypeDevice = 1, 0, 1
    cudaMemPoolAttrReleaseThreshold, memcpyDeviceToDevice = 4, 3

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.pool: list[tuple[str, int]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.moved: list[int] = []
        self.copies: list[tuple[int, ...]] = []
        self.contexts: set[int] = set()
        self.capturing = False
        self.refuse = False
        self.cuda = self
        self.Device = lambda ordinal: nullcontext()

    def launch(self, launch: Launch, stream: int, parameters: int) -> None:
        if self.refuse:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        first, *others = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))[: 1 + len(launch.tensor_maps)]
        assert first is not None
        raw = ctypes.string_at(first, gemm_arguments_dtype().itemsize)
        arguments = np.frombuffer(raw, gemm_arguments_dtype())[0]
        maps = [ctypes.string_at(other or 0, 128) for other in others]
        self.launches.append((launch, stream, arguments, maps))

    def MemPoolProps(self, *fields: int) -> tuple[int, ...]:
        return fields

    def memPoolCreate(self, props: tuple[int, ...]) -> int:
        return 77

    def memPoolSetAttribute(self, *values: int) -> None: ...

    def mallocFromPoolAsync(self, size: int, pool: int, stream: int) -> int:
        self.pool.append(("take", size))
        return 0x700000

    def freeAsync(self, address: int, stream: int) -> None:
        self.pool.append(("give", address))

    def getDevice(self) -> int:
        return 0

    def ctxGetCurrent(self) -> int:
        return threading.get_ident() if threading.get_ident() in self.contexts else 0

    def memGetInfo(self) -> None:
        self.contexts.add(threading.get_ident())

    def streamIsCapturing(self, stream: int) -> bool:
        return self.capturing

    def memcpy2DAsync(self, *figures: int) -> None:
        self.copies.append(figures)

    # The driver library's part that Python reaches through ctypes

    def encode(self, address: int, *figures: Any) -> np.void:
        self.encoded.append((address, *figures))
        filled: np.void = np.frombuffer(address.to_bytes(8, "little") * 16, "V128")[0]
        return filled

    def replace_address(self, memory: int, address: int) -> int:
        self.moved.append(address)
        ctypes.memmove(memory, address.to_bytes(8, "little") * 16, 128)
        return 0


@dataclass(frozen=True)
class Loaded:
    """In place of `LoadedCandidate`: what is launched, told to the listener."""

    candidate: Candidate
    listener: Listener

    @property
    def launches(self) -> list[Any]:
        assert Path(self.candidate.cubin).exists() or not self.candidate.cubin
        return [SimpleNamespace(enqueue=partial(self.listener.launch, launch)) for launch in self.candidate.launches]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    listener = Listener()
    for module in (plans, calls_of_gemm):
        for name in ("cupy", "driver", "runtime"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, listener)
    monkeypatch.setattr("kt.runtime.outputs.runtime", listener)
    monkeypatch.setattr("kt.runtime.current_gpu.runtime", listener)
    monkeypatch.setattr(plans, "LoadedCandidate", lambda candidate: Loaded(candidate, listener))
    monkeypatch.setattr(plans, "encode", listener.encode)
    monkeypatch.setattr(plans, "_replace_address", lambda: listener.replace_address)
    monkeypatch.setattr("kt.devices.local.local_device", lambda ordinal=0: H200)
    monkeypatch.setattr(calls_of_gemm, "current_stream", lambda kind, device: 0x57)
    monkeypatch.setattr(calls_of_gemm, "_plans", {})
    calls_of_gemm._calls.clear()
    planners.planner.cache_clear()
    plans._pool.cache_clear()
    yield listener
    planners.planner.cache_clear()


def candidate(family: str, problem: Problem, **choices: Any) -> Candidate:
    config = SPACES[family].config(dict(SPACES[family].default) | choices)
    launches, workspace = resolve(SPACES[family], config, {**H200.names(), **problem.names()})
    return Candidate("x", "", launches, workspace, {name: int(value) for name, value in config.runtime})


# The plan


def test_each_kernel_gets_the_arguments_that_the_tuner_gives(cuda: Listener) -> None:
    """Field by field, for every launch of a sequence with a workspace, which comes from the pool and goes back."""
    problem = Problem(512, 512, 4096, lda=5000)
    of_split = candidate("simt", problem, split_k=4)
    plans.Plan(problem, "exact", of_split, 0).run(0x1000, 0x2000, 0x3000, 1.5, -0.5, 0x57)
    pointers = {"a": 0x1000, "b": 0x2000, "c": 0x3000, "workspace": 0x700000}
    wanted = gemm_arguments(problem, pointers, of_split.runtime, (1.5, -0.5))
    assert [launch for launch, *_ in cuda.launches] == list(of_split.launches)
    for _, stream, arguments, _ in cuda.launches:
        assert stream == 0x57
        assert arguments == wanted[()]
    assert cuda.pool == [("take", of_split.workspace_bytes), ("give", 0x700000)]


def test_the_workspace_goes_back_if_a_launch_is_refused(cuda: Listener) -> None:
    """Nothing leaks by an error."""
    plan = plans.Plan(Problem(512, 512, 4096), "exact", candidate("simt", Problem(512, 512, 4096), split_k=4), 0)
    cuda.refuse = True
    with pytest.raises(RuntimeError):
        plan.run(1, 2, 3, 1.0, 0.0, 0)
    assert [what for what, _ in cuda.pool] == ["take", "give"]


def test_tensor_maps_show_the_operands_of_each_call(cuda: Listener) -> None:
    """Encoded once with the tuner's figures; later the address alone is exchanged, where it has changed."""
    problem = Problem(512, 384, 256, "bf16", "nt")
    of_wgmma = candidate("wgmma", problem)
    plan = plans.Plan(problem, "exact", of_wgmma, 0)
    for a, b, c in ((0x1000, 0x2000, 0x3000), (0x1000, 0x2000, 0x3000), (0x4000, 0x2000, 0x3000)):
        cuda.launches.clear()
        plan.run(a, b, c, 1.0, 0.0, 0)
        (told,) = [launch for launch in cuda.launches if launch[3]]
        (launch,) = [one for one in of_wgmma.launches if one.tensor_maps]
        shown = [int.from_bytes(map_[:8], "little") for map_ in told[3]]
        assert shown == [{"a": a, "b": b, "c": c}[one.operand] for one in launch.tensor_maps]
    assert cuda.moved == [0x4000]
    (launch,) = [one for one in of_wgmma.launches if one.tensor_maps]
    for told, one in zip(cuda.encoded, launch.tensor_maps, strict=True):
        figures = map_figures(one, problem)
        assert told[1:] == (
            figures.extents, figures.strides, figures.box, figures.swizzle, figures.element_bytes, figures.rounds_tf32,
        )  # fmt: skip


def test_classes_of_rows_are_encoded_for_each_misalignment(cuda: Listener) -> None:
    """The address of a class follows that of B; where B lies otherwise to multiples of 16 bytes, its rows change."""
    problem = Problem(512, 388, 255, "bf16", "nn")
    of_wgmma = candidate("wgmma", problem, pack_a=1, classes_b=1)
    plan = plans.Plan(problem, "exact", of_wgmma, 0)
    plan.run(0x1000, 0x2000, 0x3000, 1.0, 0.0, 0)
    assert {told[0] for told in cuda.encoded} >= {0x2000, 0x2000 + 776 - 8}
    plan.run(0x1000, 0x4000, 0x3000, 1.0, 0.0, 0)
    assert set(cuda.moved) >= {0x4000, 0x4000 + 776 - 8}
    before = len(cuda.encoded)
    plan.run(0x1000, 0x4008, 0x3000, 1.0, 0.0, 0)
    assert [told[0] for told in cuda.encoded[before:]] == [0x4008 + 776, 0x4000]
    assert [told[1] for told in cuda.encoded[before:]] == [(388, 127, 1), (392, 128, 1)]


def test_maps_of_copies_follow_the_workspace(cuda: Listener) -> None:
    """Where an operand is copied first, its map shows the copy."""
    problem = Problem(512, 384, 255, "bf16", "nt")
    of_wgmma = candidate("wgmma", problem, pack_a=1, pack_b=1)
    plans.Plan(problem, "exact", of_wgmma, 0).run(0x1000, 0x2000, 0x3000, 1.0, 0.0, 0)
    copies = [one.copy.offset for launch in of_wgmma.launches for one in launch.tensor_maps if one.copy]
    assert len(copies) == 2
    assert {told[0] for told in cuda.encoded} >= {0x700000 + offset for offset in copies}


def test_threads_do_not_share_what_cuda_reads(cuda: Listener) -> None:
    """CUDA reads the argument block without Python's lock: each thread has its own."""
    problem = Problem(64, 64, 64)
    plan = plans.Plan(problem, "exact", candidate("simt", problem), 0)
    blocks, together = [], threading.Barrier(3, timeout=60)

    def run(number: int) -> None:
        plan.run(number, number, number, 1.0, 0.0, 0)
        blocks.append(ctypes.addressof(plan._own.arguments))
        together.wait()  # while all of them are there

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    run(3)
    for thread in threads:
        thread.join()
    assert len(set(blocks)) == 3
    assert len(cuda.contexts) == 3  # what the driver's launch needs, and a new thread does not have
    assert sorted(int(launch[2]["a"]) for launch in cuda.launches) == [1, 2, 3]


# What is chosen


@pytest.fixture
def put(make_winner: Make, own_environment: Path) -> Callable[..., BestConfig]:
    """Stores a measured winner of today's sources and compiler on an H200."""
    sources = current_sources(None, ())

    def store_it(problem: Problem, family: str = "simt", **choices: Any) -> BestConfig:
        time_us = choices.pop("time_us", 10.0)
        config = SPACES[family].config(dict(SPACES[family].default) | choices)
        names = {**H200.names(), **problem.names()}
        assert violated(SPACES[family], config, names) is None
        launches, workspace = resolve(SPACES[family], config, names)
        served = {name: sources[name] for name, space in SPACES.items() if problem.dtype in space.dtypes}
        best = make_winner(
            problem, config=config, device=H200.identity, launches=launches, workspace_bytes=workspace, sources=served,
            method=METHOD_LABEL, toolchain=toolchain().label, time_us=time_us,
        )  # fmt: skip
        with Store.open(own_environment) as store:
            store.put_best(best)
        return best

    return store_it


def test_a_tuned_shape_is_computed_by_its_winner(put: Callable[..., BestConfig]) -> None:
    """By the very kernel that the header has; not with operands that are less aligned than it reads them."""
    best = put(Problem(512, 512, 512), stages=2)
    chooser = Chooser(H200)
    choice = chooser.exact(Problem(512, 512, 512))
    assert choice is not None
    assert (choice.found, choice.config, choice.signature) == ("exact", best.config, best.key.problem.signature)
    assert chooser.exact(placed(Problem(512, 512, 512), (16, 4, 16))) is None
    narrow = put(replace(Problem(512, 512, 512), base_alignment=4), stages=4)
    choice = chooser.exact(placed(Problem(512, 512, 512), (16, 4, 16)))
    assert choice is not None
    assert (choice.config, choice.signature.align_a) == (narrow.config, 4)
    assert chooser.exact(Problem(512, 512, 512, beta=1.0)) is None
    assert chooser.exact(Problem(512, 512, 513)) is None


def source_of(config: Config, key: CacheKey) -> str:
    """Under which a measurement of the configuration is stored."""
    space = SPACES[config.family]
    launched = resolve(space, config, {**H200.names(), **key.problem.names()})
    return launched_digest(render(space, config, key.problem.signature, H200.arch).digest, *launched)


def test_other_shapes_are_chosen_as_by_the_header(put: Callable[..., BestConfig], own_environment: Path) -> None:
    """The same dispatch over the same contents, on shapes near and far."""
    bests = [
        put(Problem(64, 64, 64), time_us=3.0),
        put(Problem(1024, 1024, 1024), stages=2, time_us=90.0),
        put(Problem(64, 8192, 512), stages=4, time_us=20.0),
        put(Problem(256, 256, 256, "bf16", "nt"), "mma", time_us=4.0),
    ]
    with Store.open(own_environment) as store:
        elsewhere = (bests[1].config, bests[0].key)  # a winner's configuration on another shape: slow there
        store.put_measurement(elsewhere[1], elsewhere[0], source_of(*elsewhere), Measurement("ok", 60.0, samples=9))
        searches = winners_elsewhere(store, bests, SPACES, ())
    assert sum(len(tried) for _, tried in searches) == 1
    chooser, whole = Chooser(H200), collect(bests, SPACES, searches)
    seen = set()
    for problem in (
        Problem(65, 63, 70), Problem(1000, 1100, 900), Problem(60, 8000, 512), Problem(3, 5, 7), Problem(1, 1, 0),
        Problem(250, 250, 256, "bf16", "nt"), Problem(257, 255, 251, "bf16", "nt"), Problem(5000, 5000, 5000),
        placed(Problem(250, 250, 256, "bf16", "nt"), (2, 16, 4)), placed(Problem(64, 64, 60), (4, 4, 4)),
        Problem(70, 90, 80, layout="tn"), Problem(250, 250, 256, "bf16", "tt"), Problem(60, 70, 80, "bf16", "nn"),
    ):  # fmt: skip
        choice, picked = chooser.other(problem), pick(whole, problem, H200)
        assert choice is not None
        assert picked.launches is not None
        variant = whole.kernels.variants[picked.variant]
        kernel = whole.kernels.kernels[variant.kernel]
        assert (choice.found, choice.config.parameters) == (picked.found, kernel.config.parameters)
        assert (choice.launches, choice.workspace_bytes) == picked.launches
        assert choice.signature == kernel.signature
        seen.add(choice.found)
    assert {"neighbour", "standard"} <= seen


def test_what_is_known_of_other_shapes_is_what_an_export_knows(
    put: Make, own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the clock of each winner's finals, which a finalist that has won nowhere tells."""
    first, second = put(Problem(1024, 1024, 1024), time_us=90.0), put(Problem(64, 64, 64), stages=3)
    other = SPACES["simt"].config({**SPACES["simt"].default, "stages": 4})
    first = replace(first, measurement=replace(first.measurement, refined=True))
    with Store.open(own_environment) as store:
        store.put_best(first)
        for config, us in ((second.config, 85.0), (other, 80.0)):
            one = Measurement("ok", us, samples=9, refined=True)
            store.put_measurement(first.key, config, source_of(config, first.key), one)
        exported = winners_elsewhere(store, [first, second], SPACES, ())
    taken: list[Any] = []

    def listening(bests: Any, spaces: Any, searches: Any, unseen: Any) -> Any:
        taken.append(searches)
        return collect(bests, spaces, searches, unseen=unseen)

    monkeypatch.setattr("kt.export.collect.collect", listening)
    assert Chooser(H200).other(Problem(1000, 1000, 1000)) is not None
    assert dict(taken[0]) == dict(exported)
    assert dict(exported)[first.key][second.config].time_us == pytest.approx(85.0 * 90.0 / 80.0)


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16", "bf16", "tf32", "int8", "fp8_e4m3"])
def test_what_nothing_was_tuned_of_has_a_kernel_all_the_same(dtype: str) -> None:
    """The generic one, of any size and alignment."""
    chooser = Chooser(H200)
    for problem in (placed(Problem(7, 5, 3, dtype), (8, 8, 8)), Problem(512, 512, 512, dtype, "tt")):
        choice = chooser.other(problem)
        assert choice is not None
        assert choice.found == "generic"


# Calls


class FakeArray:
    """As CuPy's arrays, but for the memory."""

    data: Any = None

    def __init__(self, *shape: int, dtype: str = "float32", address: int = 0x10000, turned: bool = False) -> None:
        values: np.ndarray[Any, Any] = np.zeros(shape[::-1] if turned else shape, dtype)
        values = values.T if turned else values
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        self.data = type("Data", (), {"ptr": address, "device_id": 0})()

    @property
    def T(self) -> "FakeArray":
        return FakeArray(
            *self.shape[::-1], dtype=self.dtype, address=self.data.ptr, turned=self.strides[0] != self.dtype.itemsize
        )


FakeArray.__module__ = "cupy._core.core"


def operands(m: int = 64, n: int = 64, k: int = 64) -> tuple[FakeArray, FakeArray, FakeArray]:
    return FakeArray(m, k, address=0x10000), FakeArray(k, n, address=0x20000), FakeArray(m, n, address=0x30000)


def test_a_call_launches_the_winner_and_returns_out(cuda: Listener, put: Callable[..., BestConfig]) -> None:
    """By its real cubin; the second call of the kind chooses nothing again."""
    best = put(Problem(64, 64, 64))
    a, b, out = operands()
    assert kt.gemm(a, b, out) is out
    assert [launch for launch, *_ in cuda.launches] == list(best.launches)
    ((_, stream, arguments, _),) = cuda.launches
    assert [int(arguments[name]) for name in ("a", "b", "c")] == [0x10000, 0x20000, 0x30000]
    assert stream == 0x57
    (plan,) = calls_of_gemm._plans.values()
    kt.gemm(*operands(), alpha=1)
    assert list(calls_of_gemm._plans.values()) == [plan]
    assert kt.calls() == {"exact": 2}


def test_scalars_reach_the_kernel(cuda: Listener, put: Callable[..., BestConfig]) -> None:
    """One plan for all values of a kind, and each call its own values."""
    put(Problem(64, 64, 64, alpha=2.0, beta=2.0))
    a, b, out = operands()
    for alpha, beta in ((1.5, 0.25), (-3.0, 7.0)):
        kt.gemm(a, b, out, alpha, beta)
        assert (float(cuda.launches[-1][2]["alpha"]), float(cuda.launches[-1][2]["beta"])) == (alpha, beta)
    assert len(calls_of_gemm._plans) == 1
    assert kt.calls() == {"exact": 2}


def test_whole_numbers_are_scaled_by_whole_numbers(cuda: Listener) -> None:
    """A kernel would cut what is not: 1.5 is refused, and 2.0 is 2."""
    a, b = FakeArray(64, 64, dtype="int8"), FakeArray(64, 64, dtype="int8")
    out = FakeArray(64, 64, dtype="int32")
    kt.gemm(a, b, out, alpha=2.0, beta=-1)
    for scalars in ((1.5, 0.0), (1.0, 0.5), (2.0**31, 0.0), (float("inf"), 0.0)):
        with pytest.raises(InputError, match="whole numbers"):
            kt.gemm(a, b, out, *scalars)
    assert len(cuda.launches) == 1


def test_what_is_added_is_copied_into_out_first(cuda: Listener) -> None:
    """Row by row of any pitch; without beta it is not looked at."""
    a, b, out = operands()
    c = FakeArray(64, 64, address=0x40000)
    c.strides = (400, 4)
    kt.gemm(a, b, out, beta=1.0, c=c)
    assert cuda.copies == [(0x30000, 256, 0x40000, 400, 256, 64, 3, 0x57)]
    kt.gemm(a, b, out, beta=0.0, c="nothing")
    kt.gemm(a, b, out, beta=1.0, c=out)
    assert len(cuda.copies) == 1
    for wrong in (FakeArray(64, 63), FakeArray(64, 64, dtype="float64"), FakeArray(64, 64, turned=True)):
        with pytest.raises(InputError):
            kt.gemm(a, b, out, beta=1.0, c=wrong)
    with pytest.raises(InputError, match="neither c nor out"):
        kt.gemm(a, b, beta=1.0)


def test_a_miss_is_what_the_caller_wants_it_to_be(
    cuda: Listener, put: Callable[..., BestConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearest, an error, or tuned now; counted as what it was."""
    a, b, out = operands(63)
    with pytest.raises(NoValidConfiguration, match="63x64x64"):
        kt.gemm(a, b, out, on_miss="error")
    kt.gemm(a, b, out)
    assert kt.calls() == {"generic": 1}
    with pytest.raises(NoValidConfiguration):  # though there is a plan by now
        kt.gemm(a, b, out, on_miss="error")
    with pytest.raises(InputError, match="'never', which is unknown"):
        kt.gemm(a, b, out, on_miss="never")  # type: ignore[arg-type]
    asked = []

    def tune(request: Any, store: Any, observer: Any) -> Any:
        asked.append(request)
        shapes = [type("Shape", (), {"problem": one, "best": put(one), "failure": ""})() for one in request.problems]
        return type("Result", (), {"shapes": shapes, "interrupted": False})()

    monkeypatch.setattr("kt.tuner.run.tune", tune)
    kt.gemm(a, b, out, on_miss="tune")
    kt.gemm(a, b, out, on_miss="tune")
    kt.gemm(a, b, out, on_miss="error")
    kt.gemm(a, b, out)  # which had to do with another kernel before
    assert [[one.label for one in request.problems] for request in asked] == [["fp32 nn 63x64x64"]]
    assert kt.calls() == {"generic": 1, "exact": 4}


def test_tuning_that_fails_says_which_shape(cuda: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is launched."""
    shape = type("Shape", (), {"problem": Problem(63, 64, 64), "best": None, "failure": "all wrong"})()
    result = type("Result", (), {"shapes": [shape], "interrupted": False})()
    monkeypatch.setattr("kt.tuner.run.tune", lambda *_: result)
    with pytest.raises(NoValidConfiguration, match="63x64x64: all wrong"):
        kt.gemm(*operands(63), on_miss="tune")
    assert cuda.launches == []


def test_under_capture_only_what_is_warm_runs(cuda: Listener, put: Callable[..., BestConfig], tmp_path: Path) -> None:
    """After warmup also the very first call; without, a message in place of a broken graph."""
    put(Problem(64, 64, 64))
    cuda.capturing = True
    with pytest.raises(KtError, match="is new, and a graph is being captured"):
        kt.gemm(*operands())
    cuda.capturing = False
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes: [{m: [64, 65], n: 64, k: 64}]\n")
    assert kt.warmup(shapes) == 1
    assert kt.warmup([{"m": 66, "n": 64, "k": 64, "alpha": 3.5}, Problem(64, 64, 64)]) == 1
    cuda.capturing = True
    kt.gemm(*operands())
    kt.gemm(*operands(65))
    kt.gemm(*operands(66), alpha=-1.0)
    kernels = [launch.kernel for launch, *_ in cuda.launches]
    assert kernels.count("kt_gemm") == 3  # some with slices of k, which are added


def test_nothing_is_launched_for_a_result_without_elements(cuda: Listener) -> None:
    """m = 0 or n = 0 is no error; k = 0 is a launch, for it writes zeros."""
    for m, n in ((0, 4), (4, 0)):
        kt.gemm(FakeArray(m, 8), FakeArray(8, n), FakeArray(m, n))
    assert cuda.launches == []
    kt.gemm(FakeArray(4, 0), FakeArray(0, 4), FakeArray(4, 4))
    assert len(cuda.launches) == 1


def test_alignment_of_the_addresses_counts(cuda: Listener, put: Callable[..., BestConfig]) -> None:
    """A slice that begins at an odd place gets a kernel that may read there."""
    put(Problem(64, 64, 64))
    a, b, out = operands()
    kt.gemm(a, b, out)
    a.data = type("Data", (), {"ptr": 0x10004, "device_id": 0})()
    kt.gemm(a, b, out)
    first, second = calls_of_gemm._plans.values()
    for plan, wanted in ((first, (16, 16)), (second, (4, 16))):
        assert (plan.problem.signature.align_a, plan.problem.signature.align_b) == wanted
    assert kt.calls() == {"exact": 1, "standard": 1}


def test_the_form_of_a_call_is_all_that_decides(cuda: Listener) -> None:
    """Two calls that differ in one thing that matters have two plans."""
    a, b, out = operands()
    kt.gemm(a, b, out)
    kt.gemm(FakeArray(64, 64, turned=True), b, out)
    kt.gemm(a, b, out, alpha=2)
    kt.gemm(a, b, out, beta=1)
    kt.gemm(a, b, out, beta=3)
    kt.gemm(a, b, out, dtype="tf32")
    assert len(calls_of_gemm._plans) == 6
    assert all(isinstance(call.a, Form) for call in calls_of_gemm._plans)


def test_the_names_of_the_package_are_its_interface() -> None:
    """`kt.gemm` and the others are there without an import of their own, and nothing else is."""
    assert set(kt.__all__) == {"__version__", "calls", "gemm", "warmup"}
    assert all(getattr(kt, name) for name in kt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        kt.gem  # type: ignore[attr-defined]  # noqa: B018


def test_problems_that_share_a_plan_are_planned_once(cuda: Listener) -> None:
    """Warm-up and calls meet in one plan."""
    kt.warmup([Problem(64, 64, 64, alpha=3.0), Problem(64, 64, 64, alpha=4.0)])
    known = planners.planner(0)._plans
    assert list(known) == [standing_for(Problem(64, 64, 64, alpha=5.0))]


def python_of(page: str) -> list[str]:
    """The Python code of a page."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_code_of_the_pages_calls_what_it_says(
    page: str, cuda: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two products, the second into the first's result; arrays are stand-ins here and real in tests/gpu."""
    (code,) = python_of(page)
    cupy = ModuleType("cupy")
    cupy.asarray = lambda values: FakeArray(*values.shape, dtype=values.dtype)  # type: ignore[attr-defined]
    cupy.empty = lambda shape, dtype: FakeArray(*shape, dtype=dtype, address=0x50000)  # type: ignore[attr-defined]
    cupy.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("kt.runtime.outputs.cupy", cupy)
    exec(code, {})
    first, second = (launch[2] for launch in cuda.launches)
    assert (float(first["alpha"]), float(first["beta"]), int(first["c"])) == (1.0, 0.0, 0x50000)
    assert (float(second["alpha"]), float(second["beta"]), int(second["c"])) == (0.5, 1.0, 0x50000)
    assert [call.b.strides for call in calls_of_gemm._plans] == [(2048, 4), (4, 2048)]
    assert capsys.readouterr().out == "{'generic': 2}\n"
