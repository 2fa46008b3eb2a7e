"""Object stores, and everything else with a `scheme://`, through fsspec.

Each process makes its own file systems, because most of them have sessions and event loops that do not survive a fork. An
object is read in several requests, so its version is compared before and after: a changed object is an error, and never a
mixture of both versions.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError
from wids.storage.ranges import Piece, WholeOnlyError
from wids.storage.retry import PassingError
from wids.storage.transport import Body, ResumePoint

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from wids.storage.locations import Location

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 16 << 20
"""Bytes of a chunk; larger than a web server's, because each chunk is a request."""

_MOST_OPENED = 1024
"""Most objects that are read by ranges and whose state is remembered; the state of others is requested again."""

_EXTRAS = {
    "s3": "s3", "s3a": "s3",
    "gs": "gcs", "gcs": "gcs",
    "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure",
    "hf": "hf",
}  # fmt: skip
"""The extra of this package that installs a scheme's driver."""

_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError)
"""Errors that another attempt will not solve."""

_VERSION_KEYS = (
    "ETag", "etag", "e_tag", "md5Hash", "content_md5", "generation", "version_id", "VersionId", "sha256",
    "blob_id", "xet_hash", "lfs",
)  # fmt: skip
_TIME_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
"""Entries of `info` that change with an object, in various file systems; not the access time, which reading changes."""


class ObjectStores:
    """The transport of fsspec's schemes; belongs to the process that made it.

    Args:
        storage_options: Passed on to each file system.
    """

    def __init__(self, storage_options: Mapping[str, Any]) -> None:
        self._storage_options = dict(storage_options)
        self._file_systems: dict[str, Any] = {}
        self._opened: OrderedDict[str, tuple[Any, dict[str, Any]]] = OrderedDict()

    @contextmanager
    def open(self, location: Location, resume: ResumePoint | None = None) -> Iterator[Body]:
        """Open an object; it is always read from its start."""
        file_system, path = self.file_system(location)
        info = object_info(file_system, path, location)
        size = info.get("size")
        yield Body(_chunks(file_system, path, location, info), size if isinstance(size, int) else None)

    def read_range(self, location: Location, start: int, stop: int) -> Piece:
        """Read a part of an object.

        The object must be the same as at its first range: s3 refuses a changed one by itself, and other stores are asked for
        the object's version after each range.
        """
        file_system, path = self.file_system(location)
        opened = None if start == 0 else self._opened.get(location.url)
        if opened is None:
            opened = self._opened[location.url] = self._open_object(file_system, path, location)
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
        file, info = opened
        size = info.get("size")
        if not isinstance(size, int):
            raise WholeOnlyError(f"{location.name}: its store does not say how large it is; set access to 'download'")
        stop = min(stop, size)
        with store_errors(location):
            if start >= stop:
                data = b""
            elif file is not None:
                data = _fetch_unchanged(file, start, stop, location)
            else:
                data = file_system.cat_file(path, start=start, end=stop)
        if len(data) != stop - start:
            raise PassingError(f"{len(data)} bytes came, expected {stop - start}")
        if file is None and start:
            now = object_info(file_system, path, location)
            return Piece(bytes(data), now.get("size", size), version_of(now))
        return Piece(bytes(data), size, version_of(info))

    def _open_object(self, file_system: Any, path: str, location: Location) -> tuple[Any, dict[str, Any]]:
        """Return an object's info, and before it, for s3 only, a file that sends the object's ETag with each request."""
        info = object_info(file_system, path, location)
        if info.get("type") == "directory":
            raise FetchError(f"{location.name}: is a folder, not an object; is the URL right?")
        if "s3" not in file_system.protocol:
            return None, info
        with store_errors(location):
            return file_system.open(path, "rb", cache_type="none"), info

    def list_folder(self, location: Location) -> list[str] | None:
        """Return the sorted names in a folder, those of folders with a slash at the end; None when it cannot be listed.

        Raises:
            FetchError: The store's driver is not installed, or refuses the URL.
            PassingError: The store cannot be reached.
        """
        file_system, path = self.file_system(location)
        path = path.rstrip("/")
        with store_errors(location):
            file_system.invalidate_cache()
            try:
                infos = file_system.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                return None  # reading may be allowed where listing is not; what is wrong is reported when reading
        if any(info["name"] == path and info.get("type") != "directory" for info in infos):
            return None  # a file is listed as itself
        # An empty object of the folder's own name, with a slash at the end, marks a folder; stores list it in the folder.
        entries = [(info["name"].rstrip("/"), info.get("type") == "directory") for info in infos]
        return sorted(name.rpartition("/")[2] + "/" * is_folder for name, is_folder in entries if name != path)

    def file_system(self, location: Location) -> tuple[Any, str]:
        """Return the file system of a URL, and the object's path in it.

        Raises:
            FetchError: The driver is not installed, or refuses the URL or its options.
        """
        import fsspec.core

        if "::" in location.url:
            raise FetchError(f"{location.name}: chained URLs are not supported; give the URL of the shard itself")
        # One file system per host or bucket: some take their options from that part of the URL.
        store = re.split(r"(?<=[^:/])/", location.url, maxsplit=1)[0]
        try:
            file_system = self._file_systems.get(store)
            if file_system is not None:
                return file_system, fsspec.core.strip_protocol(location.url)
            _log.debug("%s: opening its file system", location.name)
            file_system, path = fsspec.core.url_to_fs(location.url, skip_instance_cache=True, **self._storage_options)
        except ImportError as error:
            raise FetchError(f"{location.name}: {_missing_driver(location.url, error)}") from error
        except Exception as error:  # drivers have error types of their own for options and URLs that they refuse
            raise FetchError(
                f"{location.name}: its file system cannot be opened: {describe(error, location)}; "
                "are URL and storage_options right?"
            ) from _presentable(error, location)
        return self._file_systems.setdefault(store, file_system), path


def _fetch_unchanged(file: Any, start: int, stop: int, location: Location) -> Any:
    try:
        return file._fetch_range(start, stop)  # noqa: SLF001 - what drivers implement for fsspec's block caches
    except OSError as error:
        if type(error).__name__ == "FileExpired":  # s3fs's error; s3fs need not be installed
            raise FetchError(f"{location.name}: has changed since it was opened; open the dataset again") from None
        raise


def object_info(file_system: Any, path: str, location: Location) -> dict[str, Any]:
    """Return the current `info` of an object.

    Raises:
        FetchError: The object is not there.
        PassingError: The store cannot be reached.
    """
    with store_errors(location):
        file_system.invalidate_cache()  # a cached listing would hide a change of the object
        info: dict[str, Any] = file_system.info(path)
        return info


def version_of(info: Mapping[str, Any]) -> str:
    """Return a text that changes when an object is replaced, made of what its store provides."""
    return repr([info.get(key) for key in ("size", *_VERSION_KEYS, *_TIME_KEYS)])


@contextmanager
def store_errors(location: Location) -> Iterator[None]:
    """Turn a driver's errors into `FetchError` and `PassingError`."""
    try:
        yield
    except FetchError:
        raise
    except _PERMANENT as error:
        raise FetchError(
            f"{location.name}: cannot be opened: {describe(error, location)}; are URL and storage_options right?"
        ) from _presentable(error, location)
    except Exception as error:  # drivers raise the errors of a dozen client libraries
        raise PassingError(describe(error, location)) from _presentable(error, location)


def describe(error: Exception, location: Location) -> str:
    """Return an error's type, and its text unless the URL has secrets that could be in it."""
    return f"{type(error).__name__}: {error}".rstrip(": ") if _presentable(error, location) else type(error).__name__


def _presentable(error: Exception, location: Location) -> Exception | None:
    # Drivers put URLs and paths into their messages, and a traceback shows the message of each cause.
    return error if location.name == location.url else None


def _chunks(file_system: Any, path: str, location: Location, info: Mapping[str, Any]) -> Generator[bytes]:
    with store_errors(location):
        file = file_system.open(path, "rb", block_size=_CHUNK_BYTES)
    with file:
        while True:
            with store_errors(location):
                chunk = file.read(_CHUNK_BYTES)
            if not chunk:
                break
            yield chunk
    if version_of(object_info(file_system, path, location)) != version_of(info):
        raise PassingError("the object has changed while it was read")


def _missing_driver(url: str, error: ImportError) -> str:
    scheme = url.partition("://")[0].lower()
    extra = _EXTRAS.get(scheme)
    if extra is None:
        return f"the driver of {scheme}:// is not installed: {error}"
    return f"the driver of {scheme}:// is not installed; run: pip install 'wids[{extra}]'"
