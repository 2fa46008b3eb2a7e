"""Views, keys and shards: the part of `ShardListDataset` that works on the index alone and reads no sample."""

from __future__ import annotations

from abc import abstractmethod
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.dataset.keys import Keys, KeyTable
from wids.dataset.rows import as_indices, compose, digest_rows, find_visits, to_array, without
from wids.dataset.split import check_fractions, check_seed, find_part, hash_groups
from wids.dataset.stored_rows import rows_to_json
from wids.dataset.tables import IndexTables
from wids.fingerprint import basename, digest_data
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from wids.dataset.rows import AnyRows
    from wids.descriptor import ShardOffsets
    from wids.shard_cache import ShardCache


class Selection:
    """A selection of rows of a dataset; a view has some of them, the whole dataset all."""

    _cache: ShardCache
    _offsets: ShardOffsets
    _rows: AnyRows | None
    """Indices in the whole dataset; None for all of it."""
    _visits: tuple[list[int], list[int]] | None
    """What `find_visits` returned for a view, computed on first use."""
    _keys: KeyTable | None

    @abstractmethod
    def _derive(self, **changes: Any) -> Self:
        """Return a copy of this dataset with some attributes changed; it shares all else."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    def __len__(self) -> int:
        return len(self._offsets) if self._rows is None else len(self._rows)

    # Views

    @abstractmethod
    def matches(self, where: str) -> NDArray[np.bool_]:
        """Return a mask of the samples for which a condition over the columns is true."""

    def select(self, rows: Any = None, *, where: str | None = None, exclude: Any = None) -> Self:
        """Return a view of some samples.

        A view shares the open shards, and its samples keep the `__index__` that they have in the whole dataset. Views of
        views cost nothing extra. The samples have the order of `rows`, which may repeat some of them. A view whose rows are
        in the order of the dataset, as those of a mask are, needs few open shards at a time.

        Args:
            rows: A mask, `(len,)` bool, or integers in `[-len, len)`, as an array, a list or a range; None for all samples.
            where: A condition over the columns, as `matches` takes it; only samples that meet it are kept.
            exclude: Samples to leave out, in the same forms as `rows`.

        Raises:
            TypeError: `rows` or `exclude` is neither a mask nor indices, or no argument is given.
            ValueError: A mask has the wrong length, or `where` is not a condition; the message names the place in it.
            IndexError: An index is out of range; the message names it.

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
            chosen = np.flatnonzero(mask) if rows is None and exclude is None else _apply_mask(mask, chosen)
        return self._view(chosen)

    def split(
        self, fractions: Mapping[str, float], *, by: str | Callable[[str], Any] = "key", seed: int = 0
    ) -> dict[str, Self]:
        """Split the samples into parts, and return a view of each.

        The part of a sample is decided by the hash of its key, or of its group. It therefore stays the same when other
        samples are added or removed, and when shards are moved, renamed or repacked; the sizes match the fractions only
        approximately. The order of the parts counts: the `val` of `{"val": 0.01, "train": 0.99}` is contained in the `val`
        of `{"val": 0.02, "train": 0.98}`.

        Args:
            fractions: The fraction of each part, between 0 and 1, by the part's name. If their sum is less than 1, the rest of
                the samples is in none of the parts.
            by: `"key"`, or a function of a sample's key that returns its group, a string or a whole number. All samples of a
                group, of one person or video say, are in the same part.
            seed: Selects one of many different splits; in `[0, 2**64)`.

        Raises:
            TypeError: A fraction is not a number, a group neither a string nor a whole number, or `by` not a function.
            ValueError: A fraction or the seed is out of range, or the sum of the fractions is more than 1.

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
        """Return a view of the samples at these places, which must be at least 0 and in range."""
        return self._derive(_rows=compose(self._rows, places), _visits=None, _keys=None)

    def describe_rows(self) -> dict[str, Any]:
        """Return this view's rows as a descriptor stores them; `wids.dataset.stored_rows` describes the layout."""
        whole = self._derive(_rows=None, _visits=None, _keys=None)
        rows = range(len(whole)) if self._rows is None else self._rows
        return rows_to_json(rows, len(whole), whole.fingerprint)

    # Keys and fields

    @property
    def fields(self) -> dict[tuple[str, ...], int]:
        """The number of samples with each list of fields, the most frequent first; fields are in archive order.

        Examples:
            >>> dataset.fields
            {('.txt', '.cls'): 20}
        """
        return self._tables().fields()

    def keys(self) -> Sequence[str]:
        """Return the keys of all samples, as a sequence that reads them from the index on demand.

        Examples:
            >>> keys = dataset.keys()
            >>> len(keys), keys[3], list(keys[18:]), "000007" in keys
            (20, '000003', ['000018', '000019'], True)
        """
        return Keys(self, self._tables().iterate_keys)

    def key(self, index: int) -> str:
        """Return the key of one sample; like `locate`, without a fetch where the index pack can answer.

        Raises:
            IndexError: `index` is out of range.
            ShardMismatchError: The shard does not match its descriptor, or what was told of it before.
            TarFormatError: The shard is damaged.
            FetchError: No pack can answer, and the shard cannot be opened.
        """
        shard, position = self._find(index)
        return self._cache.listing(shard).key(position)

    def index_of(self, key: str) -> int:
        """Return the lowest index of a key. The first call reads the index of every shard.

        Raises:
            KeyError: No sample has this key; the message names its neighbours in sorted order.
        """
        if self._keys is None:
            self._keys = KeyTable(self._key_hashes(), self._tables().iterate_keys, self.key)
        return self._keys.find(key)

    def _key_hashes(self, seed: int = 0, marks: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Return `(len,)` uint64, xxh3-64 of each key in UTF-8, combined by `^` with the mark of its shard, if any."""
        return self._tables().key_hashes(seed, marks)

    @property
    def is_whole(self) -> bool:
        """Whether this is the whole dataset, and not a view."""
        return self._rows is None

    def _shards_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number, in the whole dataset, of the shard that holds each of these rows."""
        indices = rows if self._rows is None else to_array(compose(self._rows, rows))
        return np.searchsorted(self._offsets.starts, indices, side="right") - 1

    def _find(self, index: int) -> tuple[int, int]:
        """Return `(shard, position)` of a sample of this dataset or view."""
        if self._rows is None:
            return self._offsets.find_shard(index)
        try:
            return self._offsets.find_shard(self._rows[as_index(index)])
        except IndexError:
            raise IndexError(
                f"index {index} is out of range for a view of {counted(len(self._rows), 'sample')}"
            ) from None

    def _tables(self) -> IndexTables:
        return IndexTables(self._cache, self._offsets.starts, self._rows)

    # Shards, as samplers see them

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The shards; for a view the ones that its rows visit in order, where a shard may occur several times."""
        shards: list[dict[str, Any]] = list(self._cache.shards)  # type: ignore[arg-type]
        return shards if self._rows is None else [shards[shard] for shard in self._find_visits()[0]]

    @property
    def lengths(self) -> list[int]:
        """Number of samples in each of `shards`; for a view the number of rows in each visit."""
        return list(self._offsets.lengths) if self._rows is None else list(self._find_visits()[1])

    @property
    def num_shards(self) -> int:
        """Number of different shards that the samples are in."""
        return len(self._offsets.lengths) if self._rows is None else len(set(self._find_visits()[0]))

    @property
    def fingerprint(self) -> str:
        """A digest that identifies these samples, for experiment trackers; it does not depend on where the shards are.

        It covers the basenames of the shards in order, their sample counts, and for a view its rows in order. It does not
        cover the contents of the samples, which `widsindex diff` compares by the checksums of the shards.
        """
        return digest_data(map(basename, self.shards), self.lengths, self.digest_rows)

    def digest_rows(self, num_rows: int) -> str:
        """Return the digest of the first rows of a view; an empty string if they are all samples of their shards.

        Samplers use it to check that a saved state belongs to this view.
        """
        if self._rows is None:
            return ""
        rows = self._rows[:num_rows]
        if isinstance(rows, range) and rows.step == 1 and {rows.start, rows.stop} <= set(self._offsets.starts):
            return ""
        return digest_rows(rows, self._offsets.starts)

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Start to fetch shards before they are needed; return at once.

        Samplers with `shards_ahead` call this. A separate process fetches the shards into the disk cache, no more than fit
        into it; local shards are read ahead by the operating system.

        Args:
            upcoming: Positions in `shards`, the next one first. They replace those of an earlier call.
        """
        visited = None if self._rows is None else self._find_visits()[0]
        self._cache.fetch_ahead(upcoming if visited is None else [visited[number] for number in upcoming])

    def _find_visits(self) -> tuple[list[int], list[int]]:
        """Return the shards that a view's rows visit in order, and the number of rows in each visit."""
        if self._visits is None:
            assert self._rows is not None, "called for views only"
            self._visits = find_visits(self._rows, self._offsets.starts)
        return self._visits

    def _rows_in(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the samples of this view in the range `[first, stop)` of the whole dataset, ascending, without repeats."""
        if self._rows is None:
            return np.arange(first, stop)
        rows = to_array(self._rows)
        return np.unique(rows[(rows >= first) & (rows < stop)])


def _apply_mask(mask: NDArray[np.bool_], places: range | NDArray[np.integer]) -> NDArray[np.integer]:
    """Return the places at which a mask is true."""
    kept = np.arange(places.start, places.stop, places.step) if isinstance(places, range) else places
    return kept[mask[kept]]
