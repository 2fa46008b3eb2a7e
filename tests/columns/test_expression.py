"""A condition finds the rows that plain Python finds one by one; invalid ones are errors that name the position."""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.columns import expression
from wids.columns.expression import Expression

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
Part = tuple[str, "Callable[[Row], Any]"]
"""Part of a condition as text, and as a function from a row to its value by Python's operators, None if missing."""

COLUMNS = ("n", "big", "x", "flag", "word", "other")
INTEGERS = st.none() | st.integers(-4, 4)
BIG = st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, 2**31, -(2**31)])
FLOATS = st.none() | st.sampled_from([0.0, -1.5, 2.0, 1e308, math.inf, 2.0**53]) | st.floats(allow_nan=False)
WORDS = st.none() | st.text("abé", max_size=3)
ROWS = st.lists(st.tuples(INTEGERS, BIG, FLOATS, st.booleans(), WORDS, WORDS), max_size=8)


def lifted(function: Callable[..., Any], *parts: Part) -> Callable[[Row], Any]:
    """Return a function of rows whose value is missing (None) where a part is, or where Python divides by zero."""

    def of_row(row: Row) -> Any:
        values = [part(row) for _, part in parts]
        if None in values:
            return None
        try:
            result = function(*values)
        except ZeroDivisionError:
            return None
        return None if isinstance(result, float) and math.isnan(result) else result

    return of_row


def column(name: str) -> Part:
    return name, operator.itemgetter(name)


def binary(symbol: str, function: Callable[[Any, Any], Any], left: Part, right: Part) -> Part:
    return f"({left[0]} {symbol} {right[0]})", lifted(function, left, right)


def condition(symbol: str, function: Callable[[Any, Any], bool], left: Part, right: Part) -> Part:
    text, of_row = binary(symbol, function, left, right)
    return text, lambda row: (symbol in {"!=", "not in"}) if of_row(row) is None else of_row(row)


LITERALS = st.integers(-5, 5) | st.sampled_from([0.5, 2**53 + 1, 2**63])
NUMBERS: st.SearchStrategy[Part] = st.recursive(
    st.sampled_from([column("n"), column("big"), column("x"), column("flag")])
    | LITERALS.map(lambda number: (f"({number})", lambda _: number)),
    lambda inner: (
        st.builds(
            lambda op, left, right: binary(op[0], op[1], left, right),
            st.sampled_from(
                [
                    ("+", operator.add),
                    ("-", operator.sub),
                    ("*", operator.mul),
                    ("/", operator.truediv),
                    ("//", operator.floordiv),
                    ("%", operator.mod),
                ]
            ),
            inner,
            inner,
        )
        | inner.map(lambda part: (f"(-{part[0]})", lifted(operator.neg, part)))
        | inner.map(lambda part: (f"abs({part[0]})", lifted(abs, part)))
    ),
    max_leaves=4,
)
TEXTS: st.SearchStrategy[Part] = st.sampled_from([column("word"), column("other")]) | st.text("abé", max_size=2).map(
    lambda text: (repr(text), lambda _: text)
)
COMPARISONS = st.sampled_from(
    [
        ("<", operator.lt),
        ("<=", operator.le),
        (">", operator.gt),
        (">=", operator.ge),
        ("==", operator.eq),
        ("!=", operator.ne),
    ]
)


def among(part: Part, choices: list[Any], negated: bool) -> Part:
    return (
        f"({part[0]} {'not in' if negated else 'in'} {choices!r})",
        lambda row: ((value := part[1](row)) is not None and value in choices) is not negated,
    )


CONDITIONS: st.SearchStrategy[Part] = st.recursive(
    st.builds(lambda op, left, right: condition(op[0], op[1], left, right), COMPARISONS, NUMBERS, NUMBERS)
    | st.builds(lambda op, left, right: condition(op[0], op[1], left, right), COMPARISONS, TEXTS, TEXTS)
    | st.builds(lambda left, right: condition("in", lambda a, b: a in b, left, right), TEXTS, TEXTS).map(
        lambda part: (part[0], lambda row: bool(part[1](row)))
    )
    | st.builds(among, NUMBERS, st.lists(st.integers(-4, 4), max_size=3), st.booleans())
    | st.builds(among, TEXTS, st.lists(st.text("abé", max_size=1), max_size=3), st.booleans())
    | st.sampled_from(COLUMNS).map(lambda name: (f"({name} is None)", lambda row: row[name] is None))
    | st.just(column("flag")),
    lambda inner: (
        st.builds(
            lambda left, right: (f"({left[0]} and {right[0]})", lambda row: left[1](row) and right[1](row)),
            inner,
            inner,
        )
        | st.builds(
            lambda left, right: (f"({left[0]} or {right[0]})", lambda row: left[1](row) or right[1](row)), inner, inner
        )
        | inner.map(lambda part: (f"(not {part[0]})", lambda row: not part[1](row)))
    ),
    max_leaves=4,
)


def find_rows(text: str, rows: list[tuple[Any, ...]]) -> list[bool]:
    """Return which rows a condition finds in columns in their stored form: of one type, with a mask."""
    types = [np.int64, np.int64, np.float64, np.bool_, object, object]
    table: dict[str, tuple[Any, Any]] = {
        name: (
            np.array([0 if row[place] is None and kind is not object else row[place] for row in rows], kind),
            np.array([row[place] is None for row in rows], np.bool_),
        )
        for place, (name, kind) in enumerate(zip(COLUMNS, types, strict=True))
    }

    def read(name: str, start: int, stop: int) -> tuple[Any, Any]:
        return table[name][0][start:stop], table[name][1][start:stop]

    found: list[bool] = Expression(text).find_rows(read, len(rows), COLUMNS).tolist()
    return found


@settings(max_examples=200)
@given(CONDITIONS, ROWS)
def test_a_condition_finds_the_rows_that_python_finds_one_by_one(condition: Part, rows: list[tuple[Any, ...]]) -> None:
    text, of_row = condition
    try:
        expected = [bool(of_row(dict(zip(COLUMNS, row, strict=True)))) for row in rows]
    except OverflowError:
        return  # Python's own integers do not fit into its floats

    assert find_rows(text, rows) == expected


@settings(max_examples=200)
@given(CONDITIONS, ROWS.map(lambda rows: [row for row in rows if None not in row]))
def test_a_condition_on_complete_rows_finds_what_eval_of_its_text_finds(
    condition: Part, rows: list[tuple[Any, ...]]
) -> None:
    text, _ = condition
    try:
        expected = [bool(eval(text, {}, dict(zip(COLUMNS, row, strict=True)))) for row in rows]
    except (ZeroDivisionError, OverflowError):
        return
    if "nan" in str([eval(text, {}, dict(zip(COLUMNS, row, strict=True))) for row in rows]):
        return

    assert find_rows(text, rows) == expected


def test_long_columns_are_read_in_blocks_and_the_result_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "_BLOCK_ROWS", 7)
    column = np.arange(100)
    asked = []

    def read(name: str, start: int, stop: int) -> tuple[Any, None]:
        asked.append((name, start, stop))
        return column[start:stop], None

    found = Expression("10 <= n < 90 and n % 3 == 0").find_rows(read, 100, ["n"])

    assert np.flatnonzero(found).tolist() == [n for n in range(10, 90) if n % 3 == 0]
    assert max(stop - start for _, start, stop in asked) == 7


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("wrod == 'a'", 1, "there is no column 'wrod'; did you mean 'word'?"),
        ("n > 1 and é == 'a'", 11, "there is no column 'é'; there are big, flag, n, other, word, x"),
        ("'é' == word and wrod == ''", 17, "there is no column 'wrod'; did you mean 'word'?"),
        ("n >", 4, "invalid syntax"),
        ("n = 1", 3, "invalid syntax"),
        ("", 1, "invalid syntax"),
        ("n > 1; n", 6, "invalid syntax"),
        ("__import__('os').system('true')", 1, "only abs, len, max, min can be called"),
        ("n > 1 and open('x')", 11, "only abs, len, max, min can be called"),
        ("len(word, n) > 1", 1, "len takes one value, but was given 2"),
        ("max(n) > 1", 1, "max takes two values or more, but was given 1"),
        ("len(word, key=n) > 1", 15, "len takes no named arguments; write the values alone"),
        ("word.__class__ == 'a'", 1, "there is no column 'word.__class__'"),
        ("'a'.__class__ == 'a'", 1, "attributes of values cannot be read"),
        ("n ** 9 > 1", 1, "this is not allowed here"),
        ("n @ 9 > 1", 1, "this is not allowed here"),
        ("n > 1 if flag else n < 1", 1, "this is not allowed here"),
        ("(lambda: flag)()", 1, "only abs, len, max, min can be called"),
        ("[n for n in word]", 1, "this is not allowed here"),
        ("word[0] == 'a'", 1, "this is not allowed here"),
        ("f'{n}' == 'a'", 1, "this is not allowed here"),
        ("b'a' == word", 1, "this is not allowed here"),
        ("1j == n", 1, "this is not allowed here"),
        ("(m := n) > 1", 2, "this is not allowed here"),
        ("~n > 1", 1, "this is not allowed here"),
        ("n is 1", 6, "only None may follow is"),
        ("n in [x]", 7, "a list may hold only numbers and text"),
        ("n in ['a']", 7, "'a' is looked for among values that are a number"),
        ("n in 5", 1, "is a number where text is needed"),
        ("n == None", 1, "None is compared with is None"),
        ("word > 3", 1, "text is compared with a number; both must be text, or neither"),
        ("n and flag", 1, "is a number where true or false is needed; compare it with something"),
        ("n", 1, "is a number where true or false is needed"),
        ("word + 'a' == 'aa'", 1, "is text where a number is needed"),
        ("n < 36893488147419103232", 5, "this number is too large"),
        ("not " * 60 + "flag", 205, "is nested more than 50 levels deep"),
        ("(n > 1 and\n  n ? 2)", 16, "invalid syntax"),
        ("(n > 1 and\r\n  é == 2)", 15, "there is no column 'é'"),
        ("(n > 1 and\r  é == 2)", 14, "there is no column 'é'"),
        ("n > (1 and\n  n < 3\n", 5, "'(' was never closed"),
    ],
)
def test_invalid_conditions_are_errors_that_name_the_position(text: str, place: int, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)) as caught:
        find_rows(text, [(1, 2, 0.5, True, "a", "b")])

    assert f", character {place}: " in str(caught.value)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("text", ["(" * 300, "-" * 9000 + "1", "flag and " * 2000, "n == 0\0", "\ud800"])
def test_oversized_or_unparsable_conditions_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"at most|cannot be parsed|too many nested|levels deep|surrogates|null bytes"):
        Expression(text)


def test_column_names_may_contain_dots() -> None:
    found = Expression("meta.width > 1").find_rows(
        lambda _, *rows: (np.array([1, 2])[slice(*rows)], None), 2, ["meta.width"]
    )

    assert found.tolist() == [False, True]
