"""Where indexes of shards are kept: in the pack that a descriptor names, else in the cache folder.

    train.widx                          a pack: a ZIP of stored entries, one per shard, beside the descriptor
    CACHE/.wids/index/DIGEST.widx       one shard's index, for the very file that was read

A pack travels: its entry fits a shard of the same size whose ends, and some headers between them, have the same digest. A cached index fits only
the very file: size, times and inode, or the store's tag. What does not fit, is damaged or of another version is made
anew for that shard alone.

A pack's layout is that of ZIP (PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5), uncompressed and with every entry at a
multiple of 64 bytes, so that entries are mapped where they lie; each is an index as `wids.tar.kept` writes it. An
entry's name is the shard's URL relative to the pack, its comment what the shard must be.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
import warnings
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from xxhash import xxh3_128_hexdigest

from wids.errors import FetchError, redact
from wids.storage import ReadAhead
from wids.tar import MemberFile, build_index, decode_index, digest_ends, digest_headers, encode_index, parse_offsets
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wids.source import Identity, Source
    from wids.storage import Storage
    from wids.tar import TarIndex

_log = logging.getLogger(__name__)

SUFFIX = ".widx"

_ALIGNMENT = 64
_PADDING_FIELD = 0xD935
"""Id of the extra field that Android's zipalign pads with, which readers skip."""
_LOCAL_HEADER = 30
_DIRECTORY_BYTES = 256 << 10
"""Of a remote pack, read at once: the directory of some 1,500 shards."""
_MAX_CACHED_BYTES = 1 << 30
"""Of all indexes in a cache folder; they are made anew in less time than it takes to download a shard."""
_KEPT_SHARE = 0.8
_TRY_AGAIN_AFTER_S = 300.0
"""A pack that could not be had is not asked for at each shard."""
_CHECK_EVERY = 256
"""Indexes that a process writes between two looks at how many bytes there are."""


class IndexFiles:
    """Finds the index of a shard where it was kept, or makes and keeps it.

    Safe to use from several threads and after a fork; pickles without what it has opened.

    Args:
        storage: Opens packs; its cache folder holds the indexes of shards without one.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._cache = IndexCache(storage)
        self._packs: dict[str, IndexPack | None] = {}
        self._fetched_again: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._locks: dict[tuple[int, str], threading.Lock] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexFiles, (self._storage,)

    def obtain(self, source: Source, shard: Mapping[str, Any]) -> TarIndex:
        """Return a shard's index.

        Args:
            source: The opened shard.
            shard: Its entry in the descriptor: `url`, and `index`, the URL of a pack, or `offsets`, that of a table of DALI's,
                where there is one.

        Raises:
            TarFormatError: It is damaged, or no tar.
            OSError: It cannot be read.
        """
        packed = self._find_packed(shard, source)
        if packed is not None:
            return packed
        return self._cache.find(source) or self._from_offsets(shard, source) or self.rebuild(source)

    def _from_offsets(self, shard: Mapping[str, Any], source: Source) -> TarIndex | None:
        """Return the index of a remote shard from a table that another tool left beside it.

        Scanning a shard that is here takes some 2 ms per 1,000 files; one that is elsewhere would come whole for it. Like
        that of a pack it is not kept: where it proves wrong, the shard is indexed anew.
        """
        url = shard.get("offsets")
        if url is None or not source.is_remote:
            return None
        try:
            return parse_offsets(self._storage.read(url), source)
        except (ValueError, FetchError) as error:
            _log.warning("%s: %s is not used for it, so it is indexed anew: %s", source.name, redact(url), error)
            return None

    def recall(self, shard: Mapping[str, Any]) -> TarIndex | None:
        """Return what the pack says of a shard, which is neither opened nor read; None where it has nothing that can fit.

        Args:
            shard: Its entry in the descriptor.
        """
        url = shard.get("index")
        pack = None if url is None else self._open_pack(url)
        return None if pack is None else pack.recall(str(shard["url"]), self._storage.plain_size(shard))

    def forget(self, shard: Mapping[str, Any]) -> None:
        """Let what `recall` gave of a shard leave this process's memory; it can still be used, and is read again then."""
        pack = self._packs.get(shard["index"]) if shard.get("index") else None
        if pack is not None:
            pack.forget(str(shard["url"]))

    def rebuild(self, source: Source) -> TarIndex:
        """Return a shard's index, made from its headers and kept.

        Raises:
            TarFormatError: It is damaged, or no tar.
            OSError: It cannot be read.
        """
        self._storage.meter.add("index_builds")
        return self._cache.keep(source, build_index(ReadAhead(source) if source.is_remote else source))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process that uses the same cache folder is in such a block.

        Where the folder cannot be written, each goes on without the others.
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
        url = shard.get("index")
        pack = None if url is None else self._open_pack(url)
        if url is None or pack is None:
            return None
        found = pack.find(str(shard["url"]), source)
        if found is None and pack.is_cached and url not in self._fetched_again:
            # The copy in the cache may be of a pack that was written again since.
            self._fetched_again.add(url)
            with suppress(FetchError):
                self._storage.remove_cached({"url": url})
                self._packs.pop(url, None)
                pack = self._open_pack(url)
                found = None if pack is None else pack.find(str(shard["url"]), source)
        if found is None and pack is not None:
            pack.warn(source.name)
        return found

    def _open_pack(self, url: str) -> IndexPack | None:
        with self._locks.setdefault((os.getpid(), url), threading.Lock()):
            if url in self._packs:
                return self._packs[url]
            if time.monotonic() < self._not_before.get(url, 0):
                return None
            try:
                self._packs[url] = IndexPack(self._storage.open({"url": url}), url)
            except Exception as error:  # zipfile raises half a dozen kinds for what is no ZIP
                _log.warning("%s: the index pack cannot be used, so shards are indexed anew: %s", redact(url), error)
                if isinstance(error, FetchError):  # which may pass
                    self._not_before[url] = time.monotonic() + _TRY_AGAIN_AFTER_S
                else:
                    self._packs[url] = None
            return self._packs.get(url)


class IndexCache:
    """Indexes of single shards in the cache folder.

    Args:
        storage: Whose cache folder it is.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._num_written = 0

    def find(self, source: Source) -> TarIndex | None:
        """Return what was kept of this very file, None when there is nothing, or nothing that can be used."""
        shard = _very_file(source)
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
        # The time tells which indexes are in use; in a folder of somebody else's it stays as it is.
        with suppress(OSError):
            os.utime(path)
        return index

    def keep(self, source: Source, index: TarIndex) -> TarIndex:
        """Write an index for later, and return it as others will find it: mapped, so that all processes share it."""
        shard = _very_file(source)
        if shard is None:
            return index
        data = encode_index(index, shard)
        path = self._path(shard)
        try:
            self._storage.make_cache_folder()
            path.parent.mkdir(exist_ok=True)
            with whole_file(path, sync=False) as file:  # what a power failure cuts has another digest, and is made anew
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


class IndexPack:
    """The indexes of a dataset's shards, in one file.

    Args:
        source: The pack.
        url: Of the pack; entries are named relative to it.

    Raises:
        Exception: It is no ZIP, whatever `zipfile` raises then.
    """

    def __init__(self, source: Source, url: str) -> None:
        self._source = source
        self._url = url
        size = source.identity.size
        if source.is_remote:  # the directory is at the end: one request for it, and none for its parts
            source.window(max(0, size - _DIRECTORY_BYTES), size)
        with MemberFile(source, [(0, 0, size)], size) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        self._by_name = {entry.filename: entry for entry in entries}
        self._by_shard = {(_basename(entry.filename), _ends(entry)): entry for entry in entries}
        self._by_basename: dict[str, list[zipfile.ZipInfo]] = {}
        for entry in entries:
            self._by_basename.setdefault(_basename(entry.filename), []).append(entry)
        self._warned = False
        self._reason = ""

    @property
    def is_cached(self) -> bool:
        """Whether it is a copy in the disk cache."""
        return self._source.cached_bytes > 0

    @property
    def has_checksums(self) -> bool:
        """Whether its indexes have a checksum of each member, as the first one tells.

        Raises:
            ValueError: That one is damaged.
        """
        for entry in self._by_name.values():
            return decode_index(self._window(entry), _ends(entry)).checksums is not None
        return False

    def find(self, url: str, source: Source) -> TarIndex | None:
        """Return the index of a shard, None when there is none that fits; `warn` says why."""
        entry = self._by_name.get(entry_name(url, self._url))
        if source.is_remote and entry is not None and _size(entry) == source.identity.size:
            ends = _ends(entry)  # no request for them: headers are compared when samples are read
        else:
            ends = digest_ends(source)
        if entry is None or _ends(entry) != ends:
            # Shards that were moved without their pack, or the other way round, are found by what they are.
            entry = self._by_shard.get((_basename(url), ends))
        reason = "it has no entry that fits"
        if entry is not None:
            try:
                index = decode_index(self._window(entry), ends)
            except ValueError as error:
                reason = str(error)
            else:
                if source.is_remote or _headers(entry) == digest_headers(source, index):
                    return index
        self._reason = reason
        return None

    def recall(self, url: str, size: int | None) -> TarIndex | None:
        """Return the index that was made of a shard, without a look at the shard.

        Args:
            url: Of the shard.
            size: Bytes in it, None where that is not known.

        Returns:
            None when there is none of this name and size, or more than one.
        """
        fitting = [entry for entry in self._named(url) if size is None or _size(entry) == size]
        if len(fitting) != 1:
            return None
        try:
            return decode_index(self._window(fitting[0]), _ends(fitting[0]))
        except ValueError as error:
            _log.debug("%s: its entry for %s is not used: %s", redact(self._url), redact(url), error)
            return None

    def forget(self, url: str) -> None:
        """Let the entries of a shard leave this process's memory."""
        self._source.advise(
            [(entry.header_offset, entry.header_offset + _most_bytes(entry)) for entry in self._named(url)], "done"
        )

    def _named(self, url: str) -> list[zipfile.ZipInfo]:
        """Return the entries that may be of a shard: the one with its name, else those with the last part of it."""
        entry = self._by_name.get(entry_name(url, self._url))
        return self._by_basename.get(_basename(url), []) if entry is None else [entry]

    def entry(self, url: str, shard: str) -> bytes | None:
        """Return what `pack_index` returned of a shard, None where the entry of this URL is not for this very `shard`."""
        entry = self._by_name.get(entry_name(url, self._url))
        if entry is None or entry.comment != shard.encode():
            return None
        return bytes(self._window(entry))

    def warn(self, name: str) -> None:
        """Say why there was no index for a shard: a warning for the first one.

        Args:
            name: Of the shard.
        """
        _log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "%s: the index pack %s is not used for it: %s; write it again with: widsindex create --index",
            name,
            redact(self._url),
            self._reason,
        )
        self._warned = True

    def _window(self, entry: zipfile.ZipInfo) -> memoryview:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its entry is compressed")
        if self._source.is_remote:  # one request for all of it
            self._source.window(entry.header_offset, entry.header_offset + _most_bytes(entry))
        header = self._bytes(entry.header_offset, entry.header_offset + _LOCAL_HEADER)
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = entry.header_offset + _LOCAL_HEADER + skipped
        data = self._bytes(start, start + entry.file_size)
        # Columns are read as numbers where they lie, so that they must lie as aligned as they do in the file.
        return memoryview(bytes(data)) if self._source.is_remote else data

    def _bytes(self, start: int, stop: int) -> memoryview:
        view, base = self._source.window(start, stop)
        part = view[start - base : stop - base]
        if len(part) != stop - start:
            raise ValueError("it is damaged: it ends inside an entry")
        return part


def pack_index(source: Source, index: TarIndex) -> tuple[str, bytes]:
    """Return what a pack holds of one shard: what the shard must be, and its index."""
    ends = digest_ends(source)
    return f"{ends} {digest_headers(source, index)}", encode_index(index, ends)


def unpack_index(packed: tuple[str, bytes]) -> TarIndex:
    """Return the index that `pack_index` packed."""
    shard, data = packed
    return decode_index(memoryview(data), shard.rpartition(" ")[0])


def write_pack(path: Path, url: str, entries: Iterable[tuple[str, str, bytes]]) -> None:
    """Write a pack, in place of what has its name, when it is whole.

    Args:
        path: Of the pack.
        url: Where readers will find it; entries are named relative to it.
        entries: URL of each shard, and what `pack_index` returns of it; taken one by one, and none is kept.
    """
    written = set()
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive, warnings.catch_warnings():
        # Two URLs that differ only in their queries have one name; their entries differ in what they are for.
        warnings.filterwarnings("ignore", "Duplicate name", UserWarning)
        for shard_url, shard, data in entries:
            if (shard_url, shard) in written:
                continue
            written.add((shard_url, shard))
            # A fixed time: equal shards give equal packs.
            entry = zipfile.ZipInfo(entry_name(shard_url, url))
            entry.comment = shard.encode()
            entry.extra = _pad(file.tell() + _LOCAL_HEADER + len(entry.filename.encode()))
            archive.writestr(entry, data)


def entry_name(url: str, pack_url: str) -> str:
    """Return what the entry of a shard is called: its URL as seen from the pack, without signing parameters.

    Examples:
        >>> entry_name("/data/train/a.tar", "/data/train.widx"), entry_name("https://x.org/a.tar?sig=1", "/data/t.widx")
        ('train/a.tar', 'https://x.org/a.tar')
    """
    folder = _without_query(pack_url).rpartition("/")[0]
    path = _without_query(url)
    return path.removeprefix(f"{folder}/") if folder else path


def _ends(entry: zipfile.ZipInfo) -> str:
    return entry.comment.decode("ascii", "replace").rpartition(" ")[0]


def _size(entry: zipfile.ZipInfo) -> int:
    """Return how many bytes the shard of an entry has; -1 where it does not say."""
    size = _ends(entry).partition(" ")[0]
    return int(size) if size.isdecimal() else -1


def _most_bytes(entry: zipfile.ZipInfo) -> int:
    """Return a bound of what an entry takes, its local header with the padding included."""
    return _LOCAL_HEADER + len(entry.filename.encode()) + len(entry.extra) + 2 * _ALIGNMENT + entry.file_size


def _headers(entry: zipfile.ZipInfo) -> str:
    return entry.comment.decode("ascii", "replace").rpartition(" ")[2]


def _pad(offset: int) -> bytes:
    """Return an extra field after which the entry's data is aligned, when the field begins at `offset`."""
    length = -(offset + 4) % _ALIGNMENT
    return _PADDING_FIELD.to_bytes(2, "little") + length.to_bytes(2, "little") + bytes(length)


def _basename(url: str) -> str:
    return _without_query(url).rpartition("/")[2]


def _without_query(url: str) -> str:
    path = redact(url)
    return path.partition("?")[0] if "://" in path and not path.startswith("file:") else path


def _very_file(source: Source) -> str | None:
    """Return what names this very object and state of it, None where its store does not say enough."""
    identity: Identity = source.identity
    if identity.etag is None and identity.ctime_ns is None:
        return None
    return orjson.dumps([source.name, identity]).decode()


def _map_file(path: Path) -> memoryview:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _remove_oldest(folder: Path) -> None:
    """Remove the indexes that were not used for longest, when there are too many bytes of them."""
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
