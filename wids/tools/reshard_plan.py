"""Which samples go to which new shard, decided before anything is written. Pure: numbers in, numbers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wids.tools.shard_file import END_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.tools.shard_file import Limits


def plan_order(num_samples: int, *, shuffle: bool, seed: int) -> NDArray[np.int64]:
    """Return `(num_samples,)` int64, the order of samples.

    Shuffled, it is that of numpy's `RandomState`, which no release changes.

    Examples:
        >>> plan_order(4, shuffle=False, seed=0).tolist(), sorted(plan_order(4, shuffle=True, seed=0).tolist())
        ([0, 1, 2, 3], [0, 1, 2, 3])
    """
    if shuffle:
        return np.random.RandomState(seed).permutation(num_samples).astype(np.int64)  # noqa: NPY002
    return np.arange(num_samples)


def plan_shards(sizes: NDArray[np.int64], keys: NDArray[np.uint64], limits: Limits) -> list[int]:
    """Return where each shard ends, in samples: as many as its limits allow go into each, in order.

    Two samples with one key that follow each other would be read back as one; the second begins a shard of its own.

    Args:
        sizes: `(num_samples,)` int64, bytes of each in a tar, its headers included.
        keys: `(num_samples,)` uint64, a hash of each sample's key.
        limits: How much goes into one shard.

    Examples:
        >>> from wids.tools.shard_file import Limits
        >>> plan_shards(np.full(5, 1024), np.arange(5, dtype=np.uint64), Limits(max_samples=2))
        [2, 4, 5]
        >>> plan_shards(np.full(4, 1024), np.array([1, 1, 2, 3], np.uint64), Limits(max_bytes=1 << 20))
        [1, 4]
    """
    num_samples = len(sizes)
    ends = np.cumsum(sizes)
    repeats = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    cuts = []
    start = 0
    while start < num_samples:
        stop = num_samples
        if limits.max_samples is not None:
            stop = min(stop, start + limits.max_samples)
        if limits.max_bytes is not None:
            before = int(ends[start - 1]) if start else 0
            stop = min(stop, int(np.searchsorted(ends, before + limits.max_bytes - END_BYTES, "right")))
        repeat = int(np.searchsorted(repeats, start, "right"))
        if repeat < len(repeats):
            stop = min(stop, int(repeats[repeat]))
        start = max(stop, start + 1)
        cuts.append(start)
    return cuts
