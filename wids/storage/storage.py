"""A shard's URL becomes an opened `Source`: in place where it lies on this machine, else from the disk cache."""

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
from wids.storage.disk_cache import DiskCache
from wids.storage.fetch import MemorySink, fetch
from wids.storage.folder import CacheFolder
from wids.storage.local import is_compressed, look_at, read_ahead
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
"""Open shards of the cache take at most this part of what it may hold, and one in any case: removed ones take room."""
_OPEN_ATTEMPTS = 5
"""A cached file may be removed between being found and being opened; so often in a row is no accident."""


class Storage:
    """Opens shards and reads small objects; touches no disk and no network before it is asked to.

    Safe to use from several threads. Pickles and forks at any moment: connections and file systems belong to the
    process that made them and are made anew in another.

    Args:
        options: How shards are fetched, kept and opened; None for the defaults.
        retry: How often and after which waits a fetch is tried again.
        meter: Counts what is done; None for a new one.
    """

    def __init__(
        self, options: StorageOptions | None = None, *, retry: RetryPolicy | None = None, meter: Meter | None = None
    ) -> None:
        options = options or StorageOptions()
        if options.cache_dir is not None:
            # Absolute at once: the user, or the worker that this is pickled to, may be in another folder later.
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

    @property
    def space(self) -> CacheSpace:
        """What is in the cache folder, and how much may be."""
        return self._cache.space

    @property
    def most_open_bytes(self) -> int | None:
        """Bytes of cached shards that a process should have open, because removed ones take room; None for any."""
        limit = self.options.cache_limit
        return None if limit is None or self.options.keep else limit // _OPEN_SHARE

    def open(self, shard: Mapping[str, Any]) -> Source:
        """Open a shard as a plain tar: fetched if it is elsewhere, unpacked if it is compressed; or by ranges.

        A local shard's `md5sum` (`checksum="md5"`) is compared at its first opening in a process; a fetched one's while
        it arrives, and then no more.

        Args:
            shard: `url`, and `filesize` and `md5sum` of the stored file where they are known.

        Raises:
            FetchError: It cannot be had.
            ShardMismatchError: It is not what `shard` says.
            TarFormatError: Its compressed stream is damaged.
        """
        location, expected, key = self._look_up(shard)
        if key is not None:
            if self._is_copied(location) and self._cache.find(key) is None:
                # Never waits for the copy: that is read from the next opening on.
                self._compare_once(location, expected)
                self.upcoming.copy(shard, self._cache.path(key))
                return self._open_file(location.path, location.name)
            if self.ranges.serve(location, expected) and self._cache.find(key) is None:
                source = self.ranges.open(location, expected)
                if source is not None:
                    return source
            return self._open_cached(location, key, expected)
        self._compare_once(location, expected)
        return self._open_file(location.path, location.name)

    def is_read_in_place(self, shard: Mapping[str, Any]) -> bool:
        """Tell whether a shard is read where it lies, and never from the cache."""
        location = locate(shard["url"])
        if location.kind != "local" or self.options.cache_local:
            return False
        try:
            return not is_compressed(location, look_at(location)[1])
        except FetchError:
            return True  # opening it says why

    def plain_size(self, shard: Mapping[str, Any]) -> int | None:
        """Return how many bytes a shard's plain tar has, as far as that is known without reading it; else None."""
        location = locate(shard["url"])
        if location.kind == "pipe" or compression_of_name(location.path) is not None:
            return None
        if location.kind == "local":
            with suppress(OSError):
                return Path(location.path).stat().st_size
        size: int | None = shard.get("filesize")
        return size

    def open_cached(self, shard: Mapping[str, Any]) -> Source | None:
        """Open the cached copy of a shard; None where there is none, or the shard is read where it lies."""
        location, _, key = self._look_up(shard)
        path = None if key is None else self._cache.find(key)
        return None if path is None else self._open_file(path, location.name, cached=True)

    def remove_cached(self, shard: Mapping[str, Any]) -> None:
        """Remove the cached copy of a shard, so that it is fetched again when it is next opened.

        Raises:
            FetchError: The cache did not write that file, or may not remove it.
        """
        key = self._look_up(shard)[2]
        if key is not None:
            self._cache.remove(key)

    def _look_up(self, shard: Mapping[str, Any]) -> tuple[Location, Expected, CacheKey | None]:
        """Return where a shard lies, what it must be, and what it is called in the cache, None where it is read in place."""
        location = locate(shard["url"])
        expected = Expected.from_shard(shard, self.options.checksum)
        facts = shard
        if location.kind == "local":
            status, head = look_at(location)
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
        """Return the whole content of a small object, a descriptor say.

        Raises:
            FetchError: It cannot be had.
        """
        sink = MemorySink()
        self._fetch(locate(url), sink)
        return bytes(sink.data)

    def list_folder(self, url: str) -> list[str] | None:
        """Return the names of what is in a folder of a store, those of folders with a slash behind.

        Returns:
            In order; None where the URL names no folder, or none that can be listed.

        Raises:
            FetchError: The store cannot be asked.
        """
        location = locate(url)
        if location.kind != "store":
            return None
        store = self._transports.get()["store"]
        names: list[str] | None = retrying(partial(store.list_folder, location), location.name, self._retry)
        return names

    def fetch_ahead(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Have shards fetched by another process, the next one first, in place of those named before; return at once.

        Local ones that are read in place are read ahead by the system.
        """
        if self.options.access == "download":
            self._greeting.say(lambda: describe_first(shards))
            self.upcoming.want(shards)

    def make_ready(self, shard: Mapping[str, Any], *, unless_opened_after: int | None = None) -> int:
        """Have a shard in the disk cache, or being read ahead where it is read in place; return its bytes.

        Args:
            shard: As for `open`.
            unless_opened_after: Nanoseconds since the epoch. A shard that somebody has opened since then is not fetched
                again: who needed it was faster, and it may have gone since.

        Raises:
            WidsError: As for `open`, and where it is not fetched.
        """
        location, expected, key = self._look_up(shard)
        if key is None:
            return read_ahead(location.path)

        def fill(part: PartFile) -> None:
            # Looked at when it is this process's turn, before which others may have fetched it.
            if unless_opened_after is not None and self.space.used_ns(key.id) > unless_opened_after:
                raise FetchError(f"{location.name}: is not fetched, because it was opened already")
            self._fetch_into(location, expected, part)

        return self._cache.obtain(key, fill, os.path.getsize)

    def cached_as(self, shard: Mapping[str, Any]) -> str | None:
        """Return what a shard is called in the cache's bookkeeping; None where it is read where it lies, or is not there."""
        try:
            key = self._look_up(shard)[2]
        except (WidsError, OSError):
            return None  # who opens it says why
        return None if key is None else key.id

    def count_ready(self, shards: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Return how many of these shards are in the disk cache, and how many are read where they lie."""
        in_place = sum(self.is_read_in_place(shard) for shard in shards)
        there = {shard.id for shard in self.space.shards()}
        return sum(self.cached_as(shard) in there for shard in shards), in_place

    def prune(self) -> None:
        """Remove what exceeds the size of the cache, and what dead processes left unfinished.

        Raises:
            FetchError: The folder could hold what somebody else put there.
        """
        self._cache.prune()

    def clear(self) -> None:
        """Remove all that the cache wrote.

        Raises:
            FetchError: The folder could hold what somebody else put there.
        """
        self._cache.clear()

    def _open_cached(self, location: Location, key: CacheKey, expected: Expected) -> Source:
        for _ in range(_OPEN_ATTEMPTS):
            opening = _Opening(
                partial(self._fetch_into, location, expected),
                partial(self._open_file, name=location.name, cached=True),
            )
            started = time.monotonic()
            try:
                with self.meter.doing("wait for another process", shard=location.name):
                    source = self._cache.obtain(key, opening.fill, opening.use)
            except FetchError:
                if opening.path is None or Path(opening.path).exists():
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
        """Tell whether a shard that is named in the cache could be read where it lies too."""
        local = self.options.cache_local and location.kind == "local"
        return local and not is_compressed(location, look_at(location)[1])

    def _compare_once(self, location: Location, expected: Expected) -> None:
        """Compare a local shard's MD5, unless this process has done so for this very file."""
        if expected.md5 is None:
            return
        file = (location.path, Identity.from_stat(look_at(location)[0]))
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


class _Opening:
    """One attempt to open a cached file: what was done, and with which path.

    Args:
        fetch: Brings the content into a file.
        open_file: Opens a file, given its path.
    """

    def __init__(self, fetch: Callable[[PartFile], None], open_file: Callable[[str], Source]) -> None:
        self._fetch = fetch
        self._open_file = open_file
        self.path: str | None = None
        self.fetched = False

    def fill(self, part: PartFile) -> None:
        """Fetch the content."""
        self.fetched = True
        self._fetch(part)

    def use(self, path: str) -> Source:
        """Open the file."""
        self.path = path
        return self._open_file(path)
