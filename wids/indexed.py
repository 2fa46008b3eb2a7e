"""`IndexedTarSamples`: the samples of a single tar shard, by position or key."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from operator import index as as_index
from typing import IO, TYPE_CHECKING, Any

from wids.closing import Closing
from wids.errors import ShardMismatchError
from wids.source import BufferSource, MmapSource
from wids.tar import TarReader, build_index
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.source import Source

logger = logging.getLogger(__name__)


class IndexedTarSamples(Closing):
    """The samples of one local tar shard, undecoded: `{".jpg": io.BytesIO, …, "__key__": …}`.

    Args:
        path: Path of the shard.
        stream: An open binary file to read instead of `path`. A file on disk is mapped; anything else is read into memory.
        md5sum: The shard's expected MD5, 32 hexadecimal digits; None skips the check.
        expected_size: The expected number of samples; None skips the check.

    Raises:
        ValueError: Both or neither of `path` and `stream` are given.
        ShardMismatchError: The number of samples or the MD5 differs from the expected one.
        TarFormatError: The shard is damaged, or is not a tar.
        FetchError: The shard cannot be opened.

    Examples:
        >>> with IndexedTarSamples("shard-0000.tar") as samples:
        ...     len(samples), samples[3][".txt"].read()
        (50, b'text of 3')
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        stream: IO[bytes] | None = None,
        md5sum: str | None = None,
        expected_size: int | None = None,
    ) -> None:
        if (path is None) == (stream is None):
            raise ValueError("give either path or stream")
        source = _open_stream(stream) if stream is not None else MmapSource(os.fspath(path))  # type: ignore[arg-type]
        self.path = source.name
        if md5sum is not None:
            found = hashlib.md5(source.window(0, source.identity.size)[0], usedforsecurity=False).hexdigest()
            if found != md5sum.lower():
                raise ShardMismatchError(f"{self.path}: has MD5 {found}, expected {md5sum}; fetch the shard again")
        reader = TarReader(source, build_index(source))
        if expected_size is not None and reader.num_samples != expected_size:
            raise ShardMismatchError(
                f"{self.path}: has {counted(reader.num_samples, 'sample')}, expected {expected_size}; fetch the shard again"
            )
        for note in reader.notes:
            logger.warning("%s: %s", self.path, note)
        self._reader: TarReader | None = reader
        self._positions: dict[str, int] | None = None

    def __len__(self) -> int:
        return self._open_reader().num_samples

    def __getitem__(self, position: int | str) -> dict[str, Any]:
        """Return a sample by its position (negative ones count from the end) or its key.

        Raises:
            IndexError: The position is out of range.
            KeyError: No sample has this key.
        """
        reader = self._open_reader()
        if isinstance(position, str):
            position = self._find_key(position)
        number = as_index(position)
        if not -reader.num_samples <= number < reader.num_samples:
            raise IndexError(
                f"{self.path}: position {number} is out of range for {counted(reader.num_samples, 'sample')}"
            )
        number %= reader.num_samples
        return {**reader.read(number, io.BytesIO), "__key__": reader.key(number)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for position in range(len(self)):
            yield self[position]

    def __contains__(self, key: object) -> bool:
        return key in self._key_positions()

    def keys(self) -> list[str]:
        """Return the keys of all samples, in order."""
        reader = self._open_reader()
        return [reader.key(position) for position in range(reader.num_samples)]

    def close(self) -> None:
        """Release the map. Memory is unmapped when the last view of it is gone."""
        self._reader = None

    def _open_reader(self) -> TarReader:
        if self._reader is None:
            raise ValueError(f"{self.path}: was closed; make a new IndexedTarSamples")
        return self._reader

    def _find_key(self, key: str) -> int:
        positions = self._key_positions()
        if key not in positions:
            raise KeyError(f"{key!r}: {self.path} has no sample with this key")
        return positions[key]

    def _key_positions(self) -> dict[str, int]:
        if self._positions is None:
            # Filled from the last sample to the first, so that a repeated key maps to its lowest position.
            self._positions = {key: position for position, key in reversed(list(enumerate(self.keys())))}
        return self._positions


def _open_stream(stream: IO[bytes]) -> Source:
    name = getattr(stream, "name", None)
    if isinstance(name, str) and _is_open_at(stream, name):
        return MmapSource(name)
    if stream.seekable():
        stream.seek(0)
    return BufferSource(stream.read(), name if isinstance(name, str) else "stream")


def _is_open_at(stream: IO[bytes], name: str) -> bool:
    """Return whether `name` still leads to the open file, and reading `stream` gives the file's own bytes.

    A file opened by `gzip.open`, for example, has a name, but its bytes are not those of the file.
    """
    try:
        return isinstance(stream, (io.BufferedReader, io.FileIO)) and os.path.samestat(
            os.fstat(stream.fileno()),
            os.stat(name),  # noqa: PTH116  # a name, not yet known to be a path
        )
    except OSError:
        return False
