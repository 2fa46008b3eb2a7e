"""A shard's URL becomes an opened `Source`: in place where it lies on this machine, else from the disk cache."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError
from wids.source import Identity, MmapSource, PreadSource, Source, digest_source
from wids.storage.checks import Checker, Expected
from wids.storage.compression import HEAD_BYTES, UnpackingSink, compression_of_name, sniff
from wids.storage.disk_cache import DiskCache
from wids.storage.fetch import DigestSink, MemorySink, fetch
from wids.storage.folder import CacheFolder
from wids.storage.locations import Location, LocationKind, locate
from wids.storage.mounts import is_on_network
from wids.storage.names import CacheKey, cache_key
from wids.storage.options import StorageOptions
from wids.storage.process import PerProcess
from wids.storage.retry import RetryPolicy
from wids.storage.transport import LocalFiles, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.storage.part_file import PartFile

_OPEN_ATTEMPTS = 5
"""A cached file may be removed between being found and being opened; so often in a row is no accident."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard, and the object that it is stored as."""

    source: Source
    """The plain tar."""
    size: int
    """Bytes of the object, which may be compressed."""
    md5: str | None
    """Of the object, 32 hexadecimal digits; None where it was not asked for."""


class Storage:
    """Opens shards and reads small objects; touches no disk and no network before it is asked to.

    Safe to use from several threads. Pickles and forks at any moment: connections and file systems belong to the
    process that made them and are made anew in another.

    Args:
        options: How shards are fetched, kept and opened; None for the defaults.
        retry: How often and after which waits a fetch is tried again.
    """

    def __init__(self, options: StorageOptions | None = None, *, retry: RetryPolicy | None = None) -> None:
        options = options or StorageOptions()
        if options.cache_dir is not None:
            # Absolute at once: the user, or the worker that this is pickled to, may be in another folder later.
            options = replace(options, cache_dir=str(Path(options.cache_dir).expanduser().absolute()))
        self.options = options
        self._retry = retry or RetryPolicy()
        self._cache = DiskCache(CacheFolder(options.cache_dir))
        self._transports = PerProcess(self._make_transports)
        self._compared: set[tuple[str, Identity]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Storage, retry=self._retry), (self.options,)

    @property
    def cache_dir(self) -> str:
        """Absolute path of the cache folder; it is made when something is written."""
        return self._cache.folder.path

    def check_cache_folder(self) -> None:
        """Check that the cache folder is safe to read, for those that look for something in it beside shards.

        Raises:
            FetchError: Somebody else could have put files into it.
        """
        self._cache.folder.check()

    def make_cache_folder(self) -> None:
        """Make the cache folder, for those that keep something in it beside shards.

        Raises:
            FetchError: It cannot be made, or the private one is not private.
        """
        self._cache.folder.make()

    def open(self, shard: Mapping[str, Any]) -> Source:
        """Open a shard as a plain tar: fetched if it is elsewhere, unpacked if it is compressed.

        A local shard's `md5sum` (`checksum="md5"`) is compared at its first opening in a process; a fetched one's while
        it arrives, and then no more.

        Args:
            shard: `url`, and `filesize` and `md5sum` of the stored file where they are known.

        Raises:
            FetchError: It cannot be had.
            ShardMismatchError: It is not what `shard` says.
            TarFormatError: Its compressed stream is damaged.
        """
        location = locate(shard["url"])
        expected = Expected.from_shard(shard, self.options.checksum)
        key = self._key(location, shard, expected)
        if key is not None:
            return self._open_cached(location, key, expected)
        self._compare_once(location, expected)
        return self._open_file(location.path, location.name)

    def is_read_in_place(self, shard: Mapping[str, Any]) -> bool:
        """Tell whether a shard is read where it lies, and never from the cache."""
        location = locate(shard["url"])
        if location.kind != "local" or self.options.cache_local:
            return False
        try:
            return not _is_compressed(location, _look_at(location)[1])
        except FetchError:
            return True  # opening it says why

    def open_cached(self, shard: Mapping[str, Any]) -> Source | None:
        """Open the cached copy of a shard; None where there is none, or the shard is read where it lies."""
        location = locate(shard["url"])
        key = self._key(location, shard, Expected.from_shard(shard, self.options.checksum))
        path = None if key is None else self._cache.find(key)
        return None if path is None else self._open_file(path, location.name)

    def remove_cached(self, shard: Mapping[str, Any]) -> None:
        """Remove the cached copy of a shard, so that it is fetched again when it is next opened.

        Raises:
            FetchError: The cache did not write that file, or may not remove it.
        """
        location = locate(shard["url"])
        key = self._key(location, shard, Expected.from_shard(shard, self.options.checksum))
        if key is not None:
            self._cache.remove(key)

    def _key(self, location: Location, shard: Mapping[str, Any], expected: Expected) -> CacheKey | None:
        """Return what a shard is called in the cache; None where it is read where it lies."""
        facts = shard
        if location.kind == "local":
            status, head = _look_at(location)
            expected.check_size(status.st_size, location.name)
            if not self.options.cache_local and not _is_compressed(location, head):
                return None
            facts = {"filesize": status.st_size, "md5sum": expected.md5, "mtime_ns": status.st_mtime_ns}
        return cache_key(
            location,
            facts,
            storage_options=self.options.storage_options or {},
            localname=self.options.localname,
            cache_dir=self.cache_dir,
        )

    def read(self, url: str) -> bytes:
        """Return the whole content of a small object, a descriptor say.

        Raises:
            FetchError: It cannot be had.
        """
        location = locate(url)
        sink = MemorySink()
        fetch(self._transport(location.kind), location, sink, Expected(), self._retry)
        return bytes(sink.data)

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
        if location.kind == "local" and not _is_compressed(location, _look_at(location)[1]):
            source = self._open_file(location.path, location.name)
            yield StoredShard(source, source.identity.size, digest_source(source) if digest else None)
            return
        sinks: list[DigestSink] = []

        def fill(part: PartFile) -> None:
            sinks.append(DigestSink(UnpackingSink(part, location.path, location.name)))
            fetch(self._transport(location.kind), location, sinks[0], Expected(), self._retry)

        with self._cache.passing_file(location.name, fill) as path:
            yield StoredShard(self._open_file(path, location.name), sinks[0].size, sinks[0].md5)

    def _open_cached(self, location: Location, key: CacheKey, expected: Expected) -> Source:
        for _ in range(_OPEN_ATTEMPTS):
            path = self._cache.obtain(key, partial(self._fetch_into, location, expected))
            try:
                return self._open_file(path, location.name)
            except FetchError:
                if Path(path).exists():
                    raise
        raise FetchError(f"{location.name}: its cached file {path} is removed again and again; is cache_dir cleaned?")

    def _fetch_into(self, location: Location, expected: Expected, part: PartFile) -> None:
        sink = UnpackingSink(part, location.path, location.name)
        fetch(self._transport(location.kind), location, sink, expected, self._retry)

    def _compare_once(self, location: Location, expected: Expected) -> None:
        """Compare a local shard's MD5, unless this process has done so for this very file."""
        if expected.md5 is None:
            return
        file = (location.path, Identity.from_stat(_look_at(location)[0]))
        if file in self._compared:
            return
        checker = Checker(expected, location.name)
        with LocalFiles().open(location) as body:
            for chunk in body.chunks:
                checker.update(chunk)
        checker.finish()
        self._compared.add(file)

    def _open_file(self, path: str, name: str) -> Source:
        io = self.options.io
        if io == "pread" or (io == "auto" and is_on_network(path)):
            return PreadSource(path, name)
        return MmapSource(path, name)

    def _transport(self, kind: LocationKind) -> Transport:
        return self._transports.get()[kind]

    def _make_transports(self) -> dict[LocationKind, Transport]:
        # urllib3, fsspec and the like are imported by their first use inside these, not here.
        from wids.storage.command import Commands
        from wids.storage.stores import ObjectStores
        from wids.storage.web import WebServers

        return {
            "local": LocalFiles(),
            "web": WebServers(),
            "store": ObjectStores(self.options.storage_options or {}),
            "pipe": Commands(allowed=self.options.pipe_allowed, scratch_file=self._cache.scratch_file),
        }


def _look_at(location: Location) -> tuple[os.stat_result, bytes]:
    """Return a local file's status and its first bytes."""
    try:
        with open(location.path, "rb", buffering=0) as file:  # noqa: PTH123 - Path changes some paths
            return os.fstat(file.fileno()), file.read(HEAD_BYTES)
    except OSError as error:
        raise FetchError(f"{location.name}: cannot be opened: {error.strerror}; is the path right?") from error


def _is_compressed(location: Location, head: bytes) -> bool:
    return sniff(head) is not None or compression_of_name(location.path) is not None
