"""One member as a file: its bytes are read from the shard, the holes of a sparse one are zeros."""

from __future__ import annotations

import io
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from wids.errors import ShardMismatchError, TarFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.source import Source
    from wids.tar.members import Members
    from wids.tar.sparse import Segment


class MemberFile(io.RawIOBase):
    """A seekable file over the bytes of one member; the holes of a sparse one read as zeros.

    Args:
        source: The shard.
        segments: Where the bytes are stored, in ascending order.
        size: Logical size of the file in bytes.
    """

    def __init__(self, source: Source, segments: list[Segment], size: int) -> None:
        super().__init__()
        self._source = source
        # Keeps a map alive while the file is open, even when the shard is closed or evicted.
        self._view = source.window(0, 0)[0]
        self._segments = segments
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, which may be past the end, as in any file.

        Raises:
            ValueError: The position is before the start, or `whence` is unknown.
        """
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}
        if whence not in origins:
            raise ValueError(f"whence is {whence}; it must be 0, 1 or 2")
        place = origins[whence] + offset
        if place < 0:
            raise ValueError(f"cannot seek to {place}, before the start")
        self._place = place
        return place

    def readall(self) -> bytes:
        """Return the rest of the file."""
        start, self._place = self._place, max(self._place, self._size)
        parts: list[bytes | memoryview] = []
        for low, high, stored in self._parts(start, self._size):
            parts += (bytes(low - start), self._stored(stored, stored + high - low))
            start = high
        return b"".join([*parts, bytes(max(0, self._size - start))])

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer` from the current position; return the number of bytes read."""
        target = memoryview(buffer).cast("B")
        start = self._place
        stop = min(start + len(target), self._size)
        if start >= stop:
            return 0
        reached = start
        for low, high, stored in self._parts(start, stop):
            target[reached - start : low - start] = bytes(low - reached)
            target[low - start : high - start] = self._stored(stored, stored + high - low)
            reached = high
        target[reached - start : stop - start] = bytes(stop - reached)
        self._place = stop
        return stop - start

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the stored parts of the file's bytes `[start, stop)`: start and stop in the file, offset in the shard."""
        first = bisect_right(self._segments, start, key=itemgetter(0))
        for number in range(max(0, first - 1), len(self._segments)):
            logical, stored, length = self._segments[number]
            if logical >= stop:
                break
            low, high = max(start, logical), min(stop, logical + length)
            if low < high:
                yield low, high, stored + low - logical

    def _stored(self, start: int, stop: int) -> memoryview:
        if self._view:
            view, base = self._view, 0
        else:
            view, base = self._source.window(start, stop)
        part = view[start - base : stop - base]
        if len(part) != stop - start:
            raise ShardMismatchError(
                f"{self._source.name}: bytes {start} to {stop} are missing, because the file ends before them; fetch the shard again"
            )
        return part


def read_member(source: Source, members: Members, number: int) -> bytes:
    """Return the bytes of one member of a scanned shard.

    Args:
        source: The shard.
        members: Its members.
        number: Number of the member in `members`.

    Raises:
        TarFormatError: The member is a hard link without a target.
    """
    if number in members.broken_links:
        raise TarFormatError(f"{source.name}: {members.broken_links[number]}; write the shard again")
    size = int(members.sizes[number])
    segments = members.sparse.get(number, [(0, int(members.offsets[number]), size)])
    return MemberFile(source, segments, size).readall()
