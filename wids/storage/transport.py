"""A transport opens a stored object and lets its bytes come in order.

    local     LocalFiles        this module
    web       WebServers        web.py        http and https, by urllib3
    store     ObjectStores      stores.py     s3, gs, az, hf, memory, …, by fsspec
    pipe      Commands          command.py    only when allowed

Each raises `PassingError` for what may be gone at the next attempt and `FetchError` for what will not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from wids.errors import FetchError
from wids.storage.retry import PassingError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from wids.storage.locations import Location

CHUNK_BYTES = 1 << 20
"""Bytes read and passed on at once."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where an earlier body of the same object was cut."""

    start: int
    """Offset of the first byte that is still missing; above 0."""
    etag: str
    """Strong tag of the object that the bytes before it came from."""


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes of an object on their way; reading `chunks` raises what the transport raises."""

    chunks: Generator[bytes]
    """In order, none empty; closing it lets go of what it reads from."""
    size: int | None
    """Bytes of the whole object; None where the other side does not say."""
    start: int = 0
    """Offset in the object of the first chunk: the resume point's where it was accepted, else 0."""
    etag: str | None = None
    """Strong tag of the object; None where there is none, and the body cannot be resumed."""


class Transport(Protocol):
    """Opens objects of one kind of location; safe to use from several threads of the process that made it."""

    def open(self, location: Location, resume: ResumePoint | None = None) -> AbstractContextManager[Body]:
        """Open an object, from `resume` on where the other side agrees that it is the same object still.

        Raises:
            FetchError: It cannot be had, now or later.
            PassingError: It may be had at the next attempt.
        """
        ...


class LocalFiles:
    """Files of this machine, read to be copied or unpacked."""

    @contextmanager
    def open(self, location: Location, resume: ResumePoint | None = None) -> Iterator[Body]:
        """Open a file; it is always read from its start."""
        try:
            file = open(location.path, "rb", buffering=0)  # noqa: PTH123, SIM115 - Path changes some paths
        except OSError as error:
            raise FetchError(f"{location.name}: cannot be opened: {error.strerror}; is the path right?") from error
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
