"""The disk cache: a file appears under its final name only whole and verified.

    FOLDER/train-0007-4f1c….tar      shards, whole
    FOLDER/.wids/ID.lock             held while that shard is fetched; stays
    FOLDER/.wids/ID.json             the record: what the cache wrote under that name
    FOLDER/.wids/ID-RANDOM.part      unfinished, locked by the process that writes it; removed when that one is dead
    …                                space.py: how often shards were opened, and what is needed next

A private temporary file, fsync, rename: that alone makes the cache correct. The locks only keep a machine from fetching
twice, so where none can be had (a file system without them, a folder that is somebody else's) it goes on without.
A file whose record does not describe it was not written by the cache and is never replaced or removed.
"""

from __future__ import annotations

import errno
import json
import logging
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wids.errors import FetchError
from wids.storage.folder import CHOOSE_ANOTHER, CacheFolder
from wids.storage.part_file import PartFile, remove_leftovers, scratch_path
from wids.storage.process import PerProcess
from wids.storage.space import CacheSpace, Record, read_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from wids.storage.names import CacheKey

_log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_S = 1.0
"""A waiter looks this often whether the other process gets on."""
_PATIENCE_S = 300.0
"""A waiter that saw nothing grow for so long fetches the shard itself: the other process hangs."""


class DiskCache:
    """Files of fetched shards, shared by all processes that use the same folder.

    Holds no lock and no open file between calls, so that it can be forked and pickled at any moment.

    Args:
        folder: Where; made when something is written.
        space: How much of it there may be; None for the default.
    """

    def __init__(self, folder: CacheFolder, space: CacheSpace | None = None) -> None:
        self.folder = folder
        self.space = space or CacheSpace(folder)
        self._cleaned = PerProcess(self._clean)

    def obtain(self, key: CacheKey, fill: Callable[[PartFile], object], use: Callable[[str], T]) -> T:
        """Return what `use` makes of a cached file's path; have the file written first where it is not there.

        Args:
            key: Of the file.
            fill: Writes the whole, verified content, or raises; called by one process at a time.
            use: Opens the file; where it was written just now, before another process can remove it again.

        Raises:
            FetchError: The folder cannot be written, its disk is full, or a foreign file is in the way.
            WidsError: What `fill` raises.
        """
        path = self.find(key)
        if path is not None:
            return use(path)
        self.folder.make()
        self._cleaned.get()
        with self._turn(key):
            path = self._find(key)
            return self._write(key, fill, use) if path is None else use(path)

    def find(self, key: CacheKey) -> str | None:
        """Return the path of a cached file; None where it is not there, or is another version's.

        Raises:
            FetchError: The folder could hold what somebody else put there, or a foreign file is in the way.
        """
        self.folder.check()
        return self._find(key)

    def path(self, key: CacheKey) -> str:
        """Return where a file lies when it is there."""
        return str(Path(self.folder.path, key.name))

    def note_use(self, key: CacheKey) -> None:
        """Count that a cached file was opened."""
        self.space.note_use(key.id)

    def remove(self, key: CacheKey) -> None:
        """Remove a cached file, unless it is not there.

        Raises:
            FetchError: The cache did not write it, or may not remove it.
        """
        path = Path(self.folder.path, key.name)
        record = self._read_record(key)
        try:
            if record is not None and record.inode == path.stat().st_ino:
                path.unlink()
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise FetchError(f"{path}: the cached shard cannot be removed: {error.strerror}") from error
        raise FetchError(f"{path}: was not written by the cache, which leaves it alone; remove it yourself")

    def prune(self) -> None:
        """Remove what exceeds the limit, and what dead processes left unfinished."""
        self.folder.check()
        if not Path(self.folder.bookkeeping).is_dir():
            return
        remove_leftovers(Path(self.folder.bookkeeping))
        with self.space.turn():
            self.space.make_room(0)

    def clear(self) -> None:
        """Remove all that was written, but for the locks."""
        self.folder.check()
        bookkeeping = Path(self.folder.bookkeeping)
        if not bookkeeping.is_dir():
            return
        remove_leftovers(bookkeeping)
        with self.space.turn():
            for shard in self.space.shards():
                self.space.remove(shard)
            self.space.forget()
        for path in bookkeeping.glob("index/*"):
            with suppress(OSError):
                path.unlink()

    @contextmanager
    def scratch_file(self) -> Iterator[str]:
        """Give the path of a file that does not exist yet; remove what is there afterwards."""
        self.folder.make()
        with scratch_path(Path(self.folder.bookkeeping)) as path:
            yield str(path)

    @contextmanager
    def passing_file(self, label: str, fill: Callable[[PartFile], object]) -> Iterator[str]:
        """Give the path of a file that `fill` wrote, for a block, after which it is removed.

        Raises:
            FetchError: The folder cannot be written, or its disk is full.
            WidsError: What `fill` raises.
        """
        self.folder.make()
        self._cleaned.get()
        with ExitStack() as stack:
            with self._explained(label):
                part = stack.enter_context(self._part_file("passing", label))
                fill(part)
            yield part.path

    def _clean(self) -> bool:
        """Remove leftovers, once in each process that writes."""
        remove_leftovers(Path(self.folder.bookkeeping))
        return True

    def _find(self, key: CacheKey) -> str | None:
        path = Path(self.folder.path, key.name)
        status, record = _status(path), self._read_record(key)
        if status is not None and record is not None and not _is_of(record, key, status):
            with self.space.turn():  # in which another process may have written the record, and not yet the file
                status, record = _status(path), self._read_record(key)
        if status is None:
            return None
        if record is None or not _is_of(record, key, status):
            return self._find_foreign(path, key, status)
        if record.source != key.source:
            raise FetchError(
                f"{key.label}: localname gives it the name {key.name!r}, as it does for {record.label}; "
                "it must return different names for different URLs"
            )
        # Another version was rewritten at its source; another size was damaged here. Both are fetched again.
        return str(path) if record.version == key.version and record.size == status.st_size else None

    def _find_foreign(self, path: Path, key: CacheKey, status: os.stat_result) -> str | None:
        """Return a file that was put there by others, or whose record was lost, where it can be the object."""
        if key.size is None or key.size == status.st_size:
            return str(path)
        if key.is_own_name:
            return None
        raise FetchError(
            f"{path}: has {status.st_size} bytes, expected {key.size} for {key.label}; the cache did not write this file "
            f"and leaves it alone: remove it, or {CHOOSE_ANOTHER}"
        )

    @contextmanager
    def _turn(self, key: CacheKey) -> Iterator[None]:
        """Wait until no other process or thread fetches the same file, or the one that does is dead or hangs."""
        import filelock

        # The file stays and flock goes with its holder: one that is killed frees it, and a fork does not keep it.
        lock = filelock.FileLock(self._bookkeeping(key, ".lock"), preserve_lock_file=True)
        watch = _Watch(Path(self.folder.bookkeeping), key)
        try:
            while True:
                with suppress(filelock.Timeout):
                    lock.acquire(timeout=_POLL_S)
                    break
                if watch.is_stuck():
                    _log.warning("%s: another process fetches it and does not get on; fetching it here too", key.label)
                    break
        except OSError as error:
            _log.debug("%s: fetched without a lock: %s", key.label, error)
        try:
            yield
        finally:
            if lock.is_locked:
                lock.release()

    def _write(self, key: CacheKey, fill: Callable[[PartFile], object], use: Callable[[str], T]) -> T:
        path = Path(self.folder.path, key.name)
        started = time.monotonic()
        with self._explained(key.label), self._part_file(key.id, key.label) as part:
            fill(part)
            status = part.status()
            path.parent.mkdir(parents=True, exist_ok=True)
            record = Record(
                key.name, key.source, key.version, status.st_size, status.st_ino, status.st_mtime_ns, key.label
            )
            with self.space.turn():
                self.space.make_room(status.st_size)
                # The record comes first: a file without one would be taken for somebody else's and never removed.
                self._write_record(key, record)
                part.publish(path)
                _log.debug("%s: %d bytes cached in %.1f s", key.label, status.st_size, time.monotonic() - started)
                return use(str(path))

    def _part_file(self, stem: str, label: str) -> PartFile:
        return PartFile(Path(self.folder.bookkeeping), stem, lambda wanted: self._make_room(label, wanted))

    def _make_room(self, label: str, wanted: int) -> None:
        """Remove shards until the disk has its margin, and `wanted` bytes more where it has just refused them.

        Raises:
            FetchError: No shard is left to remove.
        """
        if max(self.folder.missing_room(), wanted) <= 0:
            return
        remove_leftovers(Path(self.folder.bookkeeping))
        while (missing := max(self.folder.missing_room(), wanted)) > 0:
            if not self.space.free_disk(missing):
                raise self.folder.full(label)
            wanted = 0

    @contextmanager
    def _explained(self, label: str) -> Iterator[None]:
        """Say of an OSError of the folder what to do about it."""
        try:
            yield
        except FetchError:
            raise
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise self.folder.full(label) from error
            raise FetchError(
                f"{label}: cannot be written to the cache folder {self.folder.path}: {error.strerror}; {CHOOSE_ANOTHER}"
            ) from error

    def _read_record(self, key: CacheKey) -> Record | None:
        return read_record(self._bookkeeping(key, ".json"))

    def _write_record(self, key: CacheKey, record: Record) -> None:
        with PartFile(Path(self.folder.bookkeeping), key.id) as part:
            # No fsync: one that a power failure cuts makes a file stay for ever, and nothing wrong.
            part.write(json.dumps(asdict(record)).encode())
            part.publish(Path(self._bookkeeping(key, ".json")))

    def _bookkeeping(self, key: CacheKey, suffix: str) -> str:
        return str(Path(self.folder.bookkeeping, key.id + suffix))


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a cached file; None where it is not there."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FetchError(f"{path}: the cached shard cannot be read: {error.strerror}; {CHOOSE_ANOTHER}") from error


def _is_of(record: Record, key: CacheKey, status: os.stat_result) -> bool:
    """Tell whether a record is of the file that is there; what has the cache's own name was written by nobody else."""
    return key.is_own_name or record.describes(status)


class _Watch:
    """Sees whether another process's unfinished file grows.

    Args:
        folder: Of the unfinished files.
        key: Of the file that they become.
    """

    def __init__(self, folder: Path, key: CacheKey) -> None:
        self._folder = folder
        self._pattern = f"{key.id}-*.part"
        self._seen: set[tuple[str, int]] = set()
        self._since = time.monotonic()

    def is_stuck(self) -> bool:
        """Return whether nothing has changed for `_PATIENCE_S`."""
        # Compared with what was seen before and not with a clock: that of a file server may differ.
        seen = set()
        for path in self._folder.glob(self._pattern):
            with suppress(OSError):
                seen.add((path.name, path.stat().st_mtime_ns))
        if seen != self._seen:
            self._seen = seen
            self._since = time.monotonic()
        return time.monotonic() - self._since > _PATIENCE_S
