"""An LRU of open shards: shard number to reader, opened and indexed at the first touch.

A hit takes no lock: single dictionary operations are atomic, and a reader that another thread evicts stays usable for
whoever got it, since maps and descriptors go with their last reference. Locks only keep threads from opening one shard
twice; they belong to one process, so that a fork in the middle of an opening leaves the child with fresh ones.
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

from tqdm import tqdm

from wids.closing import threads
from wids.errors import ShardMismatchError, WidsError, redact
from wids.index_files import IndexFiles
from wids.storage import PerProcess, RangeSource
from wids.tar import TarReader
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from wids.storage import Storage
    from wids.tar import TarIndex

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_OPEN_SHARDS = 8192
"""Well under the number of maps that Linux allows a process, 65,530."""

_PATIENCE = 16
"""Batches in a row that must have been in memory before the next one is taken to be; asking in vain costs a few percent."""

_NUM_LOCKS = 256
"""Shards share locks, so that visiting a hundred thousand of them does not leave as many behind."""


def default_lru_size() -> int:
    """Return a quarter of the file descriptor limit: each map holds a descriptor."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN_SHARDS if soft == resource.RLIM_INFINITY else max(1, min(soft // 4, _MOST_OPEN_SHARDS))


class ShardCache:
    """Opens shards when they are needed and keeps the most recently used ones open.

    Pickles without its open shards, and can be used in a forked child.

    Args:
        shards: Each a mapping with `url` and `nsamples` (None when unknown), as in a descriptor.
        storage: Opens them.
        lru_size: Open shards, at least 1.
        verify_members: Compare each member on every read with the checksum that the shard's index has of it.
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
        self.accesses = 0
        self.misses = 0
        # What a forked child finds there was counted by its parent, and is shown by it.
        self._before_fork = PerProcess(lambda: (self.accesses, self.misses))
        self._before_fork.get()
        self._reset()

    def _reset(self) -> None:
        self._readers: dict[int, TarReader] = {}
        self._last_used: dict[int, int] = {}
        self._locks: dict[tuple[int, int], threading.Lock] = {}
        self._warned: set[int] = set()
        self._stale: set[int] = set()
        self._disk_reads = _DiskReads()
        self._holds: PerProcess[set[object]] = PerProcess(set)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "shards": self.shards,
            "storage": self.storage,
            "lru_size": self.lru_size,
            "verify_members": self.verify_members,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def get(self, shard: int, index: int | None = None) -> TarReader:
        """Return the reader of one shard, opened if it is not.

        Args:
            shard: Its number.
            index: Of the sample that it is needed for, for those who ask what this process does.

        Raises:
            ShardMismatchError: The shard has fewer samples than its descriptor says.
            TarFormatError: It is damaged, or no tar.
            FetchError: It cannot be opened or fetched.
        """
        reader = self._readers.get(shard)
        if reader is None:
            reader = self._open_once(shard, index)
        self.accesses += 1
        self._last_used[shard] = self.accesses
        return reader

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Have shards fetched before they are needed, the next one first; return at once."""
        self.storage.fetch_ahead([self.shards[shard] for shard in shards])

    def count(self) -> dict[str, float]:
        """Return what all processes of the job have counted."""
        self._show_counts()
        return self.storage.meter.totals()

    def _show_counts(self) -> None:
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
        """Let go of all shards; what views, files and running reads still hold goes with them."""
        for shard in list(self._readers):
            self._drop(shard)
        self.storage.upcoming.stop()

    def count_samples(self, unknown: Sequence[int]) -> dict[int, int]:
        """Index these shards, several at a time, and return how many samples each has.

        One process of the machine does it while others wait, and then find the indexes that were kept. A progress bar is
        shown on terminals when it takes more than a moment.
        """
        counts = self._visit_alone(lambda shard: self._open(shard).num_samples, unknown, "counting samples")
        return dict(zip(unknown, counts, strict=True))

    def index(self, shard: int) -> TarIndex:
        """Return the index of a shard without reading the shard, where it is open or in a pack; it is not kept open.

        What a pack says is compared with the shard's size alone, and with the shard when samples are read.

        Raises:
            ShardMismatchError: The shard has fewer samples than its descriptor says.
            TarFormatError: It is damaged, or no tar.
            FetchError: It has no index yet, and cannot be opened or fetched.
        """
        index = self._recall(shard)
        if index is not None:
            return index
        reader = self._open(shard)
        reader.source.release()
        return reader.index

    def visit_indexes(self, visit: Callable[[int, TarIndex], None], shards: Sequence[int]) -> None:
        """Call `visit(shard, index)` for these shards, in any order and several at a time; none is kept open.

        Shards without an index are indexed as by `count_samples`; errors are those of `index`.
        """

        def look(shard: int) -> bool:
            index = self._recall(shard)
            if index is None:
                return False
            visit(shard, index)
            self._indexes.forget(self.shards[shard])
            return True

        unknown = [shard for shard in shards if not look(shard)]
        self._visit_alone(lambda shard: visit(shard, self.index(shard)), unknown, "indexing shards")

    def _recall(self, shard: int) -> TarIndex | None:
        """Return the index of a shard that is open or in a pack; None where there is none that can be this shard's."""
        reader = self._readers.get(shard)
        if reader is not None:
            return reader.index
        description = self.shards[shard]
        index = None if shard in self._stale else self._indexes.recall(description)
        return None if index is None or index.num_samples < (description.get("nsamples") or 0) else index

    def _visit_alone(self, visit: Callable[[int], T], shards: Sequence[int], title: str) -> list[T]:
        """Do something for shards that opens them, several at a time, while other processes of the machine wait."""
        if not shards:
            return []
        workers = min(16, 2 * (os.cpu_count() or 1), len(shards))
        with self._indexes.alone(), threads(workers) as pool:
            return list(tqdm(pool.map(visit, shards), title, len(shards), unit="shard", delay=2, disable=None))

    def _open_once(self, shard: int, index: int | None) -> TarReader:
        with self._locks.setdefault((os.getpid(), shard % _NUM_LOCKS), threading.Lock()):
            reader = self._readers.get(shard)
            if reader is None:
                self._before_fork.get()
                self.misses += 1
                self._show_counts()
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
            source.on_use(partial(self._drop_worn, shard))
        is_stale = shard in self._stale
        index = self._indexes.obtain(
            source, {**description, "index": None, "offsets": None} if is_stale else description
        )
        reader = TarReader(source, index, verify=self.verify_members, compare=not is_stale)
        self._compare(shard, description, reader)
        return reader

    def reindex(self, shard: int) -> None:
        """Make the index of a remote shard from its headers, now and later: the one that came with it is not the shard's.

        Raises:
            TarFormatError: The shard is damaged, or no tar.
            ShardMismatchError: It has fewer samples than its descriptor says.
        """
        if shard not in self._stale:
            logger.warning(
                "%s: its index is not the shard's, and is made anew; write the pack again with: widsindex create --index",
                redact(str(self.shards[shard]["url"])),
            )
            self._stale.add(shard)
        self._drop(shard)
        self.get(shard)

    @contextmanager
    def read_together(self, places: Iterable[tuple[int, int]], fields: Container[str] | None) -> Iterator[None]:
        """Have at hand what samples need that are read by ranges, for a block; many requests run at the same time.

        What fails here is raised when the sample is read.

        Args:
            places: `(shard, position)` of each.
            fields: The only ones that will be read; None for all.
        """
        wanted = _by_shard(places)
        hold = object()
        self._holds.get().add(hold)
        try:
            with self.storage.ranges.holding():
                pool = self.storage.ranges.pool
                readers = pool.map(lambda shard: _unless_fails(partial(self.get, shard)), wanted)
                requests = [
                    (reader.source, span)
                    for reader, positions in zip(readers, wanted.values(), strict=True)
                    if reader is not None and isinstance(reader.source, RangeSource)
                    for span in reader.source.joined(
                        [
                            span
                            for position in positions
                            for span in _unless_fails(partial(reader.spans, position, fields)) or ()
                        ]
                    )
                ]
                list(pool.map(lambda request: _unless_fails(partial(request[0].window, *request[1])), requests))
                yield
        finally:
            self._holds.get().discard(hold)
            self._evict(None)

    def ask_for(self, places: Iterable[tuple[int, int]], fields: Container[str] | None) -> None:
        """Have the system read what samples of local shards need, where it may have to come from a disk.

        Nothing is asked for while what is read is in memory, as the system's count of this process's reads tells.

        Args:
            places: `(shard, position)` of each.
            fields: The only ones that will be read; None for all.
        """
        if not self._disk_reads.go_on():
            return
        for shard, positions in islice(_by_shard(places).items(), self.lru_size):
            reader = self._readers.get(shard) or _unless_fails(partial(self._open_once, shard, None))
            if reader is not None:
                _unless_fails(partial(reader.will_need, positions, fields))

    def _drop_worn(self, shard: int, source: RangeSource) -> None:
        if self.storage.ranges.wears_out(self.shards[shard], source):
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
        """Tell whether open shards keep more of the disk cache from being freed than they should."""
        most = self.storage.most_open_bytes
        return most is not None and sum(reader.source.cached_bytes for reader in list(self._readers.values())) > most

    def _drop_removed(self) -> None:
        """Let go of shards that the disk cache has removed, so that their space comes back."""
        for shard, reader in list(self._readers.items()):
            if reader.source.is_removed() or self.storage.upcoming.is_copied(self.shards[shard]["url"]):
                self._drop(shard)

    def _drop(self, shard: int) -> None:
        # pop gives the reader to one thread only, so each is dropped exactly once.
        reader = self._readers.pop(shard, None)
        self._last_used.pop(shard, None)
        if reader is not None:
            reader.source.release()


def _by_shard(places: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the positions of each shard, shards in the order in which they come first."""
    positions: dict[int, list[int]] = {}
    for shard, position in places:
        positions.setdefault(shard, []).append(position)
    return positions


class _DiskReads:
    """Tells whether this process has lately read from disks, and twice that it may have, before it knows."""

    def __init__(self) -> None:
        self._num_blocks: int | None = None
        self._num_quiet = _PATIENCE - 3

    def go_on(self) -> bool:
        """Return the answer; after a fork it is yes again, for a child counts from nothing."""
        num_blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        is_quiet = self._num_blocks in {None, num_blocks}
        self._num_quiet = self._num_quiet + 1 if is_quiet else 0
        self._num_blocks = num_blocks
        return self._num_quiet < _PATIENCE


def _unless_fails(do: Callable[[], T]) -> T | None:
    """Return what a function returns, None where it fails: whoever needs it will do the same and see why."""
    try:
        return do()
    except (WidsError, OSError) as error:
        logger.debug("not read ahead: %s", error)
        return None
