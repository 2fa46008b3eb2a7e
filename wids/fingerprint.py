"""What tells data from other data wherever it lies: the basenames of its shards, their counts, and which rows are meant.

Samplers put it into their states, datasets show it to experiment trackers, descriptors of selections are pinned by it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def digest_data(
    names: Iterable[str], counts: Sequence[int], rows: Callable[[int], str] | None = None, num_shards: int | None = None
) -> str:
    """Return the digest of shards in their order: 16 hexadecimal digits, and as many for the rows where not all are meant.

    Args:
        names: Basename of each shard.
        counts: Samples that are meant in each.
        rows: How many rows to the digest of so many, from the first; empty where they are all that the shards have.
        num_shards: How many of the shards, from the first; None for all.
    """
    digest = xxhash.xxh3_64()
    for name, count in islice(zip(names, counts, strict=False), num_shards):
        digest.update(f"{name}\0{count}\n".encode("utf-8", "surrogateescape"))
    of_rows = "" if rows is None else rows(sum(counts[:num_shards]))
    return f"{digest.hexdigest()}-{of_rows}" if of_rows else str(digest.hexdigest())


def basename(shard: Any) -> str:
    """Return the last part of a shard's URL, which stays when the shard is moved.

    Args:
        shard: Its entry in the descriptor, or its URL.

    Examples:
        >>> basename("https://host/data/train-0001.tar?signature=abc"), basename({"url": "/data/a?b.tar"})
        ('train-0001.tar', 'a?b.tar')
    """
    url = str(shard["url"] if isinstance(shard, dict) else shard)
    if "://" in url:
        url = url.partition("?")[0]  # a query may hold a signature, another one each time
    return url.rpartition("/")[2]
