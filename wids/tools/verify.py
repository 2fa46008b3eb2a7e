"""A dataset to what is wrong with it: each shard by itself, then keys and fields across all of them.

Across shards, keys are compared as hashes of 8 bytes. Equal hashes only say where to look: the keys themselves are read again
before two are reported as the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_64_intdigest

from wids.descriptor import load_descriptor
from wids.storage import Storage
from wids.tar import build_index
from wids.tools.check_shard import ShardChecker, ShardReport, read_keys, show
from wids.tools.findings import Finding, list_examples
from wids.tools.spread import map_in_order
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

_MOST_REPEATED = 1000
"""Keys in several shards that are looked up and named; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a dataset."""

    num_shards: int
    """Shards that the descriptor names."""
    num_samples: int
    """Samples in those that can be read."""
    findings: list[Finding]
    """By shard, in order; those about several shards come last."""

    def count(self, severity: str) -> int:
        """Return how many findings are of this severity."""
        return sum(finding.severity == severity for finding in self.findings)


def verify(
    shards: Any, *, executor: Executor | None = None, progress: bool = False, storage: Storage | None = None
) -> Verification:
    """Read all of a dataset and return what is wrong with it.

    Args:
        shards: What `ShardListDataset` takes: a descriptor, a folder, a pattern, …
        executor: Checks the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        storage: Opens shards, each as it is stored now; None for one with the defaults.

    Raises:
        DescriptorError: The descriptor cannot be read. A shard that cannot be read is a finding.

    Examples:
        >>> verify("train.json")
        Verification(num_shards=2, num_samples=100, findings=[])
    """
    storage = storage or Storage()
    listed = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder).shards
    checker = ShardChecker(storage)
    chunk = min(16, max(1, len(listed) // 64))
    found = list(map_in_order(checker, listed, executor, "verifying", chunksize=chunk, progress=progress))
    findings = [finding for report in found for finding in report.findings]
    findings += _compare_fields(found)
    findings += _compare_keys(found, listed, storage)
    return Verification(len(listed), sum(report.num_samples for report in found), findings)


def _compare_fields(reports: Iterable[ShardReport]) -> list[Finding]:
    """Report each set of fields other than the most frequent one."""
    counts: dict[tuple[str, ...], int] = {}
    firsts: dict[tuple[str, ...], tuple[str, str]] = {}
    for report in reports:
        for names, (count, key) in report.field_sets.items():
            counts[names] = counts.get(names, 0) + count
            firsts.setdefault(names, (report.name, key))
    if len(counts) < 2:
        return []
    usual = max(counts, key=counts.__getitem__)
    return [
        Finding(
            "other-fields",
            firsts[names][0],
            f"{counted(count, 'sample of the dataset has', 'samples of the dataset have')} the fields {' '.join(names)}, most have "
            f"{' '.join(usual)}; "
            f"the first is key {firsts[names][1]}",
            count,
        )
        for names, count in counts.items()
        if names != usual
    ]


def _compare_keys(
    reports: Sequence[ShardReport], shards: Sequence[Mapping[str, Any]], storage: Storage
) -> list[Finding]:
    """Report the keys that are in more than one shard, by pair of shards."""
    together = np.concatenate([np.zeros(0, np.uint64), *(report.hashes for report in reports)])
    together.sort()
    repeated = np.unique(together[1:][together[1:] == together[:-1]])
    if not len(repeated):
        return []
    looked_up = repeated[:_MOST_REPEATED]
    pairs: dict[tuple[int, int], list[bytes]] = {}
    first_shards: dict[bytes, int] = {}
    for number, report in enumerate(reports):
        if np.isin(looked_up, report.hashes, assume_unique=True).any():
            for key in _find_keys(shards[number], storage, looked_up):
                first = first_shards.setdefault(key, number)
                if first != number:
                    pairs.setdefault((first, number), []).append(key)
    more = len(repeated) - len(looked_up)
    note = f"; about {counted(more, 'key more is', 'keys more are')} in several shards of the dataset" if more else ""
    return [
        Finding(
            "repeated-key",
            reports[second].name,
            f"has keys that {reports[first].name} has too: {list_examples(list(map(show, sorted(keys))), len(keys))}{note}",
            len(keys),
        )
        for (first, second), keys in pairs.items()
    ]


def _find_keys(shard: Mapping[str, Any], storage: Storage, hashes: NDArray[np.uint64]) -> set[bytes]:
    """Return the keys of a shard that have one of these hashes."""
    wanted = set(hashes.tolist())
    with storage.stored.inspect(str(shard["url"]), digest=False) as stored:
        return {key for key in read_keys(build_index(stored.source)) if xxh3_64_intdigest(key) in wanted}
