"""Which loads of the wgmma family tell L2 what may leave first: those of B, of kernels that are for few rows of C."""

import ctypes
import os
import re

import pytest

from kt.problems import Problem
from kt.search_spaces.space import Value
from kt.tuner.toolchain import toolchain
from support.family_compiles import builtin, job

SPACE = builtin("wgmma")
FEW: dict[str, Value] = {"tile_m": 64, "tile_n": 64, "tile_k_bytes": 256, "stages": 5, "consumers": 1}


def ptx_of(choices: dict[str, Value], problem: Problem) -> str:
    """What the compiler makes of the kernel before it is a GPU's."""
    asked = job(SPACE, SPACE.config({**SPACE.default, **choices}), problem, "sm_90a")
    library, program, size = ctypes.CDLL(toolchain().library), ctypes.c_void_p(), ctypes.c_size_t()
    includes = [f"-I{one}" for one in toolchain().include_dirs]
    options = ["--gpu-architecture=compute_90a", *toolchain().options, *includes]
    encoded = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
    library.nvrtcCreateProgram(ctypes.byref(program), asked.source.encode(), b"kernel.cu", 0, None, None)
    try:
        assert library.nvrtcCompileProgram(program, len(options), encoded) == 0
        library.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        library.nvrtcGetPTX(program, text)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return text.value.decode()


def loads(ptx: str, *, multicast: bool) -> tuple[int, int]:
    """Loads by TMA without a policy, and with one."""
    found = re.findall(r"cp\.async\.bulk\.tensor\.\w+\.shared::cluster\.global\S* ", ptx)
    assert any("multicast" in one for one in found) == multicast
    hinted = sum("L2::cache_hint" in one for one in found)
    return len(found) - hinted, hinted


@pytest.mark.parametrize(("columns", "cluster_n"), [(64, 1), (56, 1), (64, 2)])
def test_few_rows_stream_b(columns: int, cluster_n: int) -> None:
    """Half of the loads, for A and B have as many: those of B, which no two blocks of a cluster share."""
    choices: dict[str, Value] = {**FEW, "tile_n": columns, "cluster_n": cluster_n}
    ptx = ptx_of(choices, Problem(64, 7168, 8192, "bf16", "nt"))
    usual, hinted = loads(ptx, multicast=cluster_n == 2)
    assert usual == hinted > 0
    assert "multicast::cluster.L2" not in ptx


@pytest.mark.parametrize(
    "choices",
    [{**FEW, "cluster_m": 2}, {**FEW, "tile_m": 128, "stages": 3}, {**FEW, "consumers": 2, "schedule": "pingpong"}],
    ids=["shared", "many rows", "two consumers"],
)
def test_others_have_no_policy(choices: dict[str, Value]) -> None:
    """Where rows are many or blocks share what they load of B, it is read more than once; others lack the registers."""
    ptx = ptx_of(choices, Problem(512, 512, 512, "bf16", "nt"))
    usual, hinted = loads(ptx, multicast="cluster_m" in choices)
    assert usual > 0
    assert hinted == 0
