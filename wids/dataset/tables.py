"""Tables over all samples of a dataset, made from the indexes of its shards alone: sizes, fields, hashes of keys.

The index of each shard is read once and then released, so that a table over a thousand shards neither opens their files
(where they are indexed already) nor evicts open shards.
"""

from __future__ import annotations

import threading
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_64_intdigest

from wids.dataset.rows import blocks, to_array
from wids.errors import ShardMismatchError, redact
from wids.fields import find_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    from wids.dataset.rows import AnyRows
    from wids.shard_cache import ShardCache
    from wids.tar import TarIndex


class IndexTables:
    """Makes tables of a dataset or a view.

    Args:
        cache: The cache of the dataset's shards, which has their indexes.
        starts: `(num_shards + 1,)`, the index of each shard's first sample, and at the end the number of samples.
        rows: The rows of the view; None for all samples.
    """

    def __init__(self, cache: ShardCache, starts: Sequence[int], rows: AnyRows | None) -> None:
        self._cache = cache
        self._starts = np.asarray(starts, np.int64)
        self._rows = rows

    def sizes(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return `(num_rows,)` int64, the size in bytes of the first of these fields that a sample has, -1 for none."""

        def read(index: TarIndex, count: int) -> NDArray[np.int64]:
            places = np.array([_first_place(names, fields) for fields in index.fields_of_kind], np.int64)
            places = places[index.kinds[:count]]
            sizes = np.full(count, -1, np.int64)
            there = np.flatnonzero(places >= 0)
            sizes[there] = index.sizes[index.starts[there].astype(np.int64) + places[there]]
            return sizes

        return self._make(np.int64, read)

    def has(self, wanted: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Return `(num_rows,)` bool, whether a sample has at least one field of each of these lists."""

        def read(index: TarIndex, count: int) -> NDArray[Any]:
            there = [all(_first_place(names, fields) >= 0 for names in wanted) for fields in index.fields_of_kind]
            return np.take(there, index.kinds[:count])

        return self._make(np.bool_, read)

    def fields(self) -> dict[tuple[str, ...], int]:
        """Return the number of rows with each list of fields, the most frequent first."""
        numbers: dict[tuple[str, ...], int] = {}
        lock = threading.Lock()

        def read(index: TarIndex, count: int) -> NDArray[Any]:
            with lock:
                mine = [numbers.setdefault(fields, len(numbers)) for fields in index.fields_of_kind]
            return np.take(mine, index.kinds[:count])

        counts = np.bincount(self._make(np.int32, read), minlength=len(numbers)).tolist()
        found = sorted(zip(numbers, counts, strict=True), key=lambda item: (-item[1], item[0]))
        return {fields: count for fields, count in found if count}

    def key_hashes(self, seed: int, marks: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Return `(num_rows,)` uint64, xxh3-64 of each key's bytes.

        Args:
            seed: Seed of the hash.
            marks: `(num_shards,)` uint64, the mark that the hashes of each shard are combined with by `^`; None for none.
        """

        def read(index: TarIndex, count: int) -> NDArray[np.uint64]:
            keys = map(xxh3_64_intdigest, _list_keys(index, count), repeat(seed))
            return np.fromiter(keys, np.uint64, count)

        return self._make(np.uint64, read, marks)

    def iterate_keys(self) -> Iterator[str]:
        """Yield the key of each row, in order. If the rows are in shard order, each shard's index is read only once."""
        number, index = -1, None
        for block in blocks(range(int(self._starts[-1])) if self._rows is None else self._rows):
            shards = self._shards_of(block)
            keys = np.empty(len(block), object)
            for shard in np.unique(shards).tolist():
                if index is None or shard != number:
                    number, index = shard, self._cache.index(shard)
                mine = np.flatnonzero(shards == shard)
                keys[mine] = _cut_keys(index, block[mine] - self._starts[shard])
            yield from keys.tolist()

    def _make(
        self, dtype: DTypeLike, read: Callable[[TarIndex, int], NDArray[Any]], marks: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return a column over the rows.

        Args:
            dtype: Data type of the column.
            read: Returns the column's part for a shard, given the shard's index and the number of its samples to use.
            marks: One value for each shard, which the shard's part is combined with by `^`; None for none.
        """
        # The pages of shards without rows are never touched, and so take no memory.
        column = np.empty(self._starts[-1], dtype)

        def visit(shard: int, index: TarIndex) -> None:
            start, stop = self._starts[shard : shard + 2].tolist()
            try:
                column[start:stop] = read(index, stop - start)
                if marks is not None:
                    column[start:stop] ^= marks[shard]
            except (IndexError, ValueError) as error:
                raise ShardMismatchError(
                    f"{redact(str(self._cache.shards[shard]['url']))}: its index is inconsistent ({error}); make it "
                    "again with: widsindex create --index"
                ) from error

        if self._rows is None:
            self._cache.visit_indexes(visit, np.flatnonzero(np.diff(self._starts)).tolist())
            return column
        rows = to_array(self._rows)
        seen = np.zeros(self._starts[-1], np.bool_)
        seen[rows] = True
        visited = [
            shard for shard, (start, stop) in enumerate(pairwise(self._starts.tolist())) if seen[start:stop].any()
        ]
        self._cache.visit_indexes(visit, visited)
        return column[rows]

    def _shards_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the shard that holds each row."""
        return np.searchsorted(self._starts, rows, side="right") - 1


def _first_place(names: Iterable[str], fields: Sequence[str]) -> int:
    """Return the place in `fields` of the first of `names` that it contains, -1 if it contains none."""
    found = next((field for field in (find_field(name, fields) for name in names) if field is not None), None)
    return -1 if found is None else fields.index(found)


def _list_keys(index: TarIndex, count: int) -> list[bytes]:
    """Return the keys of the first `count` samples of a shard."""
    ends = index.key_ends[:count].tolist()
    width = ends[0] if ends else 0
    # In most shards all keys have one length, and can be cut in a third of the time.
    if width and ends == list(range(width, width * count + 1, width)):
        keys: list[bytes] = np.frombuffer(index.keys, f"V{width}", count).tolist()
        return keys
    text = bytes(index.keys)
    return [text[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


def _cut_keys(index: TarIndex, positions: NDArray[np.int64]) -> list[str]:
    """Return the keys of the samples at these positions of a shard."""
    text = bytes(index.keys)
    stops = index.key_ends[positions]
    begins = np.where(positions > 0, index.key_ends[positions - 1], 0)
    return [
        str(text[begin:stop], "utf-8", "surrogateescape")
        for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)
    ]
