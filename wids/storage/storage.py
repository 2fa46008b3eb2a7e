"""A shard's entry in the descriptor to an opened `Source`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from wids.errors import FetchError, ShardMismatchError, redact
from wids.source import MmapSource, PreadSource
from wids.storage import unpack
from wids.storage.disk_cache import DiskCache, digest_of
from wids.storage.options import StorageOptions
from wids.storage.transport import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.source import Source

_PIECE = 1 << 20
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "cifs",
        "smb3",
        "smbfs",
        "gpfs",
        "beegfs",
        "ceph",
        "glusterfs",
        "9p",
        "afs",
        "panfs",
        "orangefs",
    }
)


class Storage:
    """Opens shards and reads descriptors; pickles, and holds nothing that a fork could break.

    Args:
        options: How.
    """

    def __init__(self, options: StorageOptions | None = None) -> None:
        self.options = options or StorageOptions()
        self._cache = DiskCache(self.options.cache_dir)

    @property
    def cache_dir(self) -> str:
        """Folder of the disk cache; it exists only when something was written to it."""
        return str(self._cache.folder)

    def open(self, shard: Mapping[str, Any]) -> Source:
        """Open a shard: a local one where it lies, any other from the disk cache, fetched if it is not there.

        Args:
            shard: `url`, and `filesize` and `md5sum` where they are known.

        Raises:
            FetchError: It cannot be opened or fetched.
            ShardMismatchError: Its size or checksum is not what `shard` says.
            TarFormatError: It is compressed, and damaged.
        """
        url = str(shard["url"])
        path = local_path(url)
        if path is None or self.options.cache_local:
            path = self._fetch(url, path, shard)
        else:
            self._compare(path, url, shard)
        kind = unpack.compression_of(path, url)
        if kind is not None:
            path = self._unpack(path, url, kind)
        return self._open_file(path, redact(url))

    def read(self, url: str) -> bytes:
        """Return the whole content of a small object, a descriptor, say.

        Raises:
            FetchError: It cannot be read.
        """
        path = local_path(url)
        if path is None:
            return b"".join(open_stream(url, self.options))
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise FetchError(f"{url}: cannot be read: {error.strerror}; is the path right?") from error

    def _open_file(self, path: str, name: str) -> Source:
        by_pread = self.options.io == "pread" or (self.options.io == "auto" and _is_on_network(path))
        return PreadSource(path, name) if by_pread else MmapSource(path, name)

    def _fetch(self, url: str, path: str | None, shard: Mapping[str, Any]) -> str:
        """Return the path of a shard in the cache."""
        name = self.options.localname(url) if self.options.localname is not None else None
        identity = "" if path is None else _stamp(path, url)
        key = digest_of(url, shard.get("filesize"), shard.get("md5sum"), identity)

        def pieces() -> Iterator[bytes]:
            stream = _read_file(path) if path is not None else open_stream(url, self.options)
            return self._checked(stream, url, shard)

        return str(self._cache.get(url, key, pieces, name))

    def _unpack(self, path: str, url: str, kind: str) -> str:
        key = digest_of(url, "unpacked", _stamp(path, url))
        return str(
            self._cache.get(url, key, lambda: unpack.pieces(path, redact(url), kind, self._cache), None, unpacked=True)
        )

    def _compare(self, path: str, url: str, shard: Mapping[str, Any]) -> None:
        """Compare a local shard with its entry."""
        if self.options.checksum == "none":
            return
        expected = shard.get("filesize")
        if expected is not None:
            with contextlib.suppress(FileNotFoundError):  # said better where it is opened
                _check_size(Path(path).stat().st_size, expected, url)
        if self.options.checksum == "md5" and shard.get("md5sum"):
            for _ in self._checked(_read_file(path), url, shard):
                pass

    def _checked(self, stream: Iterator[bytes], url: str, shard: Mapping[str, Any]) -> Iterator[bytes]:
        """Pass a shard's bytes on; raise at their end when they are not what its entry says."""
        wants_md5 = self.options.checksum == "md5" and shard.get("md5sum")
        digest = hashlib.md5(usedforsecurity=False)
        size = 0
        for piece in stream:
            size += len(piece)
            if wants_md5:
                digest.update(piece)
            yield piece
        if self.options.checksum != "none" and shard.get("filesize") is not None:
            _check_size(size, shard["filesize"], url)
        if wants_md5 and digest.hexdigest() != str(shard["md5sum"]).lower():
            raise ShardMismatchError(
                f"{redact(url)}: has MD5 {digest.hexdigest()}, but its descriptor says {shard['md5sum']}; fetch the shard "
                "again, or correct the descriptor with: widsindex update --recount"
            )


def local_path(url: str) -> str | None:
    """Return the path that a URL names on this machine, None for what is elsewhere.

    Examples:
        >>> local_path("file:///data/a%20b.tar"), local_path("/data/a?b.tar"), local_path("s3://b/a.tar")
        ('/data/a b.tar', '/data/a?b.tar', None)
    """
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    if "://" in url or url.startswith("pipe:"):
        return None
    return os.path.expanduser(url)  # noqa: PTH111  # Path would normalise


def _check_size(size: int, expected: int, url: str) -> None:
    if size != expected:
        raise ShardMismatchError(
            f"{redact(url)}: has {size} bytes, but its descriptor says {expected}; fetch the shard again, or correct the "
            "descriptor with: widsindex update --recount"
        )


def _stamp(path: str, url: str) -> str:
    """Return what changes when a local file does."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise FetchError(f"{redact(url)}: cannot be opened: {error.strerror}; is the path right?") from error
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _read_file(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as error:
        raise FetchError(f"{path}: cannot be read: {error.strerror}; is the path right?") from error


def _is_on_network(path: str) -> bool:
    """Tell whether a file lies on a file system whose files other machines may truncate; only Linux says."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    real = os.path.realpath(path)
    best = ("", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1] in _NETWORK_FILE_SYSTEMS or best[1].startswith("fuse.")
