"""Bytes to a compressed file, in the format of its name; equal contents give equal bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from typing import IO, Any, Protocol

from wids.decode.packages import require
from wids.storage.compression import compression_of_name


class Sink(Protocol):
    """Takes bytes in order."""

    def write(self, data: Any, /) -> Any:
        """Take the next bytes."""
        ...

    def close(self) -> None:
        """Write what is left; the file that is written to stays open."""
        ...


def open_packer(name: str, file: IO[bytes]) -> Sink | None:
    """Return a sink that compresses into `file` in the format of a shard's name; None for a plain shard.

    Raises:
        ModuleNotFoundError: A package is missing; says how to install it.
    """
    compression = compression_of_name(name)
    if compression is None:
        return None
    if compression.name == "gzip":
        return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
    if compression.name == "bzip2":
        return bz2.BZ2File(file, "wb")
    if compression.name == "xz":
        return lzma.LZMAFile(file, "wb")
    compressor = require("zstandard", "wids[zstd]").ZstdCompressor(level=3, write_checksum=True)
    sink: Sink = compressor.stream_writer(file, closefd=False)
    return sink
