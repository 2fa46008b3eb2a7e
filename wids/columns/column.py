"""Columns: one value for each row, held in numpy arrays that may be mapped from a file.

There are columns of numbers or booleans, and columns of text in one block of bytes. A mask marks missing values; in columns
of floats, NaN is missing, too. A column has no data but its arrays, so a mapped one takes no memory, however many rows it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import DTypeLike, NDArray

    Rows = range | NDArray[np.integer] | NDArray[np.bool_]

_BLOCK_ROWS = 1 << 16


class NumberColumn:
    """A column of numbers or booleans.

    Args:
        data: `(num_rows,)`, bool, integers or floats; any value where `missing` is true.
        missing: `(num_rows,)` bool, which values are missing; None if none is, and for floats, where NaN is missing.
    """

    __slots__ = ("data", "missing")

    def __init__(self, data: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> None:
        self.data = data
        self.missing = missing

    def __len__(self) -> int:
        return len(self.data)

    @property
    def kind(self) -> str:
        """The type of the values, for messages: `int64`, `float32`, `bool`."""
        return str(self.data.dtype)

    def value(self, row: int) -> Any:
        """Return one value as an int, float or bool; None if it is missing."""
        return None if self.missing is not None and self.missing[row] else self.data[row].item()

    def block(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return `(values, missing)` of the rows `[start, stop)`."""
        return self.data[start:stop], None if self.missing is None else self.missing[start:stop]

    def take(self, rows: Rows) -> NumberColumn:
        """Return a column of these rows, in order; a range copies nothing."""
        return NumberColumn(_take(self.data, rows), None if self.missing is None else _take(self.missing, rows))

    def scatter(self, rows: NDArray[np.int64], num_rows: int) -> NumberColumn:
        """Return a column of `num_rows` rows in which row `rows[i]` is row `i` of this one; all others are missing."""
        data = np.full(num_rows, np.nan if self.data.dtype.kind == "f" else 0, self.data.dtype)
        data[rows] = self.data
        missing = np.ones(num_rows, np.bool_)
        missing[rows] = False if self.missing is None else self.missing
        return NumberColumn(data, missing if missing.any() and self.data.dtype.kind != "f" else None)

    def missing_rows(self) -> NDArray[np.int64]:
        """Return the rows that have no value."""
        if self.data.dtype.kind == "f":
            return np.flatnonzero(np.isnan(self.data))
        return np.zeros(0, np.int64) if self.missing is None else np.flatnonzero(self.missing)

    def filled(self, value: Any) -> NumberColumn:
        """Return a column in which missing values are replaced by `value`.

        Raises:
            ValueError: The column's type cannot hold `value`.
        """
        rows = self.missing_rows()
        if not len(rows):
            return NumberColumn(self.data)
        data = np.array(self.data)
        try:
            data[rows] = value
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"missing is {value!r}; a column of {self.kind} cannot hold it") from None
        held = data[rows[0]].item()
        if held != value and held == held:  # noqa: PLR0124  # NaN, the only value unequal to itself, was asked for
            raise ValueError(f"missing is {value!r}; a column of {self.kind} cannot hold it")
        return NumberColumn(data)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the column's arrays, by the names of the constructor's arguments."""
        return {"data": self.data} | ({} if self.missing is None else {"missing": self.missing})


class TextColumn(Sequence[Any]):
    """A column of text: a sequence of `str`, or None where a value is missing, each created on access.

    `numpy.asarray(column)` is an object array of all values.

    Args:
        data: `(num_bytes,)` uint8, all texts in UTF-8, end to end.
        ends: `(num_rows + 1,)` integers, the offset in `data` of each text's first byte, and at the end of the last one's end.
        missing: `(num_rows,)` bool, which values are missing; None if none is.

    Examples:
        >>> words = TextColumn.from_texts(["a", None, "bc"])
        >>> words[2], words[1], len(words), list(words[1:])
        ('bc', None, 3, [None, 'bc'])
    """

    __slots__ = ("data", "ends", "missing")

    kind = "text"

    def __init__(
        self, data: NDArray[np.uint8], ends: NDArray[np.integer], missing: NDArray[np.bool_] | None = None
    ) -> None:
        self.data = data
        self.ends = ends
        self.missing = missing

    @classmethod
    def from_texts(cls, texts: Iterable[str | None]) -> TextColumn:
        """Return a column of these texts."""
        listed = list(texts)
        encoded = [b"" if text is None else text.encode() for text in listed]
        ends = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=ends[1:])
        missing = np.array([text is None for text in listed], np.bool_)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends, missing if missing.any() else None)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> TextColumn: ...
    def __getitem__(self, row: int | slice) -> Any:
        """Return one text, or None if it is missing; for a slice, a column."""
        if isinstance(row, slice):
            return self.take(range(len(self))[row])
        return self.value(range(len(self))[row])

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _BLOCK_ROWS):
            yield from self.block(start, min(start + _BLOCK_ROWS, len(self)))[0].tolist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.block(0, len(self))[0].astype(object if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.take(range(min(3, len(self))))))
        return f"<TextColumn of {len(self)}: {shown}{', …' if len(self) > 3 else ''}>"

    def value(self, row: int) -> str | None:
        """Return one text; None if it is missing."""
        if self.missing is not None and self.missing[row]:
            return None
        return self.data[self.ends[row] : self.ends[row + 1]].tobytes().decode("utf-8", "replace")

    def block(self, start: int, stop: int) -> tuple[NDArray[Any], None]:
        """Return `(texts, None)` of the rows `[start, stop)`: `(stop - start,)` object, None where a value is missing."""
        edges = self.ends[start : stop + 1]
        first = int(edges[0])
        text = self.data[first : int(edges[-1])].tobytes()
        places = (edges - first).tolist()
        texts = np.empty(stop - start, object)
        texts[:] = [text[a:b].decode("utf-8", "replace") for a, b in pairwise(places)]
        if self.missing is not None:
            texts[self.missing[start:stop]] = None
        return texts, None

    def take(self, rows: Rows) -> TextColumn:
        """Return a column of these rows, in order."""
        missing = None if self.missing is None else _take(self.missing, rows)
        if isinstance(rows, range) and rows.step == 1:
            return TextColumn(self.data, self.ends[rows.start : rows.start + len(rows) + 1], missing)
        begins, stops = _take(self.ends[:-1], rows), _take(self.ends[1:], rows)
        return TextColumn(*_gather(self.data, begins, stops - begins), missing)

    def scatter(self, rows: NDArray[np.int64], num_rows: int) -> TextColumn:
        """Return a column of `num_rows` rows in which row `rows[i]` is row `i` of this one; all others are missing."""
        begins, lengths = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.int64)
        begins[rows], lengths[rows] = self.ends[:-1], self.ends[1:] - self.ends[:-1]
        missing = np.ones(num_rows, np.bool_)
        missing[rows] = False if self.missing is None else self.missing
        return TextColumn(*_gather(self.data, begins, lengths), missing if missing.any() else None)

    def missing_rows(self) -> NDArray[np.int64]:
        """Return the rows that have no value."""
        return np.zeros(0, np.int64) if self.missing is None else np.flatnonzero(self.missing)

    def filled(self, value: Any) -> TextColumn:
        """Return a column in which missing values are replaced by `value`; None leaves them missing.

        Raises:
            ValueError: `value` is not text.
        """
        if self.missing is None or value is None:
            return self
        if not isinstance(value, str):
            raise ValueError(f"missing is {value!r}; a column of text cannot hold it")  # noqa: TRY004  # as for numbers
        filling = TextColumn.from_texts([value])
        data = np.concatenate([self.data, filling.data])
        begins = np.where(self.missing, len(self.data), self.ends[:-1])
        return TextColumn(
            *_gather(data, begins, np.where(self.missing, len(filling.data), self.ends[1:] - self.ends[:-1]))
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the column's arrays, by the names of the constructor's arguments."""
        return {"data": self.data, "ends": self.ends} | ({} if self.missing is None else {"missing": self.missing})


Column = NumberColumn | TextColumn


def column_of(arrays: dict[str, NDArray[Any]]) -> Column:
    """Return a column made of the arrays that `arrays()` of one returned."""
    return TextColumn(**arrays) if "ends" in arrays else NumberColumn(**arrays)


def _take(data: NDArray[Any], rows: Rows) -> NDArray[Any]:
    if not isinstance(rows, range):
        return data[rows]
    stop = rows.start + len(rows) * rows.step
    return data[rows.start : None if stop < 0 else stop : rows.step]


def _gather(
    data: NDArray[np.uint8], begins: NDArray[np.integer], lengths: NDArray[np.integer]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pieces of `data` end to end, and their offsets with the end of the last; in blocks, to limit memory."""
    ends = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    gathered = np.empty(ends[-1], np.uint8)
    for start in range(0, len(begins), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(begins))
        first, last = ends[start], ends[stop]
        shifts = begins[start:stop].astype(np.int64) - ends[start:stop]
        gathered[first:last] = data[np.repeat(shifts, np.diff(ends[start : stop + 1])) + np.arange(first, last)]
    return gathered, ends
