"""The cache folder: which one it is, whether it is safe to use, and how much space its disk has.

Nothing is created before something is written. A folder on a network file system may be used by several hosts, between
which locks may not work, and a removed file may vanish under a reader. Each host therefore uses a subfolder of its own.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from wids.errors import FetchError
from wids.storage.mounts import is_on_network
from wids.storage.names import BOOKKEEPING, readable_stem

_log = logging.getLogger(__name__)

_MARGIN_BYTES = 256 << 20
_MARGIN_SHARE = 0.01
"""The disk keeps free the lesser of these bytes and this share: other programs stop working on a full disk."""

CHOOSE_ANOTHER = "set cache_dir or $WIDS_CACHE to another folder"


class CacheFolder:
    """The folder of the disk cache.

    Args:
        cache_dir: Path of the folder; None for `$WIDS_CACHE`, or if that is not set, `wids-UID` in the node's temporary
            folder.
    """

    def __init__(self, cache_dir: str | None) -> None:
        self._cache_dir = cache_dir

    @property
    def path(self) -> str:
        """Absolute path; it may not exist yet."""
        chosen = self._cache_dir or os.environ.get("WIDS_CACHE")
        return _find_host_folder(_absolute(chosen)) if chosen else self._private_path()

    @property
    def bookkeeping(self) -> str:
        """Absolute path of the folder for locks, records and unfinished files."""
        return os.path.join(self.path, BOOKKEEPING)  # noqa: PTH118 - plain strings, as open() takes them

    def make(self) -> None:
        """Create the folder, and the bookkeeping folder in it.

        Raises:
            FetchError: The folder cannot be created, or is the private one and open to other users.
        """
        path = Path(self.path)
        try:
            # An explicit folder follows the umask, so that groups can share it.
            path.mkdir(mode=0o700 if self._is_private else 0o777, parents=True, exist_ok=True)
            self.check()
            Path(self.bookkeeping).mkdir(exist_ok=True)
        except FetchError:
            raise
        except OSError as error:
            raise FetchError(
                f"{path}: the cache folder cannot be made or written: {error.strerror}; {CHOOSE_ANOTHER}"
            ) from error

    def check(self) -> None:
        """Check that other users could not have put files into the private folder, if it exists.

        Raises:
            FetchError: They could have.
        """
        if self._is_private:
            with suppress(FileNotFoundError):
                _check_private(Path(self.path))

    @property
    def _is_private(self) -> bool:
        return not (self._cache_dir or os.environ.get("WIDS_CACHE"))

    def missing_room(self) -> int:
        """Return how many bytes the disk lacks of its margin of free space; 0 or less when it has enough."""
        disk = os.statvfs(self.path)
        margin = min(_MARGIN_BYTES, int(disk.f_blocks * disk.f_frsize * _MARGIN_SHARE))
        return margin - disk.f_bavail * disk.f_frsize

    def full(self, label: str) -> FetchError:
        """Return the error to raise when `label` does not fit on the disk."""
        return FetchError(
            f"{label}: the disk of the cache folder {self.path} is full; free some of it, or {CHOOSE_ANOTHER}"
        )

    @staticmethod
    def _private_path() -> str:
        node = os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir()
        return os.path.join(_absolute(node), f"wids-{os.getuid()}")  # noqa: PTH118 - as above


_host_folders: dict[str, str] = {}
"""Chosen folder to the one that this host uses. A plain dict without a lock is safe here with threads and forks."""


def _find_host_folder(path: str) -> str:
    """Return the folder itself, or this host's subfolder when other hosts may use the folder too."""
    found = _host_folders.get(path)
    if found is None:
        found = path
        if is_on_network(_nearest_existing(path)):
            found = os.path.join(path, readable_stem(socket.gethostname()))  # noqa: PTH118 - as above
            _log.warning("%s: is on a network file system; this host keeps its shards in %s", path, found)
        _host_folders[path] = found
    return found


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path) and path != os.path.dirname(path):  # noqa: PTH110, PTH120 - as above
        path = os.path.dirname(path)  # noqa: PTH120 - as above
    return path


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - resolve() would follow symlinks


def _check_private(path: Path) -> None:
    # lstat, because in a temporary folder that everybody can write, another user could have made a symlink of this name.
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise FetchError(f"{path}: is not a folder that belongs to user {os.getuid()}; {CHOOSE_ANOTHER}")
    if status.st_mode & 0o077:
        raise FetchError(
            f"{path}: other users may enter it (mode {stat.S_IMODE(status.st_mode):o}, expected 700); "
            f"remove it, or {CHOOSE_ANOTHER}"
        )
