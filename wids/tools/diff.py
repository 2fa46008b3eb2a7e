"""Two states of a dataset to what differs between them: shards by their names, samples by their keys.

Shards correspond when they have the same name, wherever they lie. Those with equal counts and checksums are not opened; of the
others, hashes of the keys are compared, which takes their indexes and about 60 bytes of memory a sample.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.dataset import ShardListDataset
from wids.fingerprint import basename

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_MOST_EXAMPLES = 10

Name = tuple[str, int]
"""Of a shard: its basename, and how many before it have the same one."""


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """Samples that differ in one way."""

    count: int
    """How many."""
    examples: list[str] = field(default_factory=list)
    """The keys of the first ones."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two states of a dataset, before and after."""

    added: list[str]
    """Basenames of shards that are only in the second; the second one of a name is `NAME (2)`, here as below."""
    removed: list[str]
    """Basenames of shards that are only in the first."""
    changed: dict[str, dict[str, tuple[Any, Any]]]
    """Of shards that are in both: what the descriptors say of them, before and after, where that differs."""
    reordered: bool
    """Whether the shards that are in both come in another order."""
    samples_added: KeyDifference
    """Samples with a key that the first does not have, or has fewer times."""
    samples_removed: KeyDifference
    """Samples with a key that the second does not have, or has fewer times."""
    samples_moved: KeyDifference
    """Samples that are in a shard of another name."""

    def __bool__(self) -> bool:
        """Tell whether anything differs."""
        samples = self.samples_added.count + self.samples_removed.count + self.samples_moved.count
        return bool(self.added or self.removed or self.changed or self.reordered or samples)


def diff(before: Any, after: Any) -> Difference:
    """Return what differs between two datasets; the bytes of samples are compared only by the shards' MD5.

    Args:
        before: What `ShardListDataset` takes: a descriptor, a folder, a selection, …
        after: The same.

    Raises:
        DescriptorError: One cannot be read.
        FetchError: A shard has no index yet, and cannot be opened.
    """
    datasets = [ShardListDataset(shards, transformations=None) for shards in (before, after)]
    first, second = (_by_name(dataset.spec["shardlist"]) for dataset in datasets)
    common = [name for name in first if name in second]
    changed = {name: facts for name in common if (facts := _compare(first[name], second[name]))}
    numbers = {name: number for number, name in enumerate({**first, **second})}
    wholes = all(dataset.is_whole for dataset in datasets)
    same = {name for name in common if wholes and _is_same(first[name], second[name])}
    added, removed, moved = _compare_keys(
        *(_leave_out(dataset, names, same) for dataset, names in zip(datasets, (first, second), strict=True)),
        *({id(shard): numbers[name] for name, shard in names.items()} for names in (first, second)),
    )
    return Difference(
        added=[_show(name) for name in second if name not in first],
        removed=[_show(name) for name in first if name not in second],
        changed={_show(name): facts for name, facts in changed.items()},
        reordered=common != [name for name in second if name in first],
        samples_added=added,
        samples_removed=removed,
        samples_moved=moved,
    )


def _show(name: Name) -> str:
    """Return a name that no two shards of a dataset share.

    Examples:
        >>> _show(("0.tar", 0)), _show(("0.tar", 1))
        ('0.tar', '0.tar (2)')
    """
    shown, num_before = name
    return f"{shown} ({num_before + 1})" if num_before else shown


def _by_name(shards: Sequence[Mapping[str, Any]]) -> dict[Name, Mapping[str, Any]]:
    seen: Counter[str] = Counter()
    named = {}
    for shard in shards:
        name = basename(shard)
        named[name, seen[name]] = shard
        seen[name] += 1
    return named


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that both entries state and that differ."""
    pairs = {fact: (before.get(fact), after.get(fact)) for fact in ("nsamples", "filesize")}
    pairs["md5sum"] = _lower(before.get("md5sum")), _lower(after.get("md5sum"))
    return {fact: pair for fact, pair in pairs.items() if None not in pair and pair[0] != pair[1]}


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _is_same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether two shards are known to hold the same bytes."""
    known = before.get("md5sum") is not None and after.get("md5sum") is not None
    return known and not _compare(before, after)


def _leave_out(dataset: Any, names: Mapping[Name, Mapping[str, Any]], same: set[Name]) -> Any:
    """Return a view without the shards that are the same in both."""
    if not same:
        return dataset
    kept = np.repeat([name not in same for name in names], dataset.lengths)
    return dataset.select(kept)


def _compare_keys(
    before: Any, after: Any, numbers_before: Mapping[int, int], numbers_after: Mapping[int, int]
) -> tuple[KeyDifference, KeyDifference, KeyDifference]:
    """Return the samples that are added, removed and moved.

    Args:
        before: Dataset or view.
        after: Dataset or view.
        numbers_before: The number of each shard's name, by the identity of its entry.
        numbers_after: The same of the other.
    """
    old, new = before._key_hashes(), after._key_hashes()  # noqa: SLF001
    old_placed = _mix(old, _shard_of_each(before, numbers_before))
    new_placed = _mix(new, _shard_of_each(after, numbers_after))
    old_rest = np.flatnonzero(~_are_in(old_placed, new_placed))
    new_rest = np.flatnonzero(~_are_in(new_placed, old_placed))
    is_old = _are_in(new[new_rest], old[old_rest])
    is_kept = _are_in(old[old_rest], new[new_rest])
    return (
        _describe(after, new_rest[~is_old]),
        _describe(before, old_rest[~is_kept]),
        _describe(after, new_rest[is_old]),
    )


def _shard_of_each(dataset: Any, numbers: Mapping[int, int]) -> NDArray[np.uint64]:
    return np.repeat(np.array([numbers[id(shard)] for shard in dataset.shards], np.uint64), dataset.lengths)


def _mix(hashes: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes that also depend on a number: multiplied by 2**64 over the golden ratio, which spreads the bits."""
    mixed: NDArray[np.uint64] = hashes ^ ((numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return mixed


def _are_in(hashes: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return `(num_hashes,)` bool: which hashes are among others, counting repeats: the n-th there matches the n-th here."""
    found: NDArray[np.bool_] = np.isin(_number_repeats(hashes), _number_repeats(others))
    return found


def _number_repeats(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes in which the n-th occurrence of one is changed in a way that depends only on it and n."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    if is_first.all():
        return hashes
    places = np.arange(len(hashes))
    occurrence = np.empty(len(hashes), np.uint64)
    occurrence[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return np.where(occurrence > 0, _mix(hashes, occurrence << np.uint64(32)), hashes)


def _describe(dataset: Any, places: NDArray[np.int64]) -> KeyDifference:
    return KeyDifference(len(places), list(dataset.select(places[:_MOST_EXAMPLES]).keys()))
