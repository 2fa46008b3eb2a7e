"""An index pack: the indexes of a dataset's shards in one file that is shared with them.

An entry fits a shard that has the same size and the same digests of its ends and of some headers between them.

The format is ZIP (PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5) without compression. The data of every entry begins at a
multiple of 64 bytes, so that entries can be mapped in place. An entry is an index in the format of `wids.tar.kept`; its name
is the shard's URL relative to the pack, and its comment has the size and the digests.
"""

from __future__ import annotations

import logging
import warnings
import zipfile
from itertools import count
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
"""File name suffix of packs and of stored indexes."""

_ALIGNMENT = 64
_PADDING_FIELD = 0xD935
"""Id of the extra field that Android's zipalign uses for padding; readers skip it."""
_LOCAL_HEADER = 30
"""Bytes of a local file header without its name and extra field."""
_DIRECTORY_BYTES = 256 << 10
"""Bytes at the end of a remote pack that are read at once: the directory of about 1,500 shards."""


class IndexPack:
    """The indexes of a dataset's shards, in one file.

    Args:
        source: The pack.
        url: URL of the pack; the names of its entries are relative to it.

    Raises:
        Exception: The file is not a ZIP archive; `zipfile` raises various types of error for that.
    """

    def __init__(self, source: Source, url: str) -> None:
        self._source = source
        self._url = url
        size = source.identity.size
        if source.is_remote:  # one request for the directory at the end, instead of several for its parts
            source.window(max(0, size - _DIRECTORY_BYTES), size)
        with MemberFile(source, [(0, 0, size)], size) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        self._by_name = {entry.filename: entry for entry in entries}
        self._by_shard = {(_basename(entry.filename), _ends(entry)): entry for entry in entries}
        self._by_basename: dict[str, list[zipfile.ZipInfo]] = {}
        for entry in entries:
            self._by_basename.setdefault(_basename(entry.filename), []).append(entry)
        self._num_warnings = count()
        self._reason = ""

    @property
    def is_cached(self) -> bool:
        """Whether this is a copy in the disk cache."""
        return self._source.cached_bytes > 0

    @property
    def has_checksums(self) -> bool:
        """Whether the indexes have a checksum for each member; only the first index is examined.

        Raises:
            ValueError: That index is damaged.
        """
        for entry in self._by_name.values():
            return decode_index(self._window(entry), _ends(entry)).checksums is not None
        return False

    def find(self, url: str, source: Source) -> TarIndex | None:
        """Return the index of an open shard; None when there is none that fits, and `warn` logs why."""
        entry = self._by_name.get(entry_name(url, self._url))
        if source.is_remote and entry is not None and _size(entry) == source.identity.size:
            ends = _ends(entry)  # saves a request: headers are compared when samples are read
        else:
            ends = digest_ends(source)
        if entry is None or _ends(entry) != ends:
            # When shards and pack were moved apart, entries are found by basename, size and digest.
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
        """Return the index of a shard by name and size, without reading the shard.

        Args:
            url: URL of the shard.
            size: Bytes in the shard; None when unknown.

        Returns:
            The index; None unless exactly one entry has this name and size and is undamaged.
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
        """Let the entries of a shard leave this process's memory; they are read again when used."""
        self._source.advise(
            [(entry.header_offset, entry.header_offset + _most_bytes(entry)) for entry in self._named(url)], "done"
        )

    def entry(self, url: str, shard: str) -> bytes | None:
        """Return the encoded index of a shard, as `pack_index` made it.

        Args:
            url: URL of the shard.
            shard: What identifies the shard, as `pack_index` returned it.

        Returns:
            The bytes of the entry; None when there is none of this URL, or it is for another shard.

        Raises:
            ValueError: The entry is damaged.
        """
        entry = self._by_name.get(entry_name(url, self._url))
        if entry is None or entry.comment != shard.encode():
            return None
        return bytes(self._window(entry))

    def warn(self, name: str) -> None:
        """Log why `find` returned no index for a shard: a warning for the first shard, debug messages for the others.

        Args:
            name: Name of the shard.
        """
        _log.log(
            logging.DEBUG if next(self._num_warnings) else logging.WARNING,
            "%s: the index pack %s is not used for it: %s; write it again with: widsindex create --index",
            name,
            redact(self._url),
            self._reason,
        )

    def _named(self, url: str) -> list[zipfile.ZipInfo]:
        """Return the entries that may be a shard's: the one with its name, else all that have its basename."""
        entry = self._by_name.get(entry_name(url, self._url))
        return self._by_basename.get(_basename(url), []) if entry is None else [entry]

    def _window(self, entry: zipfile.ZipInfo) -> memoryview:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its entry is compressed")
        if self._source.is_remote:  # one request for the whole entry
            self._source.window(entry.header_offset, entry.header_offset + _most_bytes(entry))
        header = self._bytes(entry.header_offset, entry.header_offset + _LOCAL_HEADER)
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = entry.header_offset + _LOCAL_HEADER + skipped
        data = self._bytes(start, start + entry.file_size)
        # Columns are read in place as numbers, so they need in memory the alignment that they have in the file.
        return memoryview(bytes(data)) if self._source.is_remote else data

    def _bytes(self, start: int, stop: int) -> memoryview:
        view, base = self._source.window(start, stop)
        part = view[start - base : stop - base]
        if len(part) != stop - start:
            raise ValueError("it is damaged: it ends inside an entry")
        return part


def pack_index(source: Source, index: TarIndex) -> tuple[str, bytes]:
    """Return the entry of one shard: what identifies the shard (size and digests), and its encoded index."""
    ends = digest_ends(source)
    return f"{ends} {digest_headers(source, index)}", encode_index(index, ends)


def unpack_index(packed: tuple[str, bytes]) -> TarIndex:
    """Return the index that `pack_index` packed."""
    shard, data = packed
    return decode_index(memoryview(data), shard.rpartition(" ")[0])


def write_pack(path: Path, url: str, entries: Iterable[tuple[str, str, bytes]]) -> None:
    """Write a pack atomically; a file that has its name is replaced.

    Args:
        path: Path of the pack.
        url: URL at which readers will find the pack; the names of its entries are relative to it.
        entries: URL of each shard and the two values that `pack_index` returns for it. They are consumed one by one and
            not kept in memory.
    """
    written = set()
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive, warnings.catch_warnings():
        # URLs that differ only in their queries give the same name; their entries are told apart by their comments.
        warnings.filterwarnings("ignore", "Duplicate name", UserWarning)
        for shard_url, shard, data in entries:
            if (shard_url, shard) in written:
                continue
            written.add((shard_url, shard))
            # ZipInfo sets a fixed time, so that equal shards give equal packs.
            entry = zipfile.ZipInfo(entry_name(shard_url, url))
            entry.comment = shard.encode()
            entry.extra = _pad(file.tell() + _LOCAL_HEADER + len(entry.filename.encode()))
            archive.writestr(entry, data)


def entry_name(url: str, pack_url: str) -> str:
    """Return the name of a shard's entry: its URL relative to the pack, without signing parameters.

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
    """Return the size in bytes of the shard that an entry is for; -1 when the comment has none."""
    size = _ends(entry).partition(" ")[0]
    return int(size) if size.isdecimal() else -1


def _most_bytes(entry: zipfile.ZipInfo) -> int:
    """Return an upper bound of the bytes of an entry, including its local header and padding."""
    return _LOCAL_HEADER + len(entry.filename.encode()) + len(entry.extra) + 2 * _ALIGNMENT + entry.file_size


def _pad(offset: int) -> bytes:
    """Return the extra field, beginning at `offset`, that aligns the data behind it."""
    length = -(offset + 4) % _ALIGNMENT
    return _PADDING_FIELD.to_bytes(2, "little") + length.to_bytes(2, "little") + bytes(length)


def _basename(url: str) -> str:
    return _without_query(url).rpartition("/")[2]


def _without_query(url: str) -> str:
    path = redact(url)
    return path.partition("?")[0] if "://" in path and not path.startswith("file:") else path
