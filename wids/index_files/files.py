"""A shard to its index: from a pack, the cache folder, or another tool's table, else by scanning its headers."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from wids.closing import threads
from wids.errors import FetchError, redact
from wids.index_files.cache import IndexCache
from wids.index_files.pack import IndexPack
from wids.storage import ReadAhead
from wids.tar import build_index, parse_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from wids.source import Source
    from wids.storage import Storage
    from wids.tar import TarIndex

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TRY_AGAIN_AFTER_S = 300.0
"""Seconds before a pack that could not be fetched is tried again, so that not every shard asks for it."""


class IndexFiles:
    """Finds the stored index of a shard, or builds and stores it.

    Safe to use from several threads and after a fork; pickles without its open packs.

    Args:
        storage: Opens packs; its cache folder holds the indexes of shards without a pack.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._cache = IndexCache(storage)
        self._packs: dict[str, IndexPack | None] = {}
        self._fetched_again: set[str] = set()
        self._misfits: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._locks: dict[tuple[int, str], threading.RLock] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexFiles, (self._storage,)

    def obtain(self, source: Source, shard: Mapping[str, Any]) -> TarIndex:
        """Return a shard's index.

        Args:
            source: The opened shard.
            shard: The shard's entry in the descriptor: `url`; optionally `index`, the URL of a pack, and `offsets`, the URL
                of a table in DALI's format.

        Raises:
            TarFormatError: The shard is damaged, or not a tar archive.
            OSError: The shard cannot be read.
        """
        packed = self._find_packed(shard, source)
        if packed is not None:
            return packed
        return self._cache.find(source) or self._from_offsets(shard, source) or self.rebuild(source)

    def recall(self, shard: Mapping[str, Any]) -> TarIndex | None:
        """Return a shard's index from its pack without opening the shard; None when the pack has none that can fit.

        One that can has the shard's name, the size of a local shard or of the descriptor's `filesize`, and at least `nsamples`
        samples. It does not fit a shard of which the pack proved to have no index when the shard was opened.

        Args:
            shard: The shard's entry in the descriptor.
        """
        if shard["url"] in self._misfits:
            return None
        index = self._look_up(shard, lambda pack: pack.recall(str(shard["url"]), self._storage.plain_size(shard)))[1]
        return None if index is None or index.num_samples < (shard.get("nsamples") or 0) else index

    def forget(self, shard: Mapping[str, Any]) -> None:
        """Let the index that `recall` returned leave this process's memory; it stays valid, and is read again when used."""
        pack = self._packs.get(shard["index"]) if shard.get("index") else None
        if pack is not None:
            pack.forget(str(shard["url"]))

    def rebuild(self, source: Source) -> TarIndex:
        """Build a shard's index from its headers, store it, and return it.

        Raises:
            TarFormatError: The shard is damaged, or not a tar archive.
            OSError: The shard cannot be read.
        """
        self._storage.meter.add("index_builds")
        self._cache.wait_for_clock(source)
        return self._cache.keep(source, build_index(ReadAhead(source) if source.is_remote else source))

    def visit_alone(self, visit: Callable[[int], T], shards: Sequence[int], title: str) -> list[T]:
        """Call `visit` for each shard in a pool of threads, while other processes of the machine wait their turn.

        Args:
            visit: Called with the number of a shard.
            shards: Numbers of the shards.
            title: Stands before the progress bar, which appears on a terminal after two seconds.

        Returns:
            The results, in the order of `shards`.
        """
        if not shards:
            return []
        workers = min(16, 2 * (os.cpu_count() or 1), len(shards))
        with self._exclusive(), threads(workers) as pool:
            return list(tqdm(pool.map(visit, shards), title, len(shards), unit="shard", delay=2, disable=None))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other processes that use the same cache folder for the duration of a `with` block.

        When the folder cannot be written, processes do not exclude each other.
        """
        import filelock

        lock = None
        try:
            self._storage.make_cache_folder()
            lock = filelock.FileLock(Path(self._storage.cache_dir, ".wids", "indexing.lock"), preserve_lock_file=True)
            lock.acquire()
        except (OSError, NotImplementedError) as error:
            _log.debug("indexing without a lock: %s", error)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _find_packed(self, shard: Mapping[str, Any], source: Source) -> TarIndex | None:
        pack, found = self._look_up(shard, lambda pack: pack.find(str(shard["url"]), source))
        if found is None and pack is not None:
            self._misfits.add(shard["url"])
            pack.warn(source.name)
        return found

    def _look_up(
        self, shard: Mapping[str, Any], look: Callable[[IndexPack], TarIndex | None]
    ) -> tuple[IndexPack | None, TarIndex | None]:
        """Return a shard's pack, and what `look` finds in it; None for what there is not."""
        url = shard.get("index")
        pack = None if url is None else self._open_pack(url)
        if url is None or pack is None:
            return None, None
        found = look(pack)
        if found is None and pack.is_cached:
            newer = self._fetch_again(url, pack)
            if newer is not pack:
                pack = newer
                found = None if pack is None else look(pack)
        return pack, found

    def _fetch_again(self, url: str, pack: IndexPack) -> IndexPack | None:
        """Return a pack as its store has it now: it may have been rewritten since it was copied into the cache.

        It is fetched once. Threads that find the same copy unfit meanwhile wait, and get the new one as well.
        """
        with self._lock(url):
            if self._packs.get(url) is pack and url not in self._fetched_again:
                self._fetched_again.add(url)
                with suppress(FetchError):
                    self._storage.remove_cached({"url": url})
                    del self._packs[url]
                    if self._open_pack(url) is None:
                        self._packs[url] = pack  # for the shards that it fits
            return self._open_pack(url)

    def _from_offsets(self, shard: Mapping[str, Any], source: Source) -> TarIndex | None:
        """Return the index of a remote shard from the table that another tool has put beside it; None without a usable one.

        Local shards are scanned instead, which takes about 2 ms per 1,000 files; to scan a remote one would mean to fetch
        all of it. Like a pack's, this index is not stored: should it prove wrong, the shard is indexed again.
        """
        url = shard.get("offsets")
        if url is None or not source.is_remote:
            return None
        try:
            return parse_offsets(self._storage.read(url), source)
        except (ValueError, FetchError) as error:
            _log.warning("%s: %s cannot be used, so the shard is indexed again: %s", source.name, redact(url), error)
            return None

    def _open_pack(self, url: str) -> IndexPack | None:
        with self._lock(url):
            if url in self._packs:
                return self._packs[url]
            if time.monotonic() < self._not_before.get(url, 0):
                return None
            try:
                self._packs[url] = IndexPack(self._storage.open({"url": url}), url)
            except Exception as error:  # zipfile raises half a dozen types of error for a file that is not a ZIP
                _log.warning("%s: the index pack cannot be used, so shards are indexed again: %s", redact(url), error)
                if isinstance(error, FetchError):  # may be temporary
                    self._not_before[url] = time.monotonic() + _TRY_AGAIN_AFTER_S
                else:
                    self._packs[url] = None
            return self._packs.get(url)

    def _lock(self, url: str) -> threading.RLock:
        # By process, since another thread of the parent may hold the lock while a child is forked.
        return self._locks.setdefault((os.getpid(), url), threading.RLock())
