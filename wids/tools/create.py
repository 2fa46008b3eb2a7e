"""Shards to a descriptor: how many samples each has, its size and its checksum; and to a pack of their indexes."""

from __future__ import annotations

import logging
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
from wids.tools.files import check_place, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """What is found in one shard."""

    num_samples: int
    """Samples in it."""
    size: int
    """Bytes of the object as it is stored; of a compressed one, of the compressed file."""
    md5: str
    """Of the same bytes, 32 hexadecimal digits."""
    notes: list[str]
    """What is odd about how the archive ends, one sentence each."""
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
        index: Also write the pack of the shards' indexes beside it, named alike with `.widx`, and name it in the descriptor.
        checksums: Put a checksum of each member into the pack, for `verify_members=True`; implies `index`.
        executor: Runs the work on the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        storage: Opens shards; None for one with the defaults.

    Raises:
        DescriptorError: No shards were named, or the descriptor could not name them.
        OSError: The descriptor cannot be written.
        WidsError: Shards cannot be read. The descriptor of the others was written; the message lists those left out.

    Examples:
        >>> content = create_index(["shard-0000.tar", "shard-0001.tar"], "both.json")
        >>> content["name"], [(shard["url"], shard["nsamples"]) for shard in content["shardlist"]]
        ('shard', [('shard-0000.tar', 50), ('shard-0001.tar', 50)])
    """
    storage = storage or Storage()
    path = Path(output)
    check_place(path)
    listed = load_descriptor(shards, fetch=storage.read).shards
    if not listed:
        raise DescriptorError("no shards were named; give files, patterns or folders")
    names = _name_shards([str(shard["url"]) for shard in listed], path.parent.absolute(), base)
    content: dict[str, Any] = {"__kind__": "wids-shard-index-v1", "wids_version": 1}
    content["name"] = _default_name(str(listed[0]["url"])) if name is None else name
    content |= {key: value for key, value in (("base", base), ("info", info)) if value is not None}
    describe = partial(_try_describe, storage, index or checksums, checksums)
    found, errors = _describe_all(names, listed, describe, executor, progress)
    if not found:
        raise WidsError(f"{path}: not written, none of {len(listed)} shards can be read: {'; '.join(errors)}")
    if index or checksums:
        pack = path.with_suffix(SUFFIX)
        # Pack and shards are named alike, from where the descriptor's names begin.
        write_pack(pack, pack.name, [(url, *shard.packed) for url, shard in found if shard.packed is not None])
        content["index"] = pack.name
    content["shardlist"] = [
        {"url": url, "nsamples": shard.num_samples, "filesize": shard.size, "md5sum": shard.md5} for url, shard in found
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
    with storage.inspect(str(shard["url"])) as stored:
        columns = build_index(stored.source)
        if checksums:
            add_checksums(columns, stored.source)
        packed = pack_index(stored.source, columns) if index else None
        return ShardDescription(columns.num_samples, stored.size, str(stored.md5), columns.notes, packed)


def _describe_all(
    names: Sequence[str], shards: Sequence[Mapping[str, Any]], describe: Any, executor: Executor | None, progress: bool
) -> tuple[list[tuple[str, ShardDescription]], list[str]]:
    """Return name and description of the shards that can be read, and what is wrong with the others."""
    results: Iterator[ShardDescription | str] = (map if executor is None else executor.map)(describe, shards)
    bar = tqdm(results, "indexing", len(shards), unit="shard", delay=1, disable=None if progress else True)
    found: list[tuple[str, ShardDescription]] = []
    errors = []
    for name, result in zip(names, bar, strict=True):
        if isinstance(result, str):
            errors.append(result)
        else:
            # Said here and not where the shard is read, which may be a process whose log nobody sees.
            for note in result.notes:
                _log.warning("%s: %s", redact(name), note)
            found.append((name, result))
    return found, errors


def _try_describe(storage: Storage, index: bool, checksums: bool, shard: Mapping[str, Any]) -> ShardDescription | str:
    try:
        return describe_shard(shard, storage, index=index, checksums=checksums)
    except (WidsError, OSError) as error:
        return str(error)


def _name_shards(urls: Sequence[str], folder: Path, base: str | None) -> list[str]:
    """Return what a descriptor in `folder` calls shards.

    Raises:
        DescriptorError: It cannot name them, or would name two alike.
    """
    named: dict[str, str] = {}
    names = [_name_shard(url, folder, base) for url in urls]
    for name, url in zip(names, urls, strict=True):
        if not _is_utf8(name):
            raise DescriptorError(f"{url}: this name is not UTF-8, and JSON cannot hold it; rename the shard")
        if named.setdefault(name, url) != url and base is not None:
            raise DescriptorError(
                f"{redact(named[name])} and {redact(url)} would both be {name} under the base {redact(base)}; "
                "rename one, or give no base"
            )
    return names


def _name_shard(url: str, folder: Path, base: str | None) -> str:
    if "://" in url or url.startswith(("pipe:", "file:")):
        return url
    if base is not None:
        return Path(url).name
    # resolve() would follow links, which may be how shards are arranged.
    path = Path(os.path.abspath(os.path.expanduser(url)))  # noqa: PTH100, PTH111
    if not path.is_relative_to(folder):
        return str(path)
    name = str(path.relative_to(folder))
    return f"./{name}" if name.startswith("~") else name


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _default_name(url: str) -> str:
    """Return what the shards of a dataset usually share: the file's name without number and extension.

    Examples:
        >>> _default_name("/data/train-000012.tar.gz"), _default_name("https://x.org/0007.tar?sig=1")
        ('train', '0007')
    """
    stem = redact(url).partition("?")[0].rpartition("/")[2].partition(".")[0]
    return stem.rstrip("0123456789").rstrip("-_") or stem
