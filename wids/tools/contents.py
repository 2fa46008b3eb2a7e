"""A dataset to the names, places and sizes of its samples, in order; nothing is decoded. Of a selection, to those it selects.

A user names a sample by its index, `17` or `-1`, or by its key, which is anything else: `000017` is a key.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.descriptor import load_descriptor
from wids.descriptor.urls import is_url
from wids.errors import redact
from wids.fields import find_field, no_such_field
from wids.shard_cache import ShardCache, default_lru_size
from wids.storage import Storage, StorageOptions
from wids.tar import StaleIndexError
from wids.tools.number_range import check_range, parse_range
from wids.tools.sizes import Sizes
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from io import BufferedReader

    from numpy.typing import NDArray

    from wids.descriptor import Descriptor
    from wids.tar import Listing

_INDEX = re.compile(r"-?(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Row:
    """One sample."""

    index: int
    """In the dataset."""
    key: str
    shard: int
    """Number of its shard."""
    position: int
    """In the shard."""
    sizes: dict[str, int]
    """Bytes of each field, in archive order."""


def index_in(name: str) -> int | None:
    """Return the index that a sample is named by; None where that is a key.

    Examples:
        >>> index_in("17"), index_in("-1"), index_in("017"), index_in("a"), index_in("1٣")
        (17, -1, None, None, None)
    """
    return None if _INDEX.fullmatch(name) is None else int(name)


class Contents:
    """The samples of a dataset; shards are opened when they are reached, remote ones by ranges.

    Args:
        shards: What `ShardListDataset` takes: a descriptor, a folder, a pattern, a shard, …
        storage: Opens them; None for one that fetches only the bytes it needs of remote shards.
        opens: Describe samples by shards that are opened, because their fields are going to be read. Otherwise an index pack
            that can answer for a remote shard is enough.

    Raises:
        DescriptorError: The descriptor cannot be read.
    """

    def __init__(self, shards: Any, storage: Storage | None = None, *, opens: bool = False) -> None:
        storage = storage or Storage(StorageOptions(access="auto"))
        self.descriptor: Descriptor = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder)
        self.urls = [str(shard["url"]) for shard in self.descriptor.shards]
        self._counts: list[int | None] = [shard["nsamples"] for shard in self.descriptor.shards]
        self._ends: list[int] = []  # samples up to the end of each shard, as far as that was needed
        self._cache = ShardCache(self.descriptor.shards, storage, default_lru_size())
        self._describe: Callable[[int], Listing] = self._cache.get if opens else self._cache.listing

    def choose_shards(self, chosen: str | None) -> Sequence[int]:
        """Return the numbers of the shards that `3`, `0-99` or a pattern of names stands for; of all for None.

        Raises:
            LookupError: It stands for none.
            ValueError: A range has its higher number first.
        """
        if chosen is None:
            return range(len(self.urls))
        numbers = parse_range("--shard", chosen)
        if numbers is not None:
            check_range(numbers, len(self.urls), "shard")
            return numbers
        names = [redact(url).partition("?")[0] if is_url(url) else url for url in self.urls]
        both_names = [(name, name.rpartition("/")[2]) for name in names]
        # A name may itself contain *, ? or [, so it is looked for as it is first.
        found = [number for number, both in enumerate(both_names) if chosen in both] or [
            number for number, both in enumerate(both_names) if any(fnmatchcase(name, chosen) for name in both)
        ]
        if not found:
            raise LookupError(
                f"{chosen!r}: no shard has this name; give a number, a range such as 0-99, or a pattern that names match"
            )
        return found

    def rows(self, shards: Iterable[int], pattern: str | None = None) -> Iterator[Row]:
        """Yield the samples of some shards in order.

        Args:
            shards: Their numbers.
            pattern: Glob pattern that keys must match; None for all samples.
        """
        first = 0
        chosen = set(shards)
        if self._selected is not None:
            yield from self._selected_rows(self._selected, chosen, pattern)
            return
        for shard in range(max(chosen, default=-1) + 1):
            if shard in chosen:
                listing = self._describe(shard)
                for position, key in zip(range(self._count(shard)), listing.keys(), strict=False):
                    if pattern is None or fnmatchcase(key, pattern):
                        yield Row(first + position, key, shard, position, listing.sizes(position))
            first += self._count(shard)

    @cached_property
    def _selected(self) -> NDArray[np.int64] | None:
        """Of a selection: where its samples lie among all of the shards."""
        if self.descriptor.rows is None:
            return None
        # Imported here: it imports torch, which only selections need.
        from wids.dataset.rows import to_array
        from wids.dataset.stored_rows import selected_rows

        return to_array(selected_rows(self.descriptor, self.counts()))

    def _selected_rows(
        self, selected: NDArray[np.int64], shards: Container[int], pattern: str | None = None
    ) -> Iterator[Row]:
        for index, place in enumerate(selected.tolist()):
            row = self._row_at(place, index)
            if row.shard in shards and (pattern is None or fnmatchcase(row.key, pattern)):
                yield row

    def find(self, names: Sequence[str]) -> list[Row]:
        """Return the samples that are named, each by its index or its key, in this order.

        Raises:
            IndexError: An index is out of range.
            KeyError: No sample has such a key.
        """
        indexes = [index_in(name) for name in names]
        by_key = self._find_keys({name for name, index in zip(names, indexes, strict=True) if index is None})
        return [
            by_key[name] if index is None else self._find_index(index)
            for name, index in zip(names, indexes, strict=True)
        ]

    def open(self, row: Row, field: str) -> BufferedReader:
        """Return a file over one field of a sample.

        Raises:
            KeyError: The sample has no such field.
        """
        name = find_field(field, row.sizes)
        if name is None:
            raise no_such_field(field, row.key, row.sizes)
        try:
            return self._cache.get(row.shard).open(row.position, name)
        except StaleIndexError:
            self._cache.reindex(row.shard)
            return self._cache.get(row.shard).open(row.position, name)

    def measure(self) -> dict[str, Sizes]:
        """Return the sizes of each field's members, the fields in sorted order; only the shards' indexes are read."""
        if self._selected is not None:
            return self._measure_rows(self._selected)
        measured: dict[str, Sizes] = {}
        for shard in range(len(self.urls)):
            listing = self._describe(shard)
            for name, sizes in listing.sizes_of_fields(self._count(shard)):
                measured.setdefault(name, Sizes()).add(sizes)
        return dict(sorted(measured.items()))

    def _measure_rows(self, selected: NDArray[np.int64]) -> dict[str, Sizes]:
        gathered: dict[str, list[int]] = {}
        for row in self._selected_rows(selected, range(len(self.urls))):
            for name, size in row.sizes.items():
                gathered.setdefault(name, []).append(size)
        measured = {name: Sizes() for name in sorted(gathered)}
        for name, sizes in measured.items():
            sizes.add(np.array(gathered[name], np.int64))
        return measured

    def counts(self) -> list[int]:
        """Return how many samples each shard has; one whose count the descriptor lacks is indexed."""
        return [self._count(shard) for shard in range(len(self.urls))]

    def _count(self, shard: int) -> int:
        count = self._counts[shard]
        if count is None:
            count = self._counts[shard] = self._describe(shard).num_samples
        return count

    def _find_index(self, index: int) -> Row:
        selected = self._selected
        count_to = self._count_to if selected is None else lambda _: len(selected)
        wanted = index if index >= 0 else index + count_to(None)
        if 0 <= wanted < count_to(wanted):
            return self._row_at(wanted if selected is None else int(selected[wanted]), wanted)
        raise IndexError(f"index {index} is out of range for {counted(count_to(None), 'sample')}")

    def _row_at(self, place: int, index: int) -> Row:
        """Return the sample that lies at a place among all of the shards."""
        self._count_to(place)
        # bisect_right skips empty shards: their end equals their start.
        shard = bisect_right(self._ends, place)
        return self._row(shard, place - (self._ends[shard - 1] if shard else 0), index)

    def _count_to(self, index: int | None) -> int:
        """Return how many samples there are up to the end of the shard that has this index; of all shards for None."""
        ends = self._ends
        while len(ends) < len(self.urls) and (index is None or not ends or ends[-1] <= index):
            ends.append((ends[-1] if ends else 0) + self._count(len(ends)))
        return ends[-1] if ends else 0

    def _row(self, shard: int, position: int, index: int) -> Row:
        listing = self._describe(shard)
        return Row(index, listing.key(position), shard, position, listing.sizes(position))

    def _find_keys(self, keys: set[str]) -> dict[str, Row]:
        """Return the first sample of each key."""
        found: dict[str, Row] = {}
        if not keys:
            return found
        if self._selected is not None:
            for row in self._selected_rows(self._selected, range(len(self.urls))):
                if row.key in keys:
                    found.setdefault(row.key, row)
        else:
            found = self._find_first(keys)
        for key in sorted(keys - found.keys()):
            raise KeyError(f"{key!r}: no sample has this key")
        return found

    def _find_first(self, keys: set[str]) -> dict[str, Row]:
        """Return the first sample of each key among all; those of no sample are missing."""
        found: dict[str, Row] = {}
        first = 0
        for shard in range(len(self.urls)):
            if len(found) == len(keys):
                break
            for position, key in zip(range(self._count(shard)), self._describe(shard).keys(), strict=False):
                if key in keys and key not in found:
                    found[key] = self._row(shard, position, first + position)
            first += self._count(shard)
        return found
