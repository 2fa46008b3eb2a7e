"""Where shards are written: a folder of this machine, or one in a store. They appear there only when they are whole.

A shard is first written into a private file. In a folder it then gets its name in one step; to a store it is uploaded.
Object stores show an object only when it is complete; in other stores (ssh, hdfs, smb, …) it is uploaded under a
private name and then moved.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from wids.errors import FetchError, redact
from wids.storage.locations import locate
from wids.storage.part_file import create_unfinished, forget_unfinished, remove_if_left, scratch_path
from wids.storage.retry import RetryPolicy, retrying
from wids.storage.stores import ObjectStores, store_errors
from wids.tools.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wids.storage.locations import Location

_log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = ".wids-", ".part"
_SCRATCH = re.compile(r"[0-9a-f]{16}\.scratch")
_BUFFER_BYTES = 1 << 20
_LONGEST_STEM = 100
_SHOWN_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "oss", "oci"})
"""Schemes of stores that show an object only when its upload has ended."""


class Part:
    """A private file that becomes a shard; locked while this process lives, so that leftovers of dead ones can be told."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, descriptor = create_unfinished(folder, f"{_PREFIX}{name[:_LONGEST_STEM]}", _SUFFIX)
        self.file = os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)
        self._process = os.getpid()
        weakref.finalize(self, _let_go, self.path, self.file, self._process)

    def drop(self) -> None:
        """Remove it, if it has not been given another name, and let go of it; a fork only does the latter."""
        if os.getpid() != self._process:
            self.disconnect()
            return
        self.path.unlink(missing_ok=True)
        forget_unfinished(self.path)
        with suppress(OSError):  # closing writes what is buffered, which nobody needs, and the disk may be full
            self.file.close()

    def disconnect(self) -> None:
        """Have all that is still written to it go nowhere."""
        _disconnect(self.file)


def _let_go(path: Path, file: BinaryIO, process: int) -> None:
    """Remove a part that its writer has neither published nor dropped; one that a fork inherited is the parent's."""
    if os.getpid() != process:
        _disconnect(file)
    elif path.exists():
        _log.warning("%s: its writer was not closed, and its samples are lost; use ShardWriter in a with block", path)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            file.close()


def _disconnect(file: BinaryIO) -> None:
    """See to it that what a fork has inherited in a buffer is not written by it too, when it ends."""
    if not file.closed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno(), inheritable=False)
        os.close(nowhere)


class Target(Protocol):
    """Where shards are written."""

    def prepare(self) -> None:
        """Make what must exist before the first part."""
        ...

    def url(self, name: str) -> str:
        """Return the path or URL of a file with this name here."""
        ...

    def exists(self, name: str) -> bool:
        """Tell whether a file or object with this name exists here."""
        ...

    def make_part(self, name: str) -> Part:
        """Return a new private file for a shard that will have this name."""
        ...

    def publish(self, part: Part, name: str) -> None:
        """Give a part, whole and flushed, its name here.

        Raises:
            FileExistsError: Somebody else has made one of this name meanwhile. A store cannot tell, and replaces it.
        """
        ...

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Make a small file with a function that writes a path, in one step."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file or object with this name, if there is one."""
        ...

    def close(self) -> None:
        """Remove everything private."""
        ...


def open_target(folder: str, storage_options: Mapping[str, Any] | None = None) -> Target:
    """Return the target of a path or URL, without accessing it yet.

    Args:
        folder: Path or URL; empty for the current folder.
        storage_options: Passed on to fsspec.

    Raises:
        FetchError: Nothing can be written there.
    """
    location = locate(folder or ".")
    if location.kind == "local":
        return Folder(Path(location.path))
    if location.kind == "store":
        return Store(location, storage_options or {})
    raise FetchError(f"{location.name}: cannot be written to; use a folder or an object store (s3://, …)")


class Folder:
    """A folder of this machine.

    Args:
        path: Of the folder, which `prepare` makes with its parents if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def prepare(self) -> None:
        """Make the folder, and remove what dead writers left in it."""
        make_folder(self._path)
        for path in self._path.iterdir():
            if (path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)) or _SCRATCH.fullmatch(path.name):
                remove_if_left(path)

    def url(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._path / name)

    def exists(self, name: str) -> bool:
        """Tell whether something has this name."""
        return os.path.lexists(self._path / name)

    def make_part(self, name: str) -> Part:
        """Return a new private file."""
        return Part(self._path, name)

    def publish(self, part: Part, name: str) -> None:
        """Bring a part to the disk, and give it its name."""
        os.fsync(part.file.fileno())
        _rename(part.path, self._path / name)
        part.drop()

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Make a small file here; what a killed process leaves of it can be told as such."""
        with scratch_path(self._path) as scratch:
            write(scratch.with_name(name))
            scratch.with_name(name).rename(self._path / name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Do nothing."""


def _rename(path: Path, name: Path) -> None:
    """Rename a file, unless the name is taken.

    Raises:
        FileExistsError: It is.
    """
    try:
        name.hardlink_to(path)  # a rename would replace what is there
    except FileExistsError:
        raise FileExistsError(
            f"{name}: was written by another process in the meantime; write elsewhere, or let one process write after the other"
        ) from None
    except OSError:  # a file system without hard links
        path.rename(name)
    else:
        path.unlink()


class Store:
    """A folder in a store that fsspec supports; parts are made in a temporary folder of this machine.

    Args:
        location: Of the folder in the store.
        storage_options: Passed on to fsspec.
    """

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        self._location = location
        self._stores = ObjectStores(storage_options)
        self._spool: _Spool | None = None

    def prepare(self) -> None:
        """Make the folder, in stores that have folders."""
        if self._scheme not in _SHOWN_WHOLE:
            with store_errors(self._location):
                file_system, path = self._stores.file_system(self._location)
                file_system.makedirs(path, exist_ok=True)

    def url(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self._location.url}/{name}"

    def exists(self, name: str) -> bool:
        """Ask the store."""
        return retrying(partial(self._ask, name), redact(self.url(name)), RetryPolicy())

    def make_part(self, name: str) -> Part:
        """Return a new private file of this machine."""
        return Part(self._folder, name)

    def publish(self, part: Part, name: str) -> None:
        """Upload a part."""
        self._upload(part.path, name)
        part.drop()

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Make a small file, and upload it."""
        path = self._folder / name
        write(path)
        self._upload(path, name)
        path.unlink()

    def remove(self, name: str) -> None:
        """Remove an object."""
        if self.exists(name):
            with store_errors(locate(self.url(name))):
                file_system, path = self._stores.file_system(locate(self.url(name)))
                file_system.rm_file(path)

    def close(self) -> None:
        """Remove the temporary folder."""
        if self._spool is not None:
            self._spool.remove()
            self._spool = None

    @property
    def _folder(self) -> Path:
        self._spool = self._spool or _Spool()
        return self._spool.path

    @property
    def _scheme(self) -> str:
        return self._location.url.partition("://")[0].lower()

    def _ask(self, name: str) -> bool:
        location = locate(self.url(name))
        with store_errors(location):
            file_system, path = self._stores.file_system(location)
            file_system.invalidate_cache()
            return bool(file_system.exists(path))

    def _upload(self, source: Path, name: str) -> None:
        """Upload a file; try again when that fails."""
        shown = redact(self.url(name))
        try:
            retrying(partial(self._try_upload, source, name), shown, RetryPolicy())
        except FetchError as error:
            raise FetchError(f"{shown}: cannot be uploaded: {error}") from error

    def _try_upload(self, source: Path, name: str) -> None:
        location = locate(self.url(name))
        with store_errors(location):
            file_system, path = self._stores.file_system(location)
            if self._scheme in _SHOWN_WHOLE:
                file_system.put_file(str(source), path)
                return
            folder, slash, _ = path.rpartition("/")
            private = f"{folder}{slash}{_PREFIX}{name[:_LONGEST_STEM]}-{secrets.token_hex(8)}{_SUFFIX}"
            try:
                file_system.put_file(str(source), private)
                file_system.mv(private, path)
            except BaseException:
                with suppress(Exception):  # the upload's own error is the one to raise
                    file_system.rm_file(private)
                raise


class _Spool:
    """A temporary folder of this machine, which goes with the process that made it and not with its forks."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="wids-"))
        self.remove = weakref.finalize(self, _remove_own, self.path, os.getpid())


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
