"""What was found in shards, written down as soon as it is found, so that an interrupted run resumes and a later one is quick.

    .train.json.journal      beside train.json, while that is made and afterwards

The first line names the format. Then there is a record for each shard, in the order in which shards were done: three numbers
(bytes of the facts, bytes of the index, digest of both), the facts as JSON, and the index as the pack will hold it. A cut or
damaged record ends the journal, and is overwritten. Once descriptor and pack are written, the pack has the indexes, and the
journal is rewritten without them: a few hundred bytes a shard.

It may be removed at any time; the shards are then read again. One process writes it; another one that makes the same
descriptor at the same time uses a temporary file of its own.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
from xxhash import xxh3_64_intdigest

from wids.errors import WidsError, remedy_for
from wids.index_files import IndexPack
from wids.source import Identity, MmapSource
from wids.tar import decode_index
from wids.tools.describe import ShardDescription
from wids.tools.files import explaining, writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_FORMAT = b"wids journal 1\n"
_NUMBERS = struct.Struct("<QQQ")
_LONGEST_FACTS = 1 << 24
"""Bytes; a longer one is a damaged length, for which gigabytes would be read."""


class Journal:
    """The shards that are done, by URL.

    Args:
        output: The descriptor that it belongs to; None for one in a temporary file.
        pack: The index pack beside the descriptor, which may hold the indexes that the journal lacks.
        is_fresh: Discard what an earlier run found.

    Raises:
        OSError: It cannot be written.
        WidsError: A file that is no journal has its name.
    """

    def __init__(self, output: Path | None, pack: Path | None, *, is_fresh: bool = False) -> None:
        self._path = None if output is None else output.with_name(f".{output.name}.journal")
        self._pack = pack
        self._is_fresh = is_fresh
        self._found: dict[str, ShardDescription] = {}
        self._places: dict[str, tuple[int, int, str]] = {}
        self._old_pack: IndexPack | None = None

    def __enter__(self) -> Self:
        self._file, self._is_named = self._open()
        try:
            self._load()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_named and self._path is not None and not self._found:
            self._path.unlink(missing_ok=True)
        try:
            self._file.close()
        except OSError:
            if error is None:  # else `error` has the same cause: the disk is full
                raise

    def find(self, url: str, name: str) -> ShardDescription | None:
        """Return what was found in a shard; None where nothing was.

        Args:
            url: What the journal calls the shard, the same in all runs.
            name: What the pack calls it. If neither journal nor pack has its index any more, `packed` is None.
        """
        found = self._found.get(url)
        if found is None or found.packed is None or url in self._places:
            return found
        return found if self._find_packed(name, found) is not None else replace(found, packed=None)

    def add(self, url: str, found: ShardDescription) -> None:
        """Write down what was found in a shard.

        Raises:
            OSError: It cannot be written.
        """
        text, data = found.packed or ("", b"")
        with explaining(str(self._path or tempfile.gettempdir())):
            end = self._file.seek(0, os.SEEK_END)
            if end == 0:
                end = self._file.write(_FORMAT)
            start = _write_record(self._file, url, found, data)
            self._file.flush()
        self._found[url] = found.without_pack()
        self._places[url] = (end + start, len(data), text)

    def packed(self, url: str, name: str) -> tuple[str, bytes]:
        """Return what a pack is to hold of a shard that was found with an index; arguments are those of `find`.

        Raises:
            WidsError: Another process has changed the pack that had it.
        """
        if url in self._places:
            start, length, text = self._places[url]
            self._file.seek(start)
            return text, self._file.read(length)
        data = self._find_packed(name, self._found[url])
        if data is None:
            raise WidsError(f"{self._pack}: was changed by another process; run the command again")
        return data

    def settle(self, urls: Iterable[str]) -> None:
        """Keep only these shards, without their indexes, which the pack has now.

        Raises:
            OSError: It cannot be written.
        """
        if self._path is None or not self._is_named:
            return
        with writing(self._path) as file:
            file.write(_FORMAT)
            for url in dict.fromkeys(urls):
                _write_record(file, url, self._found[url], b"")

    def _open(self) -> tuple[BinaryIO, bool]:
        """Return the journal's file, locked, and whether it has its name: not if another process has it open."""
        if self._path is None:
            return tempfile.TemporaryFile(), False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.fdopen(os.open(self._path, flags, 0o666), "r+b")
        except OSError as error:
            raise WidsError(
                f"{self._path}: cannot be written: {error.strerror}; {remedy_for(error, 'name another folder')}"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return tempfile.TemporaryFile(dir=self._path.parent), False
        except OSError:
            pass  # a file system without locks: two writers at once are rare, and only make the next run read shards again
        return file, True

    def _load(self) -> None:
        start = self._file.read(len(_FORMAT))
        if start and start != _FORMAT[: len(start)] and not start.startswith(b"wids journal "):
            raise WidsError(f"{self._path}: is not a journal of widsindex; move it away")
        if start != _FORMAT or self._is_fresh:
            self._file.truncate(0)
            return
        end = len(_FORMAT)
        for url, found, place, length in _read_records(self._file):
            self._found[url] = found
            self._places.pop(url, None)
            if found.packed is not None and length:
                self._places[url] = (place, length, found.packed[0])
            end = place + length
        self._file.seek(end)
        self._file.truncate()

    def _find_packed(self, name: str, found: ShardDescription) -> tuple[str, bytes] | None:
        """Return what the pack of the last run holds of a shard; None unless it is whole and of the state that was found."""
        if self._old_pack is None and self._pack is not None:
            with suppress(Exception):  # zipfile raises half a dozen kinds for what is no ZIP
                self._old_pack = IndexPack(MmapSource(str(self._pack)), self._pack.name)
        if self._old_pack is None or found.packed is None:
            return None
        text = found.packed[0]
        try:
            data = self._old_pack.entry(name, text)
            index = None if data is None else decode_index(memoryview(data), text.rpartition(" ")[0])
        except ValueError:
            return None  # damaged
        if data is None or index is None or (index.checksums is not None) != found.has_checksums:
            return None
        return text, data


def _write_record(file: BinaryIO, url: str, found: ShardDescription, data: bytes) -> int:
    """Write a record; return the offset of the index in it."""
    facts = {**asdict(replace(found, packed=None)), "url": url, "packed": found.packed and found.packed[0]}
    text = orjson.dumps(facts)
    content = text + data
    file.write(_NUMBERS.pack(len(text), len(data), xxh3_64_intdigest(content)) + content)
    return _NUMBERS.size + len(text)


def _read_records(file: BinaryIO) -> Iterator[tuple[str, ShardDescription, int, int]]:
    """Yield URL and facts of each whole record, and offset and bytes of its index."""
    size = os.fstat(file.fileno()).st_size
    while len(numbers := file.read(_NUMBERS.size)) == _NUMBERS.size:
        text_bytes, data_bytes, digest = _NUMBERS.unpack(numbers)
        place = file.tell()
        if text_bytes > _LONGEST_FACTS or place + text_bytes + data_bytes > size:
            return
        content = file.read(text_bytes + data_bytes)
        if xxh3_64_intdigest(content) != digest:
            return
        url, found = _from_json(orjson.loads(content[:text_bytes]))
        yield url, found, place + text_bytes, data_bytes


def _from_json(facts: dict[str, Any]) -> tuple[str, ShardDescription]:
    url = facts.pop("url")
    identity, text = facts.pop("identity"), facts.pop("packed")
    return url, ShardDescription(
        identity=None if identity is None else Identity(**identity),
        packed=None if text is None else (text, b""),
        **facts,
    )
