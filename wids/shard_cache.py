"""An LRU cache of open shards: shard number to reader, opened and indexed on first use.

A hit takes no lock. Single dictionary operations are atomic, and a reader that another thread evicts stays usable for
the thread that got it, since maps and file descriptors are freed with their last reference. Locks only keep threads from
opening a shard twice. They are keyed by process, so that a child forked while a shard was being opened gets fresh ones.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
from contextlib import contextmanager
from functools import partial
from itertools import islice
from operator import index as as_index
from typing import TYPE_CHECKING, Any, TypeVar

from wids.errors import ShardMismatchError, WidsError, redact
from wids.index_files import IndexFiles, Recalled
from wids.storage import DiskReads, PerProcess, RangeSource
from wids.tar import TarReader
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from wids.source import Span
    from wids.storage import Storage
    from wids.tar import Listing, TarIndex

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_OPEN_SHARDS = 8192
"""Well under 65,530, the number of maps that Linux allows a process by default."""

_NUM_LOCKS = 256
"""Shards share this many locks, so that visiting a hundred thousand shards does not leave as many locks behind."""


def default_lru_size() -> int:
    """Return a quarter of the limit on open files: each map holds a file descriptor."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN_SHARDS if soft == resource.RLIM_INFINITY else max(1, min(soft // 4, _MOST_OPEN_SHARDS))


class ShardCache:
    """Opens shards when they are needed and keeps the most recently used ones open.

    It pickles without its open shards, and can be used in a forked child.

    Args:
        shards: Mappings with `url` and `nsamples` (None when unknown), as in a descriptor.
        storage: Opens the shards.
        lru_size: Number of shards to keep open, at least 1.
        verify_members: Compare each member, on every read, with the checksum in the shard's index.

    Raises:
        ValueError: `lru_size` is less than 1.
    """

    def __init__(
        self, shards: Sequence[Mapping[str, Any]], storage: Storage, lru_size: int, *, verify_members: bool = False
    ) -> None:
        if lru_size < 1:
            raise ValueError(f"lru_size is {lru_size}; it must be at least 1")
        self.shards = shards
        self.storage = storage
        self.lru_size = lru_size
        self.verify_members = verify_members
        self._indexes = IndexFiles(storage)
        self._recalled = Recalled(storage, self._indexes)
        self.accesses = 0
        self.misses = 0
        # A forked child inherits its parent's counts, and must not report them a second time.
        self._before_fork = PerProcess(lambda: (self.accesses, self.misses))
        self._before_fork.get()
        self._reset()

    def _reset(self) -> None:
        self._readers: dict[int, TarReader] = {}
        self._last_used: dict[int, int] = {}
        self._locks: dict[tuple[int, int], threading.Lock] = {}
        self._warned: set[int] = set()
        self._stale: set[int] = set()
        self._disk_reads = DiskReads()
        self._holds: PerProcess[set[object]] = PerProcess(set)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "shards": self.shards,
            "storage": self.storage,
            "lru_size": self.lru_size,
            "verify_members": self.verify_members,
            "told": self._recalled.told,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        told = state.pop("told")
        self.__init__(**state)  # type: ignore[misc]
        self._recalled.told.update(told)

    def get(self, shard: int, index: int | None = None) -> TarReader:
        """Return the reader of a shard, opening the shard if needed.

        Args:
            shard: Number of the shard.
            index: Index of the sample that the shard is needed for; `ShardListDataset.in_flight` reports it.

        Raises:
            ShardMismatchError: The shard has fewer samples than its descriptor says, or others than `listing` said.
            TarFormatError: The shard is damaged, or is not a tar.
            FetchError: The shard cannot be opened or fetched.
        """
        reader = self._readers.get(shard)
        if reader is None:
            reader = self._open_once(shard, index)
        self.accesses += 1
        self._last_used[shard] = self.accesses
        return reader

    def listing(self, shard: int) -> Listing:
        """Return what the index of a shard says about its samples; the shard is not fetched if its index pack can tell.

        Errors are those of `get`, which refuses a shard that later proves to have other samples, or in other places.
        """
        if shard not in self._readers and shard not in self._stale:
            recalled = self._recalled.find(shard, self.shards[shard])
            if recalled is not None:
                return recalled
        reader = self.get(shard)
        if reader.source.is_remote:
            self._recalled.note(shard, reader)
        return reader

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Start to fetch shards before they are needed, in the order given; return at once."""
        self.storage.fetch_ahead([self.shards[shard] for shard in shards])

    def count(self) -> dict[str, float]:
        """Return the counters, summed over all processes of the job."""
        self._publish_counts()
        return self.storage.meter.totals()

    def _publish_counts(self) -> None:
        accesses, misses = self._before_fork.get()
        self.storage.meter.put("accesses", self.accesses - accesses)
        self.storage.meter.put("misses", self.misses - misses)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, shard: int) -> bool:
        return shard in self._readers

    @property
    def reads_ranges(self) -> bool:
        """Whether remote shards may be read by ranges."""
        return self.storage.options.access != "download"

    def close(self) -> None:
        """Release all shards. Those that views, files or running reads still use are closed when these are gone."""
        for shard in list(self._readers):
            self._drop(shard)
        self._recalled.forget()
        self.storage.upcoming.stop()

    def count_samples(self, unknown: Sequence[int]) -> dict[int, int]:
        """Return the number of samples in each of these shards; those that are at hand, or in no pack, are indexed.

        One process of the machine does the work. The others wait, and then find the indexes that it stored. On a terminal,
        a progress bar appears after two seconds. The errors are those of `index`.
        """

        def count(shard: int) -> int:
            return (self._recalled.find(shard, self.shards[shard]) or self._open(shard)).num_samples

        counts = self._indexes.visit_alone(count, unknown, "counting samples")
        return dict(zip(unknown, counts, strict=True))

    def index(self, shard: int) -> TarIndex:
        """Return the index of a shard, without reading the shard if it is open or its index is in an index pack.

        An index from a pack is checked against the shard's size only; it is compared with the shard itself when samples are
        read. A shard that has to be opened for its index is not kept open.

        Raises:
            ShardMismatchError: The shard has fewer samples than its descriptor says.
            TarFormatError: The shard is damaged, or is not a tar.
            FetchError: The shard has no index yet, and cannot be opened or fetched.
        """
        index = self._recall(shard)
        if index is not None:
            return index
        reader = self._open(shard)
        reader.source.release()
        return reader.index

    def visit_indexes(self, visit: Callable[[int, TarIndex], None], shards: Sequence[int]) -> None:
        """Call `visit(shard, index)` for each of these shards, in any order and from several threads.

        No shard is kept open. Shards without an index are indexed as in `count_samples`, and errors are those of `index`.
        """

        def visit_known(shard: int) -> bool:
            index = self._recall(shard)
            if index is None:
                return False
            visit(shard, index)
            self._indexes.forget(self.shards[shard])
            return True

        unknown = [shard for shard in shards if not visit_known(shard)]
        self._indexes.visit_alone(lambda shard: visit(shard, self.index(shard)), unknown, "indexing shards")

    def _recall(self, shard: int) -> TarIndex | None:
        """Return a shard's index if the shard is open, or if a pack has an index that can be the shard's; else None."""
        reader = self._readers.get(shard)
        if reader is not None:
            return reader.index
        return None if shard in self._stale else self._indexes.recall(self.shards[shard])

    def _open_once(self, shard: int, index: int | None) -> TarReader:
        with self._locks.setdefault((os.getpid(), shard % _NUM_LOCKS), threading.Lock()):
            reader = self._readers.get(shard)
            if reader is None:
                self._before_fork.get()
                self.misses += 1
                self._publish_counts()
                self._drop_removed()
                url = redact(str(self.shards[shard]["url"]))
                with self.storage.meter.doing("open", shard=url, index=None if index is None else as_index(index)):
                    reader = self._open(shard)
                self._last_used[shard] = self.accesses
                self._readers[shard] = reader
                self._evict(shard)
        return reader

    def _open(self, shard: int) -> TarReader:
        description = self.shards[shard]
        source = self.storage.open(description)
        if isinstance(source, RangeSource):
            source.on_use(partial(self._drop_to_fetch_whole, shard))
        is_stale = shard in self._stale
        index = self._indexes.obtain(
            source, {**description, "index": None, "offsets": None} if is_stale else description
        )
        reader = TarReader(source, index, verify=self.verify_members, compare=not is_stale)
        self._compare(shard, description, reader)
        self._recalled.check(shard, reader)
        return reader

    def reindex(self, shard: int) -> None:
        """Index a remote shard from its headers, now and whenever it is opened again.

        Called when the index that came with the shard turns out to belong to another version of it.

        Raises:
            TarFormatError: The shard is damaged, or is not a tar.
            ShardMismatchError: The shard has fewer samples than its descriptor says.
            FetchError: The shard cannot be opened or fetched.
        """
        if shard not in self._stale:
            logger.warning(
                "%s: its index does not match the shard, which is indexed again; write the pack again with: widsindex create --index",
                redact(str(self.shards[shard]["url"])),
            )
            self._stale.add(shard)
        self._drop(shard)
        self.get(shard)

    @contextmanager
    def read_together(self, places: Iterable[tuple[int, int]], fields: Container[str] | None) -> Iterator[None]:
        """Fetch the byte ranges of many samples with concurrent requests, and hold them for the `with` block.

        A request that fails here is made again when its sample is read, which then raises the error.

        Args:
            places: `(shard, position)` of each sample.
            fields: The only fields that will be read; None for all.
        """
        wanted = _group_by_shard(places)
        hold = object()
        self._holds.get().add(hold)
        try:
            with self.storage.ranges.holding():
                pool = self.storage.ranges.pool
                readers = pool.map(lambda shard: _attempt(partial(self.get, shard)), wanted)
                requests = [
                    request
                    for reader, positions in zip(readers, wanted.values(), strict=True)
                    for request in _plan_requests(reader, positions, fields)
                ]
                list(pool.map(lambda request: _attempt(partial(request[0].window, *request[1])), requests))
                yield
        finally:
            self._holds.get().discard(hold)
            self._evict(None)

    def ask_for(self, places: Iterable[tuple[int, int]], fields: Container[str] | None) -> None:
        """Ask the operating system to read ahead the bytes of many samples of local shards.

        This does nothing while the data is found in memory anyway, as the system's count of this process's disk reads shows.

        Args:
            places: `(shard, position)` of each sample.
            fields: The only fields that will be read; None for all.
        """
        if not self._disk_reads.are_likely():
            return
        for shard, positions in islice(_group_by_shard(places).items(), self.lru_size):
            reader = self._readers.get(shard) or _attempt(partial(self._open_once, shard, None))
            if reader is not None:
                _attempt(partial(reader.will_need, positions, fields))

    def _drop_to_fetch_whole(self, shard: int, source: RangeSource) -> None:
        if self.storage.ranges.switches_to_whole(self.shards[shard], source):
            self._drop(shard)

    def _compare(self, shard: int, description: Mapping[str, Any], reader: TarReader) -> None:
        expected = description.get("nsamples")
        name = redact(str(description["url"]))
        said_by = description.get("counted_by", "its descriptor")
        if expected is not None and reader.num_samples < expected:
            is_counted = "counted_by" in description
            remedy = (
                "make a descriptor with: widsindex create"
                if is_counted
                else "correct the descriptor with: widsindex update --recount"
            )
            raise ShardMismatchError(
                f"{name}: has {counted(reader.num_samples, 'sample')}, but {said_by} says {expected}; fetch the shard again, or {remedy}"
            )
        if shard in self._warned:
            return
        self._warned.add(shard)
        if expected is not None and reader.num_samples > expected:
            logger.warning(
                "%s: has %d samples, %s says %d; the rest is left out", name, reader.num_samples, said_by, expected
            )
        for note in reader.notes:
            logger.warning("%s: %s", name, note)

    def _evict(self, newest: int | None) -> None:
        while not self._holds.get() and (len(self._readers) > self.lru_size or self._holds_too_many_bytes()):
            candidates = [shard for shard in list(self._readers) if shard != newest]
            if not candidates:
                return
            self._drop(min(candidates, key=lambda shard: self._last_used.get(shard, -1)))

    def _holds_too_many_bytes(self) -> bool:
        """Return whether open shards keep more bytes of the disk cache from being freed than they may."""
        most = self.storage.most_open_bytes
        return most is not None and sum(reader.source.cached_bytes for reader in list(self._readers.values())) > most

    def _drop_removed(self) -> None:
        """Release shards whose files the disk cache has removed, to free their disk space, and those that it has copied by now."""
        for shard, reader in list(self._readers.items()):
            if reader.source.is_removed() or self.storage.upcoming.is_copied(self.shards[shard]["url"]):
                self._drop(shard)

    def _drop(self, shard: int) -> None:
        # Only one thread gets the reader from pop(), so each reader is released exactly once.
        reader = self._readers.pop(shard, None)
        self._last_used.pop(shard, None)
        if reader is not None:
            reader.source.release()


def _group_by_shard(places: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Group `(shard, position)` pairs by shard, in the order in which the shards first occur."""
    positions: dict[int, list[int]] = {}
    for shard, position in places:
        positions.setdefault(shard, []).append(position)
    return positions


def _plan_requests(
    reader: TarReader | None, positions: list[int], fields: Container[str] | None
) -> list[tuple[RangeSource, Span]]:
    """Return the ranges to request for these samples of one shard; none unless the shard is read by ranges."""
    if reader is None or not isinstance(reader.source, RangeSource):
        return []
    spans = [span for position in positions for span in _attempt(partial(reader.spans, position, fields)) or ()]
    return [(reader.source, span) for span in reader.source.joined(spans)]


def _attempt(do: Callable[[], T]) -> T | None:
    """Call a function ahead of need; return None if it fails, because the read that needs it will fail in the same way."""
    try:
        return do()
    except (WidsError, OSError) as error:
        logger.debug("not read ahead: %s", error)
        return None
