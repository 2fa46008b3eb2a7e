"""Samples of existing shards to one new shard; the members' bytes are copied as they are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.errors import WidsError, redact
from wids.shard_cache import ShardCache, default_lru_size
from wids.tar.make_header import HeaderMaker
from wids.tools.check_shard import read_keys
from wids.tools.files import explaining
from wids.tools.finish import describe_existing, finish_shard
from wids.tools.shard_file import ShardFile
from wids.tools.targets import open_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from wids.fields import FieldFilter
    from wids.storage import Storage
    from wids.tar import TarIndex
    from wids.tools.describe import ShardDescription
    from wids.tools.targets import Target


@dataclass(frozen=True, slots=True, eq=False)
class CopyTask:
    """One new shard."""

    name: str
    """File name of the new shard."""
    shards: list[Mapping[str, Any]]
    """Descriptor entries of the shards that hold its samples."""
    places: NDArray[np.int64]
    """`(num_samples,)` int64, number of each sample's shard in `shards`."""
    positions: NDArray[np.int64]
    """`(num_samples,)` int64, of each sample in its shard."""
    num_bytes: int
    """Bytes of the new tar, uncompressed, without its end blocks; compared when it is written."""


@dataclass(frozen=True, slots=True)
class ShardCopier:
    """Writes new shards, each by itself; pickles small."""

    folder: str
    """Path or URL of the new shards' folder, which exists."""
    storage: Storage
    """Opens the shards to read."""
    storage_options: Mapping[str, Any] | None
    """Passed on to fsspec for the new shards."""
    fields: FieldFilter | None
    """Fields to write; None for all."""
    md5: bool
    """Whether to compute the MD5 of each new shard."""

    def __call__(self, task: CopyTask) -> tuple[ShardDescription, bool]:
        """Write one new shard unless it exists; return what is in it, and whether it existed.

        Raises:
            WidsError: A shard cannot be read, or the existing one has other samples.
            OSError: The new shard cannot be written.
        """
        target = open_target(self.folder, self.storage_options)
        cache = ShardCache(task.shards, self.storage, default_lru_size())
        try:
            if not target.exists(task.name):
                # Another run of the same job may write it at the same time; the first one wins.
                with suppress(FileExistsError), explaining(target.url(task.name)):
                    return _write_shard(cache, target, task, self.fields, self.md5), False
            found, index = describe_existing(target, task.name, self.storage_options, md5=self.md5)
            _compare(index, cache, task, self.fields, redact(target.url(task.name)))
            return found, True
        finally:
            cache.close()
            target.close()


def _write_shard(
    cache: ShardCache, target: Target, task: CopyTask, fields: FieldFilter | None, md5: bool
) -> ShardDescription:
    shard = ShardFile(target.make_part(task.name), task.name, HeaderMaker())
    try:
        for members in _read_members(cache, task, fields):
            headers, _ = shard.make_headers(members)
            shard.add(members, headers)
        if shard.num_bytes != task.num_bytes:
            raise WidsError(
                f"{redact(target.url(task.name))}: its samples have changed since they were surveyed; try again"
            )
        shard.finish()
        written = finish_shard(shard, target, index=True, md5=md5)
        assert written is not None, "it was asked for"
        return written
    finally:
        shard.drop()


def _read_members(cache: ShardCache, task: CopyTask, fields: FieldFilter | None) -> Iterator[list[tuple[bytes, Any]]]:
    """Yield the `(name, data)` of each sample of a new shard."""
    for place, position in zip(task.places.tolist(), task.positions.tolist(), strict=True):
        reader = cache.get(place)
        key = reader.key(position)
        views = reader.read(position, memoryview, fields)
        yield [((key + field).encode("utf-8", "surrogateescape"), view) for field, view in views.items()]


def _compare(index: TarIndex, cache: ShardCache, task: CopyTask, fields: FieldFilter | None, name: str) -> None:
    """Compare keys, fields and sizes of an existing shard with what would be written.

    Raises:
        WidsError: They differ.
    """
    keys = list(read_keys(index))
    starts = index.starts.tolist()
    same = len(keys) == len(task.positions)
    for number, members in enumerate(_read_members(cache, task, fields) if same else ()):
        stored = [field.encode("utf-8", "surrogateescape") for field in index.fields_of_kind[index.kinds[number]]]
        names = [keys[number] + field for field in stored]
        found = list(zip(names, index.sizes[starts[number] : starts[number + 1]].tolist(), strict=True))
        if found != [(name, len(data)) for name, data in members]:
            same = False
            break
    if not same:
        raise WidsError(
            f"{name}: already exists, with other samples than this run would write; remove it, or use overwrite"
        )
