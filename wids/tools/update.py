"""A descriptor corrected by what its shards hold today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.tools.create import describe_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wids.storage import Storage


def recount(
    entries: Iterable[dict[str, Any]], shards: Iterable[Mapping[str, Any]], storage: Storage
) -> list[tuple[str, Any, Any]]:
    """Set `nsamples`, and `filesize` and `md5sum` where they were given, to what the shards have.

    Args:
        entries: The descriptor's `shardlist`, changed in place.
        shards: The same shards with their URLs resolved.
        storage: Opens them.

    Returns:
        `(url, count before, count now)` of each shard whose count changed.

    Raises:
        WidsError: A shard cannot be read.
    """
    changes = []
    for entry, shard in zip(entries, shards, strict=True):
        found = describe_shard(shard, storage)
        before = entry.get("nsamples")
        if before != found.num_samples:
            changes.append((str(entry["url"]), before, found.num_samples))
        entry["nsamples"] = found.num_samples
        for name, value in (("filesize", found.size), ("md5sum", found.md5)):
            if name in entry:
                entry[name] = value
    return changes
