"""The pool compiles each job once in several processes, ends what runs too long, survives what crashes, and is gone
when it is closed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from kt.templates.source import Source
from kt.tuner import compile_pool
from kt.tuner.compile_failures import cause_of
from kt.tuner.compile_messages import CompileRequest
from kt.tuner.compile_pool import CompilePool
from kt.tuner.compiler import compile_source
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.toolchain import compile_job, toolchain
from support.processes import is_running

KERNEL = """
extern "C" __global__ void __launch_bounds__(256) k(float* a) {{
  __shared__ float s[256];
  s[threadIdx.x] = a[threadIdx.x] * {number};
  __syncthreads();
  a[threadIdx.x] = s[255 - threadIdx.x];
}}"""
# What a compiler needs minutes for: hundreds of thousands of multiplications in one basic block.
ENDLESS = """
template <int N> struct Loop {{
  static __device__ __forceinline__ float run(const float* a, float x) {{
    x = x * a[N % 4093] + a[(N * 7) % 4093] / (x + {number});
    return Loop<N - 1>::run(a, Loop<N - 2>::run(a, x));
  }}
}};
template <> struct Loop<0> {{ static __device__ float run(const float* a, float x) {{ return x + a[0]; }} }};
template <> struct Loop<1> {{ static __device__ float run(const float* a, float x) {{ return x * a[1]; }} }};
extern "C" __global__ void k(float* a) {{ a[threadIdx.x] = Loop<32>::run(a, a[threadIdx.x]); }}"""
BROKEN = 'extern "C" __global__ void k(float* a) {{ a[0] = undefined_{number}; }}'


def job(template: str = KERNEL, number: int = 1, arch: str = "sm_80") -> CompileJob:
    return compile_job(Source(template.format(number=number), "test.cu.j2"), arch, toolchain())


@pytest.fixture
def cubins(tmp_path: Path) -> Iterator[CubinCache]:
    cache = CubinCache(tmp_path / "José-é 目录")
    yield cache
    cache.close()


def results(pool: CompilePool, seconds: float = 120.0) -> dict[str, Binary]:
    """Every outcome, as a caller collects them."""
    found: dict[str, Binary] = {}
    until = time.monotonic() + seconds
    while pool.pending and time.monotonic() < until:
        found |= {binary.digest: binary for binary in pool.poll(1.0)}
    assert not pool.pending, "not done in time"
    return found


def processes(pool: CompilePool) -> list[int]:
    return [compiler.process.pid for compiler in pool._compilers]


def test_jobs_become_cubins_with_their_resources(cubins: CubinCache) -> None:
    jobs = [job(number=number) for number in range(5)]
    with CompilePool(2, cubins) as pool:
        for each in jobs:
            pool.submit(each)
        assert len(processes(pool)) == 2
        found = results(pool)
    assert set(found) == {each.digest for each in jobs}
    for binary in found.values():
        assert Path(binary.path).read_bytes().startswith(b"\x7fELF")
        assert binary.static_smem_bytes == {"k": 1024}
        assert 0 < binary.registers["k"] < 100
        assert binary.error == ""
        assert binary.seconds > 0


def test_the_second_run_compiles_nothing_and_starts_no_process(cubins: CubinCache) -> None:
    """F6; a source that does not compile is known as well."""
    jobs = [job(number=1), job(BROKEN, 1)]
    with CompilePool(1, cubins) as pool:
        for each in jobs:
            pool.submit(each)
        first = results(pool)
        assert pool.compiled == 2
    with CompilePool(1, CubinCache(cubins.cache_dir)) as pool:
        for each in jobs:
            pool.submit(each)
        assert processes(pool) == []
        second = results(pool)
        assert pool.compiled == 0
    for digest, binary in second.items():
        assert (binary.path, binary.registers, binary.error) == (
            first[digest].path, first[digest].registers, first[digest].error,
        )  # fmt: skip
        assert binary.seconds == 0


def test_equal_jobs_are_compiled_once_and_answered_again_later(cubins: CubinCache) -> None:
    with CompilePool(2, cubins) as pool:
        for _ in range(3):
            pool.submit(job())
        assert pool.pending == 1
        assert len(results(pool)) == 1
        pool.submit(job())
        assert [binary.digest for binary in pool.poll()] == [job().digest]
        assert pool.compiled == 1


def test_a_source_that_does_not_compile_gives_its_log_and_the_rest_goes_on(cubins: CubinCache) -> None:
    with CompilePool(1, cubins) as pool:
        pool.submit(job(BROKEN, 7))
        pool.submit(job())
        found = results(pool)
        assert found[job(BROKEN, 7).digest].error.startswith("kernel.cu(1): error: identifier")
        assert found[job().digest].path
        assert pool.compiled == 2


def test_what_ptxas_refuses_is_a_failure_with_its_reason(cubins: CubinCache) -> None:
    """C4, C5: too many registers or too much shared memory is a status of the candidate, found by its own unit."""
    too_much = 'extern "C" __global__ void k(float* a) {{ __shared__ float s[{number}]; s[threadIdx.x] = a[0]; '
    too_much += "__syncthreads(); a[1] = s[3]; }}"
    with CompilePool(1, cubins) as pool:
        pool.submit(job(too_much, 100_000))
        pool.submit(job(too_much, 1000))
        found = results(pool)
    assert "uses too much shared data" in found[job(too_much, 100_000).digest].error
    assert cause_of(found[job(too_much, 100_000).digest].error).startswith("Entry function 'k' uses too much shared")
    assert found[job(too_much, 1000).digest].static_smem_bytes == {"k": 4000}


def test_a_register_budget_that_cannot_hold_compiles_or_fails_alone(cubins: CubinCache) -> None:
    """C4: 16 × 16 values a thread with 1024 threads: spills are told, or the failure is; the next job compiles."""
    heavy = """
        extern "C" __global__ void __launch_bounds__(1024, 2) k(const float* a, float* c) {{
          float r[{number}];
          #pragma unroll
          for (int i = 0; i < {number}; i++) r[i] = a[i * 1024 + threadIdx.x];
          __syncthreads();
          #pragma unroll
          for (int i = 0; i < {number}; i++) c[i * 1024 + threadIdx.x] = r[i] * r[(i * 7 + 3) % {number}];
        }}"""
    with CompilePool(1, cubins) as pool:
        pool.submit(job(heavy, 256))
        pool.submit(job())
        found = results(pool)
    binary = found[job(heavy, 256).digest]
    assert binary.error or binary.spill_bytes["k"] > 0
    assert found[job().digest].path


def test_a_compilation_over_its_limit_is_ended_and_the_rest_goes_on(cubins: CubinCache) -> None:
    """C8: the compiler process itself ends; the time-out is not remembered on disk, only in this pool."""
    with CompilePool(1, cubins, limit_s=3.0) as pool:
        pool.submit(job(ENDLESS))
        pool.submit(job())
        compilers = processes(pool)
        began = time.monotonic()
        found = results(pool)
        assert time.monotonic() - began < 30
        assert not is_running(compilers[0])
        late = found[job(ENDLESS).digest]
        assert late.timed_out
        assert "took longer than 3 s" in late.error
        assert found[job().digest].path
        pool.submit(job(ENDLESS))
        assert pool.poll()[0].timed_out, "it is not tried again in this run"
    assert cubins.get(job(ENDLESS).digest) is None


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_compiler_that_crashes_fails_its_job_only(cubins: CubinCache, number: signal.Signals) -> None:
    with CompilePool(1, cubins, limit_s=60) as pool:
        pool.submit(job(ENDLESS))
        pool.submit(job())
        os.kill(processes(pool)[0], number)
        found = results(pool)
    assert f"ended by {number.name}" in found[job(ENDLESS).digest].error
    assert not found[job(ENDLESS).digest].timed_out
    assert found[job().digest].path


def test_a_compiler_that_cannot_start_is_a_failure_of_each_job_not_a_hang(
    cubins: CubinCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_pool, "_MODULE", "kt.no_such_module")
    with CompilePool(2, cubins) as pool:
        for number in range(3):
            pool.submit(job(number=number))
        found = results(pool)
    assert len(found) == 3
    assert all("ended with exit code 1" in binary.error for binary in found.values())


@pytest.mark.parametrize(("jobs", "started"), [(2, 2), (None, 3), (9, 3)])
def test_compilers_start_before_the_first_job_but_no_more_than_it_wants(
    cubins: CubinCache, jobs: int | None, started: int
) -> None:
    with CompilePool(3, cubins) as pool:
        pool.start(jobs)
        before = processes(pool)
        assert len(before) == started
        pool.submit(job())
        assert not next(iter(results(pool).values())).error
        assert processes(pool) == before
    assert not any(is_running(pid) for pid in before)


def test_closing_ends_busy_compilers_at_once(cubins: CubinCache) -> None:
    pool = CompilePool(2, cubins)
    for number in range(4):
        pool.submit(job(ENDLESS, number))
    compilers = processes(pool)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 3
    assert not any(map(is_running, compilers))
    assert pool.pending == 0
    assert pool.poll(0.0) == []


def test_forgetting_what_waits_leaves_what_is_under_way(cubins: CubinCache) -> None:
    with CompilePool(1, cubins) as pool:
        for number in range(6):
            pool.submit(job(number=number))
        pool.cancel_pending()
        assert pool.pending == 1
        assert list(results(pool)) == [job(number=0).digest]
        pool.submit(job(number=5))
        assert list(results(pool)) == [job(number=5).digest]


def test_its_connections_tell_when_an_outcome_is_there(cubins: CubinCache) -> None:
    with CompilePool(1, cubins) as pool:
        assert pool.connections == []
        pool.submit(job())
        assert wait(pool.connections, 60) == pool.connections
        assert pool.poll(0.0)
        assert pool.connections == []


def test_polling_waits_no_longer_than_asked(cubins: CubinCache) -> None:
    with CompilePool(1, cubins) as pool:
        pool.submit(job(ENDLESS))
        began = time.monotonic()
        assert pool.poll(0.2) == []
        assert 0.15 < time.monotonic() - began < 2


@pytest.mark.parametrize("kind", ["a file in the way", "no space"])
def test_a_cache_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only or full: the binaries are there for this run all the same."""
    if kind == "no space":
        cache_dir = Path("/dev/full")  # whatever is created below it fails
    else:
        cache_dir = tmp_path / "cache"
        cache_dir.write_text("a file")
    cubins, warnings = CubinCache(cache_dir), list[str]()
    with CompilePool(1, cubins, warn=warnings.append) as pool:
        for number in range(3):
            pool.submit(job(number=number))
        found = results(pool)
        assert all(Path(binary.path).read_bytes().startswith(b"\x7fELF") for binary in found.values())
    assert all(Path(binary.path).exists() for binary in found.values()), "they outlive the pool"
    assert len(warnings) == 1
    assert "cubin cache cannot be written" in warnings[0]
    assert f"({cubins.root}: " in warnings[0]
    assert "Errno" not in warnings[0]
    cubins.close()
    assert not any(Path(binary.path).exists() for binary in found.values())


def test_it_works_in_folders_with_foreign_names(tmp_path: Path) -> None:
    """F5: working directory, temporary folder and cache below a name with a space and letters outside ASCII."""
    folder = tmp_path / "José-é 目录"
    folder.mkdir()
    (folder / "ctypes.py").write_text("raise SystemExit('shadowed')")
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from test_compile_pool import CompilePool, CubinCache, Path, Source, compile_job, results, toolchain, KERNEL
source = Source("#include <cuda_fp16.h>\\n" + KERNEL.format(number=1), "é.cu.j2")
with CompilePool(1, CubinCache(Path("cache é"))) as pool:
    pool.submit(compile_job(source, "sm_80", toolchain()))
    assert [binary for binary in results(pool).values() if binary.path and not binary.error]
"""
    environment = os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("cache é/cubin/*/*.cubin"))


def test_a_compiler_that_has_grown_is_replaced(cubins: CubinCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "_MEMORY_LIMIT", 1)
    with CompilePool(1, cubins) as pool:
        pool.submit(job(number=1))
        first = processes(pool)
        results(pool)
        assert not is_running(first[0])
        pool.submit(job(number=2))
        assert processes(pool) != first
        assert next(iter(results(pool).values())).path


def test_a_missing_header_is_not_remembered(cubins: CubinCache) -> None:
    """It may be installed before the next run; an error of the source alone stays one."""
    options = ("-std=c++17",)
    missing = CompileJob("1" * 64, "#include <no_such_header.h>\n", "sm_80", options)
    wrong_target = CompileJob("2" * 64, job().source, "sm_999", options)
    broken = CompileJob("3" * 64, BROKEN.format(number=1), "sm_80", options)
    for each in (missing, wrong_target, broken):
        reply = compile_source(CompileRequest(each, toolchain().library, str(cubins.cache_dir)))
        assert reply.binary.error
    assert cubins.get("1" * 64) is None
    assert cubins.get("2" * 64) is None
    assert cubins.get("3" * 64) is not None


def test_a_compiler_process_stays_light(cubins: CubinCache) -> None:
    """Sixteen of them and the rest of a run stay below 6 GB; neither CuPy nor numpy is loaded."""
    with CompilePool(1, cubins) as pool:
        pool.submit(job())
        results(pool)
        maps = Path(f"/proc/{processes(pool)[0]}/maps").read_text()
        status = Path(f"/proc/{processes(pool)[0]}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
    assert "cupy" not in maps
    assert "numpy" not in maps
    assert resident < 160


def test_a_compiler_that_wants_all_memory_ends_alone(cubins: CubinCache) -> None:
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from kt.tuner import compiler
from test_compile_pool import ENDLESS, CompileRequest, job, toolchain
compiler._MEMORY_LIMIT = 256 * 2**20
compiler._limit_itself()
compiler.compile_source(CompileRequest(job(ENDLESS), toolchain().library, {str(cubins.cache_dir)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "memory" in done.stderr
