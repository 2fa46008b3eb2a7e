"""Samples of two datasets as one: a step that puts the fields of another dataset's sample beside those of the first.

The other side stays a dataset of its own, with its own open shards, cache and decoding, and is read when a sample is made; where none of
its fields is asked for, the step is left out and it is not read at all.

Which sample belongs to which is found once, by sorted hashes of the keys. A shard whose name, up to `.tar`, both sides have is matched
by itself first, and the shards of all other names together; what finds nothing so is matched by key alone with what was not taken.
The answer is an array of a number a sample, mapped.
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
    """Sample to one that also has the fields of another dataset's sample.

    Args:
        other: Where those are read.
        places: `(num_samples,)`, index in `other` for each sample of the whole dataset, -1 for none.
        prefix: Put before the names of its fields.
        storage: In whose cache folder the places are kept.
    """

    def __init__(self, other: ShardListDataset, places: NDArray[np.integer], prefix: str, storage: Storage) -> None:
        self.other = other
        self.prefix = prefix
        self._places = KeptArray(places, storage)

    def __call__(self, sample: Any) -> Any:
        """Return the sample with the other's fields.

        Raises:
            TypeError: One of the two is no dictionary.
            ValueError: Both have a field of one name.
        """
        place = self.find(check_sample(sample, "join()")["__index__"])
        if place is None:
            return sample
        theirs = self.other[place]
        if not isinstance(theirs, dict):
            raise TypeError(f"join() takes samples with fields, but the other dataset's are {type(theirs).__name__}")
        return self.merge(sample, {name: theirs[name] for name in theirs if not name.startswith("__")})

    def find(self, index: int) -> int | None:
        """Return the other's index for a sample of the whole dataset; None where it has none."""
        place = int(self._places.array[index])
        return None if place < 0 else place

    def places(self, indices: NDArray[np.int64] | None) -> NDArray[np.integer]:
        """Return the other's indices for these samples of the whole dataset, -1 for none; None for all of them."""
        return self._places.array if indices is None else self._places.array[indices]

    def merge(self, mine: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        """Add the other's fields to a sample's, under their names here.

        Raises:
            ValueError: Both have a field of one name.
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
        """Return what the other calls those of these fields that may be its own."""
        prefix = self.prefix.lower()
        return [
            field.removeprefix(".")[len(prefix) :]
            for field in fields
            if field.removeprefix(".").lower().startswith(prefix)
        ]

    def narrowed(self, fields: Iterable[str]) -> Join | None:
        """Return a join that reads only these fields, in the names of the result; None where none is the other's."""
        mine = self.names(fields)
        return self._with(self.other._restrict(mine)) if mine else None

    def decoded(self, spec: Any) -> Join:
        """Return a join whose other side decodes otherwise."""
        return self._with(self.other.decode(spec))

    def find_field(self, name: str, place: int) -> str | None:
        """Return what the other calls a field of the result in one of its samples; None where that is not its own."""
        names = self.names([name])
        return find_field(names[0], self.other.locate(place)) if names else None

    def _rename(self, name: str) -> str:
        return f".{self.prefix}{name[1:]}" if name.startswith(".") else f"{self.prefix}{name}"

    def _with(self, other: ShardListDataset) -> Join:
        join = object.__new__(Join)
        join.__dict__.update({**self.__dict__, "other": other})
        return join


def check_sample(sample: Any, what: str) -> dict[str, Any]:
    """Return a sample that has not become something else on its way through the steps.

    Raises:
        TypeError: It has.
    """
    if not isinstance(sample, dict) or "__index__" not in sample:
        raise TypeError(
            f"{what} takes samples with __index__, but a step before it made a {type(sample).__name__}; call it earlier"
        )
    return sample


def match_samples(mine: ShardListDataset, other: ShardListDataset) -> NDArray[np.integer]:
    """Return which of the other's samples belongs to each of mine.

    Returns:
        `(len(mine),)` integers, indices in `other`, -1 for none.

    Raises:
        ValueError: A sample's key is that of several of the other's; names up to five.
    """
    of_shard, of_other = _mark_shards(mine, other)
    hashes = mine._key_hashes(marks=of_shard)
    if mine._cache is other._cache and mine._rows is None:
        offered = hashes if other._rows is None else hashes[to_array(other._rows)]  # read once
    else:
        offered = other._key_hashes(marks=of_other)
    found = match_hashes(hashes, offered)
    _check_ambiguous(mine, found.ambiguous)
    left = np.flatnonzero(found.rows < 0)
    if len(left) and len(found.unused):
        free = found.unused
        wanted_rest, offered_rest = hashes[left], offered[free]
        del hashes, offered  # of many samples, these are what takes the room
        _unmark(wanted_rest, mine, left, of_shard)
        _unmark(offered_rest, other, free, of_other)
        rest = match_hashes(wanted_rest, offered_rest)
        _check_ambiguous(mine, left[rest.ambiguous])
        is_found = rest.rows >= 0
        found.rows[left[is_found]] = free[rest.rows[is_found]]
    return found.rows


def _mark_shards(mine: ShardListDataset, other: ShardListDataset) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the mark of each shard of both sides: one of its own where both sides have its name, once; else 0."""
    stems, theirs = ([stem_of(str(shard["url"])) for shard in side._cache.shards] for side in (mine, other))
    counts, their_counts = Counter(stems), Counter(theirs)
    numbers = {stem: number for number, stem in enumerate(counts, 1) if counts[stem] == their_counts[stem] == 1}
    of_group = group_marks(len(counts) + 1)
    return of_group[[numbers.get(stem, 0) for stem in stems]], of_group[[numbers.get(stem, 0) for stem in theirs]]


def _unmark(
    hashes: NDArray[np.uint64], dataset: ShardListDataset, rows: NDArray[np.int64], of_shard: NDArray[np.uint64]
) -> None:
    """Take the marks of their shards off the hashes of some rows, in place."""
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
