"""Arithmetic and comparisons over blocks of a column, with missing values; results are those of Python, value by value.

A missing value behaves as NaN does in Python: every comparison with it is false, except `!=`, and arithmetic with it gives a
missing value. NaN itself and the result of a division by zero are missing, too. Integers are exact: where 64 bits could
overflow, or a float could round, the block is computed with Python's own integers.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

Kind = Literal["number", "text", "truth", "none"]

_SAFE = 1 << 31
"""Products of integers below this bound fit into 64 bits, and dividing them as floats gives what Python gives."""
_EXACT = 1 << 53
"""Integers up to this bound are exact as floats."""

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_CONTAINS = np.frompyfunc(operator.contains, 2, 1)
_LEN = np.frompyfunc(len, 1, 1)


@dataclass(frozen=True, slots=True)
class Values:
    """A block of values, or a single value that applies to every row."""

    kind: Kind
    """Type of the values; `"none"` is the literal `None`."""
    data: NDArray[Any]
    """`(n,)` or `()`; bool, int64, float64, or object for text and for integers that may not fit into 64 bits."""
    missing: NDArray[np.bool_] | np.bool_ = np.False_
    """`(n,)` or `()` bool, which values are missing; `data` is undefined there."""

    def numbers(self) -> Values:
        """Return these values as numbers; true is 1."""
        return self if self.kind == "number" else Values("number", self.data.astype(np.int64), self.missing)

    def is_true(self) -> NDArray[np.bool_]:
        """Return which values are true; a missing one is not."""
        return self.data & ~self.missing


def from_column(data: NDArray[Any], missing: NDArray[np.bool_] | None) -> Values:
    """Return a block of a column as values.

    Args:
        data: `(n,)`, bool, integers or floats of any size, or object: `str`, or None where missing.
        missing: `(n,)` bool, which values are missing; None if only NaN and None are.
    """
    gone = np.False_ if missing is None else missing
    if data.dtype.kind == "b":
        return Values("truth", data, gone)
    if data.dtype.kind == "f":
        wide = data.astype(np.float64)
        return Values("number", wide, gone | np.isnan(wide))
    if data.dtype.kind in "iu":
        if data.dtype == np.uint64 and data.size and data.max() >= 1 << 63:
            return Values("number", data.astype(object), gone)
        return Values("number", data.astype(np.int64), gone)
    absent = np.array([text is None for text in data.tolist()], np.bool_)
    return Values("text", np.where(absent, "", data), gone | absent)


def constant(value: bool | float | str | None) -> Values:
    """Return a single value that applies to every row."""
    if value is None:
        return Values("none", np.zeros((), np.bool_), np.True_)
    if isinstance(value, str):
        return Values("text", np.array(value, object))
    return from_column(np.array(value), None)


def calculate(operation: str, left: Values, right: Values) -> Values:
    """Return `left operation right` for numbers; `operation` is a key of `ARITHMETIC`."""
    a, b = _widened([left.numbers().data, right.numbers().data], _SAFE)
    missing = left.missing | right.missing
    if operation in {"/", "//", "%"}:
        is_zero = np.equal(b, 0).astype(np.bool_)
        b, missing = np.where(is_zero, 1, b), missing | is_zero
    with np.errstate(all="ignore"):
        result = np.asarray(ARITHMETIC[operation](a, b))
    if operation == "/" or "f" in (a.dtype.kind, b.dtype.kind):
        result = result.astype(np.float64)
    return _number(result, missing)


def negate(values: Values) -> Values:
    """Return `-values`."""
    return (
        calculate("-", constant(0), values) if values.data.dtype.kind != "f" else _number(-values.data, values.missing)
    )


def absolute(values: Values) -> Values:
    """Return `abs(values)`."""
    (data,) = _widened([values.numbers().data], _SAFE)
    return _number(np.abs(data), values.missing)


def extreme(choose: Callable[[Any, Any], Any], values: Iterable[Values]) -> Values:
    """Return the least or greatest of several numbers in each row; `choose` is `np.minimum` or `np.maximum`."""
    first, *others = [block.numbers() for block in values]
    data, missing = first.data, first.missing
    for other in others:
        with np.errstate(all="ignore"):
            data, missing = np.asarray(choose(data, other.data)), missing | other.missing
    return _number(data, missing)


def count_characters(text: Values) -> Values:
    """Return `len(text)`."""
    return Values("number", np.asarray(_LEN(text.data)).astype(np.int64), text.missing)


def compare(operation: str, left: Values, right: Values) -> Values:
    """Return `left operation right`, both numbers or both text; `operation` is a key of `COMPARISONS`."""
    a, b = left.data, right.data
    if left.kind != "text":
        a, b = left.numbers().data, right.numbers().data
        if "f" in (a.dtype.kind, b.dtype.kind):
            a, b = _widened([a, b], _EXACT)
    result = np.asarray(COMPARISONS[operation](a, b)).astype(np.bool_)
    missing = left.missing | right.missing
    return _truth(result | missing if operation == "!=" else result & ~missing)


def is_among(values: Values, choices: frozenset[Any]) -> Values:
    """Return `values in choices`; false for a missing value."""
    found = np.array([value in choices for value in np.atleast_1d(values.data).tolist()], np.bool_)
    return _truth(found.reshape(values.data.shape) & ~values.missing)


def is_part(part: Values, whole: Values) -> Values:
    """Return `part in whole` for text."""
    found = np.asarray(_CONTAINS(whole.data, part.data)).astype(np.bool_)
    return _truth(found & ~(part.missing | whole.missing))


def is_missing(values: Values) -> Values:
    """Return `values is None`."""
    return _truth(values.missing | np.zeros(values.data.shape, np.bool_))


def _truth(data: NDArray[np.bool_]) -> Values:
    return Values("truth", data)


def _number(data: NDArray[Any], missing: NDArray[np.bool_] | np.bool_) -> Values:
    data = np.asarray(data)
    return Values("number", data, missing | np.isnan(data) if data.dtype.kind == "f" else missing)


def _widened(arrays: list[NDArray[Any]], limit: int) -> list[NDArray[Any]]:
    """Return the arrays; an int64 array with a value of magnitude `limit` or more is converted to Python's integers."""
    return [
        data.astype(object)
        if data.dtype == np.int64 and data.size and (data.max() >= limit or data.min() <= -limit)
        else data
        for data in arrays
    ]
