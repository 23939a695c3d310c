"""The compiler's log is read alike in the forms of NVRTC 12.9 and 13.5, which wrote these, and of older ptxas."""

import pytest

from kt.tuner.nvrtc import Nvrtc
from kt.tuner.ptxas_log import KernelResources, error_text, first_error, read_log
from kt.tuner.toolchain import toolchain

RESOURCES = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kt_gemm' for 'sm_90a'
ptxas info    : Function properties for kt_gemm
ptxas         .     592 bytes stack frame, 700 bytes spill stores, 712 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 592 bytes cumulative stack size
ptxas info    : Compile time = 17.363 ms
ptxas info    : Compiling entry function '_Z2k2ILi64EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z2k2ILi64EEvPf
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 106 registers, used 2 barriers, 32768 bytes smem, 380 bytes cmem[0]
\0"""
OLDER = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kt_gemm' for 'sm_80'
ptxas info    : Function properties for kt_gemm
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, 360 bytes cmem[0]
"""
WGMMA = """ptxas info    : (C7517) wgmma.wait_group is injected in around line 98 by compiler to allow use of registers in function 'w'
ptxas info    : (C7517) wgmma.wait_group is injected in around line 104 by compiler to allow use of registers in function 'w'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'w' in line 108
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas warning : Value of threads per SM for entry w is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
"""  # noqa: E501
FRONT_END = """kernel.cu(3): warning #177-D: variable "unused" was declared but never referenced
  int unused;
      ^

kernel.cu(7): error: identifier "undefined_thing" is undefined
  a[0]=undefined_thing;
       ^

kernel.cu(9): error: identifier "b" is undefined

2 errors detected in the compilation of "kernel.cu".
"""
SHARED = (
    RESOURCES + "ptxas error   : Entry function 'kt_gemm' uses too much shared data (0x61a80 bytes, 0xc000 max)\n\0"
)


def test_resources_of_each_kernel() -> None:
    kernels = read_log(RESOURCES).kernels
    assert kernels == {
        "kt_gemm": KernelResources(32, 700, 712, 592, 0),
        "_Z2k2ILi64EEvPf": KernelResources(106, 0, 0, 0, 32768),
    }
    assert kernels["kt_gemm"].spill_bytes == 1412


def test_older_form_without_barriers_and_with_bare_lines() -> None:
    assert read_log(OLDER).kernels == {"kt_gemm": KernelResources(40, 4, 8, 8, 0)}


def test_spills_of_a_function_that_was_not_inlined_count_for_each_kernel() -> None:
    log = RESOURCES + (
        "ptxas info    : Function properties for _Z1fPfi\n"
        "ptxas         .     16 bytes stack frame, 5 bytes spill stores, 6 bytes spill loads\n"
    )
    kernels = read_log(log).kernels
    assert [kernel.spill_bytes for kernel in kernels.values()] == [1412 + 11, 11]
    assert set(kernels) == {"kt_gemm", "_Z2k2ILi64EEvPf"}


def test_a_warning_is_told_once_whatever_its_lines() -> None:
    assert read_log(WGMMA).warnings == (
        "C7517 wgmma.wait_group is injected by compiler to allow use of registers in function 'w'",
        "C7511 wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma "
        "pipeline in the function 'w'",
        "C7508 'setmaxnreg' ignored; unable to determine register count at entry",
        "Value of threads per SM for entry w is out of range. .minnctapersm will be ignored",
    )
    assert read_log(RESOURCES).warnings == ()


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (FRONT_END, 'identifier "undefined_thing" is undefined'),
        (SHARED, "Entry function 'kt_gemm' uses too much shared data (0x61a80 bytes, 0xc000 max)"),
        (
            'k.cu(1): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)\n',
            'could not open source file "cuda_fp16.h" (no directories in search list)',
        ),
        ("kernel.cu(1): error: static assertion failed with \"x\"\n", 'static assertion failed with "x"'),
        ("kernel.cu(1): error #20-D: identifier is undefined\n", "identifier is undefined"),
        (
            "nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
            "invalid value for --gpu-architecture (-arch)",
        ),
        (
            "ptxas application ptx input, line 27; error   : Not a name of any known instruction: 'nonsense'\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n",
            "Not a name of any known instruction: 'nonsense'",
        ),
        ("ptxas fatal   : (C7600) Register allocation failed\n", "(C7600) Register allocation failed"),
        ("the compiler process ended by SIGSEGV", "the compiler process ended by SIGSEGV"),
    ],
)  # fmt: skip
def test_the_first_error_names_the_cause(log: str, cause: str) -> None:
    assert first_error(log) == cause
    assert first_error(error_text(log)) == cause


def test_the_error_text_begins_with_the_first_error_and_is_bounded() -> None:
    assert error_text(FRONT_END).startswith("kernel.cu(7): error: identifier")
    assert error_text(SHARED).startswith("ptxas error   : Entry function")
    assert len(error_text(FRONT_END * 1000)) <= 4000


def test_a_real_log_is_read() -> None:
    source = """
        extern "C" __global__ void __launch_bounds__(256) one(float* a) {
          __shared__ float s[256];
          s[threadIdx.x] = a[threadIdx.x];
          __syncthreads();
          a[threadIdx.x] = s[255 - threadIdx.x];
        }
        extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* a) {
          float r[96];
          #pragma unroll
          for (int i = 0; i < 96; i++) r[i] = a[i * 32 + threadIdx.x];
          __syncthreads();
          #pragma unroll
          for (int i = 0; i < 96; i++) a[i * 33 + threadIdx.x] = r[i] * r[(i * 7) % 96];
        }"""
    result = Nvrtc(toolchain().library).compile(source, ["--gpu-architecture=sm_80", "--ptxas-options=-v"])
    kernels = read_log(result.log).kernels
    assert kernels["one"].static_smem_bytes == 1024
    assert 0 < kernels["one"].registers < 64
    assert kernels["one"].spill_bytes == 0
    assert kernels["spilling"].registers == 32  # 65536 registers for 2 × 1024 threads
    assert kernels["spilling"].spill_bytes > 100
    assert result.cubin.startswith(b"\x7fELF")
