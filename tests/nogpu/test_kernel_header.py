"""The header with kernels: nvcc takes it, and what it plans for a problem is what Python says."""

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import UNSEEN, BestConfig, CacheKey, Measurement
from kt.devices.catalog import modelled
from kt.devices.device import Device
from kt.errors import InputError
from kt.export.collect import collect, collect_few
from kt.export.contents import Contents, Search
from kt.export.dispatch import pick
from kt.export.kernel_header import kernel_header, render_kernel_header
from kt.export.kernels import Kernel, of_winner, on_device
from kt.export.launch_code import launcher
from kt.export.runnable import launches_of, never_runs
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.problems.ranges import Range, RangedShape
from kt.search_spaces.expression import parse
from kt.search_spaces.launch import violated
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.names import leaves
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config, TensorMap
from kt.templates.render import rendered_parts
from support.exported_library import query_numbers

H200 = modelled("h200")
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="needs nvcc")
STRICT = ["-std=c++17", "-Xcompiler", "-Wall,-Wextra,-Wconversion,-Wshadow,-Werror", "-Werror", "all-warnings"]
SPACES = {space.family: space for space in builtin_spaces()}
LARGEST = 2**31 - 1

# Plans problems, one a line, for a GPU that is only described; prints where each configuration is from, the numbers
# of its variant and entry, the workspace, and every launch with its tensor maps.
PLAN = """
#ifndef UNTOLD
#define KT_TARGETS 750, 900
#endif
#include "kt_gemm.cuh"
#include "kt_gemm.cuh"
#include <cstdio>
int main(int count, char**) {
  kt::detail::Gpu gpu{};
  gpu.table = 0;
  gpu.exact = count == 1;  // with an argument, the GPU is another one than that of the table
  if (std::scanf("%lld %lld %lld %lld %lld %lld %lld", &gpu.sm_count, &gpu.smem_per_block_optin, &gpu.smem_per_sm,
                 &gpu.registers_per_sm, &gpu.threads_per_sm, &gpu.l2_bytes, &gpu.compute_capability) != 7) return 1;
  kt::Query q;
  int dtype, layout, acc, out, alpha, beta;
  unsigned long long base;
  while (std::scanf("%d %d %d %d %d %d %lld %lld %lld %lld %lld %lld %d %d %llu %d %d", &q.m, &q.n, &q.k, &dtype,
                    &layout, &q.batch, &q.lda, &q.ldb, &q.ldc, &q.stride_a, &q.stride_b, &q.stride_c, &acc, &out, &base,
                    &alpha, &beta) == 17) {
    q.dtype = static_cast<kt::Format>(dtype);
    q.layout = static_cast<kt::Layout>(layout);
    q.accumulator = static_cast<kt::Format>(acc);
    q.out_dtype = static_cast<kt::Format>(out);
    q.alpha = static_cast<kt::Use>(alpha);
    q.beta = static_cast<kt::Use>(beta);
    const kt::Plan plan = kt::detail::planned(q, {base, base, base}, gpu);
    static const char* const found[] = {"exact", "neighbour", "standard", "generic", "nothing"};
    std::printf("%s", found[static_cast<int>(plan.found)]);
    if (plan.status == kt::Status::ok) {
      std::printf(" %d %d %lld", plan.variant, plan.entry, plan.workspace_bytes);
      for (int i = 0; i < plan.sequence.count; ++i) {
        const kt::detail::Step& step = plan.sequence.steps[i];
        std::printf(" | %u %u %d %d", step.grid, step.block, step.smem_bytes, step.programmatic);
        for (int j = 0; j < step.map_count; ++j) {
          const kt::detail::Map& map = step.maps[j];
          const char operand = "abc"[static_cast<int>(map.operand)];
          std::printf(" map %c %u %u %d %lld %llu %llu %llu %llu %llu %d %d", operand, map.box[0], map.box[1],
                      map.swizzle, map.offset, map.extents[0], map.extents[1], map.extents[2], map.strides[0],
                      map.strides[1], map.classes, map.number);
        }
      }
    }
    std::printf("\\n");
  }
}
"""


def configured(family: str, problem: Problem, **choices: int | str) -> Config:
    """A valid configuration: the family's default with these choices."""
    space = SPACES[family]
    config = space.config({**space.default, **choices})
    broken = violated(space, config, {**H200.names(), **problem.names()})
    assert broken is None, broken
    return config


def winners() -> list[BestConfig]:
    """Of each family some that differ in what they launch: packing, split-K, stream-K, clusters, maps, held columns."""
    wide = Problem(4096, 4096, 4096, "bf16", "nn")
    odd = Problem(4093, 4099, 4091, "bf16", "nt")
    deep = Problem(256, 256, 65536, "bf16", "nn")
    bytes_ = Problem(2048, 2048, 2048, "int8", "tn")
    plain, batched = Problem(1000, 1000, 1000), Problem(640, 640, 640, batch=7)
    between = Problem(707, 1000, 1000)
    thin = Problem(1, 6144, 4096, "fp32", "nt")
    decode, tall = Problem(8, 96, 5120, "bf16", "nt"), Problem(802816, 64, 147, "bf16", "nt")
    turned = Problem(4096, 4096, 4096, "tf32", "nn")  # B comes to wgmma from registers: no slices of k, no sum of these
    short = Problem(4096, 4096, 32, "fp64", "tn")  # shared memory depends on k
    classes = Problem(300, 10242, 3000, "bf16", "nn")  # of rows of B, four: as many maps
    shifted = Problem(1024, 512, 13469, "bf16", "nt")  # rows of A in eight classes
    words = Problem(1024, 512, 13469, "tf32", "nt")  # in four
    narrow = Problem(8457, 35, 2560, "bf16", "nn")  # B has no map
    chosen: list[tuple[Problem, Config]] = [
        (wide, configured("wgmma", wide, cluster_m=2, tile_n=256, stages=4)),
        (odd, configured("wgmma", odd, pack_a=1, pack_b=1)),
        (deep, configured("wgmma", deep, split_k=16, raster_group=1)),
        (bytes_, configured("wgmma", bytes_, pack_a=1, pack_b=1, stages=5)),
        (Problem(1000, 1000, 1000, "bf16"), configured("mma", Problem(1000, 1000, 1000, "bf16"))),
        (Problem(3000, 3000, 3000, "bf16"), configured("mma", Problem(3000, 3000, 3000, "bf16"), stream_k=1)),
        (Problem(300, 300, 30001, "bf16", "nt"), configured("mma", Problem(300, 300, 30001, "bf16", "nt"), split_k=4)),
        (plain, configured("simt", plain)),
        (between, configured("simt", between, stages=2)),
        (batched, configured("simt", batched, split_k=2)),
        (thin, configured("simt", thin, split_k=8)),
        (thin, configured("skinny", thin, tile_s=1, split_k=2)),
        (decode, configured("skinny", decode, lane_rows=2, warps_l=1, chunks=2, cluster_k=8)),
        (tall, configured("skinny", tall, form="stretch", streamed="a", tile_s=64, warps_l=4, warps_k=1, stages=2)),
        (turned, configured("wgmma", turned)),
        (short, configured("mma", short, direct=1, hold_b=1)),
        (classes, configured("wgmma", classes, tile_n=256, stages=4, pack_a=1, classes_b=1)),
        (shifted, configured("wgmma", shifted, tile_n=256, stages=4, shift_a=1, pack_b=1, split_k=4)),
        (words, configured("wgmma", words, tile_n=256, stages=4, shift_a=1, pack_b=1, split_k=8)),
        (narrow, configured("wgmma", narrow, tile_n=48, stages=7, stretch_b=1)),
    ]
    return [winner(problem, config, 100.0 + i) for i, (problem, config) in enumerate(chosen)]


def in_every_layout() -> list[BestConfig]:
    """What one kernel of several forms serves: every layout, C aligned or not, copies, slices of k, shared steps."""
    shared: dict[str, int | str] = {"tile_n": 128, "stages": 5, "schedule": "pingpong"}
    chosen = []
    for number, layout in enumerate(LAYOUTS):
        aligned = Problem(2048 + 1024 * number, 4096, 4096, "bf16", layout)
        odd = Problem(1021, 1019 + 32 * number, 1013, "bf16", layout)
        deep = Problem(256, 256, 65536, "bf16", layout)
        chosen += [(aligned, configured("wgmma", aligned, **shared, stream_k=number % 2))]
        chosen += [(odd, configured("wgmma", odd, **shared, pack_a=1, pack_b=1))]
        chosen += [(deep, configured("wgmma", deep, **shared, split_k=16, raster_group=1))]
    return [winner(problem, config, 100.0 + i) for i, (problem, config) in enumerate(chosen)]


def ranged() -> list[RangedShape]:
    """Rows and sums that vary at run time, of winners: what is tuned of each bucket is among these."""
    return [
        RangedShape("m", Range(500, 1000, 1), {"n": 1000, "k": 1000}),
        RangedShape("k", Range(1000, 1000, 1), {"m": 1000, "n": 1000, "dtype": "bf16"}),
        RangedShape("n", Range(4099, 4099, 1), {"m": 4093, "k": 4091, "dtype": "bf16", "layout": "nt"}),
        RangedShape("batch", Range(7, 7, 1), {"m": 640, "n": 640, "k": 640}),
        RangedShape("m", Range(1, 9, 3), {"n": 7, "k": 7}),  # not tuned
    ]


def winner(problem: Problem, config: Config, time_us: float) -> BestConfig:
    key = CacheKey(problem, H200.identity, "nvrtc 13.0 -std=c++17", "graph/1")
    return BestConfig(key, config, Measurement("ok", time_us), {config.family: "digest"}, complete=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("header")


def nvcc(folder: Path, *arguments: str) -> None:
    assert NVCC is not None
    done = subprocess.run([NVCC, *STRICT, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]


def described(device: Device) -> str:
    figures = [name for name in device.names() if name != "device.compute_capability"]
    order = ["sm_count", "smem_per_block_optin", "smem_per_sm", "registers_per_sm", "threads_per_sm", "l2_bytes"]
    assert sorted(figures) == sorted(f"device.{name}" for name in order)
    return " ".join(str(device.names()[f"device.{name}"]) for name in [*order, "compute_capability"])


def question(problem: Problem) -> str:
    uses = [{1.0: 1}.get(problem.alpha, 2), {0.0: 0, 1.0: 1}.get(problem.beta, 2)]
    return " ".join(map(str, [*query_numbers(problem), *uses]))


def answer(listed: Contents, problem: Problem, device: Device) -> str:
    """What the program above prints, by Python's rule."""
    found = pick(listed, problem, device)
    if found.launches is None:
        return "nothing"
    launches, workspace = found.launches
    text = f"{found.found} {found.variant} {found.entry} {workspace}"
    for launch in launches:
        text += f" | {launch.grid} {launch.block} {launch.smem_bytes} {launch.programmatic:d}"
        text += "".join(f" map {map_text(one, problem)}" for one in launch.tensor_maps)
    return text


def map_text(one: TensorMap, problem: Problem) -> str:
    rows, columns = problem.stored_extents[one.operand]
    pitch, stride = getattr(problem, f"ld{one.operand}"), getattr(problem, f"stride_{one.operand}")
    offset = -1
    if one.copy:
        rows, columns = (columns, rows) if one.copy.turned else (rows, columns)
        offset, pitch, stride = one.copy.offset, one.copy.pitch, 0
        columns = one.copy.width or columns
    rows_of, number = (one.rows.of, one.rows.number) if one.rows else (1, 0)
    size = problem.element_bytes[one.operand]
    numbers = [*one.box, one.swizzle, offset, max(1, columns), max(1, rows), problem.batch]
    strides = [pitch * size, (stride or max(1, rows) * pitch) * size]
    return " ".join(map(str, [one.operand, *numbers, *strides, rows_of, number]))


def problems(listed: list[BestConfig]) -> Iterator[Problem]:
    """The tuned shapes, their neighbours and the limits of each extent, other strides and alignments, random shapes."""
    chooser = random.Random(3)
    for best in listed:
        problem = best.key.problem
        given: dict[str, Any] = {"dtype": problem.dtype, "layout": problem.layout, "batch": problem.batch}
        given |= {"m": problem.m, "n": problem.n, "k": problem.k}
        yield problem
        for name in ("m", "n", "k"):
            for other in (0, 1, given[name] - 1, given[name] + 1, 2 * given[name], LARGEST):
                if name == "k" or other > 0:
                    yield Problem(**{**given, name: other})
        others: list[dict[str, Any]] = [
            {"base_alignment": 16},
            {"base_alignment": 8},
            {"ldc": problem.n + 1},
            {"lda": 2**40},
            {"lda": 16 * (problem.m + problem.k), "ldb": 16 * (problem.n + problem.k)},
            {"batch": 3},
            {"alpha": 2.0},
            {"alpha": 3.0, "beta": 1.0},
        ]
        for changes in [*others, *({"layout": layout} for layout in LAYOUTS)]:
            yield Problem(**{**given, **changes})
    yield Problem(LARGEST, LARGEST, LARGEST)
    yield Problem(64, 64, 64, "fp16")
    yield from (Problem(2**21, 2**21, 2**k, dtype) for dtype in ("fp32", "bf16") for k in (23, 25, 27))  # weeks
    for _ in range(600):
        best = chooser.choice(listed)
        m, n, k = (int(2 ** chooser.uniform(0, top)) for top in (15, 15, 17))
        whole = chooser.choice([1, 1, 8, 64])
        layout = chooser.choice([best.key.problem.layout, *LAYOUTS])
        yield Problem(
            cut(m, whole), cut(n, whole), cut(k, whole), best.key.problem.dtype, layout, chooser.choice([1, 1, 1, 5])
        )


def in_buckets() -> Iterator[Problem]:
    """The ends of a range, beside them, within; and what is like a bucket's problem but for one field."""
    for m in (1, 499, 500, 501, 706, 708, 999, 1001, LARGEST):
        yield Problem(m, 1000, 1000)
        yield Problem(m, 1000, 1000, alpha=2.0, beta=1.0, base_alignment=4)
    others: list[dict[str, Any]] = [{"lda": 1008}, {"ldc": 1001}, {"batch": 2}, {"layout": "nt"}, {"n": 1001}]
    yield from (Problem(**{"m": 600, "n": 1000, "k": 1000, **other}) for other in others)
    yield from (Problem(640, 640, 640, batch=batch) for batch in (6, 8))


def tiny(listed: list[BestConfig]) -> Iterator[Problem]:
    """The borders of tiny problems, of every format and layout, and what lies on both sides of them."""
    for dtype in dict.fromkeys(best.key.problem.dtype for best in listed):
        whole = 1024 // DTYPES[dtype].bytes
        sides = [(7, 63, 13), (8, 64, whole), (8, 64, whole + 1), (9, 64, 16), (8, 8448, 16), (8, 8449, 16), (2, 31, 0)]
        for (short, long, k), layout in product(sides, LAYOUTS):
            yield Problem(short, long, k, dtype, layout, beta=1.0)
            yield Problem(long, short, k, dtype, layout, base_alignment=4 if DTYPES[dtype].bytes < 8 else 8)
        yield from (Problem(8, 64, 16, dtype, batch=batch, lda=17) for batch in (132, 133))


def is_of_tiny(known: Contents, answer: str) -> bool:
    """Whether it is a kernel for tiny problems that is launched."""
    return answer.startswith("standard") and int(answer.split()[1]) in known.tiny


def cut(value: int, whole: int) -> int:
    return max(whole, value // whole * whole)


def stand_ins() -> list[BestConfig]:
    """Shapes that stand for those that nobody lists."""
    found = [winner(one, configured("simt", one), 1.5) for one in (Problem(33, 31, 29), Problem(8, 24, 16))]
    return [replace(best, provenance={UNSEEN: "yes"}) for best in found]


@pytest.fixture(scope="module")
def planner(folder: Path) -> Path:
    """The program that plans, built for a GPU on which only the generic kernels would run: it compiles in seconds.

    It is told to be for the H200, too, so it plans with kernels that it does not have.
    """
    (folder / "plan.cu").write_text(PLAN)
    listed = winners()
    (folder / "kt_gemm.cuh").write_text(render_kernel_header(listed, SPACES, ranged=ranged(), unseen=stand_ins()))
    nvcc(folder, "-arch=sm_75", "plan.cu", "-o", "plan")
    return folder / "plan"


def planned(planner: Path, asked: list[Problem], *arguments: str) -> list[str]:
    """What the program says of each problem."""
    text = "\n".join([described(H200), *map(question, asked)])
    command = [str(planner), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_nvcc
def test_plans_are_those_of_python(planner: Path) -> None:
    """Configuration, launches, tensor maps and workspace of every problem, at, beside and far from tuned shapes."""
    listed = winners()
    known = collect(listed, SPACES, ranged=ranged(), unseen=stand_ins())
    asked = [*problems(listed), *in_buckets(), *tiny(listed), Problem(33, 31, 29), Problem(9, 20, 16)]
    answers = planned(planner, asked)
    wrong = [
        (problem.label, given, wanted)
        for problem, given in zip(asked, answers, strict=True)
        if given != (wanted := answer(known, problem, H200))
    ]
    assert wrong[:5] == []
    assert {line.split()[0] for line in answers} >= {"exact", "neighbour", "standard", "generic", "nothing"}
    taken = {problem.dtype for problem, line in zip(asked, answers, strict=True) if is_of_tiny(known, line)}
    assert taken == {best.key.problem.dtype for best in listed}
    in_order = [line for line in answers if re.search(r"\| \d+ \d+ \d+ 0 map a", line)]
    assert in_order, "a kernel that may copy has met operands that need none"


@needs_nvcc
def test_plans_of_one_kernel_for_every_layout_are_those_of_python(tmp_path: Path) -> None:
    """Its code is there once; each layout, and each alignment of C, is launched as a kernel for it alone would be."""
    rows = Problem(64, 4096, 4096, "bf16", "nt")  # a kernel of few, which may be given fewer
    listed = [*in_every_layout(), winner(rows, configured("wgmma", rows, tile_m=64, stages=8, consumers=1), 99.0)]
    known, few = collect_few(listed, SPACES, most=2, admits=lambda _: True)
    assert (few.kernels, len(few.known)) == (2, len(listed))
    header = kernel_header(known)
    assert len(re.findall(r"kt_gemm\(const __grid_constant__ [\w:]+ args, const __grid_constant__", header)) == 2
    assert pick(known, replace(rows, m=32), H200).found == "neighbour"
    (tmp_path / "plan.cu").write_text(PLAN)
    (tmp_path / "kt_gemm.cuh").write_text(header)
    nvcc(tmp_path, "-arch=sm_75", "plan.cu", "-o", "plan")
    asked = list(problems(listed))
    answers = planned(tmp_path / "plan", asked)
    wanted = [answer(known, problem, H200) for problem in asked]
    assert [one for one in zip(asked, answers, wanted, strict=True) if one[1] != one[2]][:5] == []
    assert {line.split()[0] for line in answers} >= {"exact", "neighbour", "generic"}


def test_a_launch_of_a_kernel_of_several_forms_has_room_for_each() -> None:
    """Shared memory is that of the form which takes most; all else is as of a kernel for that form alone."""
    listed = in_every_layout()
    known, _ = collect_few(listed, SPACES, most=1, admits=lambda _: True)
    most = set()
    for best in listed:
        found = pick(known, best.key.problem, H200)
        assert found.launches is not None
        variant = known.kernels.variants[found.variant]
        kernel = known.kernels.kernels[variant.kernel]
        alone = launches_of(replace(kernel, forms=()), variant.runtime, best.key.problem, H200)
        assert alone is not None
        for launch, other in zip(found.launches[0], alone[0], strict=True):
            assert launch == replace(other, smem_bytes=launch.smem_bytes)
            assert launch.smem_bytes >= other.smem_bytes
            most |= {launch.smem_bytes} if launch.kernel == "kt_gemm" else set()
    assert len(most) == 1


def test_what_never_runs_has_no_launches() -> None:
    """Whatever the run-time choices; and most of what does not run is found so, without trying them all."""
    listed = winners()
    found = 0
    for best, other in product(listed, listed):
        kernel, problem = of_winner(best, SPACES), other.key.problem
        if problem.dtype == best.key.problem.dtype and problem.layout == best.key.problem.layout:
            ran = any(launches_of(kernel, runtime, problem, H200) for runtime in runtimes(kernel.space))
            never = never_runs(kernel, problem, H200)
            assert not (ran and never)
            found += never
    assert found >= 5


def test_operands_that_need_no_copy_are_not_copied() -> None:
    """A kernel for rows that begin anywhere reads aligned ones as they lie.

    Behind its copies it asks for some before it waits for earlier grids; without them it must not start early. What has
    to be turned is copied all the same.
    """
    chosen = [best for best in winners() if dict(best.config.parameters).get("pack_a") == 1]
    (odd,) = (best for best in chosen if best.key.problem.layout == "nt")
    (bytes_,) = (best for best in chosen if best.key.problem.dtype == "int8")
    kernel = of_winner(odd, SPACES)

    def launched(kernel: Kernel, problem: Problem) -> list[tuple[str, bool, list[bool]]]:
        found = launches_of(kernel, kernel.config.runtime, problem, H200)
        assert found is not None
        launches, workspace = found
        assert workspace > 0
        copies = [[one.copy is not None for one in launch.tensor_maps] for launch in launches]
        return [(launch.kernel, launch.programmatic, some) for launch, some in zip(launches, copies, strict=True)]

    both = [("kt_gemm_copy_rows", True, []), ("kt_gemm", True, [True, True])]
    assert launched(kernel, odd.key.problem) == both
    assert launched(kernel, Problem(4096, 4096, 4096, "bf16", "nt")) == [("kt_gemm", False, [False, False])]
    padded = Problem(1021, 1019, 1013, "bf16", "nt", lda=1016, ldb=1016)
    # TMA asks where rows begin, not where they end.
    assert launched(kernel, padded) == [("kt_gemm", False, [False, False])]
    assert launched(kernel, replace(padded, ldb=1017)) == both
    assert launched(kernel, Problem(4096, 4096, 4096, "bf16", "nt", lda=4097)) == both
    turned = launched(of_winner(bytes_, SPACES), bytes_.key.problem)
    assert [name for name, _, _ in turned] == ["kt_gemm_turn_rows", "kt_gemm"]
    assert turned[-1] == ("kt_gemm", True, [True, True, False])


@needs_nvcc
def test_on_another_gpu_nothing_is_exact(planner: Path) -> None:
    """One that the table does not have gets the same configurations, as neighbours."""
    asked = [best.key.problem for best in winners()]
    here, there = planned(planner, asked), planned(planner, asked, "other")
    assert there == [line.replace("exact", "neighbour") for line in here]


@needs_nvcc
@pytest.mark.slow
def test_two_units_and_two_architectures_build_without_a_warning(tmp_path: Path) -> None:
    """With all warnings as errors, kernels compiled for real; both units share the counter."""
    listed = [winners()[index] for index in (1, 6, 8)]
    older = CacheKey(listed[1].key.problem, modelled("a100").identity, "nvrtc 13.0 -std=c++17", "graph/1")
    listed.append(replace(listed[1], key=older))
    (tmp_path / "kt_gemm.cuh").write_text(render_kernel_header(listed, SPACES))
    main = """
#include "kt_gemm.cuh"
bool call();
int main() {
  const unsigned long long before = kt::calls(kt::Found::nothing);
  const bool here = kt::calls(kt::Found::nothing) == before && kt::misses() == 0;
  kt::find(kt::Query{}, 0);
  return here && call() && kt::misses() == 2 ? 0 : 1;
}
"""
    one = '#include "kt_gemm.cuh"\nbool call() { return kt::find(kt::Query{}, 0) == nullptr && kt::misses() == 2; }\n'
    (tmp_path / "one.cu").write_text(one)
    (tmp_path / "main.cu").write_text(main)
    before = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in ("75", "80")]
    targets = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in ("80", "90a")]
    nvcc(tmp_path, *before, "-c", "one.cu", "-o", "one.o")
    nvcc(tmp_path, *targets, "-t", "2", "main.cu", "one.o", "-o", "program")
    assert subprocess.run([str(tmp_path / "program")], timeout=60).returncode == 0


@needs_nvcc
@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_a_target_that_lacks_what_kernels_were_tuned_with_is_told(tmp_path: Path, target: str) -> None:
    """sm_90 in place of sm_90a is another machine, and nvcc's shorthand for that adds it: an error says what to do."""
    (tmp_path / "kt_gemm.cuh").write_text(render_kernel_header(winners()[:1], SPACES))
    (tmp_path / "main.cu").write_text('#include "kt_gemm.cuh"\n')
    assert NVCC is not None
    command = [NVCC, "-std=c++17", f"-arch={target}", "-c", "main.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "this pass is for compute_90 (nvcc's -arch=sm_90a adds one)" in done.stderr
    assert "compute_90a,code=sm_90a" in done.stderr


@needs_nvcc
def test_a_pass_for_any_gpu_has_no_code_that_newer_ones_refuse(tmp_path: Path) -> None:
    """PTX for compute_90 beside the code for sm_90a: the tuned kernels are traps there, the generic ones work."""
    (tmp_path / "kt_gemm.cuh").write_text(render_kernel_header(winners()[:1], SPACES))
    (tmp_path / "main.cu").write_text('#include "kt_gemm.cuh"\nvoid* use = reinterpret_cast<void*>(&kt::gemm);\n')
    nvcc(tmp_path, "-DKT_GENERIC_PASS", "-arch=compute_90", "--ptx", "main.cu", "-o", "main.ptx")
    kernels = (tmp_path / "main.ptx").read_text().split(".entry ")[1:]
    assert not any("wgmma" in one for one in kernels)
    trapped = [one for one in kernels if "trap;" in one]
    assert 0 < len(trapped) < len(kernels)


@needs_nvcc
@pytest.mark.parametrize("target", [(), ("-arch=sm_75",), ("-arch=sm_80",), ("-arch=sm_100",)], ids=lambda one: one)
def test_a_program_for_no_gpu_of_the_table_is_an_error(tmp_path: Path, target: tuple[str, ...]) -> None:
    """A forgotten target would give a program without one tuned kernel; the error says what to write."""
    (tmp_path / "kt_gemm.cuh").write_text(render_kernel_header(winners()[7:8], SPACES))
    (tmp_path / "main.cu").write_text('#include "kt_gemm.cuh"\n')
    assert NVCC is not None
    command = [NVCC, "-std=c++17", *target, "-c", "main.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "nvcc -gencode arch=compute_90a,code=sm_90a" in done.stderr


@needs_nvcc
def test_a_kernel_that_is_not_in_the_program_is_not_taken(tmp_path: Path) -> None:
    """Winners of two GPUs, compiled for the older one: on the newer one the generic kernel, never an empty body."""
    problem = winners()[7].key.problem
    listed = [winner(problem, configured("simt", problem), 100.0)]
    older = CacheKey(problem, modelled("a100").identity, "nvrtc 13.0 -std=c++17", "graph/1")
    listed.append(replace(listed[0], key=older))
    text = render_kernel_header(listed, SPACES)
    (tmp_path / "kt_gemm.cuh").write_text(text)
    gpu = modelled("h200").identity
    table = [best.key.device for best in sorted(listed, key=lambda best: best.key.device.name)].index(gpu)
    (tmp_path / "plan.cu").write_text(PLAN.replace("gpu.table = 0", f"gpu.table = {table}"))
    nvcc(tmp_path, "-DUNTOLD", "-arch=sm_80", "plan.cu", "-o", "old")
    nvcc(tmp_path, "-DUNTOLD", "-gencode=arch=compute_90a,code=sm_90a", "plan.cu", "-o", "new")
    taken = {name: planned(tmp_path / name, [problem])[0].split()[0] for name in ("old", "new")}
    assert taken == {"old": "generic", "new": "exact"}


def test_the_first_lines_name_every_gpu_of_the_table() -> None:
    """Each with its target, as it can be pasted behind nvcc; of a GPU that few kernels leave to generic ones, too."""
    problem = winners()[7].key.problem
    first = winner(problem, configured("simt", problem), 100.0)
    others = [replace(first.key, device=modelled(name).identity) for name in ("b200", "a100")]
    lines = render_kernel_header([first, *(replace(first, key=key) for key in others)], SPACES).splitlines()[:12]
    wanted = " ".join(f"-gencode arch=compute_{one},code=sm_{one}" for one in ("80", "90a", "100a"))
    assert f"//   {wanted}" in lines


def test_a_gpu_of_the_data_file_may_have_other_memory() -> None:
    """As with error correction on or off: it is another GPU in the table, with the figures of its name."""
    problem = winners()[7].key.problem
    first = winner(problem, configured("simt", problem), 100.0)
    device = replace(H200.identity, memory_gib=H200.identity.memory_gib + 1)
    other = replace(first, key=replace(first.key, device=device))
    alone, both = collect([other], SPACES), collect([first, other], SPACES)
    assert alone.traffic == {device: both.traffic[H200.identity]}
    assert render_kernel_header([first, other], SPACES).count('{"NVIDIA H200", 9, 0, 132, ') == 2
    beside = Problem(990, 1000, 1000)
    assert pick(alone, beside, replace(H200, memory_bytes=device.memory_gib << 30)).found == "neighbour"


def test_the_same_winners_give_the_same_bytes() -> None:
    """In whatever order they come; and nothing in it says where or when it was made."""
    listed = winners()
    text = render_kernel_header(listed, SPACES)
    assert render_kernel_header(reversed(listed), SPACES) == text
    assert str(Path(__file__).parents[2]) not in text
    assert not re.search(r"\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b", text)


@pytest.mark.parametrize("family", sorted(SPACES))
def test_what_a_plan_launches_was_rendered(family: str) -> None:
    """Of every format, layout and alignment that the family serves, with all parameters that launches depend on."""
    space, seen = SPACES[family], set()
    decide = sorted(leaves({name for rule in space.launches for name in rule.when.names}, space.derived))
    varied = [name for name in decide if name in space.parameters]
    for dtype, layout, aligned in product(space.dtypes, LAYOUTS, (True, False)):
        problem = Problem(4096, 4096, 4096, dtype, layout) if aligned else Problem(4095, 4097, 4093, dtype, layout)
        for values in product(*(space.parameters[name] for name in varied)):
            config = space.config({**space.default, **dict(zip(varied, values, strict=True))})
            kernel = on_device(space, config, problem.signature, (9, 0))
            try:
                lines = launcher(kernel, "here", 0).lines
            except InputError:  # such a configuration is never valid
                continue
            code = rendered_parts(space, config, problem.signature, kernel.arch)[-1]
            launched = set(re.findall(r"here::(\w+)<0>", "\n".join(lines)))
            assert launched <= set(re.findall(r"\b(kt_gemm\w*)\(const __grid_constant__", code)), kernel
            seen.add(dtype)
    assert seen == set(space.dtypes)


def test_a_plan_that_would_launch_nothing_is_none() -> None:
    """Where every launch has a condition, C would be left as it was with the status `ok`."""
    space, check = SPACES["simt"], "if (out.count == 0) return false;  // some kernel is launched"
    problem = Problem(1000, 1000, 1000)
    config = configured("simt", problem)
    whole = launcher(on_device(space, config, problem.signature, (9, 0)), "here", 0)
    assert check not in whole.lines
    rules = (replace(rule, when=parse("n > 64")) if rule.kernel == "kt_gemm" else rule for rule in space.launches)
    some = replace(space, launches=tuple(rules))
    assert check in launcher(on_device(some, config, problem.signature, (9, 0)), "here", 0).lines


def test_variables_of_a_space_hide_nothing_of_the_header() -> None:
    """A derived quantity may have any name: one that is a macro, a word of C++ or used there gets another in C++."""
    space = SPACES["simt"]
    problem = Problem(1000, 1000, 1000)
    names = ("linux", "EOF", "SEEK_TO", "__CUDA_ARCH__", "_B", "KT_TARGETS", "Int", "address", "sizes", "unsigned")
    derived = {**space.derived, **{name: parse(f"n + {number}") for number, name in enumerate(names)}}
    grid = parse(" + ".join(names))
    rules = (replace(rule, grid=grid) if rule.kernel == "kt_gemm" else rule for rule in space.launches)
    odd = replace(space, derived=derived, launches=tuple(rules))
    config = configured("simt", problem)
    lines = launcher(on_device(odd, config, problem.signature, (9, 0)), "here", 0).lines
    called = {match[2]: match[1] for line in lines if (match := re.fullmatch(r"const Int (\w+) = n \+ (\d+);", line))}
    assert [called[str(number)] for number in range(1, len(names))] == [
        "own_EOF", "own_SEEK_TO", "own___CUDA_ARCH__", "own__B", "own_KT_TARGETS", "Int_", "address_", "sizes_",
        "unsigned_",
    ]  # fmt: skip
    assert not any(re.search(r"\blinux\b", line) for line in lines)


def test_shared_headers_stand_once_for_each_family() -> None:
    """The simt winners, and the generic kernels of all formats, share one copy."""
    text = render_kernel_header(winners(), SPACES)
    assert text.count("struct SimtTraits") == 1
    assert text.count("struct WgmmaTraits") == 1
    assert text.count("struct MmaTraits") == 1
    assert 'extern "C"' not in text


def test_what_was_measured_elsewhere_counts() -> None:
    """A kernel that was slow on another tuned shape is not expected to be fast beside that shape."""
    square, flat = Problem(1000, 1000, 1000), Problem(3000, 512, 1000)
    fast = winner(square, configured("simt", square), 10.0)
    own = winner(flat, configured("simt", flat, tile_n=128, thread_n=8), 100.0)
    beside = Problem(2990, 500, 1000)

    def takes_own(*searches: Search) -> bool:
        known = collect([fast, own], SPACES, searches)
        variants = known.kernels.variants
        chosen = known.kernels.kernels[variants[pick(known, beside, H200).variant].kernel]
        return chosen.config.parameters == own.config.parameters

    assert not takes_own()
    assert takes_own((own.key, {fast.config: Measurement("ok", 500.0, samples=5)}))
    assert not takes_own((own.key, {fast.config: Measurement("ok", 500.0, samples=1)}))


def test_the_documented_members_are_those_of_the_header() -> None:
    """docs/header.md: every member of a result, and of a plan those that are not the header's own."""
    text = (Path(__file__).parents[2] / "docs" / "header.md").read_text(encoding="utf-8")
    header = render_kernel_header([], SPACES)
    for name, own in (("Result", set()), ("Plan", {"int variant", "int ordinal", "detail::Sequence sequence"})):
        body = header.split(f"\nstruct {name} {{\n")[1].split("\n};")[0]
        members = set(re.findall(r"^  ([\w:]+(?: \w+)* \w+)(?: = [^;]*)?;", body, re.MULTILINE))
        table = text.split(f"| of a `{name}` | |\n")[1].split("\n\n")[0]
        cells = [line.split("|")[1] for line in table.splitlines()[1:]]
        told = {member for cell in cells for member in re.findall(r"`([^`]*)`", cell)}
        assert told - {"explicit operator bool"} == members - own
    found = header.split("enum class Found { ")[1].split(" }")[0].split(", ")
    assert all(f"`{one}`" in text for one in found)


@needs_nvcc
@pytest.mark.parametrize("page", ["README.md", "docs/header.md"])
def test_the_documented_programs_compile(page: str, tmp_path: Path) -> None:
    """What the README and docs/header.md show is built against a header."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    source = "".join(re.findall(r"```cuda\n(.*?)```", text, re.DOTALL))
    (tmp_path / "kt_gemm.cuh").write_text(render_kernel_header(winners()[7:8], SPACES))
    (tmp_path / "main.cu").write_text("#define KT_TARGETS 750, 900\n#include <cstdlib>\n" + source)
    nvcc(tmp_path, "-arch=sm_75", "-c", "main.cu")
