"""Which samples go to which new shard, decided before anything is written. Pure: numbers in, numbers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wids.tar.headers import BLOCK
from wids.tar.make_header import LARGEST_PLAIN_SIZE, LONGEST_PLAIN_NAME
from wids.tools.shard_file import END_BYTES

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

    from wids.tar import TarIndex
    from wids.tar.make_header import HeaderMaker
    from wids.tools.shard_file import Limits


def measure_samples(index: TarIndex, fields: Container[str] | None, headers: HeaderMaker) -> NDArray[np.int64]:
    """Return `(num_samples,)` int64, the bytes that each sample takes in a tar, headers and padding included; 0 for none.

    Args:
        index: Of the shard that they are in.
        fields: Fields that are written; None for all.
        headers: Makes the headers of members.
    """
    totals = np.zeros(index.num_samples, np.int64)
    key_ends = index.key_ends.astype(np.int64)
    key_bytes = np.diff(key_ends, prepend=0)
    for kind, names in enumerate(index.fields_of_kind):
        rows = np.flatnonzero(index.kinds == kind)
        places = [place for place, name in enumerate(names) if fields is None or name in fields]
        if not len(rows) or not places:
            continue
        stored = [names[place].encode("utf-8", "surrogateescape") for place in places]
        sizes = index.sizes[index.starts[rows].astype(np.int64)[:, None] + np.array(places)].astype(np.int64)
        lengths = key_bytes[rows][:, None] + np.array([len(field) for field in stored])
        before = np.full(sizes.shape, BLOCK)
        for row, column in np.argwhere((lengths > LONGEST_PLAIN_NAME) | (sizes > LARGEST_PLAIN_SIZE)).tolist():
            stop = int(key_ends[rows[row]])
            key = bytes(index.keys[stop - int(key_bytes[rows[row]]) : stop])
            before[row, column] = len(headers.make(key + stored[column], int(sizes[row, column])))
        totals[rows] = (before + (sizes + BLOCK - 1) // BLOCK * BLOCK).sum(axis=1)
    return totals


def plan_shards(sizes: NDArray[np.int64], keys: NDArray[np.uint64], limits: Limits) -> list[int]:
    """Return the end of each new shard as a number of samples from the first; each is filled as far as its limits allow.

    Two samples with the same key that follow each other would be read back as one; the second begins a new shard.

    Args:
        sizes: `(num_samples,)` int64, bytes of each sample in a tar, headers included.
        keys: `(num_samples,)` uint64, a hash of each sample's key.
        limits: Of one shard.

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
