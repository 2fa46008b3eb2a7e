"""Transports: each opens stored objects of one kind and streams their bytes.

    local     LocalFiles        this module
    web       WebServers        web.py        http and https, by urllib3
    store     ObjectStores      stores.py     s3, gs, az, hf, memory, …, by fsspec
    pipe      Commands          command.py    only when allowed

A transport raises `PassingError` for a problem that another attempt may solve, and `FetchError` for all others.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from wids.errors import cannot_open
from wids.storage.retry import PassingError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from wids.storage.locations import Location

CHUNK_BYTES = 1 << 20
"""Bytes that are read and passed on at once."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where an interrupted transfer of an object is to be resumed."""

    start: int
    """Offset of the first missing byte, above 0."""
    etag: str
    """Strong ETag of the object that the bytes before `start` are from."""


@dataclass(frozen=True, slots=True)
class Body:
    """The streamed bytes of an object; iterating over `chunks` raises the errors of the transport."""

    chunks: Generator[bytes]
    """Bytes in order, no chunk empty; closing the generator closes what it reads from."""
    size: int | None
    """Bytes of the whole object; None when unknown."""
    start: int = 0
    """Offset of the first chunk in the object: that of the resume point if it was accepted, else 0."""
    etag: str | None = None
    """Strong ETag of the object; None when it has none, so that the transfer cannot be resumed."""


class Transport(Protocol):
    """Opens objects of one kind of location; safe to use from several threads of the process that made it."""

    def open(self, location: Location, resume: ResumePoint | None = None) -> AbstractContextManager[Body]:
        """Open an object.

        Args:
            location: Where the object is.
            resume: Where to begin, if the object is still the same; a transport that cannot tell begins at 0.

        Raises:
            FetchError: The object cannot be opened, and another attempt will not help.
            PassingError: The object cannot be opened, but another attempt may succeed.
        """
        ...


class LocalFiles:
    """The transport of local files, for those that are copied or unpacked."""

    @contextmanager
    def open(self, location: Location, resume: ResumePoint | None = None) -> Iterator[Body]:
        """Open a file; it is always read from its start."""
        try:
            file = open(location.path, "rb", buffering=0)  # noqa: PTH123, SIM115 - Path changes some paths
        except OSError as error:
            raise cannot_open(location.name, error) from error
        with file:
            yield Body(_chunks_of_file(file), size=None)


def _chunks_of_file(file: BinaryIO) -> Generator[bytes]:
    while True:
        try:
            chunk = file.read(CHUNK_BYTES)
        except OSError as error:
            raise PassingError(f"reading failed: {error.strerror}") from error
        if not chunk:
            return
        yield chunk
