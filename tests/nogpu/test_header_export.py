"""The exported header: plain C++17, the same look-up as Python's, exact or nothing, and every miss is seen."""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.entries import lookup
from kt.cache.key import key_digest
from kt.cache.records import BestConfig
from kt.devices.device import Device, DeviceIdentity
from kt.errors import InputError
from kt.export.cuda_names import is_of_cuda
from kt.export.header import check_namespace, render_header
from kt.problems import Problem
from kt.search_spaces.space import Config, Launch

Make = Callable[..., BestConfig]
H200 = DeviceIdentity("NVIDIA H200", (9, 0), 132, 140)
SLICE = DeviceIdentity("NVIDIA H200", (9, 0), 60, 70)
H100 = DeviceIdentity("NVIDIA H100 PCIe", (9, 0), 114, 80)
A100 = DeviceIdentity("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80)
LARGEST = 2**31 - 1

GXX = shutil.which("g++")
NVCC = shutil.which("nvcc")
needs_gxx = pytest.mark.skipif(GXX is None, reason="needs g++")
STRICT = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic"]


def build(folder: Path, header: str, **sources: str) -> Path:
    """Compiles and links the sources, each a translation unit beside `gemm_table.h`."""
    assert GXX is not None
    (folder / "gemm_table.h").write_text(header)
    for name, text in sources.items():
        (folder / f"{name}.cpp").write_text(text)
    files = [str(folder / f"{name}.cpp") for name in sources]
    done = subprocess.run([GXX, *STRICT, *files, "-o", str(folder / "program")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "program"


def run(program: Path, text: str = "") -> str:
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


# Reads queries, one a line, and answers each with the key of the entry that was found, or "-".
ASK = """
#include "gemm_table.h"
#include "gemm_table.h"
#include <cstdio>
int main() {
  kt::Query q;
  int d, dtype, layout, alpha, beta, acc, out;
  while (std::scanf("%d %d %d %d %d %d %d %lld %lld %lld %lld %lld %lld %d %d %d %d %lld", &d, &q.m, &q.n, &q.k,
                    &dtype, &layout, &q.batch, &q.lda, &q.ldb, &q.ldc, &q.stride_a, &q.stride_b, &q.stride_c, &alpha,
                    &beta, &acc, &out, &q.base_alignment) == 18) {
    q.dtype = static_cast<kt::Format>(dtype);
    q.layout = static_cast<kt::Layout>(layout);
    q.alpha = static_cast<kt::Use>(alpha);
    q.beta = static_cast<kt::Use>(beta);
    q.accumulator = static_cast<kt::Format>(acc);
    q.out_dtype = static_cast<kt::Format>(out);
    const kt::Entry* entry = kt::find(q, d);
    std::printf("%s\\n", entry ? entry->key : "-");
  }
  std::printf("%llu misses\\n", kt::misses());
}
"""
FORMATS = ["standard", "fp32", "tf32", "fp64", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int32", "fp32_fast"]
LAYOUTS = ["nn", "nt", "tn", "tt"]
USES = {0.0: 0, 1.0: 1}


def question(device: int, given: dict[str, Any]) -> str:
    """A line for the program above from the arguments of `Problem`, defaults as the header has them."""
    values: dict[str, Any] = {
        "batch": 1, "lda": 0, "ldb": 0, "ldc": 0, "stride_a": 0, "stride_b": 0, "stride_c": 0,
        "alpha": 1.0, "beta": 0.0,
        "dtype": "fp32", "layout": "nn", "accumulator": "standard", "out_dtype": "standard", "base_alignment": 256,
    } | given  # fmt: skip
    numbers = [
        device, *(values[name] for name in ("m", "n", "k")), FORMATS.index(values["dtype"]),
        LAYOUTS.index(values["layout"]),
        *(values[name] for name in ("batch", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")),
        USES.get(values["alpha"], 2), USES.get(values["beta"], 2),
        FORMATS.index(values["accumulator"]), FORMATS.index(values["out_dtype"]), values["base_alignment"],
    ]  # fmt: skip
    return " ".join(map(str, numbers))


def python_answer(winners: list[BestConfig], given: dict[str, Any], device: DeviceIdentity) -> str:
    try:
        problem = Problem(**given)
    except InputError:
        return "-"
    found = lookup(winners, problem, device)
    return key_digest(found.key) if found else "-"


def sample_problems() -> list[dict[str, Any]]:
    chooser = random.Random(5)
    problems: list[dict[str, Any]] = []
    for _ in range(120):
        m, n, k = (chooser.choice([1, 2, 3, 64, 100, 4096, LARGEST]) for _ in range(3))
        given: dict[str, Any] = {"m": m, "n": n, "k": chooser.choice([0, k])}
        given["dtype"] = chooser.choice(["fp32", "fp16", "bf16", "int8", "fp64"])
        given["layout"] = chooser.choice(LAYOUTS)
        given |= chooser.choice([{}, {}, {"batch": 3}, {"ldc": n + 8}, {"beta": 1.0}, {"alpha": 2.0, "beta": 3.0}])
        given |= chooser.choice([{}, {}, {"base_alignment": 16}])
        problems.append(given)
    return problems


def variations(given: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The problem itself, its neighbours in every extent, the limits, and other uses of it."""
    yield given
    for name in ("m", "n", "k"):
        for value in (0, 1, given[name] - 1, given[name] + 1, LARGEST):
            if value <= LARGEST:
                yield given | {name: value}
    yield given | {"layout": "nt"}
    yield given | {"alpha": 0.0}
    yield given | {"beta": 1.0}
    yield given | {"beta": 2.0}
    yield given | {"batch": 2}
    yield given | {"ldc": given["n"]}
    yield given | {"lda": 0, "stride_a": 0, "stride_b": given["n"]}
    yield given | {"base_alignment": 512}
    if given["dtype"] == "fp16":
        yield given | {"out_dtype": "fp32"}
        yield given | {"accumulator": "fp16"}
        yield given | {"accumulator": "fp32", "out_dtype": "fp16"}


@needs_gxx
def test_the_header_answers_every_query_as_python_does(tmp_path: Path, make_winner: Make) -> None:
    """G7, G8, A1: at, beside and far from listed problems, on every device: the exact entry, else none, counted."""
    problems = sample_problems()
    devices = sorted([H200, SLICE, H100], key=lambda device: (device.name, device.sm_count))
    winners = [
        make_winner(Problem(**given), device=devices[index % 3], tile_m=index) for index, given in enumerate(problems)
    ]
    program = build(tmp_path, render_header(winners), ask=ASK)
    asked = [
        (index, varied) for given in problems for varied in variations(given) for index in (*range(3), -1, 3)
    ]  # fmt: skip
    expected = [
        python_answer(winners, varied, devices[index]) if index in range(3) else "-" for index, varied in asked
    ]  # fmt: skip
    *answers, misses = run(program, "\n".join(question(*item) for item in asked)).splitlines()
    wrong = [(item, answer) for item, answer, right in zip(asked, answers, expected, strict=True) if answer != right]
    assert wrong == []
    assert misses == f"{expected.count('-')} misses"
    assert len({answer for answer in answers if answer != "-"}) == len({best.key for best in winners})


@needs_gxx
def test_an_empty_table_compiles_and_finds_nothing(tmp_path: Path) -> None:
    """A cache with nothing to export gives a header that works and misses."""
    program = build(tmp_path, render_header([]), ask=ASK)
    answer, misses = run(program, question(0, {"m": 1, "n": 1, "k": 1})).splitlines()
    assert (answer, misses) == ("-", "1 misses")


@needs_gxx
def test_an_older_standard_is_told_first(tmp_path: Path) -> None:
    assert GXX is not None
    (tmp_path / "old.cpp").write_text(render_header([]))
    command = [GXX, "-std=c++14", "-fsyntax-only", str(tmp_path / "old.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "this header needs C++17: compile with -std=c++17" in done.stderr.splitlines()[0]


@needs_gxx
def test_two_units_share_one_table_and_one_counter(tmp_path: Path, make_winner: Make) -> None:
    """Included in several translation units, the data is there once, and misses are counted together."""
    one = '#include "gemm_table.h"\nconst void* there() { return kt::entries; }\n'
    one += "void miss() { kt::find(kt::Query{}, 0); }\n"
    main = """
#include "gemm_table.h"
#include <cstdio>
const void* there();
void miss();
int main() { miss(); kt::find(kt::Query{}, 0); std::printf("%d %llu", there() == kt::entries, kt::misses()); }
"""
    program = build(tmp_path, render_header([make_winner()]), one=one, main=main)
    assert run(program) == "1 2"


@needs_gxx
def test_the_documented_example_compiles_and_prints_what_it_says(tmp_path: Path, make_winner: Make) -> None:
    """docs/header.md: its program is built against a header and its output compared."""
    text = (Path(__file__).parents[2] / "docs" / "header.md").read_text(encoding="utf-8")
    source = text.split("```c++\n")[1].split("```")[0]
    printed = text.split("```text\n")[1].split("```")[0]
    best = make_winner(Problem(4096, 4096, 4096, "bf16", "nt"), tile_m=128, split_k=2, time_us=201.5)
    program = build(tmp_path, render_header([best]), main=source)
    assert run(program) == printed


def test_the_documented_signatures_are_those_of_the_header(make_winner: Make) -> None:
    """docs/header.md: what it says of arguments and results can be called so."""
    text = (Path(__file__).parents[2] / "docs" / "header.md").read_text(encoding="utf-8")
    header = render_header([make_winner()])
    signatures = re.findall(r"^\| `([^`]*&[^`]*\))` \|", text, re.MULTILINE)
    assert len(signatures) == 2
    assert all(f"constexpr {signature} noexcept {{" in header for signature in signatures)


@needs_gxx
def test_parameters_launches_and_marks_arrive(tmp_path: Path, make_winner: Make) -> None:
    """An entry carries the configuration by name, its launches in order, workspace, time and its standing."""
    best = make_winner(
        config=Config("simt", (("tile_m", 128), ("copy", "cp.async"), ("bias", -3)), (("split_k", 4),)),
        launches=(Launch("kt_gemm", 2**33, 256, 49152), Launch("kt_gemm_reduce", 7, 128, 0)),
        workspace_bytes=2**40, time_us=0.1 + 0.2, complete=False,
    )  # fmt: skip
    main = """
#include "gemm_table.h"
#include <cstdio>
constexpr kt::Query query() { kt::Query q; q.m = q.n = q.k = 512; return q; }
static_assert(kt::lookup(query(), kt::Device{"NVIDIA H200", 9, 0, 132, 140}) == kt::entries);
static_assert(kt::lookup(query(), kt::Device{"NVIDIA H200", 9, 0, 60, 140}) == nullptr);
static_assert(kt::parameter(kt::entries[0], "tile_m", 0) == 128);
int main() {
  const kt::Entry& e = kt::entries[0];
  std::printf("%s %lld %lld %lld %lld %lld %s %s\\n", e.config->family, kt::parameter(e, "tile_m", 0),
              kt::parameter(e, "bias", 0), kt::parameter(e, "split_k", 0), kt::parameter(e, "copy", 7),
              kt::parameter(e, "absent", 8), kt::parameter_text(e, "copy"), kt::parameter_text(e, "bias") ? "?" : "-");
  for (int i = 0; i < e.launch_count; ++i)
    std::printf("%s %lld %d %d\\n", e.launches[i].kernel, e.launches[i].grid, e.launches[i].block,
                e.launches[i].smem_bytes);
  std::printf("%lld %.17g %d %d\\n", e.workspace_bytes, e.time_us, e.complete, e.predicted);
}
"""
    assert run(build(tmp_path, render_header([best]), main=main)).splitlines() == [
        "simt 128 -3 4 7 8 cp.async -",
        "kt_gemm 8589934592 256 49152",
        "kt_gemm_reduce 7 128 0",
        f"{2**40} 0.30000000000000004 0 0",
    ]


@needs_gxx
def test_the_device_is_identified_as_kt_does(tmp_path: Path, make_winner: Make) -> None:
    """A7: the header turns device properties into the identity that the cache has, rounding of memory included."""
    sizes = [0, 2**30 - 1, 2**29, 3 * 2**29, 5 * 2**29, 2**29 + 1, 150754820096, 85024112640, 25757220864]
    main = """
#include "gemm_table.h"
#include <cstdio>
struct Properties { char name[256]; unsigned long totalGlobalMem; int major, minor, multiProcessorCount; };
int main() {
  Properties p{"NVIDIA H200", 0, 9, 0, 132};
  while (std::scanf("%lu", &p.totalGlobalMem) == 1) {
    const kt::Device d = kt::device_of(p);
    std::printf("%s %d %d %d %d %d\\n", d.name, d.major, d.minor, d.sm_count, d.memory_gib, kt::device_index(d));
  }
}
"""
    identities = [Device("NVIDIA H200", (9, 0), 132, size).identity for size in sizes]
    program = build(tmp_path, render_header([make_winner(device=identities[6])]), main=main)
    assert run(program, "\n".join(map(str, sizes))).splitlines() == [
        f"{i.name} 9 0 {i.sm_count} {i.memory_gib} {0 if i == identities[6] else -1}" for i in identities
    ]


@needs_gxx
def test_another_device_of_the_architecture_is_used_only_when_asked_for(tmp_path: Path, make_winner: Make) -> None:
    """A9, A10: `find` is exact; `find_same_architecture` takes the nearest device, and says which."""
    problem = Problem(64, 64, 64)
    winners = [make_winner(problem, device=device) for device in (SLICE, H100, A100)]
    main = """
#include "gemm_table.h"
#include <cstdio>
void ask(kt::Device device, int m) {
  kt::Query q;
  q.m = m; q.n = q.k = 64;
  const kt::Entry* exact = kt::find(q, device);
  const kt::Entry* near = kt::find_same_architecture(q, device);
  std::printf("%d %s %d\\n", exact != nullptr, near ? kt::devices[near->device].name : "-",
              near ? kt::devices[near->device].sm_count : 0);
}
int main() {
  ask({"NVIDIA H200", 9, 0, 132, 140}, 64);
  ask({"NVIDIA H100 80GB HBM3", 9, 0, 132, 80}, 64);
  ask({"NVIDIA H100 PCIe", 9, 0, 114, 80}, 64);
  ask({"NVIDIA A30", 8, 0, 56, 24}, 64);
  ask({"NVIDIA L40S", 8, 9, 142, 48}, 64);
  ask({nullptr, 9, 0, 132, 140}, 65);
  std::printf("%llu", kt::misses());
}
"""
    assert run(build(tmp_path, render_header(winners), main=main)).splitlines() == [
        "0 NVIDIA H200 60",
        "0 NVIDIA H100 PCIe 114",
        "1 NVIDIA H100 PCIe 114",
        "0 NVIDIA A100-SXM4-80GB 108",
        "0 - 0",
        "0 - 0",
        "7",
    ]


@needs_gxx
def test_names_that_users_choose_cannot_break_the_code(tmp_path: Path, make_winner: Make) -> None:
    """Families, parameters, kernels and devices are text in string literals, whatever they contain."""
    odd = 'a"b\\ ??/ \n */ // é 目 \x7f1 %s {{ x }}'
    best = make_winner(
        config=Config(odd, ((odd, odd),)),
        launches=(Launch(odd, 1, 1, 0),),
        device=DeviceIdentity(odd, (9, 0), 1, 1),
    )
    main = """
#include "gemm_table.h"
#include <cstdio>
int main() {
  const kt::Entry& e = kt::entries[0];
  std::printf("%s|%s|%s|%s|%s", e.config->family, e.config->parameters[0].name, e.config->parameters[0].text,
              e.launches[0].kernel, kt::devices[0].name);
}
"""
    assert run(build(tmp_path, render_header([best]), main=main)) == "|".join([odd] * 5)


@needs_gxx
def test_a_table_of_thousands_is_looked_up_in_under_200_nanoseconds(tmp_path: Path, make_winner: Make) -> None:
    """The look-up may stand before every call of a kernel."""
    winners = [make_winner(Problem(m, n, 64)) for m in range(1, 64) for n in range(1, 64)]
    main = """
#include "gemm_table.h"
#include <chrono>
#include <cstdio>
int main() {
  const kt::Device device{"NVIDIA H200", 9, 0, 132, 140};
  double best = 1e9;
  long found = 0;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10000; ++i) {
      kt::Query q;
      q.m = 1 + i * 7 % 80; q.n = 1 + i * 13 % 63; q.k = 64;
      found += kt::find(q, device) != nullptr;
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() / 10000 < best) best = spent.count() / 10000;
  }
  std::printf("%.1f %ld", best, found);
}
"""
    nanoseconds, found = map(float, run(build(tmp_path, render_header(winners), main=main)).split())
    assert found > 0
    assert nanoseconds < 200


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("empty", [False, True])
def test_nvcc_accepts_the_header_without_a_warning(empty: bool, tmp_path: Path, make_winner: Make) -> None:
    """The header is for CUDA programs: nvcc compiles it in a .cu file, with the runtime's device properties."""
    assert NVCC is not None
    (tmp_path / "gemm_table.h").write_text(render_header([] if empty else [make_winner()]))
    (tmp_path / "unit.cu").write_text(
        '#include "gemm_table.h"\n#include "gemm_table.h"\n'
        "const kt::Entry* ask(const cudaDeviceProp& p) { return kt::find(kt::Query{}, kt::device_of(p)); }\n"
        "const kt::Entry* near(const kt::Device& d) { return kt::find_same_architecture(kt::Query{}, d); }\n"
    )
    options = ["-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-c"]
    command = [NVCC, *options, str(tmp_path / "unit.cu"), "-o", str(tmp_path / "unit.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Without a compiler


def test_the_same_winners_give_the_same_bytes_in_any_order(make_winner: Make) -> None:
    """A generated file changes only when its contents do."""
    winners = [make_winner(Problem(m, 64, 64), device=device) for m in (3, 2, 1) for device in (H200, A100)]
    assert render_header(winners) == render_header(reversed(winners))
    again = [replace(best, provenance={"date": "another day"}) for best in winners]
    assert render_header(again) == render_header(winners)


def test_tables_of_different_contents_do_not_mix(make_winner: Make) -> None:
    """Guard and inner namespace change with the contents, so two tables in one program cannot silently be one."""
    lines = [
        next(line for line in render_header([make_winner(tile_m=tile)]).splitlines() if line.startswith(start))
        for start in ("#ifndef", "inline namespace")
        for tile in (64, 128)
    ]
    assert len(set(lines)) == 4


def test_predictions_are_left_out_unless_asked_for_and_then_marked(make_winner: Make) -> None:
    """A time that nobody measured does not reach a program by accident."""
    predicted = make_winner(predicted=True, method="model/1", time_us=0.5)
    assert "entry_count = 0;" in render_header([predicted])
    assert ", 0.5, true, true, " in render_header([predicted], predicted=True)
    measured = make_winner(time_us=9.0)
    assert render_header([predicted, measured], predicted=True) == render_header([measured])


def test_of_several_winners_for_one_problem_one_is_in_the_header(make_winner: Make) -> None:
    """B8, G6: complete, then fastest; the entry is a measured one as a whole."""
    winners = [
        make_winner(time_us=1.0, complete=False, tile_m=1),
        make_winner(time_us=3.0, tile_m=3),
        make_winner(time_us=2.0, tile_m=2, sources={"simt": "other"}),
    ]
    assert render_header(winners) == render_header([winners[2]])


def test_the_namespace_is_the_users_choice_and_must_be_one(make_winner: Make) -> None:
    """Two tables can live side by side under names of their own."""
    assert "namespace mine::tuned {" in render_header([make_winner()], namespace="mine::tuned")
    for wrong in ("", "3d", "a-b", "a::", "a b", "a__b", "é"):
        with pytest.raises(InputError, match="not a C\\+\\+ namespace"):
            render_header([make_winner()], namespace=wrong)
    for wrong in ("class", "mine::export", "int"):
        with pytest.raises(InputError, match=r"reserved in C\+\+"):
            render_header([make_winner()], namespace=wrong)


TAKEN = ["std", "std::mine", "main", "int8_t", "size_t", "strlen", "printf", "log", "sinf", "strtol_l", "index", "FILE",
         "tm", "pthread_create", "atomic_int"]  # fmt: skip
CUDA = ["dim3", "float4", "uint3", "ulonglong2", "double4_16a", "half", "half2", "threadIdx", "warpSize", "max",
        "rsqrt", "cudaStream_t", "CUstream", "cuInit", "CUDA_ERROR_UNKNOWN", "make_float2", "atomicAdd", "hexp2",
        "dim3::mine"]  # fmt: skip
MACROS = ["NULL", "EOF", "errno", "assert", "INT_MAX", "linux", "unix", "stdin", "EINVAL", "SIGINT", "PRId64", "M_PI"]


@pytest.mark.parametrize("namespace", [*TAKEN, *CUDA, *MACROS, *(f"mine::{name}" for name in MACROS), ""])
def test_a_namespace_that_cannot_be_had_beside_the_headers_of_c(kt: Callable[..., Any], namespace: str) -> None:
    """Whether the cache has anything or not: exit 2, with the option. Many a program includes <cstring> too."""
    outcome = kt("export", "--header", "--namespace", namespace)
    assert outcome.code == 2
    named = namespace.removeprefix("mine::").partition("::")[0]
    assert outcome.err.startswith(f"kt: error: --namespace {named!r}")


@pytest.mark.parametrize("name", ["dim3", "uint4", "threadIdx", "cudaStream_t", "cuuint64_t", "CUtensorMap"])
def test_kernels_cannot_be_in_a_namespace_that_hides_what_they_use(kt: Callable[..., Any], name: str) -> None:
    """Anywhere in it; a table uses nothing of CUDA, and the hint leads to what is taken."""
    for namespace in (f"mine::{name}", f"mine::{name}::more", f"dim3::{name}"):
        outcome = kt("export", "--header", "--namespace", namespace)
        assert outcome.code == 2
        assert "is a name of CUDA" in outcome.err
        assert re.search(r"--namespace mylib::tuned$", outcome.err, re.MULTILINE)
    check_namespace(f"mine::{name}")
    assert kt("export", "--header", "--table-only", "--namespace", f"mine::{name}").code == 5  # an empty cache


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_what_is_said_to_be_of_cuda_is(tmp_path: Path) -> None:
    """nvcc refuses each as a namespace beside CUDA's headers, so none is forbidden for nothing; others it takes."""
    includes = "".join(f"#include <{name}.h>\n" for name in ("cuda_runtime", "cuda", "cuda_fp16"))
    for names, refused in (
        (CUDA[:-1], True),
        (["mine", "tuned", "cublas", "floats", "half_precision", "current"], False),
    ):
        assert all(is_of_cuda(name) == refused for name in names)
        source = "".join(f"\nnamespace {name} {{}}" for name in names)
        (tmp_path / "names.cu").write_text(includes + "#line 0" + source + "\n")
        command = [str(NVCC), "-c", "names.cu", "-o", os.devnull]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        wrong = {int(line) for line in re.findall(r"^names\.cu\((\d+)\): error", done.stderr, re.MULTILINE)}
        assert len(wrong) == (len(names) if refused else 0), done.stderr


@needs_gxx
def test_namespaces_that_are_allowed_work_beside_all_headers(tmp_path: Path, make_winner: Make) -> None:
    """Also a name of the library, if it is nested: the header asks the standard library by its full name."""
    names = ["mine", "mine::std", "mine::int8_t", "a::log::size_t", "detail", "Entry", "find::Device", "Engine"]
    text = "".join(f"#include <{name}>\n" for name in ("cassert", "cmath", "csignal", "cstdio", "cstring", "ctime"))
    for number, name in enumerate(names):
        (tmp_path / f"{number}.h").write_text(render_header([make_winner()], namespace=name))
        text += f'#include "{number}.h"\n'
    text += "int main() { return " + " + ".join(f"(::{name}::misses() == 0 ? 0 : 1)" for name in names) + "; }\n"
    run(build(tmp_path, "", main=text))
