"""Room in the disk cache: how much it may hold, and what goes first.

    FOLDER/.wids/space.lock     held while files are counted, removed and published
    FOLDER/.wids/ID.uses        a byte for each opening of a shard, its time the last one; stays when the shard goes
    FOLDER/.wids/next-RANDOM.ahead   names of the shards that a process needs next, locked while that one lives

Training walks over all shards in each epoch. Where they do not all fit, the one that was not used for longest is the one
that comes next, so that removing it, as LRU does, hits next to nothing. What came last goes first here: those that are
there stay, and the others pass. A passing shard takes another's place only when it was opened more than twice as often
as that one, which is how shards get in that are wanted more than others; counts are halved now and then, so that what
was wanted long ago does not stay for ever. What a sampler has announced is kept, the shard that is needed last going first.
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
"""The lock is held for as long as a removal takes, and no longer."""
_MOST_FORGOTTEN = 100_000
"""Counts of shards that are no longer there; the oldest go."""
_HALVE_AFTER = 8
"""Removed shards, in multiples of those that are there, between two halvings of the counts."""
_AHEAD_SUFFIX = ".ahead"
_USES_SUFFIX = ".uses"
_RECORD_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Record:
    """What the cache wrote under one name."""

    name: str
    """Of the file, relative to the cache folder."""
    source: str
    """`CacheKey.source`."""
    version: str
    """`CacheKey.version`."""
    size: int
    """Bytes of the file."""
    inode: int
    """Of the file; another one was put there by somebody else."""
    mtime_ns: int
    """Of the file, nanoseconds since the epoch; numbers of inodes are used again."""
    label: str
    """`CacheKey.label`, for people."""

    def describes(self, status: os.stat_result) -> bool:
        """Return whether the file with this status is the one that was written."""
        return (self.size, self.inode, self.mtime_ns) == (status.st_size, status.st_ino, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class CachedShard:
    """One shard in the cache."""

    id: str
    """Of its bookkeeping."""
    path: str
    """Absolute."""
    record: Record
    arrived_ns: int
    """When it was published, nanoseconds since the epoch."""
    used_ns: int
    """When it was opened last."""
    uses: int
    """How often it was opened, roughly."""


class CacheSpace:
    """Counts and removes what the cache wrote; never anything else.

    Holds nothing between calls, so that it can be forked and pickled at any moment.

    Args:
        folder: The cache folder.
        limit: Most bytes in it; None for half of what is free, counting what is there already.
        keep: Remove nothing.
    """

    def __init__(self, folder: CacheFolder, limit: int | None = None, *, keep: bool = False) -> None:
        self._folder = folder
        self._limit = limit
        self._keep = keep

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run a block while no other process counts, removes or publishes; where there are no locks, at once."""
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
        """Return the most bytes that the cache may hold; None where nothing is ever removed.

        Args:
            present: Bytes that it holds, where the caller knows them.
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
        """Count an opening of a shard; in a folder that cannot be written, do nothing."""
        with suppress(OSError):
            path = self._place(shard_id + _USES_SUFFIX)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def used_ns(self, shard_id: str) -> int:
        """Return when a shard was opened last, nanoseconds since the epoch; 0 where it never was."""
        try:
            return os.stat(self._place(shard_id + _USES_SUFFIX)).st_mtime_ns  # noqa: PTH116 - as below
        except OSError:
            return 0

    def shards(self) -> list[CachedShard]:
        """Return all that the cache wrote and that is there."""
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
            return None  # somebody else's, who has put it in the place of ours
        try:
            uses = os.stat(self._place(shard_id + _USES_SUFFIX))  # noqa: PTH116 - as above
        except OSError:
            return CachedShard(shard_id, path, record, status.st_mtime_ns, status.st_mtime_ns, 0)
        return CachedShard(shard_id, path, record, status.st_mtime_ns, uses.st_mtime_ns, uses.st_size)

    def make_room(self, size: int) -> None:
        """Remove shards until `size` more bytes fit, or nothing is left to remove; call it in a `turn`."""
        if self._keep:
            return
        shards = self.shards()
        present = sum(shard.record.size for shard in shards)
        limit = self.limit(present)
        assert limit is not None, "only `keep` has none"
        self.remove_some(shards, present + size - limit)

    def free_disk(self, size: int) -> bool:
        """Remove shards of about `size` bytes because the disk is full; tell whether any could be."""
        if self._keep:
            return False
        with self.turn():
            return self.remove_some(self.shards(), size) > 0

    def remove_some(self, shards: Sequence[CachedShard], excess: int) -> int:
        """Remove shards of at least `excess` bytes, those first that are wanted least; return how many were."""
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
        """Return a new place where this process says what it needs next; the folder is there."""
        return Announcement(self._folder)

    def num_announcements(self) -> int:
        """Return how many living processes say what they need next."""
        return len(self._announced())

    def remove(self, shard: CachedShard) -> bool:
        """Remove one shard; tell whether it is gone.

        The space comes back when the last process that reads it lets go of it.
        """
        try:
            # Looked at again: what has its name now may be somebody else's.
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
        """Return how soon shards are needed that living processes have announced: 0 at once."""
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
        """Halve the counts when so many shards were removed; forget those of shards that went long ago."""
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
                    # The time stays: it says when the shard was used.
                    os.truncate(path, (status.st_size + 1) // 2)
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
                    counts.append((status.st_mtime_ns, path))
            for _, path in sorted(counts)[:-_MOST_FORGOTTEN]:
                path.unlink(missing_ok=True)

    def _place(self, name: str) -> str:
        return os.path.join(self._folder.bookkeeping, name)  # noqa: PTH118 - as above


def choose_victim(shards: Sequence[CachedShard], needed: dict[str, int]) -> CachedShard:
    """Return the shard that is wanted least.

    Args:
        shards: At least one.
        needed: How soon announced ones are needed, by id.
    """
    free = [shard for shard in shards if shard.id not in needed]
    if not free:
        return max(shards, key=lambda shard: needed[shard.id])
    newest = max(free, key=lambda shard: shard.arrived_ns)
    coldest = min(free, key=lambda shard: (shard.uses, -shard.arrived_ns))
    return coldest if newest.uses > 2 * coldest.uses + 1 else newest


class Announcement:
    """The shards that this process needs next, told to all that use the cache folder, while the process lives.

    Args:
        folder: The cache folder; it is there.
    """

    def __init__(self, folder: CacheFolder) -> None:
        path, self._descriptor = create_locked(Path(folder.bookkeeping), "next", _AHEAD_SUFFIX)
        self._end = weakref.finalize(self, _take_back, path, self._descriptor, os.getpid())

    def tell(self, shard_ids: Iterable[str]) -> None:
        """Say which shards are needed, the next one first; in place of what was said before."""
        data = " ".join(shard_ids).encode("ascii")
        # A reader in between sees fewer of them, and may remove one that is fetched again then.
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def close(self) -> None:
        """Take it back."""
        self._end()


def _take_back(path: Path, descriptor: int, pid: int) -> None:
    os.close(descriptor)
    if os.getpid() == pid:  # else it is a fork's copy
        with suppress(OSError):
            path.unlink()


def read_record(path: str) -> Record | None:
    """Return what the cache noted, None where there is nothing, or it was cut by a crash."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return Record(**json.loads(file.read()))
    except (OSError, ValueError, TypeError):
        return None
