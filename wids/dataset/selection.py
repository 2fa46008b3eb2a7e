"""What of a dataset is chosen, and what its index alone tells for choosing: the part of `ShardListDataset` that reads no sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.dataset.keys import Keys, KeyTable
from wids.dataset.rows import as_indices, compose, digest_rows, find_visits, to_array, without
from wids.dataset.split import check_fractions, check_seed, find_part, hash_groups
from wids.dataset.stored_rows import rows_to_json
from wids.dataset.tables import IndexTables
from wids.fingerprint import basename, digest_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from wids.dataset.rows import AnyRows
    from wids.descriptor import ShardOffsets
    from wids.shard_cache import ShardCache


class Selection:
    """Rows over the samples of open shards."""

    _cache: ShardCache
    _offsets: ShardOffsets
    _rows: AnyRows | None
    """Indices in the whole dataset; None for all."""
    _visits: tuple[list[int], list[int]] | None
    """Of a view: what `find_visits` returned, once it was asked for."""
    _keys: KeyTable | None

    @abstractmethod
    def _derive(self, **changes: Any) -> Self:
        """Return a dataset that shares everything with this one but for these attributes."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the key of one sample."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    def __len__(self) -> int:
        return len(self._offsets) if self._rows is None else len(self._rows)

    # Choosing

    @abstractmethod
    def matches(self, where: str) -> NDArray[np.bool_]:
        """Return for which samples a condition over the columns is true."""

    def select(self, rows: Any = None, *, where: str | None = None, exclude: Any = None) -> Self:
        """Return a view of some samples, which shares the open shards; `__index__` stays that in the whole dataset.

        Views of views have their rows in one step. A view reads few shards at a time when its rows are in the order of
        the dataset, as those of a mask are; indices keep the order that they have, and may repeat samples.

        Args:
            rows: `(len,)` bool, or integers of `[-len, len)`: an array, a list, a range; None for all.
            where: A condition over the columns that those have to meet, too, as `matches` takes it.
            exclude: What to leave out, in the forms of `rows`.

        Raises:
            TypeError: They are neither a mask nor indices, or nothing was given.
            ValueError: A mask has another length, or the condition is none; names the place in it.
            IndexError: An index is out of range; names it.

        Examples:
            >>> small = dataset.select(dataset.sizes("txt") < 10)
            >>> len(dataset), len(small), small[-1]["__index__"]
            (20, 10, 9)
        """
        if rows is None and exclude is None and where is None:
            raise TypeError("select() needs rows, a mask or indices, or where=, or exclude=")
        chosen = range(len(self)) if rows is None else as_indices(rows, len(self))
        if exclude is not None:
            chosen = without(len(self), as_indices(exclude, len(self), "exclude"), chosen)
        if where is not None:
            mask = self.matches(where)
            chosen = np.flatnonzero(mask) if rows is None and exclude is None else _where(mask, chosen)
        return self._view(chosen)

    def split(
        self, fractions: Mapping[str, float], *, by: str | Callable[[str], Any] = "key", seed: int = 0
    ) -> dict[str, Self]:
        """Return a view for each part; a sample is in one of them by the hash of its key, or of its group.

        So it stays there when samples are added or removed, and when shards are moved, renamed or packed anew; the
        sizes are the fractions only roughly. The parts are laid out in their order: `{"val": 0.01, "train": 0.99}` and
        `{"val": 0.02, "train": 0.98}` have the first `val` in the second.

        Args:
            fractions: Name of each part to its share, between 0 and 1. What is missing to 1 is in none of them.
            by: `"key"`, or a function of a sample's key that returns its group, a string or a whole number: a person or
                a video, whose samples all come into one part.
            seed: Another one splits otherwise; in `[0, 2**64)`.

        Raises:
            TypeError: A fraction is no number, a group neither string nor whole number, `by` no function.
            ValueError: A fraction or the seed is out of range, or the fractions are more than 1 together.

        Examples:
            >>> parts = dataset.split({"train": 0.8, "val": 0.2})
            >>> {name: len(part) for name, part in parts.items()}
            {'train': 19, 'val': 1}
        """
        bounds = check_fractions(fractions)
        seed = check_seed(seed)
        if by == "key":
            hashes = self._key_hashes(seed)
        elif callable(by):
            hashes = hash_groups(self.keys(), len(self), by, seed)
        else:
            raise TypeError(f"by is {by!r}; it must be 'key' or a function of the key")
        return {
            name: self._view(np.flatnonzero(find_part(hashes, first, stop))) for name, (first, stop) in bounds.items()
        }

    def _view(self, places: range | NDArray[np.integer]) -> Self:
        """Return a view of these rows of this one, which are at least 0 and in range."""
        return self._derive(_rows=compose(self._rows, places), _visits=None, _keys=None)

    def describe_rows(self) -> dict[str, Any]:
        """Return what a descriptor says of this view's rows, as `wids.dataset.stored_rows` lays it out."""
        whole = self._derive(_rows=None, _visits=None, _keys=None)
        rows = range(len(whole)) if self._rows is None else self._rows
        return rows_to_json(rows, len(whole), whole.fingerprint)

    # What the index tells

    @property
    def fields(self) -> dict[tuple[str, ...], int]:
        """Each list of fields, in the order of the archive, and how many samples have it; the most frequent first.

        Examples:
            >>> dataset.fields
            {('.txt', '.cls'): 20}
        """
        return self._tables().fields()

    def keys(self) -> Sequence[str]:
        """Return the keys of all samples, as a sequence that reads them from the index when it is asked for them.

        Examples:
            >>> keys = dataset.keys()
            >>> len(keys), keys[3], list(keys[18:]), "000007" in keys
            (20, '000003', ['000018', '000019'], True)
        """
        return Keys(self, self._tables().iterate_keys)

    def index_of(self, key: str) -> int:
        """Return the lowest index of the sample with this key; the first call indexes every shard.

        Raises:
            KeyError: There is none; names its neighbours in sorted order.
        """
        if self._keys is None:
            self._keys = KeyTable(self._key_hashes(), self._tables().iterate_keys, self.key)
        return self._keys.find(key)

    def _key_hashes(self, seed: int = 0, marks: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Return `(len,)` uint64, xxh3-64 of each key in UTF-8, combined by `^` with the mark of its shard."""
        return self._tables().key_hashes(seed, marks)

    @property
    def is_whole(self) -> bool:
        """Whether these are all samples of all shards, and no view."""
        return self._rows is None

    def _shards_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the shard, among all of the dataset, in which each of these rows lies."""
        indices = rows if self._rows is None else to_array(compose(self._rows, rows))
        return np.searchsorted(self._offsets.starts, indices, side="right") - 1

    def _tables(self) -> IndexTables:
        return IndexTables(self._cache, self._offsets.starts, self._rows)

    # Shards, as samplers see them

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The shards; of a view, those that its rows come to one after the other, which may be the same one again."""
        shards: list[dict[str, Any]] = list(self._cache.shards)  # type: ignore[arg-type]
        return shards if self._rows is None else [shards[shard] for shard in self._find_visits()[0]]

    @property
    def lengths(self) -> list[int]:
        """How many samples each of `shards` has; of a view, how many rows are in it before they come to the next."""
        return list(self._offsets.lengths) if self._rows is None else list(self._find_visits()[1])

    @property
    def num_shards(self) -> int:
        """In how many shards the samples lie; a view may come to one of them several times."""
        return len(self._offsets.lengths) if self._rows is None else len(set(self._find_visits()[0]))

    @property
    def fingerprint(self) -> str:
        """What tells these samples from others, for experiment trackers; the same wherever the shards lie.

        It covers the basenames of the shards in their order, how many samples each has, and which of them are the rows
        of a view, in what order. It does not cover what is in the samples, which `widsindex diff` compares by the
        checksums of the shards.
        """
        return digest_data(map(basename, self.shards), self.lengths, self.digest_rows)

    def digest_rows(self, num_rows: int) -> str:
        """Return the digest of a view's first rows; empty where they are all that their shards have.

        Samplers tell by it whether a state is of this view.
        """
        if self._rows is None:
            return ""
        rows = self._rows[:num_rows]
        if isinstance(rows, range) and rows.step == 1 and {rows.start, rows.stop} <= set(self._offsets.starts):
            return ""
        return digest_rows(rows, self._offsets.starts)

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Have shards fetched before they are needed, the next one first; return at once.

        Samplers with `shards_ahead` call it. Another process fetches them into the disk cache, no more than it can hold;
        local shards are read ahead by the system.

        Args:
            upcoming: Numbers in `shards`, in place of those named before.
        """
        visited = None if self._rows is None else self._find_visits()[0]
        self._cache.fetch_ahead(upcoming if visited is None else [visited[number] for number in upcoming])

    def _find_visits(self) -> tuple[list[int], list[int]]:
        """Return the shards that a view comes to, and how many rows are in each before the next."""
        if self._visits is None:
            assert self._rows is not None, "only views come here"
            self._visits = find_visits(self._rows, self._offsets.starts)
        return self._visits

    def _rows_in(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return which samples between two indices of the whole dataset are in this view, ascending."""
        if self._rows is None:
            return np.arange(first, stop)
        rows = to_array(self._rows)
        return np.unique(rows[(rows >= first) & (rows < stop)])


def _where(mask: NDArray[np.bool_], places: range | NDArray[np.integer]) -> NDArray[np.integer]:
    """Return those of the places at which a mask is true."""
    kept = np.arange(places.start, places.stop, places.step) if isinstance(places, range) else places
    return kept[mask[kept]]
