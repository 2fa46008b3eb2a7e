"""`Source`: the interface between the code that stores shards and the code that reads them.

Storage opens a shard as a `Source`. The tar reader asks it for windows of bytes, and knows neither URLs nor folders. A
mapped file answers every request with its whole map, at no cost; a file that is read in place returns just the bytes asked
for. One read path serves both: get the span from the index, get the window from the source, slice it.

Nothing here closes a map or file descriptor that is still in use: `release` drops the source's own reference, and the
object is freed with the last memoryview, file or running read that holds it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from wids.errors import FetchError, cannot_open

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[int, int]
"""Byte range `(start, stop)`, `stop` exclusive."""

Window = tuple[memoryview, int]
"""A buffer, and the offset in the source of the buffer's first byte."""

Hint = Literal["sequential", "random", "willneed", "done"]
"""How bytes will be read. `"done"`: this process will not read them again soon, and need not keep them in its memory."""

_NEAR_BYTES = 16 << 10
"""Spans of a file that is read in place share a system call if at most this many bytes lie between them."""
_LARGEST_JOINED_BYTES = 8 << 20
"""The most bytes that spans which share a system call may cover together."""

_ADVICE = {
    "sequential": mmap.MADV_SEQUENTIAL,
    "random": mmap.MADV_RANDOM,
    "willneed": mmap.MADV_WILLNEED,
    "done": mmap.MADV_DONTNEED,  # loses no data of a shared map: a page that is touched again is mapped again
}

_DIGEST_BYTES = 1 << 20
"""Bytes that are read and digested at a time."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties by which one version of a stored object is told from another; None where the store has no such value."""

    size: int
    """Bytes in the object."""
    mtime_ns: int | None = None
    """Modification time, nanoseconds since the epoch."""
    ctime_ns: int | None = None
    """Change time of the inode, nanoseconds since the epoch."""
    inode: int | None = None
    """Number of the inode on its device."""
    etag: str | None = None
    """The store's tag for this version of the object's content."""

    @classmethod
    def from_stat(cls, status: os.stat_result) -> Identity:
        """Return the identity of a local file."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Source(Protocol):
    """An open shard, read by byte ranges; safe to use from several threads."""

    name: str
    """The shard's path or URL for messages, secrets redacted."""
    identity: Identity
    """Identity of the object that was opened."""
    is_remote: bool
    """Whether each window may be a request to another machine."""

    @property
    def cached_bytes(self) -> int:
        """Bytes of the disk cache that this source keeps from being freed; 0 if the shard is not a file of the cache."""
        ...

    def is_removed(self) -> bool:
        """Return whether the disk cache has removed or replaced the file that this source holds open."""
        ...

    def window(self, start: int, stop: int) -> Window:
        """Return a buffer that holds `[start, stop)`, and the offset of its first byte.

        The buffer may be larger; it ends early only where the source does.

        Raises:
            OSError: The bytes cannot be read.
        """
        ...

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return one window for each span. Near spans are read together; remote ones are requested concurrently."""
        ...

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Tell the operating system how `spans` will be read; a hint that it does not support is ignored."""
        ...

    def release(self) -> None:
        """Drop the source's own references: no new read will begin. Views, files and running reads stay valid.

        A map or file descriptor is freed with its last reference, so a source that holds nothing else does nothing here.
        """
        ...


class _FileSource:
    """The common part of the two sources that read a local file.

    Args:
        path: Path of the file.
        name: What messages call it; None for `path`.
        cached: Whether the file is in the disk cache, which may remove it at any time.
    """

    __slots__ = ("_cached", "identity", "name", "path")

    is_remote = False

    def __init__(self, path: str, name: str | None, *, cached: bool) -> None:
        self.path = path
        self.name = name or path
        self.identity = Identity(0)
        self._cached = cached

    @property
    def cached_bytes(self) -> int:
        """Bytes of the disk cache that this source keeps from being freed."""
        return self.identity.size if self._cached else 0

    def is_removed(self) -> bool:
        """Return whether the disk cache has removed or replaced this file."""
        if not self._cached:
            return False
        try:
            return os.stat(self.path).st_ino != self.identity.inode  # noqa: PTH116 - a plain string, as open() takes it
        except OSError:
            return True


class MmapSource(_FileSource):
    """A mapped local file: pages are read when they are touched, and shared by all processes of the machine.

    If the file is replaced (renamed over), this source keeps reading the file that it opened. If it is truncated in place,
    touching the missing pages kills the process with SIGBUS, which no reader can prevent; `PreadSource` raises an error
    instead.

    Args:
        path: Path of the file.
        name: What messages call it; None for `path`.
        cached: Whether the file is in the disk cache, which may remove it at any time.

    Raises:
        FetchError: The file cannot be opened.
    """

    __slots__ = ("_map", "buffer")

    def __init__(self, path: str, name: str | None = None, *, cached: bool = False) -> None:
        super().__init__(path, name, cached=cached)
        descriptor = _open_file(path, self.name)
        try:
            self.identity = Identity.from_stat(os.fstat(descriptor))
            # An empty file cannot be mapped; an empty buffer takes its place.
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if self.identity.size else None
        except (OSError, ValueError) as error:
            raise FetchError(f"{self.name}: cannot be mapped: {error}") from error
        finally:
            os.close(descriptor)
        self.buffer = memoryview(b"" if self._map is None else self._map)

    def window(self, start: int, stop: int) -> Window:
        """Return the whole map."""
        return self.buffer, 0

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return the whole map, once per span."""
        return [(self.buffer, 0)] * len(spans)

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Pass `hint` to madvise, page-aligned."""
        if self._map is None:
            return
        advice = _ADVICE[hint]
        for start, stop in spans:
            aligned = start - start % mmap.PAGESIZE
            length = min(stop, self.identity.size) - aligned
            # A span outside the file comes from a wrong index; the read that follows raises the error.
            if aligned >= 0 and length > 0:
                self._map.madvise(advice, aligned, length)

    def release(self) -> None:
        """Do nothing: the map is freed with the last reference to this source or a view of it."""


class PreadSource(_FileSource):
    """A local file read by `pread`, for file systems where a mapped file that shrinks would kill the process.

    Args:
        path: Path of the file.
        name: What messages call it; None for `path`.
        cached: Whether the file is in the disk cache, which may remove it at any time.

    Raises:
        FetchError: The file cannot be opened.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, name: str | None = None, *, cached: bool = False) -> None:
        self._descriptor: int | None = None
        super().__init__(path, name, cached=cached)
        self._descriptor = _open_file(path, self.name)
        self.identity = Identity.from_stat(os.fstat(self._descriptor))

    def window(self, start: int, stop: int) -> Window:
        """Read `[start, stop)`, up to the size that the file had when it was opened.

        Raises:
            FetchError: The file has shrunk since it was opened, or cannot be read.
        """
        stop = min(stop, self.identity.size)
        if start >= stop:
            return memoryview(b""), start
        view = memoryview(bytearray(stop - start))
        filled = 0
        while filled < len(view):
            try:
                count = os.preadv(self._number(), [view[filled:]], start + filled)
            except OSError as error:
                raise FetchError(f"{self.name}: reading bytes {start} to {stop} failed: {error}") from error
            if count == 0:
                raise FetchError(
                    f"{self.name}: ends at byte {start + filled}, but had {self.identity.size} bytes when it was "
                    "opened; it was truncated in the meantime, open it again"
                )
            filled += count
        return view.toreadonly(), start

    def _number(self) -> int:
        assert self._descriptor is not None, "opened by the constructor, closed only with this object"
        return self._descriptor

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Read the spans, near ones together."""
        joined = join_spans(spans, _NEAR_BYTES, _LARGEST_JOINED_BYTES)
        return match_windows(spans, joined, [self.window(start, stop) for start, stop in joined])

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Pass `hint` to posix_fadvise, where the system has it."""
        # "done" needs no action: unlike a map, a source that is read in place holds no pages.
        if not hasattr(os, "posix_fadvise") or hint == "done":
            return
        advice = {
            "sequential": os.POSIX_FADV_SEQUENTIAL,
            "random": os.POSIX_FADV_RANDOM,
            "willneed": os.POSIX_FADV_WILLNEED,
        }[hint]
        for start, stop in spans:
            os.posix_fadvise(self._number(), start, stop - start, advice)

    def release(self) -> None:
        """Do nothing: the descriptor is closed with the last reference to this source."""

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class BufferSource:
    """A shard in memory, read from a stream that is not a file.

    Args:
        data: Bytes of the whole shard.
        name: What messages call it.
    """

    __slots__ = ("buffer", "identity", "name")

    cached_bytes = 0
    is_remote = False

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self.buffer = memoryview(data)
        self.identity = Identity(len(data))

    def is_removed(self) -> bool:
        """Return False: memory is no part of the disk cache."""
        return False

    def window(self, start: int, stop: int) -> Window:
        """Return the whole buffer."""
        return self.buffer, 0

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return the whole buffer, once per span."""
        return [(self.buffer, 0)] * len(spans)

    def advise(self, spans: Sequence[Span], hint: Hint) -> None:
        """Do nothing: memory needs no hint."""

    def release(self) -> None:
        """Do nothing: the buffer is freed with its last view."""


def _open_file(path: str, name: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise cannot_open(name, error) from error


def digest_source(source: Source) -> str:
    """Return the MD5 of all bytes of a source, 32 hexadecimal digits.

    Raises:
        OSError: The source cannot be read.
    """
    digest = hashlib.md5(usedforsecurity=False)
    size = source.identity.size
    for start in range(0, size, _DIGEST_BYTES):
        stop = min(start + _DIGEST_BYTES, size)
        view, base = source.window(start, stop)
        digest.update(view[start - base : stop - base])
    return digest.hexdigest()


def join_spans(spans: Sequence[Span], near: int, largest: int) -> list[Span]:
    """Return ascending ranges that cover all of `spans`, joined where at most `near` bytes lie between two spans.

    Args:
        spans: Spans in any order; they may overlap.
        near: The most bytes between two spans that are joined.
        largest: The most bytes in a joined range; a single span may be larger.

    Returns:
        Spans, none of which lies within another.

    Examples:
        >>> join_spans([(900, 1000), (0, 10), (15, 20)], 8, 100)
        [(0, 20), (900, 1000)]
    """
    joined: list[Span] = []
    for start, stop in sorted(spans):
        if joined:
            first, last = joined[-1]
            if stop <= last:
                continue
            if start - last <= near and stop - first <= largest:
                joined[-1] = (first, stop)
                continue
        joined.append((start, stop))
    return joined


def match_windows(spans: Sequence[Span], joined: Sequence[Span], windows: Sequence[Window]) -> list[Window]:
    """Return, for each span, the window of the joined span that contains it."""
    starts = [start for start, _ in joined]
    return [windows[bisect_right(starts, start) - 1] for start, _ in spans]
