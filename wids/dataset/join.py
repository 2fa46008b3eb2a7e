"""Joins: a step that adds the fields of another dataset's sample to a sample.

The other side stays a dataset of its own, with its own open shards, cache and decoding. Its sample is read when the joined
sample is read. If none of its fields is asked for, the step is left out, and the other side is not read at all.

Samples are matched once, by sorted hashes of their keys, in two passes. In the first, a shard whose name (up to `.tar`)
occurs once on both sides is matched only with its namesake, and all other shards are matched together. In the second, the
samples left over on both sides are matched by key alone. The result is one number for each sample, in a mapped array.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.columns import KeptArray, group_marks, match_hashes
from wids.dataset.rows import to_array
from wids.descriptor import stem_of
from wids.fields import find_field
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from wids.dataset.dataset import ShardListDataset
    from wids.storage import Storage

_BLOCK_ROWS = 1 << 16


class Join:
    """A step that adds the fields of another dataset's sample to a sample.

    Args:
        other: The other dataset.
        places: `(num_samples,)` integers, for each sample of the whole dataset its index in `other`, -1 for none.
        prefix: Prefix for the names of the other dataset's fields.
        storage: The storage whose cache folder `places` is stored in.
    """

    def __init__(self, other: ShardListDataset, places: NDArray[np.integer], prefix: str, storage: Storage) -> None:
        self.other = other
        self.prefix = prefix
        self._places = KeptArray(places, storage)

    def __call__(self, sample: Any) -> Any:
        """Add the fields of the other sample, if there is one, and return the sample.

        Raises:
            TypeError: One of the two samples is no longer a dictionary.
            ValueError: Both samples have a field of the same name.
        """
        place = self.find(check_sample(sample, "join()")["__index__"])
        if place is None:
            return sample
        theirs = self.other[place]
        if not isinstance(theirs, dict):
            raise TypeError(f"join() takes samples with fields, but the other dataset's are {type(theirs).__name__}")
        return self.merge(sample, {name: theirs[name] for name in theirs if not name.startswith("__")})

    def find(self, index: int) -> int | None:
        """Return the index in `other` for a sample of the whole dataset; None if it has none."""
        place = int(self._places.array[index])
        return None if place < 0 else place

    def places(self, indices: NDArray[np.int64] | None) -> NDArray[np.integer]:
        """Return the indices in `other` for samples of the whole dataset, -1 where there is none.

        Args:
            indices: `(n,)` int64, the samples; None for all.
        """
        return self._places.array if indices is None else self._places.array[indices]

    def merge(self, mine: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        """Add the fields of the other sample, prefixed, to `mine`, and return it.

        Raises:
            ValueError: Both samples have a field of the same name.
        """
        for name, value in theirs.items():
            renamed = self._rename(name)
            if dict.__contains__(mine, renamed):
                raise ValueError(
                    f"both sides of a join have the field {renamed!r}; give join() a prefix=, as in 'other.', or leave it "
                    "out with select_fields() before"
                )
            mine[renamed] = value
        return mine

    def names(self, fields: Iterable[str]) -> list[str]:
        """Return the names in `other` of those fields that carry the prefix, without leading dots."""
        prefix = self.prefix.lower()
        return [
            field.removeprefix(".")[len(prefix) :]
            for field in fields
            if field.removeprefix(".").lower().startswith(prefix)
        ]

    def narrowed(self, fields: Iterable[str]) -> Join | None:
        """Return a join that reads only these fields, named as in the joined sample; None if none can be from `other`."""
        mine = self.names(fields)
        return self._with(self.other._restrict(mine)) if mine else None

    def decoded(self, spec: Any) -> Join:
        """Return a join whose other side is decoded by `spec`."""
        return self._with(self.other.decode(spec))

    def find_field(self, name: str, place: int) -> str | None:
        """Return the name in `other` of a field of the joined sample; None if the sample at `place` has no such field."""
        names = self.names([name])
        return find_field(names[0], self.other.locate(place)) if names else None

    def _rename(self, name: str) -> str:
        return f".{self.prefix}{name[1:]}" if name.startswith(".") else f"{self.prefix}{name}"

    def _with(self, other: ShardListDataset) -> Join:
        join = object.__new__(Join)
        join.__dict__.update({**self.__dict__, "other": other})
        return join


def check_sample(sample: Any, what: str) -> dict[str, Any]:
    """Return a sample, after a check that it is still a dictionary with `__index__`.

    Args:
        sample: What the steps so far have made of a sample.
        what: The method that needs it, for the message.

    Raises:
        TypeError: An earlier step has turned the sample into something else.
    """
    if not isinstance(sample, dict) or "__index__" not in sample:
        raise TypeError(
            f"{what} takes samples with __index__, but a step before it made a {type(sample).__name__}; call it earlier"
        )
    return sample


def match_samples(mine: ShardListDataset, other: ShardListDataset) -> NDArray[np.integer]:
    """Find the sample of `other` with the same key for each sample of `mine`.

    Returns:
        `(len(mine),)` integers, indices in `other`, -1 where there is none.

    Raises:
        ValueError: Several samples of `other` have the key of one of `mine`; the message names up to five keys.
    """
    of_shard, of_other = _mark_shards(mine, other)
    hashes = mine._key_hashes(marks=of_shard)
    if mine._cache is other._cache and mine._rows is None:
        # Both sides are rows of one dataset, so the keys are hashed only once.
        offered = hashes if other._rows is None else hashes[to_array(other._rows)]
    else:
        offered = other._key_hashes(marks=of_other)
    found = match_hashes(hashes, offered)
    _check_ambiguous(mine, found.ambiguous)
    left = np.flatnonzero(found.rows < 0)
    if len(left) and len(found.unused):
        free = found.unused
        wanted_rest, offered_rest = hashes[left], offered[free]
        del hashes, offered  # for many samples these take most of the memory
        _unmark(wanted_rest, mine, left, of_shard)
        _unmark(offered_rest, other, free, of_other)
        rest = match_hashes(wanted_rest, offered_rest)
        _check_ambiguous(mine, left[rest.ambiguous])
        is_found = rest.rows >= 0
        found.rows[left[is_found]] = free[rest.rows[is_found]]
    return found.rows


def _mark_shards(mine: ShardListDataset, other: ShardListDataset) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the mark of each shard of both sides, which its key hashes are combined with.

    A shard whose name occurs exactly once on each side shares a mark with its namesake; all others have the mark 0.
    """
    stems, theirs = ([stem_of(str(shard["url"])) for shard in side._cache.shards] for side in (mine, other))
    counts, their_counts = Counter(stems), Counter(theirs)
    numbers = {stem: number for number, stem in enumerate(counts, 1) if counts[stem] == their_counts[stem] == 1}
    of_group = group_marks(len(counts) + 1)
    return of_group[[numbers.get(stem, 0) for stem in stems]], of_group[[numbers.get(stem, 0) for stem in theirs]]


def _unmark(
    hashes: NDArray[np.uint64], dataset: ShardListDataset, rows: NDArray[np.int64], of_shard: NDArray[np.uint64]
) -> None:
    """Remove the marks of their shards from the hashes of some rows, in place."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        hashes[part] ^= of_shard[dataset._shards_of(rows[part])]


def _check_ambiguous(mine: ShardListDataset, rows: NDArray[np.int64]) -> None:
    if len(rows):
        raise ValueError(
            f"{counted(len(rows), 'sample has a key', 'samples have keys')} that the other side has more than once: "
            f"{list_keys(mine, rows, len(rows))}; "
            "join() needs keys that are unique there, so select() one of each"
        )


def list_keys(dataset: ShardListDataset, examples: NDArray[np.int64], count: int) -> str:
    """Return the keys of some samples for a message."""
    shown = ", ".join(repr(dataset.key(index)) for index in examples[:5].tolist())
    return shown if count <= 5 else f"{shown}, …"
