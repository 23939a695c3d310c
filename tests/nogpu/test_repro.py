"""`kt repro`: one winner as a program that compiles without a warning and holds what was tuned, and nothing else."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources, current_spaces
from kt.devices.catalog import modelled
from kt.devices.device import DeviceIdentity
from kt.export.repro import render_repro
from kt.problems import Problem
from kt.search_spaces.launch import resolve, violated
from kt.templates.render import render
from kt.tuner.method import METHOD_LABEL
from support.commands import Command

Make = Callable[..., BestConfig]
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="needs nvcc")
SPACES = current_spaces(None)
H200, A100 = modelled("h200"), modelled("a100")


@pytest.fixture
def winner(make_winner: Make) -> Make:
    """The default configuration of a family as the winner of a problem."""

    def make(family: str, problem: Problem, device: Any = H200, **changes: Any) -> BestConfig:
        values = dict(SPACES[family].default) | changes.pop("choices", {})
        config = SPACES[family].config(values)
        names = {**device.names(), **problem.names()}
        assert violated(SPACES[family], config, names) is None
        launches, workspace = resolve(SPACES[family], config, names)
        return make_winner(
            problem,
            **{"config": config, "device": device.identity, "launches": launches, "workspace_bytes": workspace}
            | changes,
        )

    return make


def files(best: BestConfig, device: Any = H200) -> dict[str, str]:
    return render_repro(best, SPACES[best.config.family], device)


# Every number format, layouts, paddings, batches, scalars, accumulators and outputs that are not the usual ones.
PROGRAMS = [
    ("simt", Problem(300, 200, 100)),
    ("simt", Problem(31, 33, 35, "int8", "nt", alpha=2, beta=-1)),
    pytest.param("mma", Problem(64, 64, 64, "fp64", "tt", batch=3, ldc=70), marks=pytest.mark.slow),
    ("mma", Problem(100, 77, 33, "fp16", "tn", alpha=1.5, beta=0.5, accumulator="fp16", base_alignment=2)),
    pytest.param("mma", Problem(128, 128, 0, "tf32", "nn", out_dtype="fp32"), marks=pytest.mark.slow),
    ("wgmma", Problem(512, 512, 512, "bf16", "nt", out_dtype="fp32", batch=2)),
    ("wgmma", Problem(256, 256, 256, "fp8_e4m3", "nt")),
    pytest.param("wgmma", Problem(256, 256, 256, "fp8_e5m2", "nt", out_dtype="fp16"), marks=pytest.mark.slow),
]


@needs_nvcc
@pytest.mark.parametrize(("family", "problem"), PROGRAMS, ids=str)
def test_the_program_compiles_without_a_warning(family: str, problem: Problem, winner: Make, tmp_path: Path) -> None:
    """By its own Makefile, with all warnings as errors, for the GPU that it was tuned on."""
    for name, text in files(winner(family, problem)).items():
        (tmp_path / name).write_text(text)
    strict = "NVCCFLAGS=-Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror"
    done = subprocess.run(["make", "-s", "repro", strict], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "repro").exists()


def test_the_kernel_is_what_was_tuned(winner: Make) -> None:
    """The rendered source letter by letter, and each launch with its figures."""
    problem = Problem(512, 512, 4096)
    best = winner("simt", problem, choices={"split_k": 4})
    text = files(best)["repro.cu"]
    assert render(SPACES["simt"], best.config, problem.signature, "sm_90a").text.strip() in text
    assert len(best.launches) == 2
    for launch in best.launches:
        call = f"::{launch.kernel}), {launch.grid}, {launch.block}, {launch.smem_bytes}, true, parameters, stream"
        assert call in text
    assert f"kWorkspace = {best.workspace_bytes};" in text
    names, values = re.search(r"kBatch, /\*(.*?)\*/ (.*?), 0};", text).groups()  # type: ignore[union-attr]
    passed = dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))
    assert passed["split_k"] == 4
    assert passed["raster_group"] == dict(best.config.runtime)["raster_group"]


def test_tensor_maps_are_those_of_the_tuner(winner: Make) -> None:
    """Figures as `tuner/tensor_map.py` gives them to the encoder: of operands, and of C."""
    best = winner("wgmma", Problem(512, 384, 256, "bf16", "nt"))
    text = files(best)["repro.cu"]
    (launch,) = [one for one in best.launches if one.tensor_maps]
    a = launch.tensor_maps[0]
    figures = f"CU_TENSOR_MAP_DATA_TYPE_UINT16, {{ 256, 512, 1 }}, {{ 512, {512 * 512} }}"
    assert f"tensor_map(const_cast<void*>(a), {figures}" in text
    assert f"{{ {a.box[0]}, {a.box[1]}, 1 }}, CU_TENSOR_MAP_SWIZZLE_{a.swizzle}B)" in text
    assert "{ 256, 384, 1 }" in text
    assert "tensor_map(c, " in text
    assert text.count("tensor_map(") == 1 + len(launch.tensor_maps)


def test_classes_of_rows_are_told_with_their_numbers(winner: Make) -> None:
    """The program finds their rows by the address that B has there."""
    choices = {"pack_a": 1, "classes_b": 1, "tile_n": 256, "stages": 4}
    text = files(winner("wgmma", Problem(512, 388, 256, "bf16", "nn"), choices=choices))["repro.cu"]
    calls = re.findall(r"tensor_map\(const_cast<void\*>\(b\), .*\);", text)
    assert len(calls) == 2
    for number, call in enumerate(calls):
        assert f"{{ 388, 256, 1 }}, {{ 776, {776 * 256} }}" in call
        assert call.endswith(f"CU_TENSOR_MAP_SWIZZLE_128B, 2, 2, {number});")


@pytest.mark.parametrize(("dtype", "columns", "size", "classes"), [("bf16", 72, 2, 8), ("tf32", 36, 4, 4)])
def test_classes_of_rows_of_a_have_boxes_without_a_swizzle(
    dtype: str, columns: int, size: int, classes: int, winner: Make
) -> None:
    """As many of them as an odd row has, in the order in which the kernel takes their maps."""
    choices = {"shift_a": 1, "pack_b": 1, "tile_n": 256, "stages": 4}
    text = files(winner("wgmma", Problem(512, 384, 257, dtype, "nt"), choices=choices))["repro.cu"]
    calls = re.findall(r"tensor_map\(const_cast<void\*>\(a\), .*\);", text)
    box = f"{{ {columns}, {128 // classes}, 1 }}"
    assert [call[call.index(box) :] for call in calls] == [
        f"{box}, CU_TENSOR_MAP_SWIZZLE_NONE, {size}, {classes}, {number});" for number in range(classes)
    ]


def test_a_kernel_without_tensor_maps_needs_no_driver_header(winner: Make) -> None:
    """`cuda.h` is included only where it is needed."""
    assert "cuda.h>" not in files(winner("simt", Problem(64, 64, 64)))["repro.cu"]
    assert "cuda.h>" in files(winner("wgmma", Problem(128, 128, 64, "bf16", "nt")))["repro.cu"]


def test_the_target_is_the_tuned_gpu(winner: Make) -> None:
    """Of an A100, no `a`; another GPU is refused by the program itself."""
    made = files(winner("mma", Problem(64, 64, 64, "bf16"), A100), A100)
    assert "-gencode arch=compute_80,code=sm_80 " in made["Makefile"]
    assert "properties.minor != 80" in made["repro.cu"]
    assert "-gencode arch=compute_90a,code=sm_90a " in files(winner("mma", Problem(64, 64, 64, "bf16")))["Makefile"]


def test_the_same_winner_gives_the_same_bytes(winner: Make) -> None:
    """Nothing of when, where and by whom."""
    best = winner("simt", Problem(64, 64, 64))
    assert files(best) == files(replace(best, provenance={"host": "x", "date": "tomorrow"}))
    assert str(Path.home()) not in files(best)["repro.cu"]
    assert "/templates/" not in files(best)["repro.cu"]


def test_names_cannot_break_the_program(winner: Make) -> None:
    """A device may be called anything: it stands in a comment and in a text."""
    odd = DeviceIdentity('NVIDIA "H200" %s \\\nint main() {} // \\', (9, 0), 132, 140)
    best = winner("simt", Problem(64, 64, 64))
    text = files(replace(best, key=replace(best.key, device=odd)))["repro.cu"]
    assert not re.search(r"^int main\(\) \{\}", text, re.MULTILINE)
    assert not re.search(r"//.*\\$", text.partition("#include")[0], re.MULTILINE)
    assert r'"NVIDIA \"H200\" %s \\\012int main() {} // \\"' in text


def test_what_was_only_predicted_says_so(winner: Make) -> None:
    """The program tells what its expectation is worth."""
    assert "predicted on %s" in files(winner("simt", Problem(64, 64, 64), predicted=True))["repro.cu"]
    assert "measured on %s" in files(winner("simt", Problem(64, 64, 64)))["repro.cu"]


# The command


@pytest.fixture
def filled(own_environment: Path, winner: Make, no_gpu: None) -> None:
    """A cache with winners of today for three shapes, one of them on two GPUs, and a stale one."""
    today = {"sources": {"simt": current_sources(None, ())["simt"]}, "method": METHOD_LABEL}
    with Store.open(own_environment) as store:
        store.put_best(winner("simt", Problem(64, 64, 64), **today))
        store.put_best(winner("simt", Problem(64, 64, 64), A100, **today))
        store.put_best(winner("simt", Problem(64, 64, 65), **today))
        store.put_best(winner("simt", Problem(64, 64, 64, layout="nt"), **today))
        store.put_best(winner("simt", Problem(8, 8, 8), **today | {"sources": {"simt": "old"}}))
        store.put_best(winner("simt", Problem(9, 9, 9), **today | {"predicted": True, "method": "model/1"}))


@pytest.mark.usefixtures("filled")
def test_a_program_is_written_and_rewritten(kt: Command, tmp_path: Path) -> None:
    """Into a folder that need not be there; what would not change is left alone."""
    outcome = kt("repro", "64x64x65", "-o", tmp_path / "r")
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    assert f"make -C {tmp_path / 'r'} run" in outcome.err
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["Makefile", "repro.cu"]
    before = (tmp_path / "r" / "repro.cu").stat().st_mtime_ns
    assert kt("repro", "fp32 64x64x65", "-o", tmp_path / "r", "-q").err == ""
    assert (tmp_path / "r" / "repro.cu").stat().st_mtime_ns == before
    assert kt("repro", "nt", "64x64x64", "-o", tmp_path / "r").code == 0
    assert "64x64x64" in (tmp_path / "r" / "repro.cu").read_text()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("64x64x64",), 2, "is the name of 3 winners"),
        (("64x64x64", "nn"), 2, "fp32 nn 64x64x64 on NVIDIA"),
        (("64x64x6",), 5, "no winner for 64x64x6\nhint: `kt show-cache` lists the shapes, of whose names SHAPE is"),
        (("",), 2, "SHAPE is empty"),
        (("8x8x8",), 6, "stale: template or space of simt changed"),
        (("9x9x9",), 5, "--predicted takes"),
    ],
)
def test_a_shape_must_be_one_winner_of_today(
    kt: Command, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    """Else it is told what there is, and nothing is made."""
    outcome = kt("repro", *words, "-o", tmp_path / "r")
    assert outcome.code == code
    assert said in outcome.err
    assert not (tmp_path / "r").exists()


@pytest.mark.usefixtures("filled")
def test_devices_and_predictions_can_be_asked_for(kt: Command, tmp_path: Path) -> None:
    """As for an export."""
    assert kt("repro", "64x64x64", "nn", "--device", "a100", "-o", tmp_path / "r").code == 0
    assert "code=sm_80" in (tmp_path / "r" / "Makefile").read_text()
    assert kt("repro", "9x9x9", "--predicted", "-o", tmp_path / "r").code == 0


@pytest.mark.usefixtures("filled")
def test_files_of_others_are_not_replaced(kt: Command, tmp_path: Path) -> None:
    """A person's own Makefile stays; a file in place of the folder, or a missing parent, is refused."""
    (tmp_path / "Makefile").write_text("all:\n")
    outcome = kt("repro", "64x64x65", "-o", tmp_path)
    assert outcome.code == 2
    assert "is not of kt repro" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
    assert kt("repro", "64x64x65", "-o", tmp_path / "Makefile").code == 2
    assert kt("repro", "64x64x65", "-o", tmp_path / "no" / "r").code == 2


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("output", "message", "hint"),
    [
        ("", "--output is empty", "for example -o repro"),
        ("-", "--output is standard output, and a program is a folder", "for example -o repro"),
        ("no such/a/r", "no such/a/r cannot be made: there is no folder no such/a", "mkdir -p 'no such/a'"),
        ("file", "file cannot be a folder: a file of that name is there", "name another with -o"),
        ("taken", "taken/repro.cu is there, and no file", "name another folder with -o"),
        ("pipe", "pipe/Makefile is there, and no file", "name another folder with -o"),
    ],
)
def test_a_folder_that_cannot_be_is_told_with_what_to_do(
    kt: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str, hint: str
) -> None:
    """Nothing is written then, nor anything waited for."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("taken/repro.cu").mkdir(parents=True)
    Path("pipe").mkdir()
    os.mkfifo("pipe/Makefile")
    before = sorted(tmp_path.rglob("*"))
    outcome = kt("repro", "64x64x65", "-o", output)
    assert outcome.code == 2
    assert message in outcome.err
    assert hint in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("filled")
def test_the_command_that_is_shown_can_be_pasted(kt: Command, tmp_path: Path) -> None:
    """Also for a folder with blanks and dollars."""
    folder = tmp_path / "my $repro"
    outcome = kt("repro", "64x64x65", "-o", folder)
    assert outcome.code == 0
    assert f"`make -C '{folder}' run`" in outcome.err.replace("\n", " ")


def test_a_gpu_without_figures_cannot_be_reproduced_elsewhere(
    kt: Command, own_environment: Path, winner: Make, tmp_path: Path, no_gpu: None
) -> None:
    """Its launches cannot be computed here."""
    today = {"sources": {"simt": current_sources(None, ())["simt"]}, "method": METHOD_LABEL}
    best = winner("simt", Problem(64, 64, 64), **today)
    with Store.open(own_environment) as store:
        store.put_best(replace(best, key=replace(best.key, device=DeviceIdentity("NVIDIA Unheard-of", (9, 0), 7, 1))))
    outcome = kt("repro", "64x64x64", "-o", tmp_path / "r")
    assert outcome.code == 1
    assert "run kt repro on a machine with that GPU" in outcome.err
