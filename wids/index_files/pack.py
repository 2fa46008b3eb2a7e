"""A pack: the indexes of a dataset's shards in one file, which travels with them.

An entry fits a shard of the same size whose ends, and some headers between them, have the same digest.

The layout is that of ZIP (PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5), uncompressed and with every entry at a
multiple of 64 bytes, so that entries are mapped where they lie; each is an index as `wids.tar.kept` writes it. An
entry's name is the shard's URL relative to the pack, its comment what the shard must be.
"""

from __future__ import annotations

import logging
import warnings
import zipfile
from typing import TYPE_CHECKING

from wids.errors import redact
from wids.tar import MemberFile, decode_index, digest_ends, digest_headers, encode_index
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from wids.source import Source
    from wids.tar import TarIndex

_log = logging.getLogger(__name__)

SUFFIX = ".widx"
"""Of packs and of kept indexes."""

_ALIGNMENT = 64
_PADDING_FIELD = 0xD935
"""Id of the extra field that Android's zipalign pads with, which readers skip."""
_LOCAL_HEADER = 30
_DIRECTORY_BYTES = 256 << 10
"""Of a remote pack, read at once: the directory of some 1,500 shards."""


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

    def _named(self, url: str) -> list[zipfile.ZipInfo]:
        """Return the entries that may be of a shard: the one with its name, else those with the last part of it."""
        entry = self._by_name.get(entry_name(url, self._url))
        return self._by_basename.get(_basename(url), []) if entry is None else [entry]

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


def _headers(entry: zipfile.ZipInfo) -> str:
    return entry.comment.decode("ascii", "replace").rpartition(" ")[2]


def _size(entry: zipfile.ZipInfo) -> int:
    """Return how many bytes the shard of an entry has; -1 where it does not say."""
    size = _ends(entry).partition(" ")[0]
    return int(size) if size.isdecimal() else -1


def _most_bytes(entry: zipfile.ZipInfo) -> int:
    """Return a bound of what an entry takes, its local header with the padding included."""
    return _LOCAL_HEADER + len(entry.filename.encode()) + len(entry.extra) + 2 * _ALIGNMENT + entry.file_size


def _pad(offset: int) -> bytes:
    """Return an extra field after which the entry's data is aligned, when the field begins at `offset`."""
    length = -(offset + 4) % _ALIGNMENT
    return _PADDING_FIELD.to_bytes(2, "little") + length.to_bytes(2, "little") + bytes(length)


def _basename(url: str) -> str:
    return _without_query(url).rpartition("/")[2]


def _without_query(url: str) -> str:
    path = redact(url)
    return path.partition("?")[0] if "://" in path and not path.startswith("file:") else path
