"""A shard that is read by byte ranges of the stored object, which stays where it is.

Each window is one verified request, or none where its bytes are at hand: what was read last stays in a bounded memory.
Near ranges are joined and the requests of one call run at the same time. An object that changes between two requests
is an error, which the transport finds by size and tag.
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
"""Of the first request, which tells size, tag and compression: the first header."""
_NEAR_BYTES = 64 << 10
"""A gap of so many bytes costs less than another request: about a millisecond at 500 Mbit/s."""
_LARGEST_JOINED_BYTES = 8 << 20
"""Joined ranges are no larger, so that parts of a long run come at the same time."""
_LOOK_BACK = 8
"""Blocks that begin before a place and are looked at for it."""
_LEAST_AHEAD_BYTES = 16 << 10
_MOST_AHEAD_BYTES = 4 << 20
_THROUGH_BYTES = 8 << 20
"""Of one request, where all of an object is read."""
_HOP_BYTES = 1 << 20
"""Between headers that lie closer than this what is between them is read too, instead of asking again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What came for one range, and what was said about the whole object."""

    data: bytes
    size: int
    """Bytes of the object."""
    tag: str | None
    """Changes with the object; None where the other side has nothing of that kind."""


class WholeOnlyError(FetchError):
    """An object comes whole or not at all."""


class RangeTransport(Protocol):
    """Reads ranges of objects; safe to use from several threads of the process that made it."""

    def read_range(self, location: Location, start: int, stop: int) -> Piece:
        """Return the bytes `[start, stop)`, fewer only where the object ends before.

        Raises:
            WholeOnlyError: Its store gives no parts.
            FetchError: They cannot be had, now or later.
            PassingError: They may be had at the next attempt.
        """
        ...


class RangeSource:
    """One stored object, read by ranges.

    Args:
        name: For messages.
        read: Returns the bytes of a range, verified; tries again what can pass.
        blocks: Gives this process's memory of what was read last.
        pool: Gives this process's threads, which run requests at the same time.
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
        self._token = object()  # what blocks are kept under: an id may be another source's later
        self.bytes_read = 0
        # The tag and size of the first answer are what all later ones must have.
        first = read(0, HEAD_BYTES)
        self.identity = Identity(first.size, etag=first.tag)
        self._blocks().put(self._token, 0, first.data)

    def on_use(self, function: Callable[[RangeSource], object]) -> None:
        """Have a function called with this source after each request."""
        self._on_use = function

    def is_removed(self) -> bool:
        """Return False: nothing of it lies on the disk."""
        return False

    def window(self, start: int, stop: int) -> Window:
        """Return the bytes `[start, stop)`, by one request where they are not at hand.

        Raises:
            FetchError: They cannot be had, or the object is no longer the one that was opened.
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
        """Return the requests that spans need: near ones share one."""
        return join_spans(spans, _NEAR_BYTES, _LARGEST_JOINED_BYTES)

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return one window per span; near ones share a request, and the requests run at the same time."""
        joined = self.joined(spans)
        if len(joined) == 1:
            return [self.window(*joined[0])] * len(spans)
        return match_windows(spans, joined, list(self._pool().map(lambda span: self.window(*span), joined)))

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Do nothing: nobody is told."""

    def release(self) -> None:
        """Forget what is kept of it in memory."""
        self._blocks().forget(self._token)


class BlockCache:
    """What was read last of remote objects, within so many bytes; safe to use from several threads.

    Args:
        max_bytes: Most bytes, except while a batch holds what it needs.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[tuple[object, int], memoryview] = OrderedDict()
        self._starts: dict[object, list[int]] = {}
        self._total = 0
        self._holds = 0
        self._lock = threading.Lock()

    def find(self, source: object, start: int, stop: int) -> Window | None:
        """Return a block that has `[start, stop)`, and the offset of its first byte.

        Args:
            source: What the blocks of one source are kept under.
            start: Offset in it.
            stop: Offset behind the last byte.
        """
        with self._lock:
            starts = self._starts.get(source, [])
            place = bisect_right(starts, start)
            # A large block may lie behind small ones that begin later; one that is missed is read again.
            for first in reversed(starts[max(0, place - _LOOK_BACK) : place]):
                block = self._blocks[source, first]
                if stop <= first + len(block):
                    self._blocks.move_to_end((source, first))
                    return block, first
        return None

    def put(self, source: object, start: int, data: bytes) -> None:
        """Keep a block of a source."""
        with self._lock:
            self._discard((source, start))
            self._blocks[source, start] = memoryview(data)
            insort(self._starts.setdefault(source, []), start)
            self._total += len(data)
            self._shrink()

    def forget(self, source: object) -> None:
        """Let go of all blocks of a source."""
        with self._lock:
            for start in list(self._starts.get(source, ())):
                self._discard((source, start))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let go of nothing during a block."""
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
    """A remote source as one reads it who goes from header to header: many of them with a request where they lie close.

    What is asked for next decides how much is read at once: where headers follow each other, twice as much each time;
    where members are large, only the header.

    Args:
        source: The object.
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
        """Return the bytes `[start, stop)` and some that follow; nothing where nothing is asked for."""
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
        """Return one window per span, and no more than that: they are places here and there."""
        return self._source.windows(spans)

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Do nothing: nobody is told."""

    def release(self) -> None:
        """Do nothing: the source is somebody else's."""


class ReadThrough(ReadAhead):
    """A remote source as one reads it who goes through all of it, from front to back: each byte comes once, and is digested.

    What lies behind, and is asked for again, is read as `ReadAhead` reads it.

    Args:
        source: The object.
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
        """Return the MD5 of the whole object, 32 hexadecimal digits; what is left of it is read for that."""
        while (end := self._base + len(self._view)) < self.identity.size:
            self._go_on(end)
        return self._digest.hexdigest()

    def _go_on(self, start: int) -> None:
        """Read the next part; what lies before `start` is let go of."""
        end = self._base + len(self._view)
        view, base = self._source.window(end, min(end + _THROUGH_BYTES, self.identity.size))
        part = view[end - base : end - base + _THROUGH_BYTES]
        self._digest.update(part)
        rest = self._view[start - self._base :]
        # Rarely is anything left: a header that two parts share, or a look at many headers at once.
        self._view, self._base = (memoryview(b"".join((rest, part))), start) if len(rest) else (part, end)
