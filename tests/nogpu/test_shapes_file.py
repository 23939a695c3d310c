"""shapes.yaml: what a row may say, what it stands for, and how each slip is reported."""

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kt.errors import InputError
from kt.problems import DTYPES, Problem, load_shapes, shapes_schema
from kt.problems.ranges import MAX_BUCKETS, Range, read_range
from kt.problems.shape_keys import INFORMATION, KEYS
from kt.problems.shapes_file import load_ranged

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "benchmarks" / "bench.yaml"
SUITES = ROOT.parent / "shared" / "shapes" / "suites"
DOCS = ROOT / "docs" / "shapes-file.md"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a text as the file `shapes.yaml` of the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str | bytes, dtype: str | None = None) -> list[Problem]:
        Path("shapes.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_shapes("shapes.yaml", dtype=dtype)

    return load_text


def refused(load: Any, text: str) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        load(text)
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint or ""


def test_defaults_rows_and_order(load: Any) -> None:
    """Keys beside `shapes` are defaults; a row overrides them; order is the file's."""
    text = """
dtype: bf16
layout: nt
beta: 1
shapes:
  - {m: 64, n: 32, k: 16}
  - {m: 8, n: 32, k: 16, dtype: fp32, layout: tn, beta: 0}
"""
    assert load(text) == [
        Problem(64, 32, 16, dtype="bf16", layout="nt", beta=1.0),
        Problem(8, 32, 16, dtype="fp32", layout="tn"),
    ]


def test_every_key_of_a_row(load: Any) -> None:
    """Each key reaches its field of the problem."""
    text = """
shapes:
  - m: 4
    n: 5
    k: 6
    batch: 2
    dtype: fp16
    layout: nt
    lda: 8
    ldb: 9
    ldc: 10
    stride_a: 40
    stride_b: 50
    stride_c: 60
    alpha: 1.5
    beta: 1e-3
    accumulator: fp16
    out_dtype: fp32
    base_alignment: 16
"""
    values: dict[str, Any] = {
        "m": 4, "n": 5, "k": 6, "batch": 2, "dtype": "fp16", "layout": "nt", "lda": 8, "ldb": 9, "ldc": 10,
        "stride_a": 40, "stride_b": 50, "stride_c": 60, "alpha": 1.5, "beta": 0.001,
        "accumulator": "fp16", "out_dtype": "fp32", "base_alignment": 16,
    }  # fmt: skip
    assert values.keys() == KEYS.keys()
    assert load(text) == [Problem(**values)]


def test_lists_stand_for_their_product(load: Any) -> None:
    """m, n, k, batch, dtype and layout may be lists, in rows and among the defaults."""
    text = "dtype: [fp32, fp64]\nshapes: [{m: [1, 8], n: 6, k: [4, 5], layout: [nn, nt]}, {m: 3, n: 3, k: 3}]"
    problems = load(text)
    assert len(problems) == 2 * 2 * 2 * 2 + 2
    assert set(problems[:16]) == {
        Problem(m, 6, k, dtype=dtype, layout=layout)
        for m in (1, 8) for k in (4, 5) for dtype in ("fp32", "fp64") for layout in ("nn", "nt")
    }  # fmt: skip
    assert [problem.dtype for problem in problems[16:]] == ["fp32", "fp64"]


def test_duplicates_count_once_after_defaults(load: Any) -> None:
    """Rows that mean the same problem are one, however they are written; the first place counts."""
    text = """
dtype: f32
shapes:
  - {m: 4, n: 4, k: 4}
  - {m: 5, n: 4, k: 4, dtype: bf16}
  - {m: 4, n: 4, k: 4, dtype: fp32, lda: 4, alpha: 1, beta: 0, tag: the same}
  - {m: [5, 4, 4], n: 4, k: 4, dtype: bfloat16}
"""
    assert load(text) == [Problem(4, 4, 4), Problem(5, 4, 4, dtype="bf16"), Problem(4, 4, 4, dtype="bf16")]


def test_a_bare_list_of_rows(load: Any) -> None:
    """A file may be just the list."""
    assert load("- {m: 1, n: 2, k: 3}\n- {m: 2, n: 2, k: 3}\n") == [Problem(1, 2, 3), Problem(2, 2, 3)]


def test_notes_are_accepted_and_ignored(load: Any) -> None:
    """tag, class, from, src and name may hold anything and split nothing."""
    text = "src: [a, {b: c}]\nshapes: [{m: 1, n: 1, k: 1, tag: x, class: 3, from: null, name: [1, 2]}]"
    assert load(text) == [Problem(1, 1, 1)]


def test_bom_crlf_and_trailing_blanks(load: Any) -> None:
    """Files from Windows and hand-made lists load."""
    assert load(b"\xef\xbb\xbfshapes:\r\n  - {m: 1, n: 2, k: 3}   \r\n\r\n   \r\n") == [Problem(1, 2, 3)]


def test_k_may_be_zero(load: Any) -> None:
    """k = 0 is a problem (C = beta * C); m = 0 is none."""
    assert load("shapes: [{m: 1, n: 1, k: 0}]") == [Problem(1, 1, 0)]


def test_dtype_argument_replaces_the_default_only(load: Any) -> None:
    """`--dtype` stands for the file's default; a row's own dtype stays; a slip gets a suggestion."""
    text = "dtype: bf16\nshapes: [{m: 1, n: 1, k: 1}, {m: 1, n: 1, k: 1, dtype: fp64}]"
    assert [problem.dtype for problem in load(text, dtype="float16")] == ["fp16", "fp64"]
    with pytest.raises(InputError, match="dtype is 'fp23'; it must be one of fp32") as caught:
        load(text, dtype="fp23")
    assert caught.value.hint == "did you mean fp32?"


@pytest.mark.parametrize(
    ("word", "meant"), [("int4", None), ("fp6", None), ("fp46", "fp64"), ("inte8", "int8"), ("fp8_e3m4", "fp8_e4m3")]
)
def test_another_format_is_no_slip(load: Any, word: str, meant: str | None) -> None:
    """int4 is a format that kt does not have, and no slip of int8."""
    with pytest.raises(InputError) as caught:
        load("shapes: [{m: 1, n: 1, k: 1}]", dtype=word)
    assert caught.value.hint == (f"did you mean {meant}?" if meant else None)


@pytest.mark.parametrize(
    ("row", "message", "advice"),
    [
        ("{m: 1e3, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is 1e3; it must be a whole number", "write 1000"),
        ("{m: 64.0, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is 64.0; it must be", "write 64"),
        ("{m: 4.5, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is 4.5; it must be", "1 or more"),
        ("{m: 4, n: no, k: 4}", "shapes.yaml:2:15: shapes[0].n is no: true or false", "quotes"),
        ("{m: 4, n: 4, k: 010}", "shapes.yaml:2:21: shapes[0].k is 010: octal", "leading zero"),
        ("{m: 4, n: 1:30, k: 4}", "shapes.yaml:2:15: shapes[0].n is 1:30: a number in base 60", "decimal"),
        ("{m: 1_000, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is 1_000: a number to some", "underscores"),
        ("{m: 4, n: 4, k: 4, m: 8}", "shapes.yaml:2:24: shapes[0].m is given twice", "remove one"),
        ('{m: "64", n: 4, k: 4}', 'shapes.yaml:2:9: shapes[0].m is the text "64"; it must be', "quotes"),
        ("{m: null, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is empty; it must be", "give it a value"),
        ("{m: , n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is empty; it must be", "give it a value"),
        ("{m: true, n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is true; it must be", "write a number"),
        ("{m: 0, n: 4, k: 4}", "is 0; it must be a whole number from 1 to 2147483647", "1 or more"),
        ("{m: -1, n: 4, k: 4}", "is -1; it must be a whole number from 1 to 2147483647", "1 or more"),
        ("{m: 4, n: 4, k: -1}", "k is -1; it must be a whole number from 0 to 2147483647", "0 or more"),
        ("{m: 2147483648, n: 4, k: 4}", "m is 2147483648; it must be a whole number from 1 to 2147483647", ""),
        ("{m: {a: 1}, n: 4, k: 4}", "shapes[0].m.a is not a known key", "buckets, from, to"),
        ("{m: {to: 1}, n: 4, k: 4}", "shapes[0].m has no from", "{from: 1, to: 4096, buckets: 12}"),
        ("{m: {from: 0, to: 1}, n: 4, k: 4}", "shapes[0].m.from is 0; it must be a whole number from 1", ""),
        ("{m: {from: 9, to: 8}, n: 4, k: 4}", "shapes[0].m is a range from 9 to 8, which is empty", "smaller one"),
        ("{m: {from: 1, to: 8, buckets: 257}, n: 4, k: 4}", "buckets is 257; it must be a whole number from 1", ""),
        ("{m: 4, n: 4, k: 4, lda: {from: 4, to: 8}}", "shapes[0].lda is a mapping; it must be a whole number", "one"),
        ("{m: [1, [2]], n: 4, k: 4}", "shapes.yaml:2:13: shapes[0].m[1] is a list; it must be", "one number"),
        ("{m: [1, x], n: 4, k: 4}", "shapes.yaml:2:13: shapes[0].m[1] is the text x; it must be", ""),
        ("{m: [], n: 4, k: 4}", "shapes.yaml:2:9: shapes[0].m is an empty list", "at least one"),
        ("{m: *rows, n: 4, k: 4}", "shapes.yaml:2:9: alias *rows has no anchor", "&rows"),
        ("{m: 4, n: 4, kk: 4}", "shapes.yaml:2:18: shapes[0].kk is not a known key; did you mean k?", "keys here"),
        ("{M: 4, n: 4, k: 4}", "shapes[0].M is not a known key; did you mean m?", "keys here"),
        ("{m: 4, n: 4, k: 4, layuot: nn}", "layuot is not a known key; did you mean layout?", "keys here"),
        ("{m: 4, n: 4}", "shapes.yaml:2:5: shapes[0] has no k", "at the top"),
        ("{m: 4, n: 4, k: 4, dtype: f23}", "dtype is the text f23; it must be one of fp32, tf32", ""),
        ("{m: 4, n: 4, k: 4, dtype: fp46}", "dtype is the text fp46; it must be one of", "did you mean fp64?"),
        ("{m: 4, n: 4, k: 4, dtype: 32}", "dtype is 32; it must be one of", ""),
        ("{m: 4, n: 4, k: 4, layout: NT}", "layout is the text NT; it must be one of nn, nt, tn, tt", "mean nt?"),
        ("{m: 4, n: 4, k: 4, alpha: one}", "alpha is the text one; it must be a finite number", ""),
        ('{m: 4, n: 4, k: 4, alpha: "1"}', 'alpha is the text "1"; it must be a finite number', "quotes"),
        ("{m: 4, n: 4, k: 4, beta: .nan}", "beta is .nan; it must be a finite number", "1e-3"),
        ("{m: 4, n: 4, k: 4, beta: true}", "beta is true; it must be a finite number", "1e-3"),
        ("{m: 4, n: 4, k: 4, beta: 1e999}", "beta is 1e999; it must be a finite number", "1e-3"),
        ("{m: 4, n: 4, k: 4, alpha: [1, 2]}", "alpha is a list; it takes one value", "one row for each"),
        ("{m: 4, n: 4, k: 4, lda: [4, 8]}", "lda is a list; it takes one value", "one row for each"),
        ("{m: 4, n: 4, k: 4, lda: 0}", "lda is 0; it must be a whole number from 1", "1 or more"),
        ("{m: 4, n: 4, k: 4, lda: 3}", "shapes.yaml:2:29: shapes[0]: lda is 3; rows of A as stored have 4", ""),
        ("{m: 4, n: 4, k: 4, base_alignment: 12}", "shapes[0]: base_alignment is 12; it must be a power of two", ""),
        ("{m: 4, n: 4, k: 4, accumulator: fp64}", "shapes[0]: accumulator of fp32 is 'fp64'; it must be one of", ""),
        ("{m: 4, n: 4, k: 4, dtype: int8, beta: 1e10}", "beta is 1e+10; int32 accumulation takes whole", ""),
        ("{m: 4, n: 4, k: 4, dtype: int8, alpha: 0.5}", "alpha is 0.5; int32 accumulation takes whole numbers", ""),
        ("{m: 4, n: 4, k: 4, batch: 2, stride_c: 4}", "stride_c is 4; batches of C would overlap", ""),
        ("{m: 2147483647, n: 4, k: 2147483647, batch: 9}", "operand A of 2**63 bytes or more", "extents"),
        ("[4, 4, 4]", "shapes.yaml:2:5: shapes[0] is a list; it must be a row of keys", "{m: 4096"),
        ("", "shapes.yaml:2:4: shapes[0] is empty; it must be a row of keys", "{m: 4096"),
        ("4x4x4", "shapes[0] is the text 4x4x4; it must be a row of keys", "{m: 4096"),
    ],
)  # fmt: skip
def test_each_slip_is_named(load: Any, row: str, message: str, advice: str) -> None:
    """File, line, column, item, key, value, limit and what to do are all in the error."""
    found, hint = refused(load, f"shapes:\n  - {row}\n")
    assert found.startswith("shapes.yaml:2:")
    assert message in found
    assert advice in hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "shapes.yaml: the file is empty"),
        ("[]", "shapes.yaml:1:1: the file is an empty list"),
        ("shapes: []", "shapes.yaml:1:9: shapes is an empty list"),
        ("shapes:", "shapes.yaml:1:8: shapes is empty; it must be a list of rows"),
        ("shapes: {m: 1, n: 1, k: 1}", "shapes.yaml:1:9: shapes is a mapping; it must be a list of rows"),
        ("shape: [{m: 1, n: 1, k: 1}]", "shapes.yaml:1:1: shape is not a known key; did you mean shapes?"),
        ("dtype: fp32", "shapes.yaml:1:1: the file has no list `shapes:`"),
        ("m: 1\nn: 1\nk: 1", "shapes.yaml:1:1: the file has no list `shapes:`"),
        ("64x64x64", "shapes.yaml:1:1: the file is the text 64x64x64; it must have a list `shapes:`"),
        ("lda: 3\nshapes: [{m: 4, n: 4, k: 4}]", "shapes.yaml:1:6: shapes[0]: lda is 3;"),
        ("batch: 0\nshapes: [{m: 4, n: 4, k: 4}]", "shapes.yaml:1:8: batch is 0; it must be a whole number"),
    ],
)
def test_a_file_without_usable_rows_is_an_error(load: Any, text: str, message: str) -> None:
    """Empty lists, missing lists and bad defaults are refused where they stand."""
    assert refused(load, text)[0].startswith(message)


def test_all_bad_rows_are_named_at_once(load: Any) -> None:
    """Several bad rows make one error with a line for each, ten at most."""
    text = "shapes:\n" + "  - {m: 0, n: 4, k: 4}\n  - {m: 1, n: 4, k: 4}\n" * 12
    lines = refused(load, text)[0].splitlines()
    assert lines[0] == "shapes.yaml: 12 rows cannot be used"
    assert lines[1].startswith("shapes.yaml:2:9: shapes[0].m is 0;")
    assert lines[2].startswith("shapes.yaml:4:9: shapes[2].m is 0;")
    assert lines[11:] == ["and 2 more"]


def test_what_readers_disagree_on_is_named_with_all_other_bad_rows(load: Any) -> None:
    """An octal number costs its row like any other error, and no second run to find the next one."""
    text = """shapes:
  - {m: 010, n: 1_000, k: 4}
  - {m: 4, n: 4, k: 4}
  - {m: 0, n: 4, k: 4}
  - {m: 1e3, n: 4, k: 4}
  - {m: 4, m: 8, n: 4, k: 4}
  - &row {m: 4, n: on, k: 4}
  - *row
"""
    lines = refused(load, text)[0].splitlines()
    assert lines[0] == "shapes.yaml: 6 rows cannot be used"
    assert [line.partition(" ")[2][:18] for line in lines[1:]] == [
        "shapes[0].m is 010", "shapes[0].n is 1_0", "shapes[2].m is 0; ", "shapes[3].m is 1e3",
        "shapes[4].m is giv", "shapes[5].n is on:", "shapes[5].n is on:",
    ]  # fmt: skip
    assert refused(load, "shapes: [{m: 010, n: 0x1_0, k: 4}]")[0].startswith("shapes.yaml: a row cannot be used\n")


def test_all_that_is_wrong_with_a_row_is_told_at_once(load: Any) -> None:
    """Each value by its place, once."""
    rows = "shapes:\n- {m: 1e3, n: 010, k: 8}\n- {m: 8, n: 8, k: 8, dtype: int4, layout: xx}\n- {m: [], k: no, x: 1}\n"
    lines = refused(load, rows)[0].splitlines()
    assert lines[0] == "shapes.yaml: 3 rows cannot be used"
    assert [re.findall(r"shapes\[\d\]\.?(\w*)", line)[0] for line in lines[1:]] == [
        "n", "m", "dtype", "layout", "k", "m",
    ]  # fmt: skip


def test_what_readers_disagree_on_outside_of_the_rows_comes_with_those_in_them(load: Any) -> None:
    """Rows cannot be judged without their defaults; all that cannot be read is named."""
    lines = refused(load, "batch: 010\nshapes: [{m: 0, n: no, k: 4}]")[0].splitlines()
    assert lines[0] == "shapes.yaml: 2 values cannot be read"
    assert lines[1].startswith("shapes.yaml:1:8: batch is 010")
    assert lines[2].startswith("shapes.yaml:2:20: shapes[0].n is no")
    assert len(lines) == 3


def test_products_are_limited(load: Any) -> None:
    """A row, or a file, that stands for more than 100,000 shapes is refused with the number, quickly."""
    numbers = str(list(range(1, 201)))
    start = time.perf_counter()
    message, _ = refused(load, f"shapes: [{{m: {numbers}, n: {numbers}, k: {numbers}}}]")
    assert "shapes[0] stands for 8000000 shapes, more than 100000" in message
    assert time.perf_counter() - start < 2


def test_bench_file_loads_quickly() -> None:
    """The benchmark's 44 shapes load in a few milliseconds, in every number format."""
    load_shapes(BENCH)
    start = time.perf_counter()
    assert len(load_shapes(BENCH)) == 44
    assert time.perf_counter() - start < 0.1
    for dtype in DTYPES:
        assert len(load_shapes(BENCH, dtype=dtype)) == 44


@pytest.mark.skipif(not SUITES.is_dir(), reason="the shape suites are not beside this checkout")
def test_every_suite_loads() -> None:
    """Real lists of shapes load as they are, notes and other spellings of formats included."""
    files = sorted(SUITES.glob("*.yaml"))
    rows = sum(len(yaml.safe_load(path.read_text())["shapes"]) for path in files)
    problems = [problem for path in files for problem in load_shapes(path)]
    assert 2000 < len(problems) <= rows
    assert {problem.dtype for problem in problems} == {"fp32", "bf16", "fp16", "fp64", "tf32"}


def test_loading_imports_nothing_heavy() -> None:
    """Reading shapes needs neither numpy, pydantic nor cupy."""
    code = (
        f"import sys; from kt.problems import load_shapes; load_shapes({str(BENCH)!r});"
        "print([name for name in ('numpy', 'pydantic', 'cupy', 'jinja2') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_schema_is_valid_and_accepts_what_loads(load: Any) -> None:
    """The JSON Schema is one, and accepts the benchmark, lists, defaults and a bare list."""
    schema = shapes_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(schema)))
    texts = [
        BENCH.read_text(),
        "dtype: [fp32, f64]\nbeta: 1.5\ntag: x\nshapes: [{m: [1, 2], n: 3, k: 0, lda: 8, src: y}]",
        "- {m: 1, n: 2, k: 3}",
        "- {m: {from: 1, to: 9, buckets: 2}, n: [{from: 1, to: 2}, 7], k: 3}",
    ]
    for text in texts:
        load(text)
        validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "shapes: []", "[]", "shapes: [{m: 0, n: 1, k: 1}]", "shapes: [{m: '4', n: 1, k: 1}]", "- {m: 1, n: 2}",
        "shapes: [{m: 1, n: 1, k: 1, mm: 1}]", "shape: []", "shapes: [{m: 1, n: 1, k: 1, dtype: fp23}]",
        "shapes: [{m: [], n: 1, k: 1}]", "shapes: [{m: 1, n: 1, k: 1, lda: [1]}]",
    ],
)  # fmt: skip
def test_schema_refuses_what_does_not_load(load: Any, text: str) -> None:
    """Editors mark the same slips that kt refuses."""
    refused(load, text)
    assert not jsonschema.Draft202012Validator(shapes_schema()).is_valid(yaml.safe_load(text))


def test_docs_describe_every_key() -> None:
    """The page on shapes.yaml has each key."""
    text = DOCS.read_text()
    for name in (*KEYS, *INFORMATION):
        assert f"`{name}`" in text


def test_docs_examples_load(load: Any) -> None:
    """Every YAML block of the page loads as it stands."""
    blocks = DOCS.read_text().split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        assert load(block.split("```")[0])


@pytest.mark.parametrize(
    ("alpha", "hint"), [("nan", "write a number"), ('"x"', "write a number"), ('"1.5"', "remove the quotes")]
)
def test_quotes_are_named_only_where_there_are_some(tmp_path: Path, alpha: str, hint: str) -> None:
    """The hint of a factor that is text fits what was written."""
    path = tmp_path / "shapes.yaml"
    path.write_text(f"shapes: [{{m: 4, n: 4, k: 4, alpha: {alpha}}}]\n")
    with pytest.raises(InputError) as caught:
        load_shapes(path)
    assert (caught.value.hint or "").startswith(hint)


# Ranges


def test_a_range_stands_for_the_ends_and_middles_of_its_buckets(load: Any) -> None:
    """Buckets grow by one factor; a bucket for each doubling unless their number is said."""
    sizes = [1, 2, 3, 4, 6, 8, 12, 16]
    written = "{m: {from: 1, to: 16, buckets: 4}, n: 8, k: [8, 16]}"
    assert [problem.m for problem in load(f"shapes: [{written}]") if problem.k == 8] == sizes
    assert [problem.m for problem in load("m: {from: 1, to: 16}\nshapes: [{n: 8, k: 8}]")] == sizes
    assert [problem.k for problem in load("shapes: [{m: 1, n: 1, k: [{from: 0, to: 1, buckets: 2}, 7]}]")] == [0, 1, 7]


@given(
    first=st.integers(0, 2**31 - 1) | st.integers(0, 40),
    more=st.integers(0, 2**31 - 1) | st.integers(0, 40),
    wanted=st.integers(1, MAX_BUCKETS),
)
def test_buckets_have_every_size_once(first: int, more: int, wanted: int) -> None:
    one = Range(first, min(2**31 - 1, first + more), wanted)
    buckets = one.buckets
    assert len(buckets) <= wanted
    assert (buckets[0].first, buckets[-1].last) == (one.first, one.last)
    assert all(left.last + 1 == right.first for left, right in itertools.pairwise(buckets))
    assert all(bucket.first <= bucket.middle <= bucket.last for bucket in buckets)
    assert set(one.sizes) == {size for bucket in buckets for size in (bucket.middle, bucket.last)}


def test_a_ranged_row_tells_its_problems_by_the_size(tmp_path: Path) -> None:
    """One for each combination of everything else."""
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes: [{m: {from: 1, to: 8}, n: [4, 5], k: 3, layout: tn}, {m: 1, n: 1, k: 1}]")
    problems, ranged = load_ranged(path)
    assert [(one.name, one.values["n"]) for one in ranged] == [("m", 4), ("m", 5)]
    assert ranged[0].at(8) in problems
    assert ranged[1].at(7) == Problem(7, 5, 3, "fp32", "tn")
    replaced, of_option = load_ranged(path, ranges=dict([read_range("n=1:2:1")]))
    assert {problem.n for problem in replaced} == {1, 2}
    assert [one.name for one in of_option] == ["m", "m", "n", "n", "n", "n", "n", "n", "n"]


@pytest.mark.parametrize("text", ["", "m", "m=1", "lda=1:2", "m=1:2:3:4", "m=a:b", "m=-1:4", "m=1:4,n=2:3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no range"):
        read_range(text)
    assert read_range(" k=0:4096:12 ") == ("k", Range(0, 4096, 12))
