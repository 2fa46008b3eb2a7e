"""An unfinished file: private, locked while its writer lives, and published by one rename.

The lock is on the file itself and goes with the process, so that what a killed process left is told from what a living
one writes, whatever its pid is and in whatever container it runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_PART_SUFFIX = ".part"
_SCRATCH_SUFFIX = ".scratch"

_CHECK_EVERY_BYTES = 16 << 20
"""The disk's free room is looked at after so many bytes."""


_unfinished: set[Path] = set()
"""Paths of this process's unfinished files; what a fork inherited of it belongs to the parent, and is not removed there."""


class PartFile:
    """A sink that writes a file which nobody else sees until `publish`; without it, nothing stays.

    Args:
        folder: Where; on the same file system as the final name.
        stem: Beginning of its name.
        make_room: Called now and then with 0, and with what is still to write when the disk is full; raises when there
            is no room to go on.
    """

    def __init__(self, folder: Path, stem: str, make_room: Callable[[int], None] | None = None) -> None:
        self._folder = folder
        self._stem = stem
        self._make_room = make_room
        self._unchecked_bytes = 0

    def __enter__(self) -> Self:
        self._path, descriptor = create_unfinished(self._folder, self._stem, _PART_SUFFIX)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._is_published = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_published:
            self._path.unlink(missing_ok=True)
        forget_unfinished(self._path)
        with suppress(OSError):  # a file server may refuse it; the file is gone or published by now
            self._file.close()

    @property
    def path(self) -> str:
        """Where it is while it is unfinished; what was written is there after `finish`."""
        return str(self._path)

    def write(self, data: bytes) -> None:
        """Append."""
        self._unchecked_bytes += len(data)
        if self._make_room is not None and self._unchecked_bytes >= _CHECK_EVERY_BYTES:
            self._unchecked_bytes = 0
            self._make_room(0)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                if self._make_room is None or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                self._make_room(len(rest))

    def reset(self) -> None:
        """Begin anew with an empty file."""
        self._file.seek(0)
        self._file.truncate()

    def finish(self) -> None:
        """Bring everything to the disk."""
        os.fsync(self._file.fileno())

    def status(self) -> os.stat_result:
        """Return the file's status."""
        return os.fstat(self._file.fileno())

    def publish(self, path: Path) -> None:
        """Give the file its final name, in one step, in place of what has that name.

        A power failure may take the name, not the content: then the file is fetched again.
        """
        self._path.rename(path)
        forget_unfinished(self._path)
        self._is_published = True


def create_unfinished(folder: Path, stem: str, suffix: str) -> tuple[Path, int]:
    """Return what `create_locked` does; `remove_unfinished` removes the file until `forget_unfinished` is called."""
    return create_locked(folder, stem, suffix, announce=_unfinished.add)


def forget_unfinished(path: Path) -> None:
    """Leave a file to itself, because it is published or removed."""
    _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove what this process is writing, because it ends: without waiting for its threads, or by a signal.

    A signal may come between the making of a file and the block that would remove it.
    """
    for path in list(_unfinished):
        with suppress(OSError):
            path.unlink()


@contextmanager
def scratch_path(folder: Path) -> Iterator[Path]:
    """Give a path where another program may make a file; what is there afterwards is removed."""
    # The lock is on a folder around it, because the program may replace a file that is locked.
    scratch, descriptor = _create_locked_folder(folder)
    try:
        yield scratch / "shard"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what dead processes left unfinished in `folder`."""
    for path in [*folder.glob(f"*{_PART_SUFFIX}"), *folder.glob(f"*{_SCRATCH_SUFFIX}")]:
        remove_if_left(path)


def remove_if_left(path: Path) -> bool:
    """Remove a file or folder that the process which locked it has left; tell whether it was."""
    with suppress(OSError):  # removed by another process, or another user's
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Raises where its writer lives, and where the file system has no locks and nobody can tell.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            return True
        finally:
            os.close(descriptor)
    return False


def create_locked(
    folder: Path, stem: str, suffix: str, announce: Callable[[Path], object] = lambda _: None
) -> tuple[Path, int]:
    """Return the path and the descriptor of a new file that is locked while this process lives, or holds it open.

    Args:
        folder: Where it is made.
        stem: Beginning of its name.
        suffix: End of its name.
        announce: Called with its path before it is made.
    """
    while True:
        path = folder / f"{stem}-{secrets.token_hex(8)}{suffix}"
        announce(path)
        # 0o666 and not mkstemp's 0o600: the umask decides who may read what is published.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if _lock(descriptor):
            return path, descriptor


def _create_locked_folder(folder: Path) -> tuple[Path, int]:
    """Return the path and the descriptor of a new folder, locked as `create_locked` locks a file."""
    while True:
        path = folder / f"{secrets.token_hex(8)}{_SCRATCH_SUFFIX}"
        path.mkdir()
        with suppress(FileNotFoundError):  # it was taken for a leftover before it could be opened
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if _lock(descriptor):
                return path, descriptor


def _lock(descriptor: int) -> bool:
    """Lock a new file or folder; close it and return False where it was taken for a leftover before, and removed."""
    try:
        # Waits for who looks whether it is a leftover, which takes a moment.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}:
            return True  # this file system has no locks, and nobody can take anything for a leftover
        os.close(descriptor)
        raise
    if os.fstat(descriptor).st_nlink:
        return True
    os.close(descriptor)
    return False
