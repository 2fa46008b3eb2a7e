"""Indexes of single shards in the cache folder, each for one state of one file: size, times and inode, or the ETag."""

from __future__ import annotations

import logging
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from xxhash import xxh3_128_hexdigest

from wids.index_files.pack import SUFFIX
from wids.tar import decode_index, encode_index
from wids.whole_file import whole_file
from wids.words import storable

if TYPE_CHECKING:
    from wids.source import Identity, Source
    from wids.storage import Storage
    from wids.tar import TarIndex

_log = logging.getLogger(__name__)

_MAX_CACHED_BYTES = 1 << 30
"""Most bytes of all indexes in a cache folder. Rebuilding one takes less time than downloading its shard."""
_KEPT_SHARE = 0.8
"""Part of `_MAX_CACHED_BYTES` down to which the oldest are removed."""
_CHECK_EVERY = 256
"""Indexes that a process writes between two checks of their total size."""
_CLOCK_STEP_NS = 10_000_000
"""How far the time of a change may be behind the clock: Linux sets its clock for file times 100 to 1,000 times a second."""


class IndexCache:
    """Indexes of single shards in the cache folder.

    Args:
        storage: Storage that has the cache folder.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._num_written = 0

    def find(self, source: Source) -> TarIndex | None:
        """Return the index that was stored for this state of the file; None when there is none that can be used."""
        shard = _name_state(source)
        if shard is None:
            return None
        path = self._path(shard)
        try:
            self._storage.check_cache_folder()
            data = _map_file(path)
        except (OSError, ValueError):
            return None
        try:
            index = decode_index(data, shard)
        except ValueError as error:
            _log.debug("%s: the kept index %s is not used: %s", source.name, path, error)
            return None
        # `_remove_oldest` goes by this time. It cannot be set in a folder that belongs to another user.
        with suppress(OSError):
            os.utime(path)
        return index

    def wait_for_clock(self, source: Source) -> None:
        """Wait until any further change of a file will show in its change time; at most 10 ms, for a file changed just now.

        Two changes within one step of the clock leave the same time. An index built between them would fit no less after the
        second, and be used for a file that it does not describe. Files of the disk cache are replaced, and never changed.
        """
        changed = source.identity.ctime_ns
        if changed is not None and not source.cached_bytes:
            age = time.time_ns() - changed
            if 0 <= age < _CLOCK_STEP_NS:  # else the change is old, or a file server's clock is ahead
                time.sleep((_CLOCK_STEP_NS - age) / 1e9)

    def keep(self, source: Source, index: TarIndex) -> TarIndex:
        """Store an index, and return it mapped from its file, so that all processes share its memory.

        A failure to write is only logged, at debug level.
        """
        shard = _name_state(source)
        if shard is None:
            return index
        data = encode_index(index, shard)
        path = self._path(shard)
        try:
            self._storage.make_cache_folder()
            path.parent.mkdir(exist_ok=True)
            with whole_file(path, sync=False) as file:  # a file cut by a power failure fails its digest and is rebuilt
                file.write(data)
            self._num_written += 1
            if self._num_written % _CHECK_EVERY == 1:
                _remove_oldest(path.parent)
            return decode_index(_map_file(path), shard)
        except (OSError, ValueError) as error:
            _log.debug("%s: its index is not kept: %s", source.name, error)
            return decode_index(memoryview(data), shard)

    def _path(self, shard: str) -> Path:
        return Path(self._storage.cache_dir, ".wids", "index", xxh3_128_hexdigest(shard.encode()) + SUFFIX)


def _name_state(source: Source) -> str | None:
    """Return what identifies the object and its present state; None when its store does not provide enough to tell."""
    identity: Identity = source.identity
    if identity.etag is None and identity.ctime_ns is None:
        return None
    return orjson.dumps([storable(source.name), identity]).decode()


def _map_file(path: Path) -> memoryview:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used indexes when all together exceed `_MAX_CACHED_BYTES`."""
    files = []
    for path in folder.iterdir():
        with suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= _MAX_CACHED_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= _KEPT_SHARE * _MAX_CACHED_BYTES:
            return
        with suppress(OSError):
            path.unlink()
        total -= size
