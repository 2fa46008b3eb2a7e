"""A shard that is read by byte ranges of the stored object, without being fetched whole.

Each window is one verified request, or none if its bytes are in the cache of recently read blocks. Near ranges are joined,
and the requests of one call run concurrently. When the object changes between two requests, its size or tag differs, which is
an error.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wids.errors import FetchError
from wids.source import Identity, join_spans, match_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from wids.source import Hint, Source, Span, Window
    from wids.storage.locations import Location

HEAD_BYTES = 512
"""Bytes of the first request, which tells size, tag and compression: the first header."""
_NEAR_BYTES = 64 << 10
"""Bytes of the largest gap that is read along: it takes about a millisecond at 500 Mbit/s, less than another request."""
_LARGEST_JOINED_BYTES = 8 << 20
"""Most bytes that ranges are joined to, so that the parts of a long run are requested concurrently."""
_LOOK_BACK = 8
"""Number of blocks before an offset that are searched for one that contains it."""
_LEAST_AHEAD_BYTES = 16 << 10
"""Fewest bytes that `ReadAhead` reads at once."""
_MOST_AHEAD_BYTES = 4 << 20
"""Most bytes that `ReadAhead` reads at once."""
_THROUGH_BYTES = 8 << 20
"""Bytes of one request of `ReadThrough`."""
_HOP_BYTES = 1 << 20
"""Largest gap, in bytes, between headers that `ReadAhead` reads along, instead of making a request for each header."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one range, and the state of the object that they are from."""

    data: bytes
    """The bytes of the range."""
    size: int
    """Bytes of the whole object."""
    tag: str | None
    """Text that changes when the object does; None when the server or store provides none."""


class WholeOnlyError(FetchError):
    """An object can only be fetched whole."""


class RangeTransport(Protocol):
    """Reads ranges of objects; safe to use from several threads of the process that made it."""

    def read_range(self, location: Location, start: int, stop: int) -> Piece:
        """Return the bytes `[start, stop)` of an object, fewer only if it ends before `stop`.

        Raises:
            WholeOnlyError: The server or store does not send ranges.
            FetchError: The bytes cannot be read, and another attempt will not help.
            PassingError: The bytes cannot be read, but another attempt may succeed.
        """
        ...


class RangeSource:
    """One stored object, read by ranges.

    Args:
        name: Name for messages.
        read: Returns a verified range, given start and stop; retries temporary errors.
        blocks: Returns this process's cache of recently read blocks.
        pool: Returns this process's threads for concurrent requests.

    Raises:
        FetchError: The object cannot be read.
    """

    __slots__ = ("_blocks", "_on_use", "_pool", "_read", "_token", "bytes_read", "identity", "name")

    cached_bytes = 0
    is_remote = True

    def __init__(
        self,
        name: str,
        read: Callable[[int, int], Piece],
        blocks: Callable[[], BlockCache],
        pool: Callable[[], Executor],
    ) -> None:
        self.name = name
        self._read = read
        self._blocks = blocks
        self._pool = pool
        self._on_use: Callable[[RangeSource], object] | None = None
        self._token = object()  # the key of its blocks; id(self) could be reused by another source
        self.bytes_read = 0
        # All later responses must have the size and the tag of the first.
        first = read(0, HEAD_BYTES)
        self.identity = Identity(first.size, etag=first.tag)
        self._blocks().put(self._token, 0, first.data)

    def on_use(self, function: Callable[[RangeSource], object]) -> None:
        """Set a function to be called with this source after each request."""
        self._on_use = function

    def is_removed(self) -> bool:
        """Return False: it has no file in the disk cache."""
        return False

    def window(self, start: int, stop: int) -> Window:
        """Return the bytes `[start, stop)`, with one request if they are not in the block cache.

        Raises:
            FetchError: They cannot be read, or the object has changed since it was opened.
        """
        stop = min(stop, self.identity.size)
        if start >= stop:
            return memoryview(b""), start
        found = self._blocks().find(self._token, start, stop)
        if found is not None:
            return found
        piece = self._read(start, stop)
        if (piece.size, piece.tag) != (self.identity.size, self.identity.etag):
            raise FetchError(
                f"{self.name}: has changed since it was opened: {piece.size} bytes, tag {piece.tag}, before "
                f"{self.identity.size} bytes, tag {self.identity.etag}; open the dataset again"
            )
        self.bytes_read += len(piece.data)
        self._blocks().put(self._token, start, piece.data)
        if self._on_use is not None:
            self._on_use(self)
        return memoryview(piece.data), start

    def joined(self, spans: Sequence[Span]) -> list[Span]:
        """Return the ranges to request for these spans; near spans share one."""
        return join_spans(spans, _NEAR_BYTES, _LARGEST_JOINED_BYTES)

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return one window per span; near spans share a request, and the requests run concurrently."""
        joined = self.joined(spans)
        if len(joined) == 1:
            return [self.window(*joined[0])] * len(spans)
        return match_windows(spans, joined, list(self._pool().map(lambda span: self.window(*span), joined)))

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Do nothing: hints do not apply to remote objects."""

    def release(self) -> None:
        """Drop its blocks from the block cache."""
        self._blocks().forget(self._token)


class BlockCache:
    """An LRU cache of blocks that were read from remote objects; safe to use from several threads.

    Args:
        max_bytes: Most bytes of all blocks, except during `holding`, and for a single block.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[tuple[object, int], memoryview] = OrderedDict()
        self._starts: dict[object, list[int]] = {}
        self._total = 0
        self._holds = 0
        self._lock = threading.Lock()

    def find(self, source: object, start: int, stop: int) -> Window | None:
        """Return a block that contains `[start, stop)`, and the offset of its first byte; None when there is none.

        Args:
            source: The key of the source's blocks.
            start: Offset of the first byte in the source.
            stop: Offset just past the last byte.
        """
        with self._lock:
            starts = self._starts.get(source, [])
            place = bisect_right(starts, start)
            # Smaller blocks may begin between a large one and `start`. A block that is missed here is just read again.
            for first in reversed(starts[max(0, place - _LOOK_BACK) : place]):
                block = self._blocks[source, first]
                if stop <= first + len(block):
                    self._blocks.move_to_end((source, first))
                    return block, first
        return None

    def put(self, source: object, start: int, data: bytes) -> None:
        """Store a block of a source."""
        with self._lock:
            self._discard((source, start))
            self._blocks[source, start] = memoryview(data)
            insort(self._starts.setdefault(source, []), start)
            self._total += len(data)
            self._shrink()

    def forget(self, source: object) -> None:
        """Drop all blocks of a source."""
        with self._lock:
            for start in list(self._starts.get(source, ())):
                self._discard((source, start))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Drop nothing for lack of space during a `with` block."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                self._shrink()

    def _shrink(self) -> None:
        while not self._holds and self._total > self._max_bytes and len(self._blocks) > 1:
            self._discard(next(iter(self._blocks)))

    def _discard(self, block: tuple[object, int]) -> None:
        data = self._blocks.pop(block, None)
        if data is None:
            return
        self._total -= len(data)
        source, start = block
        starts = self._starts[source]
        starts.remove(start)
        if not starts:
            del self._starts[source]


class ReadAhead:
    """A remote source for a scan from header to header: where headers are close, one request reads many of them.

    The distance to the next window decides how much is read at once. While headers are close, the amount doubles with each
    request, up to 4 MiB; where members are large, 16 KiB are read at each header.

    Args:
        source: The remote source.
    """

    cached_bytes = 0
    is_remote = True

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.identity = source.identity
        self._source = source
        self._last = source.window(0, HEAD_BYTES)
        self._ahead = _LEAST_AHEAD_BYTES

    def is_removed(self) -> bool:
        """Return False."""
        return False

    def window(self, start: int, stop: int) -> Window:
        """Return the bytes `[start, stop)` and some that follow; an empty window for an empty range."""
        stop = min(stop, self.identity.size)
        if start >= stop:
            return memoryview(b""), start
        view, base = self._last
        end = base + len(view)
        if base <= start and stop <= end:
            return view, base
        near = 0 <= start - end <= _HOP_BYTES
        self._ahead = min(2 * self._ahead, _MOST_AHEAD_BYTES) if near else _LEAST_AHEAD_BYTES
        self._last = window = self._source.window(start, max(stop, start + self._ahead))
        return window

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return one window per span, without reading ahead, since the spans may be anywhere in the object."""
        return self._source.windows(spans)

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Do nothing: hints do not apply to remote objects."""

    def release(self) -> None:
        """Do nothing: the underlying source is released by its owner."""


class ReadThrough(ReadAhead):
    """A remote source for reading all of it from front to back: each byte is read once, and digested.

    Earlier bytes that are asked for again are read in the way of `ReadAhead`.

    Args:
        source: The remote source.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._digest = hashlib.md5(usedforsecurity=False)
        self._view, self._base = memoryview(b""), 0

    def window(self, start: int, stop: int) -> Window:
        """Return the bytes `[start, stop)` and some around them."""
        if start < self._base or start >= stop:
            return super().window(start, stop)
        stop = min(stop, self.identity.size)
        while self._base + len(self._view) < stop:
            self._go_on(start)
        return self._view, self._base

    def md5(self) -> str:
        """Read the rest of the object; return the MD5 of all of it, 32 hexadecimal digits."""
        while (end := self._base + len(self._view)) < self.identity.size:
            self._go_on(end)
        return self._digest.hexdigest()

    def _go_on(self, start: int) -> None:
        """Read the next part, and drop what is before `start`."""
        end = self._base + len(self._view)
        view, base = self._source.window(end, min(end + _THROUGH_BYTES, self.identity.size))
        part = view[end - base : end - base + _THROUGH_BYTES]
        self._digest.update(part)
        rest = self._view[start - self._base :]
        # Rarely is anything left, only when a header is cut between two parts or many headers are read at once.
        self._view, self._base = (memoryview(b"".join((rest, part))), start) if len(rest) else (part, end)
