"""Shards to a descriptor: how many samples each has, its size and its checksum."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.tar import build_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wids.storage import Storage

_PIECE = 4 << 20


def create_descriptor(
    shards: Iterable[Mapping[str, Any]],
    storage: Storage,
    *,
    folder: Path,
    name: str | None = None,
    base: str | None = None,
    info: str | None = None,
) -> dict[str, Any]:
    """Return the version 1 descriptor of these shards, in their order.

    Args:
        shards: Each with its `url`, as `wids.descriptor.load_descriptor` gives them.
        storage: Opens them.
        folder: Where the descriptor will lie; shards under it are named relative to it.
        name: Of the dataset.
        base: What the URLs will be resolved against; shards are then named by what follows their own folder.
        info: A description in words.

    Raises:
        WidsError: A shard cannot be read.
    """
    content: dict[str, Any] = {"__kind__": "wids-shard-index-v1", "wids_version": 1}
    if name is not None:
        content["name"] = name
    if base is not None:
        content["base"] = base
    if info is not None:
        content["info"] = info
    content["shardlist"] = [
        {"url": _name_shard(str(shard["url"]), folder, base), **describe_shard(shard, storage)} for shard in shards
    ]
    return content


def describe_shard(shard: Mapping[str, Any], storage: Storage) -> dict[str, Any]:
    """Return `nsamples`, `filesize` (bytes) and `md5sum` of a shard.

    Raises:
        WidsError: It cannot be read.
    """
    source = storage.open({"url": shard["url"]})
    digest = hashlib.md5(usedforsecurity=False)
    for start in range(0, source.identity.size, _PIECE):
        stop = min(start + _PIECE, source.identity.size)
        view, base = source.window(start, stop)
        digest.update(view[start - base : stop - base])
    return {
        "nsamples": build_index(source).num_samples,
        "filesize": source.identity.size,
        "md5sum": digest.hexdigest(),
    }


def _name_shard(url: str, folder: Path, base: str | None) -> str:
    if "://" in url or url.startswith("pipe:"):
        return url
    if base is not None:
        return Path(url).name
    path = Path(os.path.abspath(url))  # noqa: PTH100  # resolve() would follow links, which may be how shards are arranged
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
