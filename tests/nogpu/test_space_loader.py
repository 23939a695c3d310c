"""Search-space files: complete and narrowing ones, and how each slip is reported."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import pytest

from kt.devices.device import Device
from kt.errors import InputError
from kt.problems import Problem
from kt.problems.yaml_source import read_yaml
from kt.search_spaces import loader
from kt.search_spaces.expression import parse
from kt.search_spaces.loader import (
    BUILTIN,
    builtin_spaces,
    load_space,
    narrow,
    resolve_spaces,
    space_digest,
    space_schema,
)
from kt.search_spaces.narrowing import NARROWING_KEYS
from kt.search_spaces.scope import _GIVEN
from kt.search_spaces.space import Config, SearchSpace, Tiny, Value

DOCS = Path(__file__).parents[2] / "docs" / "search-spaces.md"
TINY = "{tile_m: 32, tile_n: 64, thread: 4}"  # leaves copies and slices

SPACE = """\
op: gemm
family: sample
template: gemm/sample.cu.j2
dtypes: [fp32, fp64]
min_compute_capability: [8, 0]
parameters:
  tile_m: [32, 64, 128]
  tile_n: [32, 64, 128]
  thread: [2, 4, 8]
  copy: [plain, cp.async]
runtime:
  split_k: [1, 2, 4]
default: {tile_m: 64, tile_n: 64, thread: 4, copy: plain, split_k: 1}
derived:
  threads: tile_m * tile_n // (thread * thread)
  smem_bytes: (tile_m + tile_n) * 16 * sizeof_in
constraints:
  - {require: threads <= 1024, reason: a block has at most 1024 threads}
  - {require: threads % 32 == 0, reason: whole warps}
  - {require: smem_bytes <= device.smem_per_block_optin, reason: shared memory of one block}
  - {require: split_k <= k, reason: every split has work}
launches:
  - {kernel: sample, grid: "cdiv(m, tile_m) * cdiv(n, tile_n) * split_k", block: threads, smem_bytes: smem_bytes}
  - {kernel: sample_reduce, when: split_k > 1, grid: "cdiv(m * n, 256)", block: 256}
workspace_bytes: "(split_k > 1) * split_k * m * n * sizeof_acc"
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a text as the file `space.yaml` of the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str) -> SearchSpace:
        Path("space.yaml").write_text(text)
        return load_space("space.yaml")

    return load_text


def replaced(old: str, new: str) -> str:
    """The sample space with one place changed."""
    assert SPACE.count(old) == 1
    return SPACE.replace(old, new)


def refused(load: Any, text: str) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        load(text)
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint or ""


def test_every_part_is_read(load: Any) -> None:
    """A space has the parts of its file, in the file's order."""
    space = load(SPACE)
    assert (space.op, space.family, space.template) == ("gemm", "sample", "gemm/sample.cu.j2")
    assert space.dtypes == ("fp32", "fp64")
    assert space.min_compute_capability == (8, 0)
    assert list(space.parameters) == ["tile_m", "tile_n", "thread", "copy"]
    assert space.parameters["copy"] == ("plain", "cp.async")
    assert space.runtime == {"split_k": (1, 2, 4)}
    assert space.default == {"tile_m": 64, "tile_n": 64, "thread": 4, "copy": "plain", "split_k": 1}
    assert list(space.derived) == ["threads", "smem_bytes"]
    assert [rule.reason for rule in space.constraints][1] == "whole warps"
    assert space.launches[0].when.text == "True"
    assert space.launches[1].smem_bytes.text == "0"
    assert space.size == 3 * 3 * 3 * 2 * 3
    assert space.source == "space.yaml"
    assert space.default_config.label == "sample tile_m=64 tile_n=64 thread=4 copy=plain split_k=1"


def test_optional_parts_may_be_left_out(load: Any) -> None:
    """The least space has values, a default and a launch."""
    space = load(
        "op: gemm\nfamily: f\ntemplate: f.cu.j2\ndtypes: [float32]\nparameters: {a: [1, 2]}\ndefault: {a: 1}\n"
        "launches: [{kernel: f, grid: m, block: 32}]\n"
    )
    assert space.dtypes == ("fp32",)
    assert space.min_compute_capability == (7, 5)
    assert (space.runtime, space.derived, space.constraints) == ({}, {}, ())
    assert space.workspace_bytes.evaluate({}) == 0


def test_starts_name_some_choices(load: Any) -> None:
    """Each start has the choices of its row, run-time parameters among them; none is fine, and so is an empty list."""
    rows = "starts:\n  - {tile_m: 128, copy: cp.async}\n  - {split_k: 4}\n"
    assert load(SPACE + rows).starts == ({"tile_m": 128, "copy": "cp.async"}, {"split_k": 4})
    assert load(SPACE + "starts: []\n").starts == load(SPACE).starts == ()


def test_what_is_taken_for_tiny_problems(load: Any) -> None:
    """Some choices, when they are taken, and the reasons of constraints that do not count then; none is fine."""
    space = load(SPACE + f"tiny: {{choose: {TINY}, when: m * n <= tile_m, although: [whole warps]}}\n")
    assert (space.tiny.choose["tile_m"], space.tiny.when.text) == (32, "m * n <= tile_m")
    assert [rule.reason for rule in space.tiny.although] == ["whole warps"]
    assert all(rule in space.constraints for rule in space.tiny.although)
    assert load(SPACE + f"tiny: {{choose: {TINY}, when: m == 1}}\n").tiny.although == ()
    assert load(SPACE).tiny is None


@pytest.mark.parametrize(
    ("old", "new", "message", "advice"),
    [
        # keys
        ("op: gemm", "op: gem", "space.yaml:1:5: op is the text gem; it must be one of gemm", "mean gemm?"),
        ("family: sample", "familly: sample", "space.yaml:2:1: familly is not a known key; did you mean family?", ""),
        ("family: sample", "family: a b", "family is 'a b'; it must be a name", "letters"),
        ("family: sample", "family:", "family is empty; it must be text", ""),
        ("launches:", "launch:", "launch is not a known key; did you mean launches?", ""),
        ("op: gemm", "op: gemm\nop: gemm", "space.yaml:2:1: op is given twice", "remove"),
        ("template: gemm/sample.cu.j2", "template: ../x.j2", "template is ../x.j2; it must be a path", "--templ"),
        ("template: gemm/sample.cu.j2", "template: /x.j2", "template is /x.j2; it must be a path inside", "--templ"),
        ("[fp32, fp64]", "[fp32, fp46]", "dtypes[1] is the text fp46; it must be one of", "mean fp64?"),
        ("[fp32, fp64]", "[]", "dtypes is an empty list", ""),
        ("[8, 0]", "8.0", "min_compute_capability is 8.0; it must be [major, minor]", "[8, 0]"),
        ("[8, 0]", "[8, x]", "min_compute_capability[1] is the text x; it must be a whole number", ""),
        # values
        ("[32, 64, 128]\n  tile_n", "[]\n  tile_n", "space.yaml:7:11: parameters.tile_m is an empty list", "at least"),
        ("[32, 64, 128]\n  tile_n", "64\n  tile_n", "parameters.tile_m is 64; it must be a list of values", ""),
        ("[2, 4, 8]", "[2, 4, 4]", "space.yaml:9:18: parameters.thread[2] is 4 a second time", "once"),
        ("[2, 4, 8]", "[2, 4e0]", "parameters.thread[1] is 4e0; it must be a whole number", "write 4"),
        ("[2, 4, 8]", "[2, 010]", "parameters.thread[1] is 010: octal", "leading zero"),
        ("[2, 4, 8]", "[2, true]", "parameters.thread[1] is true; it must be a whole number", ""),
        ("[2, 4, 8]", '[2, "4"]', 'parameters.thread[1] is the text "4"; it must be a whole number', "quotes"),
        ("[2, 4, 8]", "[2, 3000000000]", "parameters.thread[1] is 3000000000; it must be a whole number", ""),
        ("[plain, cp.async]", "[plain, 3]", "parameters.copy[1] is 3; the values of one parameter are all", "words"),
        ("[plain, cp.async]", "[plain, 'a b']", "parameters.copy[1] is the text \"a b\"; the values", "words"),
        ("[plain, cp.async]", "[plain, no]", "parameters.copy[1] is no: true or false", "quotes"),
        ("[1, 2, 4]\n", "[one]\n", "runtime.split_k[0] is the text one; it must be a whole number", ""),
        ("  tile_n: [32, 64, 128]", "  tile_m: [8]", "space.yaml:8:3: parameters.tile_m is given twice", ""),
        # names
        ("  thread:", "  layout:", "parameters.layout has a name that stands for something else", "another"),
        ("  thread:", "  m:", "parameters.m has a name that stands for something else", "another"),
        ("  thread:", "  type_acc:", "parameters.type_acc has a name that stands for something else", "another"),
        ("  thread:", "  min:", "parameters.min has a name that stands for something else", "another"),
        ("  thread:", "  lambda:", "parameters.lambda cannot be used as a name", "Python"),
        ("  thread:", "  a-b:", "parameters.a-b cannot be used as a name", "letters"),
        ("  split_k:", "  tile_m:", "runtime.tile_m has a name that is used above", "another"),
        ("  threads: ", "  thread: ", "derived.thread has a name that is used above", "another"),
        # default
        (", split_k: 1}", "}", "space.yaml:13:10: default has no split_k", "every parameter"),
        ("{tile_m: 64, ", "{tile_m: 48, ", "default.tile_m is 48; the values of tile_m are 32, 64, 128", "choose"),
        ("{tile_m: 64, ", '{tile_m: "64", ', 'default.tile_m is the text "64"; the values', "choose"),
        ("{tile_m: 64, ", "{tile_mm: 64, tile_m: 64, ", "default.tile_mm is not a known key; did you mean tile_m?", ""),
        ("tile_m: 64, tile_n: 64, thread: 4", "tile_m: 128, tile_n: 128, thread: 2",
         "default breaks the constraint `threads <= 1024`: a block has", "valid"),
        # starts
        ("derived:", "starts: 64\nderived:", "space.yaml:14:9: starts is 64; it must be a list of {parameter", ""),
        ("derived:", "starts: {tile_m: 64}\nderived:", "space.yaml:14:9: starts is a mapping; it must be a list", ""),
        ("derived:", "starts:\n  - {tile_m: 64}\n  - 64\nderived:",
         "space.yaml:16:5: starts[1] is 64; it must map parameters to one of their values", ""),
        ("derived:", "starts:\n  - {tile_m: 64}\n  - {tile_m: 64, split: 2}\nderived:",
         "space.yaml:16:18: starts[1].split is not a known key; did you mean split_k?",
         "copy, split_k, thread, tile_m, tile_n"),
        ("derived:", "starts:\n  - {threads: 64}\nderived:", "space.yaml:15:6: starts[0].threads is not a known", ""),
        ("derived:", "starts:\n  - {tile_m: 64, tile_n: 48}\nderived:",
         "space.yaml:15:26: starts[0].tile_n is 48; the values of tile_n are 32, 64, 128", "choose"),
        ("derived:", "starts:\n  - {split_k: 3}\nderived:",
         "space.yaml:15:15: starts[0].split_k is 3; the values of split_k are 1, 2, 4", "choose"),
        ("derived:", "starts:\n  - {copy: tma}\nderived:",
         "space.yaml:15:12: starts[0].copy is the text tma; the values of copy are plain, cp.async", "choose"),
        ("derived:", "starts:\n  - {tile_m: [64]}\nderived:",
         "space.yaml:15:14: starts[0].tile_m is a list; the values of tile_m are", "choose"),
        # tiny
        ("derived:", "tiny: 64\nderived:", "space.yaml:14:7: tiny is 64; it must map choose, when to their values", ""),
        ("derived:", "tiny: {choose: {tile_m: 64}}\nderived:", "space.yaml:14:7: tiny has no `when`", "add when"),
        ("derived:", "tiny: {choose: {tile_m: 48}, when: m == 1}\nderived:",
         "space.yaml:14:25: tiny.choose.tile_m is 48; the values of tile_m are 32, 64, 128", "choose"),
        ("derived:", f"tiny: {{choose: {TINY}, when: mm == 1}}\nderived:",
         "`mm == 1` names mm, which is not known", ""),
        ("derived:", f"tiny: {{choose: {TINY}, when: m == 1, although: [whole warp]}}\nderived:",
         "tiny.although[0] is the text whole warp; it must be one of", "mean whole warps?"),
        ("derived:", "tiny: {choose: {tile_m: 64, copy: plain}, when: m == 1}\nderived:",
         "space.yaml:14:16: tiny.choose leaves 27 configurations; a header takes at most 8",
         "choose tile_n, thread, split_k too"),
        # expressions
        ("require: threads <= 1024", "require: thraeds <= 1024",
         "space.yaml:18:15: constraints[0].require: `thraeds <= 1024` names thraeds, which is not known; did you mean"
         " threads?", "device.sm_count"),
        ("device.smem_per_block_optin", "device.smem_per_blok", "did you mean device.smem_per_block_optin?", ""),
        ("threads % 32 == 0", "threads / 32 == 1", "`threads / 32 == 1`, column 1: `threads / 32` is not", "//"),
        ("threads % 32 == 0", "threads & 31", "`threads & 31` is not allowed", "`and`"),
        ("threads % 32 == 0", "open('x')", "`open('x')` is not allowed", "min, max, cdiv, abs"),
        ("threads % 32 == 0", "1 == 1", "constraints[1].require is the same for every configuration: `1 == 1`", "name"),
        ("threads % 32 == 0", "copy > 3", "`copy > 3` mixes text and numbers", ""),
        ("threads % 32 == 0", "'copy in (plain, 1)'", "names plain, which is not known", ""),
        ("threads % 32 == 0", "copy < 'x'", "compares text for order", ""),
        ("threads % 32 == 0", "copy", "`copy`: is text; a number or a condition is needed", ""),
        ("threads % 32 == 0", "-copy == 1", "`copy` is text, and cannot be calculated with", ""),
        ("threads % 32 == 0", "[1, 2]", "constraints[1].require is a list; it must be an expression", "text"),
        ("threads % 32 == 0", "1.5", "constraints[1].require is 1.5; it must be an expression", ""),
        ("reason: whole warps", "reason: ", "constraints[1].reason is empty; it must be text", ""),
        (", reason: whole warps", "", "space.yaml:19:5: constraints[1] has no `reason`", "add reason"),
        (", reason: whole warps", ", raeson: x", "constraints[1].raeson is not a known key; did you mean reason?", ""),
        ("  threads: tile_m * tile_n", "  threads: smem_bytes * tile_n", "uses smem_bytes before it is", "above"),
        ("  threads: tile_m * tile_n", "  threads: threads * tile_n", "uses threads before it is defined", "above"),
        ("threads: tile_m * tile_n // (thread * thread)", "threads:", "derived.threads is empty; it must be an", ""),
        # launches
        ("kernel: sample,", "kernel: a b,", "launches[0].kernel is 'a b'; it must be a name in C", "letters"),
        (", block: 256}", "}", "launches[1] has no `block`", "add block"),
        (", block: 256}", ", block: 256, cluster: 2}", "launches[1].cluster is not a known key", "when"),
        ("when: split_k > 1", "when: split > 1", "names split, which is not known; did you mean split_k?", ""),
        ('"cdiv(m * n, 256)"', "cdiv(m * n, 256)", "launches[1] has the key `256)`, which is not a name", "quotes"),
        ("split_k * m * n * sizeof_acc", "split_k * m * n * sizeof_ac", "workspace_bytes: `", ""),
    ],
)  # fmt: skip
def test_each_slip_is_named(load: Any, old: str, new: str, message: str, advice: str) -> None:
    """File, line, column, key, value and what to do are all in the error."""
    found, hint = refused(load, replaced(old, new))
    assert found.startswith("space.yaml:")
    assert message in found
    assert advice in hint


@pytest.mark.parametrize("key", ["op", "family", "template", "dtypes", "parameters", "default", "launches"])
def test_needed_parts(load: Any, key: str) -> None:
    """Each needed part is asked for by name."""
    lines = SPACE.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{key}:"))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    message, _ = refused(load, "".join(lines[:start] + lines[end:]))
    assert message == f"space.yaml:1:1: the file has no `{key}`"


@pytest.mark.parametrize("key", ["compile_options", "flags", "nvcc_flags"])
def test_compiler_options_are_refused_by_name(load: Any, key: str) -> None:
    """kt chooses the target itself; a second -arch would clash with its own."""
    message, hint = refused(load, SPACE + f'{key}: ["--gpu-architecture=compute_80"]\n')
    assert message == f"space.yaml:26:1: {key} is refused in a search space"
    assert "template" in hint


def test_forgotten_parameter_is_named(load: Any) -> None:
    """A misspelled parameter shows at the first place that uses the right name."""
    message, _ = refused(load, replaced("  tile_m: [", "  tile_mm: ["))
    assert "did you mean tile_mm?" in message


def test_too_many_parameters(load: Any) -> None:
    """More parameters than arrays have dimensions are refused."""
    names = [f"p{i}" for i in range(31)]
    text = (
        "op: gemm\nfamily: f\ntemplate: f.cu.j2\ndtypes: [fp32]\nparameters:\n"
        + "".join(f"  {name}: [1]\n" for name in names)
        + "default: {}\nlaunches: [{kernel: f, grid: m, block: 32}]\n"
    )
    assert "name 31, more than 30" in refused(load, text)[0]


def test_given_names_are_those_of_problem_and_device() -> None:
    """Expressions may name all that `Problem.names` and `Device.names` offer, and nothing else is given."""
    assert _GIVEN.keys() == Problem(2, 3, 4).names().keys() | Device("x", (8, 0), 1, 1).names().keys()


def test_digest_covers_what_matters_only(load: Any) -> None:
    """Comments, spacing, reasons, starts and tiny problems keep the digest; values, rules and launches change it."""
    digest = space_digest(load(SPACE))
    for old, new in (
        ("op: gemm", "# a comment\nop:   gemm"),
        ("threads <= 1024,", "'threads   <=  1024',"),
        ("whole warps", "full warps"),
        ("derived:", "starts: [{tile_m: 128, thread: 8}]\nderived:"),
        ("derived:", f"tiny: {{choose: {TINY}, when: m < 9}}\nderived:"),
    ):
        assert space_digest(load(replaced(old, new))) == digest
    for old, new in (
        ("[2, 4, 8]", "[2, 4]"),
        ("[1, 2, 4]", "[1, 2]"),
        ("thread: 4,", "thread: 8,"),
        ("threads % 32", "threads % 64"),
        (" * 16 * ", " * 32 * "),
        ("block: 256", "block: 128"),
        ("[8, 0]", "[9, 0]"),
        ("(split_k > 1) * split_k", "split_k"),
        ("sample.cu.j2", "other.cu.j2"),
    ):
        assert space_digest(load(replaced(old, new))) != digest


def test_builtin_spaces_are_valid_and_sorted() -> None:
    """Every space file in the package loads, serves an existing op, and has a family of its own."""
    spaces = builtin_spaces()
    families = [space.family for space in spaces]
    assert families == sorted(set(families))
    assert len(spaces) == len(list(BUILTIN.glob("*/*.yaml")))


def test_schema_is_valid_and_accepts_spaces(load: Any) -> None:
    """The JSON Schema is one, and accepts the built-in files, the sample and a narrowing file."""
    schema = json.loads(json.dumps(space_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    load(SPACE + "starts:\n  - {tile_m: 128, copy: cp.async}\n  - {split_k: 4}\n")
    for path in [*BUILTIN.glob("*/*.yaml"), Path("space.yaml")]:
        validator.validate(read_yaml(path).data)
    for starts in (64, {"tile_m": 64}, [64], [{"tile_m": [64]}], [{"tile-m": 64}]):
        assert not validator.is_valid({**read_yaml("space.yaml").data, "starts": starts}), starts
    validator.validate({"family": "simt", "parameters": {"tile_m": [64]}, "constraints": []})
    assert not validator.is_valid({"family": "simt", "launches": []})
    assert not validator.is_valid({"op": "gemm", "template": "x", "family": "simt"})
    assert not validator.is_valid({**read_yaml("space.yaml").data, "compile_options": []})
    assert not validator.is_valid({**read_yaml("space.yaml").data, "parameters": {"a": [1, "b"]}})


def test_loading_is_quick_and_light(load: Any) -> None:
    """A look-up in the cache reads spaces: no numpy, no pydantic, and milliseconds."""
    load(SPACE)
    start = time.perf_counter()
    load_space("space.yaml")
    assert time.perf_counter() - start < 0.1
    code = (
        "import sys; from kt.search_spaces.loader import load_space, space_digest;"
        "space_digest(load_space('space.yaml'));"
        "print([name for name in ('numpy', 'pydantic', 'cupy', 'jinja2') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.fixture
def builtin(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchSpace:
    """The sample space as the only built-in one."""
    folder = tmp_path / "builtin" / "gemm"
    folder.mkdir(parents=True)
    (folder / "sample.yaml").write_text(SPACE)
    monkeypatch.setattr(loader, "BUILTIN", tmp_path / "builtin")
    return loader.builtin_spaces()[0]


def narrowed(space: SearchSpace, text: str) -> SearchSpace:
    Path("narrow.yaml").write_text("family: sample\n" + text)
    return narrow(space, "narrow.yaml")


def test_narrowing_replaces_lists_and_appends_constraints(builtin: SearchSpace) -> None:
    """Named lists are replaced, numbers outside the built-in list included; rules are added; the rest stays."""
    space = narrowed(
        builtin,
        "parameters: {tile_m: [64, 96]}\nruntime: {split_k: [1]}\n"
        "constraints: [{require: threads >= 128, reason: small blocks are slow here}]\n",
    )
    assert space.parameters == {**builtin.parameters, "tile_m": (64, 96)}
    assert space.runtime == {"split_k": (1,)}
    assert [rule.require.text for rule in space.constraints[-2:]] == ["split_k <= k", "threads >= 128"]
    assert (space.template, space.launches, space.dtypes) == (builtin.template, builtin.launches, builtin.dtypes)
    assert space.default == builtin.default
    assert space.source == "narrow.yaml"
    assert space_digest(space) != space_digest(builtin)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("constraints: [{require: threads >= 128, reason: x}]", [0, 1, 2]),
        ("parameters: {tile_n: [64]}", [0, 1, 2]),
        ("parameters: {tile_m: [32, 64]}", [1, 2]),
        ("parameters: {tile_m: [64, 128], copy: [plain]}", [0, 2]),
        ("runtime: {split_k: [1, 2]}", [0, 1]),
        ("parameters: {tile_m: [96], copy: [plain]}\nruntime: {split_k: [1]}", []),
    ],
)
def test_narrowing_drops_starts_that_are_no_longer_offered(builtin: SearchSpace, text: str, kept: list[int]) -> None:
    """A start stays, whole and in its place, if each of its values does."""
    starts: list[dict[str, Value]] = [
        {"tile_m": 128, "thread": 8},
        {"tile_m": 32, "copy": "cp.async"},
        {"tile_m": 64, "split_k": 4},
    ]
    space = narrowed(replace(builtin, starts=tuple(starts)), text)
    assert space.starts == tuple(starts[row] for row in kept)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("constraints: [{require: threads >= 128, reason: x}]", True),
        ("parameters: {tile_m: [32, 64]}", True),
        ("parameters: {tile_m: [96]}", False),
        ("runtime: {split_k: [2]}", False),
    ],
)
def test_narrowing_drops_what_tiny_problems_are_no_longer_offered(builtin: SearchSpace, text: str, kept: bool) -> None:
    """It is as it was, or it is none."""
    tiny = Tiny({"tile_m": 64, "split_k": 1}, parse("m < 9", "here"))
    assert narrowed(replace(builtin, tiny=tiny), text).tiny == (tiny if kept else None)


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("parameters: {tile_m: [32, 128]}", {"tile_m": 32}),
        ("parameters: {tile_m: [128, 32]}", {"tile_m": 128}),
        ("constraints: [{require: thread != 4, reason: x}]", {"thread": 2}),
        ("constraints: [{require: tile_m * tile_n > 4096, reason: x}]", {"tile_n": 128}),
        ("parameters: {copy: [cp.async]}\ndefault: {tile_m: 32}", {"copy": "cp.async", "tile_m": 32}),
        ("default: {tile_n: 128, thread: 8}", {"tile_n": 128, "thread": 8}),
        ("constraints: [{require: threads == 32, reason: x}]\ndefault: {tile_n: 64}",
         {"tile_m": 32, "tile_n": 64, "thread": 8}),
        ("parameters: {tile_m: [4096], thread: [64]}", {"tile_m": 4096, "thread": 64}),
    ],
)  # fmt: skip
def test_default_of_a_narrowed_space(builtin: SearchSpace, text: str, default: dict[str, Any]) -> None:
    """The default stays where it can; else it is the valid combination that keeps most of it, the file's own first."""
    space = narrowed(builtin, text)
    assert space.default == {**builtin.default, **default}


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("consumers: [1]", {"consumers": 1}),
        ("pack_a: [1], pack_b: [1]", {"pack_a": 1, "pack_b": 1}),
        ("tile_n: [256, 192, 64], schedule: [pingpong]", {"tile_n": 192, "schedule": "pingpong"}),
    ],
)
def test_a_large_space_is_narrowed_without_its_default(text: str, default: dict[str, Any], tmp_path: Path) -> None:
    """What it keeps of the default goes before: there are more valid combinations than can be looked through."""
    (tmp_path / "narrow.yaml").write_text(f"op: gemm\nfamily: wgmma\nparameters: {{{text}}}\n")
    (space,) = resolve_spaces(tmp_path / "narrow.yaml")
    wgmma = next(one for one in builtin_spaces() if one.family == "wgmma")
    assert space.default == {**wgmma.default, **default}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parameters: {tile_mm: [64]}", "narrow.yaml:2:14: tile_mm is no parameter of the space; did you mean tile_m?"),
        ("parameters: {split_k: [1]}", "parameters.split_k belongs under `runtime`"),
        ("runtime: {tile_m: [64]}", "runtime.tile_m belongs under `parameters`"),
        ("parameters: {tile_m: []}", "narrow.yaml:2:22: parameters.tile_m is an empty list"),
        ("parameters: {tile_m: [wide]}", "parameters.tile_m[0] is the text wide; it must be a whole number"),
        (
            "parameters: {copy: [tma]}",
            "narrow.yaml:2:21: parameters.copy[0] is tma; the template knows plain, cp.async",
        ),
        ("parameters: {tile_m: [64], tile_m: [32]}", "parameters.tile_m is given twice"),
        ("default: {tile_m: 48}", "default.tile_m is 48; the values of tile_m are 32, 64, 128"),
        ("default: {tile_m: 128, tile_n: 128, thread: 2}", "narrow.yaml:2:10: default leaves no valid configuration"),
        (
            "constraints: [{require: tile_m > 0, reason: x}, {require: 2 ** (tile_m ** tile_n) > 0, reason: x}]",
            "narrow.yaml:2:59: constraints[1].require has no value for the default: `2 ** (tile_m ** tile_n) > 0`: **",
        ),
        ("constraints: [{require: threads > 9999, reason: x}]", "the file leaves no valid configuration"),
        ("constraints: [{require: thraeds > 9, reason: x}]", "did you mean threads?"),
        ("launches: []", "launches is not a known key"),
        ("starts: []", "starts is not a known key"),
        ("dtypes: [fp32]", "dtypes is not a known key"),
        ("compile_options: []", "compile_options is refused in a search space"),
    ],
)
def test_narrowing_refuses_what_it_cannot_mean(builtin: SearchSpace, text: str, message: str) -> None:
    """A narrowing file changes values, the default and constraints of parameters that exist."""
    with pytest.raises(InputError) as caught:
        narrowed(builtin, text)
    assert caught.value.message.startswith("narrow.yaml:")
    assert message in caught.value.message


def test_resolving_what_a_run_uses(builtin: SearchSpace) -> None:
    """No file: the built-in spaces; a complete file or a narrowing one: only that; formats filter."""
    assert [space.family for space in resolve_spaces(None)] == ["sample"]
    assert resolve_spaces(None, ("bf16",)) == []
    assert len(resolve_spaces(None, ("bf16", "fp64"))) == 1
    Path("own.yaml").write_text(SPACE.replace("family: sample", "family: own"))
    assert [space.family for space in resolve_spaces(Path("own.yaml"), ("fp32",))] == ["own"]
    Path("narrow.yaml").write_text("family: sample\nparameters: {tile_m: [64]}\n")
    assert resolve_spaces("narrow.yaml")[0].parameters["tile_m"] == (64,)
    Path("narrow.yaml").write_text("family: sampel\nparameters: {tile_m: [64]}\n")
    with pytest.raises(
        InputError, match=r"narrow.yaml:1:9: family is the text sampel; it must be one of sample"
    ) as caught:
        resolve_spaces("narrow.yaml")
    assert caught.value.hint == "did you mean sample?"
    Path("narrow.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match=r"narrow.yaml:1:1: the file is a list; a search space maps keys"):
        resolve_spaces("narrow.yaml")


def test_configurations_have_every_choice(load: Any) -> None:
    """A space makes configurations with parameters and run-time parameters in its own order."""
    space = load(SPACE)
    values = {"split_k": 2, "copy": "plain", "thread": 4, "tile_n": 32, "tile_m": 64}
    assert space.config(values) == Config(
        "sample", (("tile_m", 64), ("tile_n", 32), ("thread", 4), ("copy", "plain")), (("split_k", 2),)
    )


def test_docs_describe_every_key_name_and_function() -> None:
    """The page on search spaces has each key of both kinds of file, each given name, and loads as written."""
    from kt.search_spaces.grammar import FUNCTIONS

    text = DOCS.read_text()
    for name in (*loader._NEEDED, *loader._OPTIONAL, *NARROWING_KEYS, *_GIVEN):
        assert f"`{name}`" in text, name
    for name in FUNCTIONS:
        assert f"`{name}(" in text, name


def test_docs_examples_load(load: Any) -> None:
    """The page's complete space loads, with tiny problems too; its narrowing file fits the family that it names."""
    complete, narrowing, tiny = (block.split("```")[0] for block in DOCS.read_text().split("```yaml\n")[1:4])
    assert load(complete).size > 1
    assert load(complete + tiny).tiny is not None
    Path("narrow.yaml").write_text(narrowing)
    [simt] = [space for space in builtin_spaces() if space.family == "simt"]
    assert narrow(simt, "narrow.yaml").size < simt.size
