"""Compressed shards to plain ones, as streams, stopped before they fill the disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from wids.errors import FetchError, TarFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from wids.storage.disk_cache import DiskCache

_PIECE = 1 << 20
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_CHECK_EVERY = 64


def compression_of(path: str, url: str) -> str | None:
    """Return how a shard is compressed, by its first bytes: `gz`, `bz2`, `xz` or `zst`; None when it is not.

    A tar begins with a name, and no sensible name begins like this.

    Raises:
        FetchError: The file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(6)
    except OSError as error:
        raise FetchError(f"{url}: cannot be opened: {error.strerror}; is the path right?") from error
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def pieces(path: str, name: str, kind: str, cache: DiskCache) -> Iterator[bytes]:
    """Yield the unpacked bytes of a shard.

    Raises:
        TarFormatError: The compressed data is damaged or cut.
        FetchError: They do not fit on the disk, or a package is missing.
    """
    count = 0
    try:
        with _OPENERS[kind](path) as file:
            while piece := file.read(_PIECE):
                if count % _CHECK_EVERY == 0:
                    cache.check_space(_CHECK_EVERY * _PIECE, name)
                count += 1
                yield piece
    except FetchError:
        raise
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise TarFormatError(
            f"{name}: damaged: its {kind} data cannot be unpacked: {error}; fetch the shard again"
        ) from error


def _open_zst(path: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise FetchError(
            f"{path}: .zst shards need a package that is not installed; pip install 'wids[zstd]'"
        ) from error
    return _Zst(zstandard, path)


class _Zst:
    """All frames of a zstd file, its errors as OSError."""

    def __init__(self, zstandard: Any, path: str) -> None:
        self._error = zstandard.ZstdError
        self._file: IO[bytes] = Path(path).open("rb")  # noqa: SIM115  # closed at exit
        self._reader = zstandard.ZstdDecompressor().stream_reader(self._file, read_across_frames=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        try:
            data: bytes = self._reader.read(size)
        except self._error as error:
            raise OSError(str(error)) from error
        return data


_OPENERS: dict[str, Callable[[str], Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zst": _open_zst}
