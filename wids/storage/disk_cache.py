"""The disk cache: a file appears under its final name only when it is complete and verified.

    FOLDER/train-0007-4f1c….tar      shards, complete
    FOLDER/.wids/ID.lock             held while that shard is fetched; never removed
    FOLDER/.wids/ID.json             the record: what the cache wrote under that name
    FOLDER/.wids/ID-RANDOM.part      unfinished, locked by the process that writes it; removed when that process is dead
    …                                space.py: how often shards were opened, and what is needed next

A private temporary file, fsync and rename are enough to make the cache correct. The locks only keep a machine from fetching a
shard twice; when they are not available (in a file system without locks, or a folder that cannot be written), the cache works
without them. A file that does not match its record was not written by the cache, and is never replaced or removed.
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

    from wids.source import Source
    from wids.storage.names import CacheKey

_log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_S = 1.0
"""Seconds between a waiting process's checks whether the other process makes progress."""
_PATIENCE_S = 300.0
"""Seconds without progress after which a waiting process takes the other one to hang, and fetches the shard itself."""


class DiskCache:
    """Files of fetched shards, shared by all processes that use the same folder.

    Holds no lock and no open file between calls, so that it can be forked and pickled at any time.

    Args:
        folder: The cache folder; created when something is written.
        space: Its accounting and limit; None for the default limit.
    """

    def __init__(self, folder: CacheFolder, space: CacheSpace | None = None) -> None:
        self.folder = folder
        self.space = space or CacheSpace(folder)
        self._cleaned = PerProcess(self._clean)

    def obtain(self, key: CacheKey, fill: Callable[[PartFile], object], use: Callable[[str], T]) -> T:
        """Call `use` with the path of a cached file, and return its result; write the file first if it is not there.

        Args:
            key: Key of the file.
            fill: Writes the complete, verified content, or raises; called by one process at a time.
            use: Opens the file. When the file was just written, no other process can remove it before `use` returns.

        Raises:
            FetchError: The folder cannot be written, its disk is full, or another file has the name.
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
        """Return the path of a cached file; None when there is none, or it has another version.

        Raises:
            FetchError: Other users could have put files into the folder, or another file has the name.
        """
        self.folder.check()
        return self._find(key)

    def path(self, key: CacheKey) -> str:
        """Return the path that a file has in the cache, whether or not it exists."""
        return str(Path(self.folder.path, key.name))

    def note_use(self, key: CacheKey) -> None:
        """Count that a cached file was opened."""
        self.space.note_use(key.id)

    def remove(self, key: CacheKey) -> None:
        """Remove a cached file; do nothing when it is not there.

        Raises:
            FetchError: The cache did not write the file, or cannot remove it.
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
        """Remove shards that exceed the limit, and unfinished files of dead processes."""
        self.folder.check()
        if not Path(self.folder.bookkeeping).is_dir():
            return
        remove_leftovers(Path(self.folder.bookkeeping))
        with self.space.turn():
            self.space.make_room(0)

    def clear(self) -> None:
        """Remove everything that the cache has written, except the lock files."""
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
        """Yield the path of a file that does not exist yet; remove the file at the end of the `with` block."""
        self.folder.make()
        with scratch_path(Path(self.folder.bookkeeping)) as path:
            yield str(path)

    @contextmanager
    def passing_file(self, label: str, fill: Callable[[PartFile], object]) -> Iterator[str]:
        """Yield the path of a file that `fill` wrote; remove the file at the end of the `with` block.

        Args:
            label: Name of the content, for messages.
            fill: Writes the content.

        Raises:
            FetchError: The folder cannot be written, or its disk is full.
            WidsError: What `fill` raises.
        """
        self.folder.make()
        self._cleaned.get()
        with ExitStack() as stack:
            with self._explain_errors(label):
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
        if status is not None and record is not None and not _is_record_of(record, key, status):
            # Within a turn, another process may have written the record already, but not yet the file.
            with self.space.turn():
                status, record = _status(path), self._read_record(key)
        if status is None:
            return None
        if record is None or not _is_record_of(record, key, status):
            return self._find_foreign(path, key, status)
        if record.source != key.source:
            raise FetchError(
                f"{key.label}: localname gives it the name {key.name!r}, as it does for {record.label}; "
                "it must return different names for different URLs"
            )
        # A shard is fetched again when it was rewritten at its source (another version), or its cached file was damaged
        # (another size).
        return str(path) if record.version == key.version and record.size == status.st_size else None

    def _find_foreign(self, path: Path, key: CacheKey, status: os.stat_result) -> str | None:
        """Return the path of a file without a record of its own, if its size fits; None if it may be replaced.

        It was put there by another program, or its record was lost.
        """
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

        # The lock file is never removed. flock ends with its holder: killing that process frees it, and a forked child
        # does not keep it.
        lock = filelock.FileLock(self._bookkeeping(key, ".lock"), preserve_lock_file=True)
        watch = _Watch(Path(self.folder.bookkeeping), key)
        try:
            while True:
                with suppress(filelock.Timeout):
                    lock.acquire(timeout=_POLL_S)
                    break
                if watch.is_stuck():
                    _log.warning(
                        "%s: another process is fetching it but makes no progress; fetching it here too", key.label
                    )
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
        with self._explain_errors(key.label), self._part_file(key.id, key.label) as part:
            fill(part)
            status = part.status()
            path.parent.mkdir(parents=True, exist_ok=True)
            record = Record(
                key.name, key.source, key.version, status.st_size, status.st_ino, status.st_mtime_ns, key.label
            )
            with self.space.turn():
                self.space.make_room(status.st_size)
                # The record is written first, because a file without one does not count as the cache's own, and would never
                # be removed.
                self._write_record(key, record)
                part.publish(path)
                _log.debug("%s: %d bytes cached in %.1f s", key.label, status.st_size, time.monotonic() - started)
                return use(str(path))

    def _part_file(self, stem: str, label: str) -> PartFile:
        return PartFile(Path(self.folder.bookkeeping), stem, lambda wanted: self._make_room(label, wanted))

    def _make_room(self, label: str, wanted: int) -> None:
        """Remove shards until the disk has its margin of free space.

        Args:
            label: Name of the content that is being written, for messages.
            wanted: Bytes that the full disk has just refused to write, so that at least as many are removed; else 0.

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
    def _explain_errors(self, label: str) -> Iterator[None]:
        """Turn an OSError of the folder into a FetchError with a remedy."""
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
            # No fsync: a record cut by a power failure only means that its file is never removed.
            part.write(json.dumps(asdict(record)).encode())
            part.publish(Path(self._bookkeeping(key, ".json")))

    def _bookkeeping(self, key: CacheKey, suffix: str) -> str:
        return str(Path(self.folder.bookkeeping, key.id + suffix))


class Opening:
    """One attempt to open a cached file; remembers the path, and whether the file had to be fetched.

    Args:
        fetch: Fetches the content into a file.
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


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a cached file; None when it is not there."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FetchError(f"{path}: the cached shard cannot be read: {error.strerror}; {CHOOSE_ANOTHER}") from error


def _is_record_of(record: Record, key: CacheKey, status: os.stat_result) -> bool:
    """Return whether the record is that of the existing file; a name with digests is only ever written by the cache."""
    return key.is_own_name or record.describes(status)


class _Watch:
    """Tells whether the process that fetches a file makes progress.

    Args:
        folder: Folder of unfinished files.
        key: Key of the file.
    """

    def __init__(self, folder: Path, key: CacheKey) -> None:
        self._folder = folder
        self._pattern = f"{key.id}-*.part"
        self._seen: set[tuple[str, int]] = set()
        self._since = time.monotonic()

    def is_stuck(self) -> bool:
        """Return whether the unfinished files have not changed for `_PATIENCE_S`."""
        # Their times are compared with those seen before, and not with this machine's clock: a file server's may differ.
        seen = set()
        for path in self._folder.glob(self._pattern):
            with suppress(OSError):
                seen.add((path.name, path.stat().st_mtime_ns))
        if seen != self._seen:
            self._seen = seen
            self._since = time.monotonic()
        return time.monotonic() - self._since > _PATIENCE_S
