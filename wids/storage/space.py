"""Space in the disk cache: how much it may hold, and which shards are removed first.

    FOLDER/.wids/space.lock     held while files are counted, removed and published
    FOLDER/.wids/ID.uses        a byte for each opening of a shard, mtime of the last one; kept when the shard is removed
    FOLDER/.wids/next-RANDOM.ahead   ids of the shards that a process needs next; locked while that process is alive

Training walks over all shards in each epoch. When they do not all fit, the least recently used shard is the one that is
needed next, so that an LRU cache would have next to no hits. Here the shard that arrived last is removed first: the older
ones stay and are hit in each epoch, while the others pass through. A shard that passes through replaces another one only
when it was opened more than twice as often, so that shards in high demand get a place. Counts are halved from time to time,
so that shards which were in demand long ago do not stay for ever. Shards that a process has announced as needed next are
removed last; of these, the one that is needed latest is removed first.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wids.storage.part_file import create_locked, remove_if_left

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wids.storage.folder import CacheFolder

_log = logging.getLogger(__name__)

_POLL_S = 0.005
"""Seconds between two attempts to get the lock, which is only held for as long as a removal takes."""
_MOST_COUNTS = 100_000
"""Most counts that are kept, those of removed shards included; the oldest are dropped."""
_HALVE_AFTER = 8
"""Removals, per shard in the cache, after which the counts are halved."""
_AHEAD_SUFFIX = ".ahead"
_USES_SUFFIX = ".uses"
_RECORD_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Record:
    """What the cache has written under one name."""

    name: str
    """Name of the file, relative to the cache folder."""
    source: str
    """`CacheKey.source`."""
    version: str
    """`CacheKey.version`."""
    size: int
    """Bytes of the file."""
    inode: int
    """Inode number of the file; a file with another one was not written by the cache."""
    mtime_ns: int
    """Modification time of the file, nanoseconds since the epoch; compared too, since inode numbers are reused."""
    label: str
    """`CacheKey.label`, to show to users."""

    def describes(self, status: os.stat_result) -> bool:
        """Return whether the file with this status is the one that the cache wrote."""
        return (self.size, self.inode, self.mtime_ns) == (status.st_size, status.st_ino, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class CachedShard:
    """One shard in the cache."""

    id: str
    """`CacheKey.id`."""
    path: str
    """Absolute path of the file."""
    record: Record
    """What the cache wrote."""
    arrived_ns: int
    """When it was written, nanoseconds since the epoch."""
    used_ns: int
    """When it was last opened, nanoseconds since the epoch."""
    uses: int
    """Number of openings; halved from time to time."""


class CacheSpace:
    """Counts and removes what the cache has written, and never any other file.

    Holds no lock and no open file between calls, so that it can be forked and pickled at any time.

    Args:
        folder: The cache folder.
        limit: Most bytes of cached shards; None for half of the free space, counting the cached shards as free.
        keep: Never remove anything.
    """

    def __init__(self, folder: CacheFolder, limit: int | None = None, *, keep: bool = False) -> None:
        self._folder = folder
        self._limit = limit
        self._keep = keep

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Exclude other processes that count, remove or publish during a `with` block, if the file system has locks."""
        import filelock

        lock = filelock.FileLock(self._place("space.lock"), preserve_lock_file=True)
        try:
            lock.acquire(poll_interval=_POLL_S)
        except (OSError, NotImplementedError) as error:
            _log.debug("cache space is counted without a lock: %s", error)
        try:
            yield
        finally:
            lock.release()

    def limit(self, present: int | None = None) -> int | None:
        """Return the most bytes that the cache may hold; None when nothing is ever removed.

        Args:
            present: Bytes that it holds; None to have them counted.

        Raises:
            OSError: The free space cannot be determined.
        """
        if self._keep:
            return None
        if self._limit is not None:
            return self._limit
        if present is None:
            present = sum(shard.record.size for shard in self.shards())
        disk = os.statvfs(self._folder.path)
        return (disk.f_bavail * disk.f_frsize + present) // 2

    def note_use(self, shard_id: str) -> None:
        """Count an opening of a shard; do nothing when the folder cannot be written."""
        with suppress(OSError):
            path = self._place(shard_id + _USES_SUFFIX)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def used_ns(self, shard_id: str) -> int:
        """Return when a shard was last opened, in nanoseconds since the epoch; 0 if never."""
        try:
            return os.stat(self._place(shard_id + _USES_SUFFIX)).st_mtime_ns  # noqa: PTH116 - as below
        except OSError:
            return 0

    def shards(self) -> list[CachedShard]:
        """Return all shards that the cache wrote and that still exist."""
        try:
            names = os.listdir(self._folder.bookkeeping)  # noqa: PTH208 - as below
        except FileNotFoundError:
            return []
        found = (self._look_up(name.removesuffix(_RECORD_SUFFIX)) for name in names if name.endswith(_RECORD_SUFFIX))
        return [shard for shard in found if shard is not None]

    def _look_up(self, shard_id: str) -> CachedShard | None:
        record = read_record(self._place(shard_id + _RECORD_SUFFIX))
        if record is None:
            return None
        path = os.path.join(self._folder.path, record.name)  # noqa: PTH118 - plain strings, as open() takes them
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not record.describes(status):
            return None  # another file has been put in place of the cache's own
        try:
            uses = os.stat(self._place(shard_id + _USES_SUFFIX))  # noqa: PTH116 - as above
        except OSError:
            return CachedShard(shard_id, path, record, status.st_mtime_ns, status.st_mtime_ns, 0)
        return CachedShard(shard_id, path, record, status.st_mtime_ns, uses.st_mtime_ns, uses.st_size)

    def make_room(self, size: int) -> None:
        """Remove shards until `size` more bytes fit, or none is left; to be called in a `turn`."""
        if self._keep:
            return
        shards = self.shards()
        present = sum(shard.record.size for shard in shards)
        limit = self.limit(present)
        assert limit is not None, "only `keep` has none"
        self.remove_some(shards, present + size - limit)

    def free_disk(self, size: int) -> bool:
        """Remove shards of at least `size` bytes because the disk is full; return whether any was removed."""
        if self._keep:
            return False
        with self.turn():
            return self.remove_some(self.shards(), size) > 0

    def remove_some(self, shards: Sequence[CachedShard], excess: int) -> int:
        """Remove shards of at least `excess` bytes, in the order of `choose_victim`; return how many were removed."""
        if excess <= 0:
            return 0
        removed = 0
        there = list(shards)
        needed = self._needed_next()
        while there and excess > 0:
            victim = choose_victim(there, needed)
            there.remove(victim)
            if self.remove(victim):
                excess -= victim.record.size
                removed += 1
        self._age(removed, len(there))
        return removed

    def forget(self) -> None:
        """Remove all counts."""
        for path in [*Path(self._folder.bookkeeping).glob(f"*{_USES_SUFFIX}"), Path(self._place("removed"))]:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def announcement(self) -> Announcement:
        """Return a new announcement of what this process needs next; the folder must exist."""
        return Announcement(self._folder)

    def num_announcements(self) -> int:
        """Return how many living processes announce what they need next."""
        return len(self._announced())

    def remove(self, shard: CachedShard) -> bool:
        """Remove one shard; return whether it is gone.

        Its space is freed when the last process that reads it closes it.
        """
        try:
            # Checked again, because another file may have its name by now.
            if shard.record.describes(os.lstat(shard.path)):
                os.unlink(shard.path)  # noqa: PTH108 - as above
                _log.debug("%s: removed from the cache (%d bytes)", shard.record.label, shard.record.size)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.debug("%s: cannot be removed from the cache: %s", shard.record.label, error)
            return False
        with suppress(OSError):
            os.unlink(self._place(shard.id + _RECORD_SUFFIX))  # noqa: PTH108 - as above
        return True

    def _needed_next(self) -> dict[str, int]:
        """Return the ids of announced shards, each with its smallest place in an announcement; 0 is needed first."""
        needed: dict[str, int] = {}
        for path in self._announced():
            with suppress(OSError):
                for place, shard_id in enumerate(path.read_text(encoding="ascii", errors="replace").split()):
                    needed[shard_id] = min(place, needed.get(shard_id, place))
        return needed

    def _announced(self) -> list[Path]:
        """Return the announcements of living processes, and remove those of dead ones."""
        return [path for path in Path(self._folder.bookkeeping).glob(f"*{_AHEAD_SUFFIX}") if not remove_if_left(path)]

    def _age(self, removed: int, present: int) -> None:
        """Halve the counts when enough shards have been removed since the last time, and drop the oldest ones."""
        marks = Path(self._place("removed"))
        with suppress(OSError):
            with marks.open("ab") as file:
                file.write(b"." * removed)
            if marks.stat().st_size < _HALVE_AFTER * max(present, 1):
                return
            marks.unlink()
            counts = []
            for path in Path(self._folder.bookkeeping).glob(f"*{_USES_SUFFIX}"):
                with suppress(OSError):
                    status = path.stat()
                    # The mtime is restored, because it is the time of the last opening.
                    os.truncate(path, (status.st_size + 1) // 2)
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
                    counts.append((status.st_mtime_ns, path))
            for _, path in sorted(counts)[:-_MOST_COUNTS]:
                path.unlink(missing_ok=True)

    def _place(self, name: str) -> str:
        return os.path.join(self._folder.bookkeeping, name)  # noqa: PTH118 - as above


def choose_victim(shards: Sequence[CachedShard], needed: dict[str, int]) -> CachedShard:
    """Return the shard to remove first, by the rules at the top of this module.

    Args:
        shards: Shards to choose from, at least one.
        needed: Id of each announced shard to its place: 0 is needed first.
    """
    free = [shard for shard in shards if shard.id not in needed]
    if not free:
        return max(shards, key=lambda shard: needed[shard.id])
    newest = max(free, key=lambda shard: shard.arrived_ns)
    coldest = min(free, key=lambda shard: (shard.uses, -shard.arrived_ns))
    return coldest if newest.uses > 2 * coldest.uses + 1 else newest


class Announcement:
    """The shards that this process needs next, visible to all processes that use the cache folder, while it is alive.

    Args:
        folder: The cache folder; it must exist.
    """

    def __init__(self, folder: CacheFolder) -> None:
        path, self._descriptor = create_locked(Path(folder.bookkeeping), "next", _AHEAD_SUFFIX)
        self._end = weakref.finalize(self, _withdraw, path, self._descriptor, os.getpid())

    def tell(self, shard_ids: Iterable[str]) -> None:
        """Announce which shards are needed, the next one first, instead of those of an earlier call."""
        data = " ".join(shard_ids).encode("ascii")
        # A process that reads between these two calls may miss a shard and remove it; the shard is then fetched again.
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def close(self) -> None:
        """Withdraw the announcement."""
        self._end()


def _withdraw(path: Path, descriptor: int, pid: int) -> None:
    os.close(descriptor)
    if os.getpid() == pid:  # a forked child must not remove its parent's file
        with suppress(OSError):
            path.unlink()


def read_record(path: str) -> Record | None:
    """Read a record; return None when there is none, or it was cut by a crash."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return Record(**json.loads(file.read()))
    except (OSError, ValueError, TypeError):
        return None
