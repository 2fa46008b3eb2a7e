"""Shards to a descriptor: how many samples each has, its size and its checksum; and to a pack of their indexes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from wids.descriptor import load_descriptor
from wids.errors import DescriptorError, WidsError, redact
from wids.index_files import SUFFIX, pack_index, write_pack
from wids.storage import Storage
from wids.tar import add_checksums, build_index
from wids.tools.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """What is found in one shard."""

    num_samples: int
    """Samples in it."""
    size: int
    """Bytes of the object as it is stored; of a compressed one, of the compressed file."""
    md5: str
    """Of the same bytes, 32 hexadecimal digits."""
    packed: tuple[str, bytes] | None = None
    """What a pack holds of it, where that was asked for."""


def create_index(
    shards: Any,
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    base: str | None = None,
    info: str | None = None,
    index: bool = False,
    checksums: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    storage: Storage | None = None,
) -> dict[str, Any]:
    """Write the descriptor of shards, in their order, and return what it says.

    Args:
        shards: What `ShardListDataset` takes: a folder, a pattern, a list of paths or URLs, …
        output: Path of the descriptor; it appears only whole. Shards under its folder are named relative to it.
        name: Of the dataset; None for what its shards' names share.
        base: What the URLs will be resolved against; shards are then named by the last part of theirs.
        info: A description in words.
        index: Also write `OUTPUT.widx` beside it, the pack of the shards' indexes, and name it in the descriptor.
        checksums: Put a checksum of each member into the pack, for `verify_members=True`.
        executor: Runs the work on the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        storage: Opens shards; None for one with the defaults.

    Raises:
        DescriptorError: No shards were named.
        WidsError: Shards cannot be read. The descriptor of the others was written; the message lists those left out.
    """
    storage = storage or Storage()
    path = Path(output)
    listed = load_descriptor(shards, fetch=storage.read).shards
    if not listed:
        raise DescriptorError("no shards were named; give files, patterns or folders")
    found, errors = _describe_all(
        listed, partial(_try_describe, storage, index or checksums, checksums), executor, progress
    )
    content: dict[str, Any] = {"__kind__": "wids-shard-index-v1", "wids_version": 1}
    content["name"] = _default_name(str(listed[0]["url"])) if name is None else name
    content |= {key: value for key, value in (("base", base), ("info", info)) if value is not None}
    if not found:
        raise WidsError(f"{path}: not written, none of {len(listed)} shards can be read: {'; '.join(errors)}")
    if index or checksums:
        pack = path.with_suffix(SUFFIX)
        entries = [(url, *shard.packed) for url, shard in found if shard.packed is not None]
        write_pack(pack, str(pack.absolute()), entries)
        content["index"] = pack.name
    content["shardlist"] = [
        {
            "url": _name_shard(url, path.parent.absolute(), base),
            "nsamples": shard.num_samples,
            "filesize": shard.size,
            "md5sum": shard.md5,
        }
        for url, shard in found
    ]
    write_json(path, content)
    if errors:
        raise WidsError(f"{path}: {len(errors)} of {len(listed)} shards were left out: {'; '.join(errors)}")
    return content


def describe_shard(
    shard: Mapping[str, Any], storage: Storage, *, index: bool = False, checksums: bool = False
) -> ShardDescription:
    """Return what is in a shard.

    Args:
        shard: With its `url`.
        storage: Opens it.
        index: Also what a pack holds of it.
        checksums: With the checksum of each member.

    Raises:
        WidsError: It cannot be read.
    """
    source = storage.open({"url": shard["url"]})
    # What a descriptor compares is the object as it is stored, and not what it was unpacked to.
    size, md5 = storage.measure(str(shard["url"]))
    columns = build_index(source)
    if checksums:
        add_checksums(columns, source)
    packed = pack_index(source, columns) if index else None
    return ShardDescription(columns.num_samples, size, md5, packed)


def _describe_all(
    shards: Sequence[Mapping[str, Any]], describe: Any, executor: Executor | None, progress: bool
) -> tuple[list[tuple[str, ShardDescription]], list[str]]:
    """Return URL and description of the shards that can be read, and what is wrong with the others."""
    results: Iterator[ShardDescription | str] = (map if executor is None else executor.map)(describe, shards)
    bar = tqdm(results, "indexing", len(shards), unit="shard", delay=1, disable=None if progress else True)
    found: list[tuple[str, ShardDescription]] = []
    errors = []
    for shard, result in zip(shards, bar, strict=True):
        if isinstance(result, str):
            errors.append(result)
        else:
            found.append((str(shard["url"]), result))
    return found, errors


def _try_describe(storage: Storage, index: bool, checksums: bool, shard: Mapping[str, Any]) -> ShardDescription | str:
    try:
        return describe_shard(shard, storage, index=index, checksums=checksums)
    except (WidsError, OSError) as error:
        return str(error)


def _name_shard(url: str, folder: Path, base: str | None) -> str:
    if "://" in url or url.startswith("pipe:"):
        return url
    if base is not None:
        return Path(url).name
    path = Path(os.path.abspath(url))  # noqa: PTH100  # resolve() would follow links, which may be how shards are arranged
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _default_name(url: str) -> str:
    """Return what the shards of a dataset usually share: the file's name without number and extension.

    Examples:
        >>> _default_name("/data/train-000012.tar.gz"), _default_name("https://x.org/0007.tar?sig=1")
        ('train', '0007')
    """
    stem = redact(url).partition("?")[0].rpartition("/")[2].partition(".")[0]
    return stem.rstrip("0123456789").rstrip("-_") or stem
