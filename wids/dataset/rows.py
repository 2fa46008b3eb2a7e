"""The rows of a view: the indices of its samples in the whole dataset, in the order of the view.

Evenly spaced rows, as those of a slice, are a `range`; all others are `Rows`. A view of a view stores indices in the whole
dataset, too, so that lookups take one step however deep views are nested. A run is a piece of consecutive rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import compress, decompress

import numpy as np
from xxhash import xxh3_64

from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_BLOCK = 1 << 16
"""Number of rows that are processed at a time, where arrays of all rows would take too much memory."""
_FAST_LEVEL = 1
"""zlib's fastest level."""


class Rows:
    """Rows in any order; `[i]` is a plain int.

    A row takes 4 bytes of memory, or 8 in datasets of more than 2**32 samples. Pickles hold the smallest of three forms:
    a bit for each sample of the dataset, the runs, or the rows.

    Args:
        indices: `(num_rows,)` integers, at least 0; they are copied.

    Examples:
        >>> rows = Rows(np.array([5, 2, 9]))
        >>> rows[1], rows[-1], len(rows), rows[:2].to_array().tolist()
        (2, 9, 3, [5, 2])
    """

    __slots__ = ("_indices", "_items")

    def __init__(self, indices: NDArray[np.integer]) -> None:
        self._indices = _to_smallest_dtype(indices)
        # Indexing a memoryview gives a plain int directly, without a numpy scalar in between.
        self._items = self._indices.data

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, row: Any) -> Any:
        """Return one row as an int, or `Rows` for a slice."""
        return Rows(self._indices[row]) if isinstance(row, slice) else self._items[row]

    def to_array(self) -> NDArray[np.int64]:
        """Return a copy, `(num_rows,)` int64."""
        return self._indices.astype(np.int64)

    def block(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the rows `[start, stop)` as an int64 array."""
        return self._indices[start:stop].astype(np.int64)

    def take(self, indices: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the rows at these places, as an array."""
        taken: NDArray[np.integer] = self._indices[indices]
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, _pack(self._indices)


AnyRows = range | Rows


def as_indices(rows: Any, length: int, name: str = "rows") -> range | NDArray[np.integer]:
    """Return the non-negative indices that a mask, indices or a range selects.

    Args:
        rows: A mask, `(length,)` bool; or integers in `[-length, length)` in any order, as an array, list, range or other
            ordered iterable.
        length: Number of samples to select from.
        name: Name of the argument, for messages.

    Returns:
        Indices in `[0, length)`, in the order given.

    Raises:
        TypeError: `rows` is neither a mask nor ordered integers.
        ValueError: A mask does not have `length` values.
        IndexError: An index is out of range; the message names it.
    """
    if isinstance(rows, range):
        if rows and not -length <= min(rows[0], rows[-1]) <= max(rows[0], rows[-1]) < length:
            raise IndexError(f"{name} is {rows}, which is out of range for {counted(length, 'sample')}")
        if not rows or min(rows[0], rows[-1]) >= 0:
            return _normalized(rows)
        return np.asarray(rows, np.int64) % length
    found = _as_array(rows, name)
    if found.dtype == np.bool_:
        if len(found) != length:
            raise ValueError(
                f"{name} is a mask of {counted(len(found), 'sample')}, expected one of {length}, as many as there are"
            )
        return np.flatnonzero(found)
    if not len(found):
        return range(0)
    low, high = int(found.min()), int(found.max())
    if low < -length or high >= length:
        place = int(np.argmax((found < -length) | (found >= length)))
        raise IndexError(
            f"{name}[{place}] is {int(found[place])}, which is out of range for {counted(length, 'sample')}"
        )
    if low < 0:
        found = found.astype(np.int64)
        found[found < 0] += length
    return found


def _as_array(rows: Any, name: str) -> NDArray[Any]:
    if isinstance(rows, (str, bytes, set, frozenset, dict)) or not hasattr(rows, "__iter__"):
        raise TypeError(
            f"{name} is of type {type(rows).__name__}; it must be a bool mask or indices, both in a fixed order"
        )
    found = np.asarray(rows if hasattr(rows, "__array__") or isinstance(rows, (list, tuple)) else list(rows))
    if found.ndim != 1:
        raise TypeError(f"{name} has the shape {found.shape}; it must have one dimension")
    if found.size and found.dtype != np.bool_ and found.dtype.kind not in "iu":
        raise TypeError(f"{name} holds {found.dtype}; it must hold bool or integers")
    return found


def compose(rows: AnyRows | None, places: range | NDArray[np.integer]) -> AnyRows:
    """Return the rows of a view of a view.

    Args:
        rows: The rows of the outer view; None for the whole dataset.
        places: Places in that view, all at least 0 and in range.

    Examples:
        >>> compose(range(10, 20), range(1, 9, 3)), compose(range(10, 20), np.array([3, 4, 5]))
        (range(11, 19, 3), range(13, 16))
    """
    if isinstance(places, range):
        places = _normalized(places)
        if rows is None:
            return places
        if isinstance(rows, range):
            return rows[places.start : _slice_stop(places) : places.step] if places else range(0)
        places = np.arange(places.start, places.stop, places.step)
    if rows is not None:
        places = rows.start + places.astype(np.int64) * rows.step if isinstance(rows, range) else rows.take(places)
    return _to_rows(places)


def _normalized(places: range) -> range:
    """Return a range of the same places; one of a single place, whose step may be any number, gets the step 1."""
    if len(places) > 1:
        return places
    return range(places[0], places[0] + 1) if places else range(0)


def _slice_stop(places: range) -> int | None:
    """Return the stop of the slice that selects these places; a negative one would count from the end."""
    return None if places.stop < 0 else places.stop


def _to_rows(indices: NDArray[np.integer]) -> AnyRows:
    """Return a range if the rows are consecutive, else `Rows`."""
    if not len(indices):
        return range(0)
    first, last = int(indices[0]), int(indices[-1])
    if last - first == len(indices) - 1 and is_ascending(indices):
        return range(first, last + 1)
    return Rows(indices)


def without(
    length: int, excluded: range | NDArray[np.integer], places: range | NDArray[np.integer]
) -> NDArray[np.integer]:
    """Return places, in their order, without those that are excluded.

    Args:
        length: Number of samples that all the places refer to.
        excluded: Places to leave out.
        places: Places to filter.
    """
    mask = np.ones(length, np.bool_)
    mask[np.asarray(excluded, np.int64)] = False
    kept = np.asarray(places, np.int64)
    left: NDArray[np.integer] = kept[mask[kept]]
    return left


def to_array(rows: AnyRows) -> NDArray[np.int64]:
    """Return rows as `(num_rows,)` int64."""
    return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows.to_array()


def blocks(rows: AnyRows, size: int = _BLOCK) -> Iterator[NDArray[np.int64]]:
    """Yield all rows in order, as arrays of at most `size` rows."""
    for first in range(0, len(rows), size):
        stop = min(first + size, len(rows))
        yield to_array(rows[first:stop]) if isinstance(rows, range) else rows.block(first, stop)


def is_ascending(indices: NDArray[np.integer]) -> bool:
    """Return whether each row is greater than the one before it."""
    return bool((indices[1:] > indices[:-1]).all())


def find_runs(indices: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return `(num_runs, 2)` int64, the first row and the (exclusive) stop of each run of consecutive rows, in order.

    Examples:
        >>> find_runs(np.array([3, 4, 5, 9, 2])).tolist()
        [[3, 6], [9, 10], [2, 3]]
    """
    if not len(indices):
        return np.zeros((0, 2), np.int64)
    breaks = np.flatnonzero(indices[1:] != indices[:-1] + 1)
    firsts = indices[np.concatenate([[0], breaks + 1])]
    lasts = indices[np.concatenate([breaks, [len(indices) - 1]])]
    return np.stack([firsts.astype(np.int64), lasts.astype(np.int64) + 1], axis=1)


def find_visits(rows: AnyRows, starts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the shards that the rows visit, one after the other, and the number of rows in each visit.

    A visit is a piece of consecutive rows in the same shard; a shard may be visited several times.

    Args:
        rows: The rows, in order.
        starts: `(num_shards + 1,)`, the index of each shard's first sample, and at the end the number of samples.

    Examples:
        >>> find_visits(range(2, 9, 2), [0, 3, 3, 10]), find_visits(Rows(np.array([9, 1, 2, 8])), [0, 3, 10])
        (([0, 2], [1, 3]), ([1, 0, 1], [1, 2, 1]))
    """
    if isinstance(rows, range):
        return _find_visits_of_range(rows, starts)
    visited: list[int] = []
    counts: list[int] = []
    for block in blocks(rows):
        shards = np.searchsorted(starts, block, side="right") - 1
        breaks = np.concatenate([[0], np.flatnonzero(shards[1:] != shards[:-1]) + 1])
        found = shards[breaks].tolist()
        lengths = np.diff(breaks, append=len(block)).tolist()
        if visited and visited[-1] == found[0]:
            counts[-1] += lengths[0]
            found, lengths = found[1:], lengths[1:]
        visited += found
        counts += lengths
    return visited, counts


def _find_visits_of_range(rows: range, starts: Sequence[int]) -> tuple[list[int], list[int]]:
    ordered = rows if rows.step > 0 else rows[::-1]
    below = [len(range(ordered.start, min(stop, ordered.stop), ordered.step)) for stop in starts]
    visits = [(shard, stop - start) for shard, (start, stop) in enumerate(pairwise(below)) if stop > start]
    if rows.step < 0:
        visits.reverse()
    return [shard for shard, _ in visits], [count for _, count in visits]


def digest_rows(rows: AnyRows, starts: Sequence[int]) -> str:
    """Return the xxh3-64 digest of the rows' positions in their shards, 16 hexadecimal digits.

    Each run of consecutive positions is digested as its first position and its stop, as little-endian int64s.

    Args:
        rows: The rows, in order.
        starts: As for `find_visits`.
    """
    digest = xxh3_64()
    last = np.zeros((0, 2), np.int64)
    for block in blocks(rows):
        positions = block - np.asarray(starts)[np.searchsorted(starts, block, side="right") - 1]
        runs = find_runs(positions)
        if len(last) and last[0, 1] == runs[0, 0]:
            runs[0, 0] = last[0, 0]
            last = last[:0]
        digest.update(np.concatenate([last, runs[:-1]]).astype("<i8").tobytes())
        last = runs[-1:]
    digest.update(last.astype("<i8").tobytes())
    return str(digest.hexdigest())


# Rows as bytes, in pickles and descriptors


def _to_smallest_dtype(indices: NDArray[np.integer]) -> NDArray[np.integer]:
    # The highest uint32 does not count as small, because find_runs() adds 1 to rows, which would give 0.
    small = int(indices.max(initial=0)) < (1 << 32) - 1
    return np.array(indices, np.uint32 if small else np.uint64)  # a copy, because the user may change the array


def _pack(indices: NDArray[np.integer]) -> tuple[str, bytes, int]:
    """Return the form, the compressed bytes, and for bits the first row (else 0), of the shortest form."""
    runs = _to_smallest_dtype(find_runs(indices).ravel())
    shortest = min(runs.nbytes, indices.nbytes)
    if len(indices) and is_ascending(indices):
        first, last = int(indices[0]), int(indices[-1])
        if (last - first) // 8 < shortest:
            return "bits", compress(to_bits(indices, first, last + 1), _FAST_LEVEL), first
    if runs.nbytes == shortest:
        return f"runs {runs.dtype.str}", compress(runs.tobytes(), _FAST_LEVEL), 0
    return f"rows {indices.dtype.str}", compress(indices.tobytes(), _FAST_LEVEL), 0


def _unpack(kind: str, data: bytes, first: int) -> Rows:
    data = decompress(data)
    if kind == "bits":
        return Rows(from_bits(data, first))
    shape, _, dtype = kind.partition(" ")
    numbers = np.frombuffer(data, dtype)
    return Rows(from_runs(numbers.astype(np.int64).reshape(-1, 2)) if shape == "runs" else numbers)


def to_bits(indices: NDArray[np.integer], first: int, stop: int) -> bytes:
    """Return a bit for each sample in `[first, stop)`, set for those in `indices`; the lowest bit of a byte comes first."""
    mask = np.zeros(stop - first, np.bool_)
    mask[indices - indices.dtype.type(first)] = True
    return np.packbits(mask, bitorder="little").tobytes()


def from_bits(data: bytes, first: int) -> NDArray[np.int64]:
    """Return the rows whose bits are set, ascending; the first bit stands for the row `first`."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")) + first


def from_runs(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of `(num_runs, 2)` runs, in order; the inverse of `find_runs`."""
    lengths = runs[:, 1] - runs[:, 0]
    begins = np.cumsum(lengths) - lengths
    return np.repeat(runs[:, 0] - begins, lengths) + np.arange(int(lengths.sum()))
