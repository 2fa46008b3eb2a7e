"""One object, carried from its transport into a sink: tried again, resumed, and compared on the way.

A body that was cut goes on where it ended when its transport can do that for the very same object; else the sink and
the comparison begin anew. A body that came whole and is not what the descriptor says, or whose compressed stream is
damaged, is fetched once more, because something on the way may have damaged it; the second time it is an error.
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
"""A resumed attempt that got this far does not count as a failure; an object has so many parts and no more."""


def fetch(
    transport: Transport,
    location: Location,
    sink: Sink,
    expected: Expected,
    policy: RetryPolicy,
    note_retry: Callable[[], object] | None = None,
) -> int:
    """Carry a whole object into `sink`; return its size as stored.

    Raises:
        FetchError: It cannot be had, or the last attempt failed.
        ShardMismatchError: Twice, it was not what the descriptor says.
        TarFormatError: Twice, its compressed stream was damaged.
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
        """Make one attempt; return the size when it is the last."""
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
        """Forget what came."""
        self._sink.reset()
        self._checker.reset()
        self._etag = None
        self.received = 0


class MemorySink:
    """Keeps a small object in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        """Append."""
        self.data += data

    def reset(self) -> None:
        """Forget what came."""
        self.data.clear()

    def finish(self) -> None:
        """Everything has come; nothing is left to do."""


class DigestSink:
    """Passes an object on, and takes its size and MD5 on the way.

    Args:
        target: Takes the bytes.
    """

    def __init__(self, target: Sink) -> None:
        self._target = target
        self._start()

    def _start(self) -> None:
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        self._md5.update(data)
        self._target.write(data)

    def reset(self) -> None:
        """Forget what came."""
        self._target.reset()
        self._start()

    def finish(self) -> None:
        """Everything has come."""
        self._target.finish()

    @property
    def md5(self) -> str:
        """Of what came, 32 hexadecimal digits."""
        return self._md5.hexdigest()
