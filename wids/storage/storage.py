"""A shard's URL to an open `Source`: read in place, from the disk cache, or by ranges."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError, WidsError
from wids.source import Identity, MmapSource, PreadSource, Source
from wids.storage.checks import Checker, Expected
from wids.storage.compression import UnpackingSink, compression_of_name
from wids.storage.disk_cache import DiskCache, Opening
from wids.storage.fetch import MemorySink, fetch
from wids.storage.folder import CacheFolder
from wids.storage.local import is_compressed, read_ahead, read_head
from wids.storage.locations import Location, LocationKind, locate
from wids.storage.meter import Meter
from wids.storage.mounts import is_on_network
from wids.storage.names import CacheKey, cache_key
from wids.storage.options import StorageOptions
from wids.storage.process import PerProcess
from wids.storage.progress import SayOnce, describe_first
from wids.storage.range_reads import RangeReads
from wids.storage.retry import RetryPolicy, retrying
from wids.storage.space import CacheSpace
from wids.storage.stored import StoredShards
from wids.storage.transport import LocalFiles
from wids.storage.upcoming import Upcoming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wids.storage.compression import Sink
    from wids.storage.part_file import PartFile

_log = logging.getLogger(__name__)

_OPEN_SHARE = 4
"""Open shards take at most 1/4 of the cache's limit, or are a single one: a removed file takes space until it is closed."""
_OPEN_ATTEMPTS = 5
"""Attempts to open a cached file, which another process may remove after it was found; hardly this often in a row."""


class Storage:
    """Opens shards and reads small objects; the constructor touches neither disk nor network.

    Safe to use from several threads. Can be pickled and forked at any time: each process makes its own connections and
    file systems.

    Args:
        options: How shards are fetched, cached and opened; None for the defaults.
        retry: How often a fetch is attempted, and after which waits; None for the defaults.
        meter: Counts fetches, retries and the like; None for a new one.
    """

    def __init__(
        self, options: StorageOptions | None = None, *, retry: RetryPolicy | None = None, meter: Meter | None = None
    ) -> None:
        options = options or StorageOptions()
        if options.cache_dir is not None:
            # Made absolute now, because the current folder may change, and may be another one in a worker.
            options = replace(options, cache_dir=str(Path(options.cache_dir).expanduser().absolute()))
        self.options = options
        self._retry = retry or RetryPolicy()
        self.meter = meter or Meter()
        folder = CacheFolder(options.cache_dir)
        self._cache = DiskCache(folder, CacheSpace(folder, options.cache_limit, keep=options.keep))
        self._transports = PerProcess(self._make_transports)
        self.ranges = RangeReads(
            options.access, lambda location: self._transports.get()[location.kind], self._retry, self.meter
        )
        self.stored = StoredShards(self._cache, self.ranges, self._fetch, self._open_file)
        self.upcoming = Upcoming(self)
        self._greeting = SayOnce()
        self._compared: set[tuple[str, Identity]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Storage, retry=self._retry, meter=self.meter), (self.options,)

    @property
    def cache_dir(self) -> str:
        """Absolute path of the cache folder; it is created when something is written."""
        return self._cache.folder.path

    def check_cache_folder(self) -> None:
        """Check that the cache folder is safe to read; for callers that read other files than shards from it.

        Raises:
            FetchError: Other users could have put files into the folder.
        """
        self._cache.folder.check()

    def make_cache_folder(self) -> None:
        """Create the cache folder; for callers that keep other files than shards in it.

        Raises:
            FetchError: The folder cannot be created, or is the private one and open to other users.
        """
        self._cache.folder.make()

    @property
    def space(self) -> CacheSpace:
        """The accounting of the cache folder: what is in it, and its limit."""
        return self._cache.space

    @property
    def most_open_bytes(self) -> int | None:
        """Most bytes of cached shards that a process should keep open; None for no limit."""
        limit = self.options.cache_limit
        return None if limit is None or self.options.keep else limit // _OPEN_SHARE

    def open(self, shard: Mapping[str, Any]) -> Source:
        """Open a shard as a plain tar: a remote shard is fetched or read by ranges, a compressed one is unpacked.

        With `checksum="md5"`, the `md5sum` of a local shard is compared when a process opens it for the first time, and that
        of a fetched shard once, while it is downloaded.

        Args:
            shard: The shard's entry in the descriptor: `url`; optionally `filesize` and `md5sum` of the stored file.

        Raises:
            FetchError: The shard cannot be opened or fetched.
            ShardMismatchError: Size or MD5 differ from what `shard` says.
            TarFormatError: The compressed stream is damaged.
        """
        location, expected, key = self._look_up(shard)
        if key is not None:
            if self._is_copied(location) and self._cache.find(key) is None:
                # Opened in place, without waiting for the copy; the next opening uses the copy.
                self._compare_once(location, expected)
                self.upcoming.copy(shard, self._cache.path(key))
                return self._open_file(location.path, location.name)
            if self.ranges.applies_to(location, expected) and self._cache.find(key) is None:
                source = self.ranges.open(location, expected)
                if source is not None:
                    return source
            return self._open_cached(location, key, expected)
        self._compare_once(location, expected)
        return self._open_file(location.path, location.name)

    def is_read_in_place(self, shard: Mapping[str, Any]) -> bool:
        """Return whether a shard is read in place, and never from the cache."""
        location = locate(shard["url"])
        if location.kind != "local" or self.options.cache_local:
            return False
        try:
            return not is_compressed(location, read_head(location)[1])
        except FetchError:
            return True  # the same error is raised when the shard is opened

    def is_at_hand(self, shard: Mapping[str, Any]) -> bool:
        """Return whether a shard can be opened without being fetched or copied: it is read in place, or is in the cache.

        Raises:
            FetchError: It is a local shard that is not there, or the cache folder cannot be used.
            ShardMismatchError: It is a local shard of another size than `shard` says.
        """
        key = self._look_up(shard)[2]
        return key is None or self._cache.find(key) is not None

    def plain_size(self, shard: Mapping[str, Any]) -> int | None:
        """Return the size of a shard's plain tar in bytes; None when it is not known without reading the shard."""
        location = locate(shard["url"])
        if location.kind == "pipe" or compression_of_name(location.path) is not None:
            return None
        if location.kind == "local":
            with suppress(OSError):
                return Path(location.path).stat().st_size
        size: int | None = shard.get("filesize")
        return size

    def open_cached(self, shard: Mapping[str, Any]) -> Source | None:
        """Open the cached copy of a shard; None when there is none, or the shard is read in place."""
        location, _, key = self._look_up(shard)
        path = None if key is None else self._cache.find(key)
        return None if path is None else self._open_file(path, location.name, cached=True)

    def remove_cached(self, shard: Mapping[str, Any]) -> None:
        """Remove the cached copy of a shard, so that it is fetched again when it is next opened.

        Raises:
            FetchError: The cache did not write the file, or cannot remove it.
        """
        key = self._look_up(shard)[2]
        if key is not None:
            self._cache.remove(key)

    def _look_up(self, shard: Mapping[str, Any]) -> tuple[Location, Expected, CacheKey | None]:
        """Return a shard's location, its expected size and MD5, and its cache key; the key is None if it is read in place."""
        location = locate(shard["url"])
        expected = Expected.from_shard(shard, self.options.checksum)
        facts = shard
        if location.kind == "local":
            status, head = read_head(location)
            expected.check_size(status.st_size, location.name)
            if not self.options.cache_local and not is_compressed(location, head):
                return location, expected, None
            facts = {"filesize": status.st_size, "md5sum": expected.md5, "mtime_ns": status.st_mtime_ns}
        key = cache_key(
            location,
            facts,
            storage_options=self.options.storage_options or {},
            localname=self.options.localname,
            cache_dir=self.cache_dir,
        )
        return location, expected, key

    def read(self, url: str) -> bytes:
        """Return the content of a small object, such as a descriptor.

        Raises:
            FetchError: The object cannot be read.
        """
        sink = MemorySink()
        self._fetch(locate(url), sink)
        return bytes(sink.data)

    def list_folder(self, url: str) -> list[str] | None:
        """Return the sorted names in a store's folder, those of folders with a slash at the end; None if it cannot be listed.

        Raises:
            FetchError: The store cannot be reached.
        """
        location = locate(url)
        if location.kind != "store":
            return None
        store = self._transports.get()["store"]
        names: list[str] | None = retrying(partial(store.list_folder, location), location.name, self._retry)
        return names

    def fetch_ahead(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Fetch shards in another process, the next one first; return at once.

        This replaces the shards of an earlier call. Local shards that are read in place are read into the page cache.
        """
        if self.options.access == "download":
            self._greeting.say(lambda: describe_first(shards))
            self.upcoming.want(shards)

    def make_ready(self, shard: Mapping[str, Any], *, unless_opened_after: int | None = None) -> int:
        """Fetch a shard into the disk cache, or have the system read it ahead if it is read in place.

        Args:
            shard: As for `open`.
            unless_opened_after: Nanoseconds since the epoch. A shard that was opened after this time is not fetched: the
                process that needed it has fetched it, and it may have been removed since.

        Returns:
            Size of the plain tar in bytes.

        Raises:
            WidsError: As for `open`; also when the shard is not fetched because of `unless_opened_after`.
        """
        location, expected, key = self._look_up(shard)
        if key is None:
            return read_ahead(location.path)

        def fill(part: PartFile) -> None:
            # Checked only now, because other processes may have fetched the shard while this one waited for its turn.
            if unless_opened_after is not None and self.space.used_ns(key.id) > unless_opened_after:
                raise FetchError(f"{location.name}: is not fetched, because it was opened already")
            self._fetch_into(location, expected, part)

        return self._cache.obtain(key, fill, os.path.getsize)

    def cached_as(self, shard: Mapping[str, Any]) -> str | None:
        """Return the id of a shard in the cache's bookkeeping; None when it is read in place, or cannot be opened."""
        try:
            key = self._look_up(shard)[2]
        except (WidsError, OSError):
            return None  # the same error is raised when the shard is opened
        return None if key is None else key.id

    def count_ready(self, shards: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Return how many of these shards are in the disk cache, and how many are read in place."""
        in_place = sum(self.is_read_in_place(shard) for shard in shards)
        there = {shard.id for shard in self.space.shards()}
        return sum(self.cached_as(shard) in there for shard in shards), in_place

    def prune(self) -> None:
        """Remove shards that exceed the cache's limit, and unfinished files of dead processes.

        Raises:
            FetchError: Other users could have put files into the folder.
        """
        self._cache.prune()

    def clear(self) -> None:
        """Remove everything that the cache has written.

        Raises:
            FetchError: Other users could have put files into the folder.
        """
        self._cache.clear()

    def _open_cached(self, location: Location, key: CacheKey, expected: Expected) -> Source:
        for _ in range(_OPEN_ATTEMPTS):
            opening = Opening(
                partial(self._fetch_into, location, expected),
                partial(self._open_file, name=location.name, cached=True),
            )
            started = time.monotonic()
            try:
                with self.meter.doing("wait for another process", shard=location.name):
                    source = self._cache.obtain(key, opening.fill, opening.use)
            except FetchError as error:
                # By the error and not by a look at the path, where another process may have put the file again by now.
                if opening.path is None or not isinstance(error.__cause__, FileNotFoundError):
                    raise
                continue
            finally:
                self.meter.add("seconds_waited", time.monotonic() - started)
            if not opening.fetched:
                self.meter.add("cache_hits")
            self._cache.note_use(key)
            return source
        raise FetchError(
            f"{location.name}: its cached file {opening.path} is removed again and again; is cache_dir cleaned?"
        )

    def _fetch_into(self, location: Location, expected: Expected, part: PartFile) -> None:
        self._greeting.say(lambda: f"fetching shards into {self.cache_dir}")
        sink = UnpackingSink(part, location.path, location.name)
        with self.meter.doing("fetch", shard=location.name):
            size = self._fetch(location, sink, expected, partial(self.meter.add, "retries"))
        self.meter.add("bytes_fetched", size)
        self.meter.add("fetches")

    def _is_copied(self, location: Location) -> bool:
        """Return whether a shard is a plain local one that is copied into the cache, and can be read in place until then."""
        local = self.options.cache_local and location.kind == "local"
        return local and not is_compressed(location, read_head(location)[1])

    def _compare_once(self, location: Location, expected: Expected) -> None:
        """Compare a local shard's MD5, unless this process has already done so for this state of the file."""
        if expected.md5 is None:
            return
        file = (location.path, Identity.from_stat(read_head(location)[0]))
        if file in self._compared:
            return
        checker = Checker(expected, location.name)
        with LocalFiles().open(location) as body:
            for chunk in body.chunks:
                checker.update(chunk)
        checker.finish()
        self._compared.add(file)

    def _open_file(self, path: str, name: str, *, cached: bool = False) -> Source:
        io = self.options.io
        if io == "pread" or (io == "auto" and is_on_network(path)):
            return PreadSource(path, name, cached=cached)
        source = MmapSource(path, name, cached=cached)
        self.meter.add("bytes_mapped", source.identity.size)
        return source

    def _fetch(
        self,
        location: Location,
        sink: Sink,
        expected: Expected | None = None,
        note_retry: Callable[[], object] | None = None,
    ) -> int:
        transport = self._transports.get()[location.kind]
        return fetch(transport, location, sink, expected or Expected(), self._retry, note_retry)

    def _make_transports(self) -> dict[LocationKind, Any]:
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
