"""The transfer of one object from its transport into a sink: retried, resumed, and compared with the descriptor.

A transfer that was cut is resumed if the transport can do so and the object is the same; otherwise the sink and the
comparison start again. When a complete object differs from the descriptor, or its compressed stream is damaged, it is fetched
a second time, because it may have been damaged in transit; if that happens again, it is an error.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING

from wids.errors import ShardMismatchError, TarFormatError
from wids.storage.checks import Checker, Expected
from wids.storage.progress import make_bar
from wids.storage.retry import Attempts, PassingError, RetryPolicy
from wids.storage.transport import ResumePoint, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.storage.compression import Sink
    from wids.storage.locations import Location

_LEAST_PROGRESS_BYTES = 1 << 20
"""Bytes after which a resumed attempt does not count as a failure; an object has a limited number of such parts."""


def fetch(
    transport: Transport,
    location: Location,
    sink: Sink,
    expected: Expected,
    policy: RetryPolicy,
    note_retry: Callable[[], object] | None = None,
) -> int:
    """Transfer a whole object into a sink.

    Args:
        transport: Opens the object.
        location: Where the object is.
        sink: Receives the stored bytes.
        expected: Size and MD5 that the object must have.
        policy: How often the transfer is attempted, and after which waits.
        note_retry: Called before each further attempt; may be None.

    Returns:
        Size of the stored object in bytes.

    Raises:
        FetchError: The object cannot be read, or the last attempt failed.
        ShardMismatchError: The object differed from the descriptor, twice.
        TarFormatError: The compressed stream was damaged, twice.
    """
    attempts = Attempts(location.name, policy, note_retry)
    transfer = _Transfer(transport, location, sink, expected)
    damaged_before = False
    while True:
        received_before = transfer.received
        try:
            return transfer.run()
        except PassingError as error:
            resumed = transfer.was_resumed and transfer.received - received_before >= _LEAST_PROGRESS_BYTES
            attempts.wait_after(error, progressed=resumed)
        except (ShardMismatchError, TarFormatError):
            if damaged_before:
                raise
            damaged_before = True
            transfer.restart()


class _Transfer:
    """The state of one fetch across its attempts."""

    def __init__(self, transport: Transport, location: Location, sink: Sink, expected: Expected) -> None:
        self._transport = transport
        self._location = location
        self._sink = sink
        self._checker = Checker(expected, location.name)
        self._etag: str | None = None
        self.received = 0
        self.was_resumed = False

    def run(self) -> int:
        """Make one attempt; return the size of the object in bytes when it succeeds."""
        resume = ResumePoint(self.received, self._etag) if self.received and self._etag else None
        with self._transport.open(self._location, resume) as body, closing(body.chunks):
            self.was_resumed = body.start > 0
            if body.start != self.received:
                self.restart()
            self._etag = body.etag
            with make_bar(self._location.name, body.size) as bar:
                bar.update(self.received)
                for chunk in body.chunks:
                    self._checker.update(chunk)
                    self._sink.write(chunk)
                    self.received += len(chunk)
                    bar.update(len(chunk))
            if body.size is not None and self.received != body.size:
                raise PassingError(f"the body ended after {self.received} bytes, expected {body.size}")
        self._checker.finish()
        self._sink.finish()
        return self.received

    def restart(self) -> None:
        """Discard what was received."""
        self._sink.reset()
        self._checker.reset()
        self._etag = None
        self.received = 0


class MemorySink:
    """A sink that keeps a small object in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        """Append the next bytes."""
        self.data += data

    def reset(self) -> None:
        """Discard what was received."""
        self.data.clear()

    def finish(self) -> None:
        """Do nothing: the object is complete in `data`."""


class DigestSink:
    """A sink that passes an object on, and computes its size and MD5.

    Args:
        target: Receives the bytes.
    """

    def __init__(self, target: Sink) -> None:
        self._target = target
        self._start()

    def _start(self) -> None:
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes) -> None:
        """Receive the next bytes."""
        self.size += len(data)
        self._md5.update(data)
        self._target.write(data)

    def reset(self) -> None:
        """Discard what was received."""
        self._target.reset()
        self._start()

    def finish(self) -> None:
        """Finish the target."""
        self._target.finish()

    @property
    def md5(self) -> str:
        """MD5 of the bytes received, 32 hexadecimal digits."""
        return self._md5.hexdigest()
