"""Samples of two datasets as one: a step that puts the fields of another dataset's sample beside those of the first.

The other side stays a dataset of its own, with its own open shards, cache and decoding, and is read when a sample is made; where none of
its fields is asked for, the step is left out and it is not read at all.

Which sample belongs to which is found once, by sorted hashes of the keys. A shard whose name, up to `.tar`, both sides have is matched
by itself first; what finds nothing so is matched by key alone. The answer is an array of a number a sample, mapped.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.columns import KeptArray, mark_groups, match_hashes
from wids.dataset.rows import to_array
from wids.dataset.sample import find_field
from wids.descriptor import stem_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from wids.dataset.dataset import ShardListDataset
    from wids.storage import Storage


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


def match_samples(mine: ShardListDataset, other: ShardListDataset) -> NDArray[np.int64]:
    """Return which of the other's samples belongs to each of mine.

    Returns:
        `(len(mine),)` int64, indices in `other`, -1 for none.

    Raises:
        ValueError: A sample's key is that of several of the other's; names up to five.
    """
    groups = _common_groups(mine, other)
    hashes, offered = mine._key_hashes(), other._key_hashes()
    if groups is None:
        return _match(mine, hashes, offered, None, None)
    inside, outside = (np.flatnonzero(group >= 0) for group in groups)
    marked, marked_offered = hashes[inside], offered[outside]
    mark_groups(marked, groups[0][inside])
    mark_groups(marked_offered, groups[1][outside])
    places = np.full(len(mine), -1, np.int64)
    places[inside] = _match(mine, marked, marked_offered, inside, outside)
    del marked, marked_offered, inside, outside, groups
    left = np.flatnonzero(places < 0)
    if len(left):
        free = np.ones(len(other), np.bool_)
        free[places[places >= 0]] = False
        rest = np.flatnonzero(free)
        places[left] = _match(mine, hashes[left], offered[rest], left, rest)
    return places


def _match(
    mine: ShardListDataset,
    hashes: NDArray[np.uint64],
    offered: NDArray[np.uint64],
    rows: NDArray[np.int64] | None,
    offered_rows: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Return the places of matches, of rows among others' rows where these are given."""
    found = match_hashes(hashes, offered)
    if len(found.ambiguous):
        examples = found.ambiguous[:5] if rows is None else rows[found.ambiguous[:5]]
        raise ValueError(
            f"{len(found.ambiguous)} samples have keys that the other side has more than once: "
            f"{list_keys(mine, examples, len(found.ambiguous))}; join() needs keys that are unique there, so select() one of each"
        )
    if offered_rows is None:
        return found.rows
    return np.where(found.rows >= 0, offered_rows[found.rows], -1) if len(offered_rows) else found.rows


def list_keys(dataset: ShardListDataset, examples: NDArray[np.int64], count: int) -> str:
    """Return the keys of some samples for a message."""
    shown = ", ".join(repr(dataset.key(index)) for index in examples[:5].tolist())
    return shown if count <= 5 else f"{shown}, …"


def _common_groups(
    mine: ShardListDataset, other: ShardListDataset
) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
    """Return a number for each sample of both sides, that of its shard's name where both have it, else -1; None for no such name."""
    stems, theirs = _stems(mine), _stems(other)
    counts, their_counts = Counter(stems), Counter(theirs)
    common = {stem: number for number, stem in enumerate(counts) if counts[stem] == their_counts[stem] == 1}
    if not common:
        return None
    return _groups(mine, stems, common), _groups(other, theirs, common)


def _stems(dataset: ShardListDataset) -> list[str]:
    return [stem_of(str(shard["url"])) for shard in dataset._cache.shards]


def _groups(dataset: ShardListDataset, stems: Sequence[str], numbers: Mapping[str, int]) -> NDArray[np.int32]:
    of_shard = np.array([numbers.get(stem, -1) for stem in stems], np.int32)
    groups = np.repeat(of_shard, dataset._offsets.lengths)
    return groups if dataset._rows is None else groups[to_array(dataset._rows)]
