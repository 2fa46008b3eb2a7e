"""Shards as they are stored now, whatever the disk cache has; for tools that describe or verify them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wids.errors import WidsError
from wids.source import Identity, Source, digest_source
from wids.storage.compression import HEAD_BYTES, UnpackingSink, sniff
from wids.storage.fetch import DigestSink
from wids.storage.local import is_compressed, read_head
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
    """A shard, and the stored object that it is read from."""

    source: Source
    """The plain tar."""
    size: int
    """Bytes of the stored object, which may be compressed."""
    identity: Identity | None
    """Identity of the stored object; None when its store does not provide enough to notice a change."""
    digest: Callable[[], str] | None
    """Returns the MD5 of the stored object; None when it was not asked for."""

    @property
    def md5(self) -> str | None:
        """MD5 of the stored object, 32 hexadecimal digits; None when it was not asked for."""
        return None if self.digest is None else self.digest()


class StoredShards:
    """Opens shards as they are stored now.

    Args:
        cache: Disk cache in whose folder an object that is fetched whole is kept while it is in use.
        ranges: Reads parts of remote objects.
        fetch: Fetches an object into a sink; returns its size.
        open_file: Opens a file, given its path and its name for messages.
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
        """Open a shard as it is stored now, for the duration of a `with` block.

        The disk cache is not consulted, and a file that is fetched is removed at the end of the block.

        Args:
            url: URL of the shard.
            digest: Also compute the MD5 of the stored object.

        Raises:
            FetchError: The shard cannot be opened or fetched.
            TarFormatError: The compressed stream is damaged.
        """
        location = locate(url)
        if location.kind == "local" and not is_compressed(location, read_head(location)[1]):
            source = self._open(location.path, location.name)
            # Computed first, so that the pages are read from a disk in order.
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
        """Open a shard as it is stored now, for a `with` block that reads it from front to back.

        A remote shard is read by ranges without being stored; without `digest`, little more than its headers is read. Only
        when it is compressed, or its server does not send ranges, is it on the disk until the block ends.

        Args:
            url: URL of the shard.
            digest: Also compute the MD5 of the stored object; to be asked for after the block has read what it needs.

        Raises:
            FetchError: The shard cannot be opened or fetched.
            TarFormatError: The compressed stream is damaged.
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
        """Return the identity of an object's present state; None when its store does not provide one, or it is not there."""
        location = locate(url)
        try:
            if location.kind == "local":
                return Identity.from_stat(os.stat(location.path))  # noqa: PTH116 - Path changes some paths
            if location.kind == "pipe":
                return None
            piece = self._ranges.read(location, 0, HEAD_BYTES)
        except (WidsError, OSError):
            return None  # the same error is raised when the object is opened
        return None if piece.tag is None else Identity(piece.size, etag=piece.tag)
