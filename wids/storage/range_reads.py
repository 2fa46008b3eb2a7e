"""Reading objects by ranges: which objects are, how ranges are requested, and when a whole object is fetched instead."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError
from wids.storage.compression import HEAD_BYTES, compression_of_name, sniff
from wids.storage.process import PerProcess
from wids.storage.ranges import BlockCache, RangeSource, WholeOnlyError
from wids.storage.retry import retrying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager
    from typing import Literal

    from wids.storage.checks import Expected
    from wids.storage.locations import Location
    from wids.storage.meter import Meter
    from wids.storage.ranges import Piece, RangeTransport
    from wids.storage.retry import RetryPolicy

_log = logging.getLogger(__name__)

_BLOCK_CACHE_BYTES = 32 << 20
"""Most bytes of recent ranges that each process keeps in memory."""
_REQUESTS_AT_ONCE = 32
"""Most concurrent requests of a process; with more, stores begin to refuse them."""
_WHOLE_SHARE = 0.5
"""`access="auto"`: a shard of which more than this share was read by ranges is fetched whole."""


class RangeReads:
    """Opens objects to be read by ranges; each process has its own cache of recent ranges and its own threads.

    Args:
        access: Whether shards are read by ranges; see `StorageOptions`.
        transport: Returns the transport of a location.
        retry: How often a request is attempted, and after which waits.
        meter: Counts requests, bytes and the like.
    """

    def __init__(
        self,
        access: Literal["download", "range", "auto"],
        transport: Callable[[Location], RangeTransport],
        retry: RetryPolicy,
        meter: Meter,
    ) -> None:
        self._access = access
        self._transport = transport
        self._retry = retry
        self._meter = meter
        self._blocks = PerProcess(lambda: BlockCache(_BLOCK_CACHE_BYTES))
        self._pools = PerProcess(lambda: ThreadPoolExecutor(_REQUESTS_AT_ONCE, "wids-range"))
        self._fetched_whole: set[str] = set()

    @property
    def pool(self) -> Executor:
        """Threads of this process that make requests; idle ones hold no lock."""
        return self._pools.get()

    def holding(self) -> AbstractContextManager[None]:
        """Keep everything that is read by ranges in memory for the duration of a `with` block."""
        return self._blocks.get().holding()

    def applies_to(self, location: Location, expected: Expected) -> bool:
        """Return whether a shard is to be read by ranges.

        Raises:
            FetchError: `access` is "range", but the shard cannot be read so.
        """
        access = self._access
        if (
            access == "download"
            or location.kind == "local"
            or (access == "auto" and location.url in self._fetched_whole)
        ):
            return False
        if access == "auto":
            # To compare an MD5, the whole shard is needed.
            return location.kind != "pipe" and compression_of_name(location.path) is None and expected.md5 is None
        if location.kind == "pipe":
            raise FetchError(f"{location.name}: a command cannot be asked for a part; set access to 'download'")
        _refuse_compressed(location, compressed=compression_of_name(location.path) is not None)
        return True

    def open(self, location: Location, expected: Expected) -> RangeSource | None:
        """Open a shard by ranges; with `access="auto"`, None when it must be fetched whole.

        It must be when it is compressed, or its server or store does not send ranges.

        Raises:
            FetchError: The shard cannot be opened; or `access` is "range", and it must be fetched whole.
            ShardMismatchError: The size differs from the expected one.
        """
        try:
            source = self._open(location)
        except WholeOnlyError:
            if self._access == "range":
                raise
            self._fetched_whole.add(location.url)  # so that no range is requested again
            return None
        expected.check_size(source.identity.size, location.name)
        if sniff(bytes(source.window(0, HEAD_BYTES)[0])) is not None:
            _refuse_compressed(location, compressed=self._access == "range")
            return None
        return source

    def try_open(self, location: Location) -> RangeSource | None:
        """Open any object by ranges; None when it can only be fetched whole, or not at all."""
        try:
            return self._open(location)
        except FetchError as error:
            _log.debug("%s: is fetched whole: %s", location.name, error)
            return None

    def _open(self, location: Location) -> RangeSource:
        return RangeSource(location.name, partial(self.read, location), self._blocks.get, self._pools.get)

    def read(self, location: Location, start: int, stop: int) -> Piece:
        """Return the bytes `[start, stop)` of an object, fewer if the object ends before `stop`.

        Raises:
            FetchError: They cannot be read.
        """
        started = time.monotonic()
        transport = self._transport(location)
        with self._meter.doing("read a range", shard=location.name):
            piece = retrying(
                partial(transport.read_range, location, start, stop),
                location.name,
                self._retry,
                partial(self._meter.add, "retries"),
            )
        self._meter.add("seconds_waited", time.monotonic() - started)
        self._meter.add("bytes_fetched", len(piece.data))
        self._meter.add("requests")
        return piece

    def switches_to_whole(self, shard: Mapping[str, Any], source: RangeSource) -> bool:
        """Return whether so much of a shard has been read that it is fetched whole when it is opened next."""
        if self._access != "auto" or source.bytes_read <= _WHOLE_SHARE * source.identity.size:
            return False
        self._fetched_whole.add(shard["url"])
        return True


def _refuse_compressed(location: Location, *, compressed: bool) -> None:
    if compressed:
        raise FetchError(
            f"{location.name}: is compressed, so that no part of it can be read alone; set access to 'download', or to "
            "'auto', which fetches such shards whole"
        )
