"""`kt plan gemm`: spaces, rejections and estimates, without a GPU."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes:\n  - {m: [64, 100], n: 64, k: 64}\n")
    return path


@pytest.fixture
def narrow(small_family: tuple[str, ...]) -> tuple[str, ...]:
    """The small family with a third tile that no block can hold."""
    space = Path(small_family[1])
    space.write_text(space.read_text().replace("tile: [8, 16]", "tile: [8, 16, 64]"))
    return small_family


def test_rejections_have_counts_and_reasons(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """Each constraint says how many combinations it rejects and why; what is left adds up."""
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow, "--json")
    assert (outcome.code, outcome.json["schema"]) == (0, "kt.plan/1")
    for shape in outcome.json["shapes"]:
        (family,) = shape["families"]
        assert (family["combinations"], family["valid"]) == (6, 4)
        assert family["rejections"][0] == {
            "require": "tile * tile <= 1024", "reason": "a block has at most 1024 threads", "count": 2,
        }  # fmt: skip
        assert shape["config"]["tile"] in (8, 16)


def test_text_for_people(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """Shapes, rejections and the estimate are all there, and the device is named."""
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow)
    assert "fp32 nn 100x64x64" in outcome.out
    assert "kernels to compile" in outcome.out
    assert re.search(r"^small +6 +4 ", outcome.out, re.MULTILINE)
    assert "NVIDIA H200 (modelled)" in outcome.err


def test_constraints_are_listed_on_request(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A line for each family says how many reject something; --verbose and --json have each of them."""
    space = Path(narrow[1])
    space.write_text(space.read_text().replace("launches:", "  - {require: m >= 1, reason: some rows}\nlaunches:"))
    command = ("plan", "gemm", "--shapes", shapes, *narrow)
    out = kt(*command).out
    lines = out.splitlines()
    assert [line.split() for line in lines[-3:-1]] == [
        ["family", "combinations", "valid", "constraints"], ["small", "6", "4", "1", "of", "2", "reject"],
    ]  # fmt: skip
    assert "--verbose lists the constraints" in lines[-1]
    assert "1024 threads" not in out
    verbose = kt(*command, "--verbose").out
    assert verbose.index("kernels to compile") < verbose.index("combinations of all values") < verbose.index("are left")
    assert "some rows" in verbose
    assert "a block has at most 1024 threads" in verbose
    (family,) = kt(*command, "--json").json["shapes"][0]["families"]
    assert {"require": "m >= 1", "reason": "some rows", "count": 0} in family["rejections"]


def test_compile_shows_resources(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """--compile compiles for the device and shows registers, shared memory and what limits the blocks."""
    command = ("plan", "gemm", "--shapes", shapes, "--device", "model:a100", *narrow, "--compile")
    compiled = kt(*command, "--json").json["compiled"]
    assert {one["problem"]["m"] for one in compiled} == {64, 100}
    assert all(one["registers"] > 0 and one["blocks_per_sm"] > 0 and not one["verdict"] for one in compiled)
    assert "registers" in kt(*command).out


@pytest.mark.parametrize(("budget", "count"), [("1", 1), ("3", 3), ("1s", 4)])
def test_a_budget_of_candidates_bounds_what_is_compiled(
    kt: Command, shapes: Path, narrow: tuple[str, ...], budget: str, count: int
) -> None:
    """As in a run: so many of each shape, the default first."""
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow, "--compile", "--budget", budget, "--json")
    compiled = [one for one in outcome.json["compiled"] if one["problem"]["m"] == 64]
    assert len(compiled) == count
    assert compiled[0]["config"] == {"tile": 8, "unroll": 1}


def test_without_shapes_every_format_stands_in(kt: Command) -> None:
    """The built-in spaces are shown for a square problem of each format that they serve."""
    document = kt("plan", "gemm", "--json").json
    assert {shape["problem"]["dtype"] for shape in document["shapes"]} >= {"fp32", "fp64", "fp16", "bf16", "int8"}
    assert {shape["problem"]["m"] for shape in document["shapes"]} == {4096}
    only = kt("plan", "gemm", "--dtype", "fp64", "--json").json["shapes"]
    assert [shape["problem"]["dtype"] for shape in only] == ["fp64"]


def test_a_shape_that_nothing_fits_is_exit_3(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A space that prunes to nothing for a shape names the shape and the constraint that took the last candidates."""
    space = Path(narrow[1])
    space.write_text(space.read_text().replace("launches:", "  - {require: m >= 80, reason: few rows}\nlaunches:"))
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow)
    assert outcome.code == 3
    assert "1 of 2 shapes has no valid configuration" in outcome.err
    assert "fp32 nn 64x64x64" in outcome.err
    assert "few rows" in outcome.err
    space.write_text(space.read_text().replace("m >= 80", "m >= 800"))
    out = kt("plan", "gemm", "--shapes", shapes, *narrow).out
    assert re.search(r"^small +6 +0 ", out, re.MULTILINE), "a family of which nothing is left shows so"


def test_a_format_without_a_family_is_exit_3(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """No family serves it: said by name."""
    outcome = kt("plan", "gemm", "--shapes", shapes, "--dtype", "fp64", *narrow)
    assert outcome.code == 3
    assert "fp64" in outcome.err


def test_the_estimate_follows_the_budget(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A budget of time is an upper bound of the estimate; one of candidates bounds the tries."""
    command = ("plan", "gemm", "--shapes", shapes, *narrow, "--json")
    assert kt(*command, "--budget", "1s").json["seconds"] <= 1
    assert {shape["evaluations"] for shape in kt(*command, "--budget", "2").json["shapes"]} == {2}


def _edit_template(family: tuple[str, ...], old: str, new: str) -> None:
    template = Path(family[3]) / "gemm" / "small.cu.j2"
    assert old in template.read_text()
    template.write_text(template.read_text().replace(old, new))


@pytest.mark.parametrize("command", [("plan", "gemm", "--compile"), ("tune", "gemm")])
def test_a_kernel_that_the_template_lacks_is_exit_3(
    kt: Command, shapes: Path, narrow: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """The kernel that `launches` names and those that are there are named, with the rendered source."""
    _edit_template(narrow, "void small_gemm(", "void smal_gemm(")
    outcome = kt(*command, "--shapes", shapes, "--device", "model:a100", *narrow)
    assert outcome.code == 3
    assert "has no kernel small_gemm, which `launches` names; its kernels are: smal_gemm" in outcome.err
    assert "smal_gemm(" in _kept_source(outcome.err).read_text()


def test_a_mangled_name_is_told_apart_from_a_missing_kernel(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    _edit_template(narrow, 'extern "C" __global__', "__global__")
    outcome = kt("plan", "gemm", "--compile", "--shapes", shapes, "--device", "model:a100", *narrow)
    assert outcome.code == 3
    assert 'declare it extern "C"' in outcome.err


@pytest.mark.parametrize("command", [("plan", "gemm", "--compile"), ("tune", "gemm")])
def test_what_never_compiles_is_exit_3_with_cause_and_log(
    kt: Command, shapes: Path, narrow: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """A plan ends as the run would: with the cause, once, and where source and log can be read."""
    _edit_template(narrow, "float sum = 0;", "float sum = 0")
    outcome = kt(*command, "--shapes", shapes, "--device", "model:a100", *narrow)
    assert outcome.code == 3
    assert 'expected a ";"' in outcome.err
    assert "float sum = 0" in _kept_source(outcome.err).read_text()
    assert 'expected a ";"' in _kept_source(outcome.err).with_suffix(".log").read_text()


def test_what_fails_for_one_shape_only_is_told_of_that_shape(
    kt: Command, shapes: Path, narrow: tuple[str, ...]
) -> None:
    """Operands of another alignment are another signature, and here the only one that does not compile."""
    shapes.write_text("shapes:\n  - {m: 64, n: 64, k: 64}\n  - {m: 64, n: 63, k: 64}\n")
    _edit_template(narrow, "float sum = 0;", "float sum = 0{{ ';' if align_c == 16 else '' }}")
    outcome = kt("plan", "gemm", "--compile", "--shapes", shapes, "--device", "model:a100", *narrow)
    assert outcome.code == 3
    assert "1 of 2 shapes has no valid configuration" in outcome.err
    assert "  fp32 nn 64x63x64: " in outcome.err
    assert 'expected a ";"' in outcome.err
    assert _kept_source(outcome.err).is_file()


def test_what_compiles_in_part_has_its_verdicts_beside_the_shapes(
    kt: Command, shapes: Path, narrow: tuple[str, ...]
) -> None:
    """Some candidates that do not compile are no failure; the verdict is the second column; they come last."""
    _edit_template(narrow, "float sum = 0;", "float sum = 0{{ ';' if tile == 8 else '' }}")
    outcome = kt("plan", "gemm", "--compile", "--shapes", shapes, "--device", "model:a100", *narrow)
    assert outcome.code == 0
    rows = [line for line in outcome.out.splitlines() if "tile=" in line and "unroll=" in line]
    verdicts = [line.partition("x64x64")[2].strip() for line in rows if "100x64x64" in line]
    failed = ['expected a ";"  ' in verdict for verdict in verdicts]
    assert any(failed)
    assert failed == sorted(failed)
    assert not all(failed)


def test_what_is_compiled_is_what_is_tried_best_first(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """As many as the first table says, the default among them, where the model puts it."""
    outcome = kt("plan", "gemm", "--compile", "--shapes", shapes, *narrow)
    table = [line for line in outcome.out.splitlines() if "fp32 nn 100x64x64" in line]
    compiled = [line for line in table[1:] if "%" in line]
    assert len(compiled) == int(table[0].split()[4])
    assert [line.split()[3] == "default" for line in compiled].count(True) == 1
    document = kt("plan", "gemm", "--compile", "--shapes", shapes, *narrow, "--json").json
    times = sorted(one["predicted_us"] for one in document["compiled"] if one["problem"]["m"] == 100)
    assert [float(re.search(r"%.*? ([0-9.]+)  small", line)[1]) for line in compiled] == [  # type: ignore[index]
        round(time, 1) for time in times
    ]
    assert [one["default"] for one in document["compiled"] if one["problem"]["m"] == 100].count(True) == 1


BAD_SPACES = [
    ("tile * tile <= 1024", "m % (tile - m // 8) == 0", [64], "m // 8) == 0`: % by zero, for tile=8"),
    ("tile * tile <= 1024", "m % (tile - m // 8) == 0", [64, 128], "no shape can be tuned"),
    ("launches:", "workspace_bytes: 0 - m\nlaunches:", [64], "workspace_bytes is -64"),
    ("launches:", "workspace_bytes: 0 - m\nlaunches:", [64, 100], "workspace_bytes is -100"),
    ("unroll: [1, 2]", f"unroll: {list(range(1, 4001))}, a: {list(range(1001))}, b: {list(range(1001))}", [64],
     "combinations; kt enumerates at most"),
    ("template: gemm/small.cu.j2", "template: gemm/none.cu.j2", [64], "no template gemm/none.cu.j2"),
]  # fmt: skip


@pytest.mark.parametrize("command", [("plan", "gemm"), ("plan", "gemm", "--compile"), ("tune", "gemm")])
@pytest.mark.parametrize(("old", "new", "sizes", "said"), BAD_SPACES)
def test_a_bad_space_is_exit_2_for_every_command(
    kt: Command, tmp_path: Path, small_family: tuple[str, ...], command: tuple[str, ...],
    old: str, new: str, sizes: list[int], said: str,
) -> None:  # fmt: skip
    """A fault that shows only where a shape meets the space is one of the file all the same: a plan ends as a run."""
    space, shapes = Path(small_family[1]), tmp_path / "shapes.yaml"
    text = space.read_text().replace(old, new)
    space.write_text(text.replace("default: {", "default: {a: 1, b: 1, ") if "a: [" in text else text)
    shapes.write_text(f"shapes: [{{m: {sizes}, n: 64, k: 64}}]\n")
    outcome = kt(*command, "--shapes", shapes, "--device", "model:a100", *small_family)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("kt: error:") == 1


@pytest.mark.parametrize("command", [("plan", "gemm"), ("plan", "gemm", "--compile"), ("tune", "gemm")])
def test_a_space_that_is_bad_for_some_shapes_is_exit_3(
    kt: Command, shapes: Path, small_family: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """The others have their results, so it is these shapes that have no valid configuration."""
    space = Path(small_family[1])
    space.write_text(space.read_text() + "workspace_bytes: 1 // (m - 64)\n")
    outcome = kt(*command, "--shapes", shapes, "--device", "model:a100", *small_family)
    assert outcome.code == 3
    assert "1 of 2 shapes has no valid configuration" in outcome.err
    assert f"fp32 nn 64x64x64: {space}: `1 // (m - 64)`: // by zero" in outcome.err


def test_a_missing_template_is_told_without_shapes_too(kt: Command, small_family: tuple[str, ...]) -> None:
    space = Path(small_family[1])
    space.write_text(space.read_text().replace("small.cu.j2", "none.cu.j2"))
    assert kt("plan", "gemm", *small_family).code == 2


def _kept_source(text: str) -> Path:
    match = re.search(r"/\S+\.cu\b", text)
    assert match, text
    return Path(match[0])


def test_what_the_cache_answers_is_not_counted(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A plan is of what is left to do, and says what is not."""
    options = ("--shapes", shapes, "--device", "model:a100", *narrow)
    assert kt("plan", "gemm", *options, "--json").json["cached"] == 0
    whole = shapes.read_text()
    shapes.write_text(whole.replace("[64, 100]", "64"))
    assert kt("tune", "gemm", *options, "-q").code == 0
    shapes.write_text(whole)
    document = kt("plan", "gemm", *options, "--json").json
    assert [(shape["cached"], shape["evaluations"] > 0) for shape in document["shapes"]] == [
        (True, False), (False, True),
    ]  # fmt: skip
    assert "1 of 2 shapes is in the cache" in kt("plan", "gemm", *options).out
    assert kt("tune", "gemm", *options, "-q").code == 0
    document = kt("plan", "gemm", *options, "--json").json
    assert (document["cached"], document["kernels"], document["seconds"]) == (2, 0, 0)


@pytest.mark.parametrize("command", ["plan", "tune"])
def test_a_strategy_that_a_model_cannot_have_is_told(
    kt: Command, shapes: Path, narrow: tuple[str, ...], command: str
) -> None:
    """Nothing is measured, so there is nothing to search: the option is not passed over in silence."""
    options = ("gemm", "--shapes", shapes, "--device", "model:a100", *narrow)
    outcome = kt(command, *options, "--strategy", "random")
    assert outcome.code == 0
    assert "strategy random without effect: nothing is measured" in outcome.err
    assert "without effect" not in kt(command, *options).err


def test_a_range_is_planned_as_it_is_tuned(kt: Command, shapes: Path, small_family: tuple[str, ...]) -> None:
    """`--range` replaces the file's sizes, as for `kt tune`; without a file there is nothing to replace."""
    outcome = kt("plan", "gemm", "--shapes", shapes, "--range", "m=1:64:3", *small_family, "--json")
    assert [shape["problem"]["m"] for shape in outcome.json["shapes"]] == [2, 4, 8, 16, 32, 64]
    refused = kt("plan", "gemm", "--range", "m=1:64:3")
    assert (refused.code, "--range is for the shapes of a file" in refused.err) == (2, True)
