"""The expression language: Python's meaning on scalars and arrays, and nothing beyond the whitelist."""

import pickle
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kt.errors import InputError
from kt.search_spaces.expression import Expression, ExpressionError, parse
from kt.search_spaces.names import Names


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


PYTHON: dict[str, Any] = {"min": min, "max": max, "cdiv": cdiv, "abs": abs, "__builtins__": {}}
NAMES: tuple[str, ...] = ("a", "b", "c", "d")


def python_value(text: str, values: dict[str, int]) -> Any:
    """What Python itself makes of the text; None where it divides by zero."""
    try:
        return eval(text, PYTHON, values)
    except ZeroDivisionError:
        return None


def language_value(expression: Expression, values: dict[str, Any]) -> Any:
    try:
        return expression.evaluate(values)
    except ExpressionError:
        return None


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def two(symbols: list[str]) -> st.SearchStrategy[str]:
        return st.tuples(inner, st.sampled_from(symbols), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")

    return st.one_of(
        two(["+", "-", "*", "//", "%"]),
        two(["==", "!=", "<", "<=", ">", ">="]),
        two(["and", "or"]),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} and {t[1]} or {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} in ({t[1]}, {t[2]}))"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} not in [{t[1]}, 3])"),
        st.tuples(st.sampled_from(["min", "max", "cdiv"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda t: f"abs({t})"),
        inner.map(lambda t: f"(not {t})"),
        inner.map(lambda t: f"(-{t})"),
        inner.map(lambda t: f"({t} % 5) ** 2"),
    )


numbers = st.one_of(st.integers(-4, 9), st.sampled_from([2**31 - 1, 2**62, -(2**63), 2**63 - 1]))
leaves = st.one_of(st.sampled_from(NAMES), st.integers(0, 9).map(str), st.just(str(2**40)), st.just("True"))
expressions = st.recursive(leaves, grown, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(expressions, st.tuples(numbers, numbers, numbers, numbers))
def test_scalars_mean_what_python_means(text: str, values: tuple[int, ...]) -> None:
    """On scalars, an expression has Python's value, and no value exactly where Python divides by zero."""
    names = dict(zip(NAMES, values, strict=True))
    assert language_value(parse(text), names) == python_value(text, names)


@settings(max_examples=400, deadline=None)
@given(expressions, st.lists(numbers, min_size=1, max_size=3), st.lists(numbers, min_size=1, max_size=3), numbers)
@example("(a != 0 and b % a == 0)", [0, 2], [6, 7], 1)
@example("(a * a * a)", [2**40, 1], [0], 0)
@example("(1 if a > 3 else b // a)", [0, 5], [1], 0)
@example("(a or b // 0)", [1, 2], [1], 0)
@example("(a > 1) + (b > 1) - (a > 2)", [1, 2, 3], [1, 3], 0)
@example("(a > 1) // (b > 0) * (a == a)", [1, 2, 3], [1, 3], 0)
@example("min(a > 1, b) + max(a > 1, b > 2) ** 2", [1, 2, 3], [1, 3], 0)
def test_arrays_mean_what_python_means_of_each_element(text: str, first: list[int], second: list[int], d: int) -> None:
    """On arrays that broadcast, each element has Python's value; there is no value if one element has none."""
    names: dict[str, Any] = {
        "a": np.array(first).reshape(-1, 1),
        "b": np.array(second),
        "c": np.array(second)[::-1] % 7,
        "d": d,
    }
    rows = [
        [python_value(text, {"a": a, "b": b, "c": c, "d": d}) for b, c in zip(second, names["c"].tolist(), strict=True)]
        for a in first
    ]
    found = language_value(parse(text), names)
    if any(value is None for row in rows for value in row):
        assert found is None
    else:
        assert found is not None
        assert np.broadcast_to(np.asarray(found, dtype=object), (len(first), len(second))).tolist() == rows


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("__import__('os')", "__import__('os')"),
        ("a.__class__", "a.__class__"),
        ("device.x.y", "device.x.y"),
        ("(lambda: 1)()", "(lambda: 1)()"),
        ("[a for a in b]", "[a for a in b]"),
        ("a[0]", "a[0]"),
        ("f'{a}'", "f'{a}'"),
        ("{1: 2}", "{1: 2}"),
        ("a / b", "//"),
        ("a & b", "`and`"),
        ("a | b", "`or`"),
        ("~a", "`not`"),
        ("a is b", "=="),
        ("a << 2", "a << 2"),
        ("(a := 3)", "(a := 3)"),
        ("1e3", "`1e3` is not a whole number"),
        ("1.5 * a", "`1.5` is not a whole number"),
        ("None", "`None` is not a whole number"),
        ("b'x'", "not a whole number"),
        ("1j", "not a whole number"),
        ("a in b", "list of values"),
        ("a in ()", "list of values"),
        ("'x' in 'xyz'", "list of values"),
        ("min(a)", "min() takes 2 or more"),
        ("cdiv(a)", "cdiv() takes 2"),
        ("min(*a, b)", "min() takes 2 or more"),
        ("min(a, b, key=c)", "min() takes 2 or more"),
        ("sorted(a)", "min, max, cdiv, abs"),
        ("min.x(a, b)", "min, max, cdiv, abs"),
        ("a &&b", "not an expression"),
        ("a +", "not an expression"),
        ("1if a else 2", "not an expression"),
        ("010", "not an expression"),
        ("a = 3", "not an expression"),
        ("a; b", "not an expression"),
        ("import os", "not an expression"),
        ("a # b", "character '#'"),
        ("'\\n'", "character"),
        ("", "blank"),
        ("   \n ", "blank"),
    ],
)
def test_what_is_not_in_the_language_is_refused_by_name(text: str, construct: str) -> None:
    """The message shows the text and names the construct at fault or what to write for it."""
    with pytest.raises(InputError) as caught:
        parse(text, "space.yaml:3:4: constraints[0].require")
    error = caught.value
    assert error.message.startswith("space.yaml:3:4: constraints[0].require: `")
    assert construct in f"{error.message} {error.hint}"


def test_message_names_the_column() -> None:
    """The column counts characters of the expression from 1."""
    with pytest.raises(InputError, match=r"`a \+ b / c`, column 5: `b / c` is not allowed"):
        parse("a + b / c")
    with pytest.raises(InputError, match="column 8: `b / c`"):
        parse("'é' == b / c")


@pytest.mark.parametrize("text", ["(" * 900 + "a" + ")" * 900, "-" * 1900 + "a", "a" + "+a" * 900, "not " * 400 + "a"])
def test_deep_nesting_is_refused(text: str) -> None:
    """No text brings the parser or the evaluation to the end of the stack."""
    with pytest.raises(InputError, match=r"deep|not an expression"):
        parse(text)


def test_length_is_limited() -> None:
    """A text of more than 2000 characters is refused at once."""
    start = time.perf_counter()
    with pytest.raises(InputError, match="3999 characters, more than 2000"):
        parse("a+" * 1999 + "a")
    assert time.perf_counter() - start < 0.5


def test_names() -> None:
    """`names` has every name that needs a value, the device's dotted, and no function."""
    assert parse("min(a, b) if device.sm_count > 3 else cdiv(c, 2)").names == {"a", "b", "c", "device.sm_count"}
    assert parse(256).names == frozenset()
    assert parse(256).evaluate({}) == 256
    assert parse(True).evaluate({}) is True


def test_missing_name_is_an_error() -> None:
    """A name without a value is named."""
    with pytest.raises(ExpressionError, match="`a \\+ b`: b has no value"):
        parse("a + b").evaluate({"a": 1})


def test_text_is_compared_and_nothing_else() -> None:
    """Text knows ==, != and in, with scalars and arrays; arithmetic and order are errors."""
    column = np.array(["row", "column", "row"])
    assert parse("raster == 'row'").evaluate({"raster": column}).tolist() == [True, False, True]
    assert parse("raster != 'row'").evaluate({"raster": "row"}) is False
    assert parse("raster in ('x', 'column')").evaluate({"raster": column}).tolist() == [False, True, False]
    assert parse("raster == 1").evaluate({"raster": "1"}) is False
    for text in ("raster + 1", "raster < 'x'", "min(raster, 'x')", "-raster", "raster * 2"):
        for value in ("row", column):
            with pytest.raises(ExpressionError, match="text"):
                parse(text).evaluate({"raster": value})


def test_no_product_wraps_around() -> None:
    """Products far above 2**63 are exact, as scalars and in arrays."""
    split = np.array([1, 2, 4])
    sizes = {"m": 2**31 - 1, "n": 2**31 - 1, "batch": 2**31 - 1}
    exact = (2**31 - 1) ** 3
    assert parse("m * n * batch").evaluate(sizes) == exact
    assert parse("split * m * n * batch").evaluate({**sizes, "split": split}).tolist() == [exact, 2 * exact, 4 * exact]
    assert parse("split * m * n * batch <= 2 ** 62").evaluate({**sizes, "split": split}).tolist() == [False] * 3
    assert parse("a * a").evaluate({"a": np.array([2**32, 3])}).tolist() == [2**64, 9]
    assert parse("-a").evaluate({"a": np.array([-(2**63)])}).tolist() == [2**63]
    assert parse("a // -1").evaluate({"a": np.array([-(2**63)])}).tolist() == [2**63]
    assert parse("a + 1 > a").evaluate({"a": np.array([2**63 - 1])}).tolist() == [True]
    assert parse("a < 2 ** 63").evaluate({"a": np.array([2**63 - 1])}).tolist() == [True]
    small = parse("a * 3").evaluate({"a": np.array([1, 2], dtype=np.int32)})
    assert small.dtype == np.int64


def test_powers_are_bounded() -> None:
    """Exponents are 0 to 64 and results have at most 1024 bits, judged element by element."""
    assert parse("2 ** 64").evaluate({}) == 2**64
    assert parse("a ** b").evaluate({"a": np.array([2**40, 2]), "b": np.array([1, 64])}).tolist() == [2**40, 2**64]
    for text in ("2 ** 65", "2 ** -1", "(2 ** 63) ** 63"):
        with pytest.raises(ExpressionError, match=r"\*\*"):
            parse(text).evaluate({})
    with pytest.raises(ExpressionError, match="1024 bits"):
        parse("a ** 64").evaluate({"a": np.array([2, 2**20])})


def test_division_by_zero_is_an_error_unless_it_is_not_reached() -> None:
    """`and`, `or` and `if` protect their right side, for scalars and element by element."""
    thread = np.array([0, 4, 8])
    for text in ("tile // thread", "tile % thread == 0", "cdiv(tile, thread)"):
        with pytest.raises(ExpressionError, match="by zero"):
            parse(text).evaluate({"tile": 12, "thread": thread})
        with pytest.raises(ExpressionError, match="by zero"):
            parse(text).evaluate({"tile": 12, "thread": 0})
    guarded = parse("thread != 0 and tile % thread == 0")
    assert guarded.evaluate({"tile": 12, "thread": thread}).tolist() == [False, True, False]
    assert guarded.evaluate({"tile": 12, "thread": 0}) is False
    assert parse("-1 if thread == 0 else tile // thread").evaluate({"tile": 12, "thread": thread}).tolist() == [
        -1,
        3,
        1,
    ]
    with pytest.raises(ExpressionError, match="by zero"):
        parse("thread != 4 and tile % thread == 0").evaluate({"tile": 12, "thread": thread})


def test_derived_names_are_lazy_and_protected_too() -> None:
    """A derived quantity without a value for some elements does no harm where it is not reached."""
    derived = {"ratio": parse("tile // thread"), "double": parse("ratio * 2")}
    names = Names({"tile": np.array([[8], [16]]), "thread": np.array([0, 4])}, derived)
    assert parse("thread > 0 and double > 4").evaluate(names).tolist() == [[False, False], [False, True]]
    with pytest.raises(ExpressionError, match="`double > 4`: `ratio \\* 2`: `tile // thread`: // by zero"):
        parse("double > 4").evaluate(names)


def test_numpy_scalars_and_narrow_types_are_accepted() -> None:
    """Values that come from arrays work like Python's own."""
    assert parse("a * 2").evaluate({"a": np.int32(2**31 - 1)}) == 2**32 - 2
    assert (
        parse("a + b").evaluate({"a": np.array([True, True]), "b": np.array([255], dtype=np.uint8)}).tolist()
        == [256] * 2
    )
    assert parse("a - 1").evaluate({"a": np.array([0, 2**64 - 1], dtype=np.uint64)}).tolist() == [-1, 2**64 - 2]
    assert parse("beta == 0").evaluate({"beta": 0.5}) is False


def test_expressions_travel_between_processes() -> None:
    """An expression survives pickling with its text, names and value."""
    expression = parse("max(a, 3) * 2")
    copy = pickle.loads(pickle.dumps(expression))
    assert copy == expression
    assert copy.evaluate({"a": 5}) == 10
