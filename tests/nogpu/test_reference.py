"""The reference kernels: they compile for every format and GPU, and Python packs their arguments as C++ reads them."""

import re
from itertools import product

import pytest

from kt.problems import DTYPES, Problem
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.ptxas_log import read_log
from kt.tuner.reference import FLOATING, KERNELS, SOURCE, STRUCTS, compile_reference, pack, reference_definitions
from kt.tuner.toolchain import toolchain

PROBLEMS = [
    Problem(8, 8, 8, dtype=dtype.name, accumulator=accumulator, out_dtype=out)
    for dtype in DTYPES.values()
    for accumulator, out in product(dtype.accumulators, dtype.outputs)
]
DEFINITIONS = sorted({reference_definitions(problem) for problem in PROBLEMS})


@pytest.mark.parametrize("definitions", DEFINITIONS, ids=lambda names: "-".join(n.split("=")[2] for n in names))
def test_every_pair_of_formats_compiles(definitions: tuple[str, ...]) -> None:
    cubin = compile_reference(definitions, "sm_90a")
    assert cubin.startswith(b"\x7fELF")
    assert all(name.encode() in cubin for name in KERNELS)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_120"])
def test_the_reference_compiles_for_old_and_new_gpus(arch: str) -> None:
    assert compile_reference(reference_definitions(Problem(8, 8, 8, dtype="fp16")), arch).startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_one_block_that_fills_a_multiprocessor_has_all_registers_and_spills_none(arch: str) -> None:
    """65,536 of a multiprocessor: 512 threads of 128, of which the compiler says how many it writes."""
    tools = toolchain()
    load_builtins(tools.library)
    options = (f"--gpu-architecture={arch}", "-std=c++17", "--ptxas-options=-v")
    definitions = reference_definitions(Problem(8, 8, 8))
    compiled = Nvrtc(tools.library).compile(SOURCE.read_text(), (*options, *definitions), SOURCE.name)
    kernel = read_log(compiled.log).kernels["fill_multiprocessor"]
    (threads, held) = map(int, re.findall(r"kFillThreads = (\d+), kHeld = (\d+);", SOURCE.read_text())[0])
    assert threads * 128 == 65536
    assert held == 120
    assert held < kernel.registers <= 128
    assert kernel.spill_bytes == 0


def fields_in_source() -> dict[str, list[tuple[str, bool]]]:
    """Structs of kernel arguments in reference.cu: (name, is a double) of each field in order."""
    structs: dict[str, list[tuple[str, bool]]] = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", SOURCE.read_text(), re.MULTILINE | re.DOTALL):
        if name not in STRUCTS:
            continue
        structs[name] = []
        for line in re.sub(r"//.*", "", body).split(";"):
            if declaration := re.match(r"\s*((?:const )?\w+\*?)\s+(.+)", line, re.DOTALL):
                kind, names = declaration.groups()
                structs[name] += [(field.strip(), kind == "double") for field in names.split(",")]
    return structs


def test_python_and_cuda_declare_the_same_arguments() -> None:
    found = fields_in_source()
    assert {name: tuple(field for field, _ in fields) for name, fields in found.items()} == STRUCTS
    for fields in found.values():
        assert {field for field, is_double in fields if is_double} == FLOATING & {field for field, _ in fields}


def test_every_kernel_of_the_source_is_known_with_its_struct() -> None:
    found = re.findall(
        r'extern "C" __global__ void (?:__launch_bounds__\([\w, ]+\) )?(\w+)\((\w+) p\)', SOURCE.read_text()
    )
    assert dict(found) == KERNELS


def test_arguments_are_packed_without_gaps_and_none_can_be_forgotten() -> None:
    packed = pack("digest", {"start": 1, "words": 2, "sum": 3})
    assert packed.tobytes() == b"".join(value.to_bytes(8, "little") for value in (1, 2, 3))
    with pytest.raises(TypeError, match="digest takes start, words, sum"):
        pack("digest", {"start": 1, "words": 2})
