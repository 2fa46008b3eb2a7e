"""Shards as they are stored now, whatever the disk cache has of them: for those that describe and check them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wids.errors import WidsError
from wids.source import Identity, Source, digest_source
from wids.storage.compression import HEAD_BYTES, UnpackingSink, sniff
from wids.storage.fetch import DigestSink
from wids.storage.local import is_compressed, look_at
from wids.storage.locations import locate
from wids.storage.ranges import ReadAhead, ReadThrough

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.storage.compression import Sink
    from wids.storage.disk_cache import DiskCache
    from wids.storage.locations import Location
    from wids.storage.part_file import PartFile
    from wids.storage.range_reads import RangeReads


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard, and the object that it is stored as."""

    source: Source
    """The plain tar."""
    size: int
    """Bytes of the object, which may be compressed."""
    identity: Identity | None
    """Of the object; None where its store does not tell one state of it from another."""
    digest: Callable[[], str] | None
    """Returns the MD5 of the object; None where it was not asked for."""

    @property
    def md5(self) -> str | None:
        """Of the object, 32 hexadecimal digits; None where it was not asked for."""
        return None if self.digest is None else self.digest()


class StoredShards:
    """Gives shards as they are stored now.

    Args:
        cache: What is fetched whole lies in its folder until it was looked at.
        ranges: Reads parts of remote objects.
        fetch: Brings an object into a sink.
        open_file: Opens a file, given its path and what messages call it.
    """

    def __init__(
        self,
        cache: DiskCache,
        ranges: RangeReads,
        fetch: Callable[[Location, Sink], int],
        open_file: Callable[[str, str], Source],
    ) -> None:
        self._cache = cache
        self._ranges = ranges
        self._fetch = fetch
        self._open = open_file

    @contextmanager
    def inspect(self, url: str, *, digest: bool = True) -> Iterator[StoredShard]:
        """Give a shard as it is stored now, for a block; nothing is kept of it, and no cached copy is taken for it.

        Args:
            url: Of the shard.
            digest: Also the MD5 of the stored object.

        Raises:
            FetchError: It cannot be had.
            TarFormatError: Its compressed stream is damaged.
        """
        location = locate(url)
        if location.kind == "local" and not is_compressed(location, look_at(location)[1]):
            source = self._open(location.path, location.name)
            # At once, so that the pages come in order from a disk.
            md5 = digest_source(source) if digest else None
            yield StoredShard(source, source.identity.size, source.identity, None if md5 is None else lambda: md5)
            return
        identity = self.identify(url) if location.kind == "local" else None
        sinks: list[DigestSink] = []

        def fill(part: PartFile) -> None:
            sinks.append(DigestSink(UnpackingSink(part, location.path, location.name)))
            self._fetch(location, sinks[0])

        with self._cache.passing_file(location.name, fill) as path:
            source = self._open(path, location.name)
            yield StoredShard(source, sinks[0].size, identity, (lambda: sinks[0].md5) if digest else None)

    @contextmanager
    def read_through(self, url: str, *, digest: bool = True) -> Iterator[StoredShard]:
        """Give a shard as it is stored now, for a block that reads it from front to back.

        Of a remote one nothing is stored, and without `digest` no more is read than the headers need. Only what is
        compressed, or comes from a server that sends no parts, is on the disk until the block ends.

        Args:
            url: Of the shard.
            digest: Also the MD5 of the stored object; it is had once the block has read what it needs.

        Raises:
            FetchError: It cannot be had.
            TarFormatError: Its compressed stream is damaged.
        """
        location = locate(url)
        source = None if location.kind in {"local", "pipe"} else self._ranges.try_open(location)
        if source is None:
            with self.inspect(url, digest=digest) as stored:
                yield stored
            return
        identity = source.identity if source.identity.etag is not None else None
        try:
            if sniff(bytes(source.window(0, HEAD_BYTES)[0])) is not None:
                with self.inspect(url, digest=digest) as stored:
                    yield replace(stored, identity=identity)
            elif digest:
                through = ReadThrough(source)
                yield StoredShard(through, source.identity.size, identity, through.md5)
            else:
                yield StoredShard(ReadAhead(source), source.identity.size, identity, None)
        finally:
            source.release()

    def identify(self, url: str) -> Identity | None:
        """Return what tells the present state of an object from others; None where its store does not say, or it is not there."""
        location = locate(url)
        try:
            if location.kind == "local":
                return Identity.from_stat(os.stat(location.path))  # noqa: PTH116 - Path changes some paths
            if location.kind == "pipe":
                return None
            piece = self._ranges.read(location, 0, HEAD_BYTES)
        except (WidsError, OSError):
            return None  # who opens it says why
        return None if piece.tag is None else Identity(piece.size, etag=piece.tag)
