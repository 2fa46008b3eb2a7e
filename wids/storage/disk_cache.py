"""The disk cache: a file appears under its final name only whole and verified.

A private temporary file in the same folder, fsync, rename: that alone makes it correct. A lock per file only keeps a machine
from fetching one twice; when its holder dies, the system frees it, and a waiter takes over. Lock files stay, since removing
one while another process waits for it would give two holders.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from wids.errors import FetchError, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SIGNING = re.compile(
    r"(?i)^(x-amz-|x-goog-|x-ms-|signature|expires|awsaccesskeyid|googleaccessid|key-pair-id|policy|se|sig|sp|sr|sv|st|token)"
)
_LONGEST_STEM = 100
_MARGIN = 64 << 20
"""Bytes of a disk that the cache leaves free."""


class DiskCache:
    """Files by digest, in one folder that is made when something is written.

    Args:
        folder: None for `$WIDS_CACHE`, else a folder of the user's own in the node's temporary folder.
    """

    def __init__(self, folder: str | None) -> None:
        self._given = folder

    @property
    def folder(self) -> Path:
        """Where the files are, or will be."""
        given = self._given or os.environ.get("WIDS_CACHE")
        return Path(given) if given else _default_folder()

    def get(
        self,
        url: str,
        digest: str,
        pieces: Callable[[], Iterator[bytes]],
        name: str | None,
        *,
        unpacked: bool = False,
    ) -> Path:
        """Return the path of a file, written from `pieces` if it is not there.

        Args:
            url: For the file's readable stem and for messages.
            digest: What tells the object from any other.
            pieces: Gives the content; raises where it is not right.
            name: The user's own name for the file; None for one of ours.
            unpacked: Whether the content is no longer compressed as the URL says.

        Raises:
            FetchError: The file cannot be written.
            WidsError: What `pieces` raises.
        """
        path = self._path(url, digest, name, unpacked=unpacked)
        if path.is_file():
            return path
        import filelock

        try:
            self._make_folder(path.parent)
            with filelock.FileLock(str(path.with_name(f".{path.name}.lock")), mode=0o666):
                if not path.is_file():
                    _write(path, pieces())
        except OSError as error:
            if isinstance(error, FetchError):
                raise
            raise FetchError(
                f"{redact(url)}: cannot be kept in {path.parent}: {error}; free some space, or choose another cache_dir"
            ) from error
        return path

    def check_space(self, size: int, name: str) -> None:
        """Raise when the disk has no room left for `size` more bytes.

        Raises:
            FetchError: It has not.
        """
        self._make_folder(self.folder)
        status = os.statvfs(self.folder)
        free = status.f_bavail * status.f_frsize
        if size + _MARGIN > free:
            raise FetchError(
                f"{name}: does not fit into {self.folder}, which has {free} bytes free; free some space, or choose another "
                "cache_dir"
            )

    def _path(self, url: str, digest: str, name: str | None, *, unpacked: bool) -> Path:
        folder = self.folder
        if name is None:
            return folder / f"{_stem(url, unpacked=unpacked)}-{digest}.tar"
        path = Path(os.path.normpath(folder / name))
        if path == folder or not path.is_relative_to(folder):
            raise FetchError(f"{redact(url)}: localname gives {name!r}, which is outside the cache folder {folder}")
        return path

    def _make_folder(self, folder: Path) -> None:
        if self._given or os.environ.get("WIDS_CACHE"):
            folder.mkdir(parents=True, exist_ok=True)
            return
        root = self.folder
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise FetchError(f"{root}: is not a folder of this user's own; remove it, or choose another cache_dir")
        folder.mkdir(parents=True, exist_ok=True)


def digest_of(url: str, *facts: object) -> str:
    """Return 16 hexadecimal digits that tell an object from others: of its URL without signatures, and what is known."""
    text = "\n".join([_without_signature(url), *("" if fact is None else str(fact) for fact in facts)])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _without_signature(url: str) -> str:
    head, mark, query = url.partition("?")
    if not mark or "://" not in head:
        return url
    kept = [part for part in query.split("&") if not _SIGNING.match(part)]
    scheme, _, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}?{'&'.join(kept)}"


def _stem(url: str, *, unpacked: bool) -> str:
    path = urlsplit(url).path if "://" in url else "pipe" if url.startswith("pipe:") else url
    name = _UNSAFE.sub("_", unquote(path).rpartition("/")[2])
    name = re.sub(r"(?i)\.(tar|tgz|tbz2|txz|tzst)(\.\w+)?$", "" if not unpacked else "-unpacked", name)
    return name.strip("._-")[:_LONGEST_STEM] or "shard"


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _default_folder() -> Path:
    return Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir()) / f"wids-{os.getuid()}"
