"""Fingerprints of data that do not depend on where it is stored.

A fingerprint covers the basenames of the shards, their sample counts, and the rows of a selection. Samplers store it in
their state, datasets offer it to experiment trackers, and the descriptor of a selection is tied to its data by it.
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
    """Return the fingerprint of a sequence of shards.

    Args:
        names: Basename of each shard, in order.
        counts: Number of samples used of each shard.
        rows: Returns the digest of the first `n` rows, or an empty string when these are all samples of their shards;
            None when there is no selection.
        num_shards: Number of shards to cover, from the first; None for all.

    Returns:
        16 hexadecimal digits; for a selection of rows followed by `-` and the digest of the rows.
    """
    digest = xxhash.xxh3_64()
    for name, count in islice(zip(names, counts, strict=False), num_shards):
        digest.update(f"{name}\0{count}\n".encode("utf-8", "surrogateescape"))
    row_digest = "" if rows is None else rows(sum(counts[:num_shards]))
    return f"{digest.hexdigest()}-{row_digest}" if row_digest else str(digest.hexdigest())


def basename(shard: Any) -> str:
    """Return the last part of a shard's URL, which stays the same when the shard is moved to another folder or host.

    Args:
        shard: The shard's entry in the descriptor, or its URL.

    Examples:
        >>> basename("https://host/data/train-0001.tar?signature=abc"), basename({"url": "/data/a?b.tar"})
        ('train-0001.tar', 'a?b.tar')
    """
    url = str(shard["url"] if isinstance(shard, dict) else shard)
    if "://" in url:
        url = url.partition("?")[0]  # the query may hold a signature, which changes each time the URL is signed
    return url.rpartition("/")[2]
