"""A descriptor corrected by what its shards hold today, and its index pack with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.index_files import IndexPack, write_pack
from wids.tools.create import describe_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from wids.storage import Storage


def recount(
    entries: Iterable[dict[str, Any]],
    shards: Iterable[Mapping[str, Any]],
    storage: Storage,
    *,
    pack: Path | None = None,
) -> list[tuple[str, Any, Any]]:
    """Set `nsamples`, and `filesize` and `md5sum` where they were given, to what the shards have.

    Args:
        entries: The descriptor's `shardlist`, changed in place.
        shards: The same shards with their URLs resolved.
        storage: Opens them.
        pack: The descriptor's index pack, absolute, made anew: with checksums if it had them, or cannot be read.

    Returns:
        `(url, count before, count now)` of each shard whose count changed.

    Raises:
        WidsError: A shard cannot be read; the pack is untouched.
    """
    checksums = pack is not None and _has_checksums(pack, storage)
    changes = []
    packed = []
    for entry, shard in zip(entries, shards, strict=True):
        found = describe_shard(shard, storage, index=pack is not None, checksums=checksums)
        before = entry.get("nsamples")
        if before != found.num_samples:
            changes.append((str(entry["url"]), before, found.num_samples))
        entry["nsamples"] = found.num_samples
        for name, value in (("filesize", found.size), ("md5sum", found.md5)):
            if name in entry:
                entry[name] = value
        if found.packed is not None:
            packed.append((str(shard["url"]), *found.packed))
    if pack is not None:
        write_pack(pack, str(pack), packed)
    return changes


def _has_checksums(pack: Path, storage: Storage) -> bool:
    try:
        return IndexPack(storage.open({"url": str(pack)}), str(pack)).has_checksums
    except Exception:  # zipfile raises half a dozen kinds for what is no ZIP
        return True  # more than was there does no harm; fewer would stop those that compare
