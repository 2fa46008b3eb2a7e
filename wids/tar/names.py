"""Member names as two arrays, and their keys and fields by vectorised operations on a matrix of their bytes.

As Python objects, the 50,000 names of a shard of 50,000 members would take more time than the rest of the scan. Here
they are one text and the offsets at which the names end. Blocks of names are padded with zeros into a matrix, one name a
row, so that dots and slashes are found, keys compared and fields numbered for all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_BLOCK_ROWS = 4096
_BLOCK_BYTES = 4 << 20
"""Most bytes of a block's matrix, in which every row is as wide as the longest name."""
_DOT, _SLASH = b"./"
_WORD = 8
_MOST_COMPARED = 16
"""Most distinct rows that are found by comparing all rows with each of them; beyond that, sorting is faster."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names stored end to end; a sequence of `bytes`."""

    text: NDArray[np.uint8]
    """`(num_bytes,)` uint8, all names concatenated."""
    ends: NDArray[np.int64]
    """`(num_names,)` int64, offset in `text` at which each name ends (exclusive) and the next one begins."""

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Names:
        """Build from a sequence of names."""
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        return cls(np.frombuffer(b"".join(names), np.uint8), np.cumsum(lengths))

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.uint8]) -> Names:
        """Build from the rows of a `(num_names, width)` uint8 matrix; each name ends before its row's first NUL."""
        filled = matrix != 0
        width = matrix.shape[1]
        if filled.all():
            return cls(matrix.ravel(), np.arange(1, len(matrix) + 1) * width)
        lengths = np.where(filled.all(axis=1), width, filled.argmin(axis=1))
        longest = int(lengths.max(initial=0))
        if longest == lengths.min():
            return cls(matrix[:, :longest].ravel(), np.cumsum(lengths))
        return cls(matrix[np.arange(width) < lengths[:, None]], np.cumsum(lengths))

    @classmethod
    def joined(cls, parts: Iterable[Names]) -> Names:
        """Concatenate several `Names`."""
        parts = list(parts)
        bases = np.cumsum([0, *(len(part.text) for part in parts)])
        ends = [np.zeros(0, np.int64), *(part.ends + base for part, base in zip(parts, bases, strict=False))]
        return cls(np.concatenate([np.zeros(0, np.uint8), *(part.text for part in parts)]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> bytes:
        number = range(len(self))[number]
        start = int(self.ends[number - 1]) if number else 0
        return self.text[start : int(self.ends[number])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        text = self.text.tobytes()
        start = 0
        for end in self.ends.tolist():
            yield text[start:end]
            start = end

    def blocks(self) -> Iterator[NameBlock]:
        """Yield the names in order, as matrices of limited size."""
        lengths = np.diff(self.ends, prepend=0)
        start = 0
        while start < len(self):
            longest = int(lengths[start : start + _BLOCK_ROWS].max())
            stop = min(start + max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // (longest + _WORD))), len(self))
            first = int(self.ends[start - 1]) if start else 0
            yield NameBlock.of(self.text[first : int(self.ends[stop - 1])], lengths[start:stop])
            start = stop


@dataclass(frozen=True, slots=True, eq=False)
class NameBlock:
    """A block of names as the rows of a matrix."""

    matrix: NDArray[np.uint8]
    """`(num_names, width)` uint8, padded with zeros; `width` is a multiple of 8."""
    lengths: NDArray[np.int64]
    """`(num_names,)` int64, bytes in each name."""

    @classmethod
    def of(cls, text: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NameBlock:
        """Build from names of the given lengths that are stored end to end in `text`."""
        longest = int(lengths.max())
        matrix = np.zeros((len(lengths), _whole_words(longest)), np.uint8)
        if longest == lengths.min():
            matrix[:, :longest] = text.reshape(len(lengths), longest)
        else:
            matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = text
        return cls(matrix, lengths)

    def find_dots(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Find the dot that ends each key: the first dot of the basename.

        A name without a dot, or whose basename begins with it, has no key.

        Returns:
            `(num_names,)` int64, the position of the dot in each name; `(num_names,)` bool, whether the name has a key.
        """
        matrix = self.matrix
        is_dot = matrix == _DOT
        is_slash = matrix == _SLASH
        basenames = np.zeros(len(matrix), np.int64)
        if is_slash.any():
            width = matrix.shape[1]
            basenames = np.where(is_slash.any(axis=1), width - is_slash[:, ::-1].argmax(axis=1), 0)
            is_dot &= np.arange(width) >= basenames[:, None]
        dots = is_dot.argmax(axis=1)
        return dots, is_dot[np.arange(len(matrix)), dots] & (dots > basenames)

    def rows(self, which: NDArray[np.bool_]) -> NameBlock:
        """Return the names where `which`, `(num_names,)` bool, is true."""
        return NameBlock(self.matrix[which], self.lengths[which])

    def starts(self, stops: NDArray[np.int64]) -> NameBlock:
        """Return each name up to its position in `stops`, `(num_names,)` int64, exclusive."""
        inside = np.arange(self.matrix.shape[1]) < stops[:, None]
        return NameBlock(self.matrix * inside, stops)

    def rests(self, starts: NDArray[np.int64]) -> NameBlock:
        """Return each name from its position in `starts`, `(num_names,)` int64, to its end."""
        lengths = self.lengths - starts
        width = _whole_words(int(lengths.max()))
        if (starts == starts[0]).all():
            matrix = np.zeros((len(starts), width), np.uint8)
            cut = self.matrix[:, starts[0] : starts[0] + width]
            matrix[:, : cut.shape[1]] = cut
            return NameBlock(matrix, lengths)
        columns = np.arange(width)
        places = np.minimum(starts[:, None] + columns, self.matrix.shape[1] - 1)
        places += (np.arange(len(starts)) * self.matrix.shape[1])[:, None]
        return NameBlock(self.matrix.ravel()[places] * (columns < lengths[:, None]), lengths)

    def repeat_previous(self) -> NDArray[np.bool_]:
        """Return for each name but the first whether it equals the previous one: `(num_names - 1,)` bool."""
        words = self.matrix.view(np.uint64)
        same: NDArray[np.bool_] = equal_rows(words[1:], words[:-1]) & (self.lengths[1:] == self.lengths[:-1])
        return same

    def name(self, row: int) -> bytes:
        """Return the name in one row."""
        return self.matrix[row, : self.lengths[row]].tobytes()

    def names(self, which: NDArray[np.bool_]) -> Names:
        """Return the names where `which`, `(num_names,)` bool, is true, stored end to end."""
        matrix, lengths = (self.matrix, self.lengths) if which.all() else (self.matrix[which], self.lengths[which])
        if len(lengths) and (lengths == lengths[0]).all():
            return Names(matrix[:, : lengths[0]].ravel(), np.cumsum(lengths))
        return Names(matrix[np.arange(matrix.shape[1]) < lengths[:, None]], np.cumsum(lengths))

    def number(self) -> tuple[NDArray[np.int64], list[bytes]]:
        """Number the distinct names; return the number of each name, `(num_names,)` int64, and the distinct names in order."""
        words = np.concatenate([self.matrix.view(np.uint64), self.lengths[:, None].astype(np.uint64)], axis=1)
        numbers, firsts = number_rows(words)
        return numbers, [self.name(row) for row in firsts]


def find_dot(name: bytes) -> int | None:
    """Return the position of the dot that ends a name's key; None when the name belongs to no sample.

    Examples:
        >>> find_dot(b"a/b.c/x.seg.png"), find_dot(b"README"), find_dot(b"._x.png")
        (7, None, None)
    """
    if not name:
        return None
    dots, named = next(Names.of([name]).blocks()).find_dots()
    return int(dots[0]) if named[0] else None


def number_rows(rows: NDArray[np.generic]) -> tuple[NDArray[np.int64], list[int]]:
    """Number the distinct rows of a matrix.

    Args:
        rows: `(num_rows, num_columns)` of any integer dtype.

    Returns:
        `(num_rows,)` int64, the number of each row; for each number, the first row that has it.

    Examples:
        >>> numbers, firsts = number_rows(np.array([[1, 2], [3, 4], [1, 2]]))
        >>> numbers.tolist(), firsts
        ([0, 1, 0], [0, 1])
    """
    numbers = np.zeros(len(rows), np.int64)
    firsts: list[int] = []
    rest = np.arange(len(rows))
    while len(rest):
        if len(firsts) == _MOST_COMPARED:
            _, first, inverse = np.unique(rows[rest], axis=0, return_index=True, return_inverse=True)
            numbers[rest] = len(firsts) + inverse.ravel()
            return numbers, firsts + rest[first].tolist()
        same = equal_rows(rows[rest], rows[rest[0]])
        numbers[rest[same]] = len(firsts)
        firsts.append(int(rest[0]))
        rest = rest[~same]
    return numbers, firsts


def equal_rows(rows: NDArray[np.generic], others: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Compare `(num_rows, num_columns)` with a matrix of the same shape, or with a single row; return `(num_rows,)` bool."""
    # Column by column, because numpy is slow at many short reductions.
    same = np.ones(len(rows), np.bool_)
    for column in range(rows.shape[1]):
        same &= rows[:, column] == others[..., column]
    return same


def _whole_words(length: int) -> int:
    return max(_WORD, -(-length // _WORD) * _WORD)
