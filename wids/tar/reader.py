"""The reader of one open shard: position to bytes, through the shard's index and its source."""

from __future__ import annotations

import io
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NoReturn

from xxhash import xxh3_64_intdigest

from wids.errors import ShardMismatchError, TarFormatError
from wids.tar.headers import BLOCK
from wids.tar.listing import Listing
from wids.tar.member_file import MemberFile
from wids.tar.stale import compare_header

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from wids.source import Source, Span, Window
    from wids.tar.index import TarIndex
    from wids.tar.sparse import Segment

_REMOTE_BUFFER_BYTES = 256 << 10
"""Bytes of the buffer of a file over a remote member; a request of this size takes hardly longer than a smaller one."""

_LARGE_SAMPLE_BYTES = 64 << 10
"""Bytes of a sample from which on its pages are requested before they are copied.

The call costs little compared with copying this much. Without it the system reads ahead around each page that is touched, in
runs of its own choice that also hold bytes of other samples.
"""

MAX_SPARSE_BYTES = 1 << 30
"""Bytes of the largest sparse member that is read into memory; `open` streams larger ones."""


class TarReader(Listing):
    """Reads samples of one shard; safe to use from several threads.

    Args:
        source: The shard.
        index: The index of the shard.
        verify: Compare each member that `read` and `read_into` return with its checksum, on every read.
        compare: Compare the header of each member that is read with the index, if the source is remote. Not needed for
            an index that was just made from this source.

    Raises:
        ShardMismatchError: `verify` is true, but the index has no checksums.
    """

    __slots__ = (
        "_bytes",
        "_checksums",
        "_compares_headers",
        "_fields",
        "_has_large",
        "_map",
        "_next_large",
        "_special",
        "source",
    )

    def __init__(self, source: Source, index: TarIndex, *, verify: bool = False, compare: bool = True) -> None:
        if verify and index.checksums is None:
            raise ShardMismatchError(
                f"{source.name}: there are no checksums to compare its members with; make them with: "
                "widsindex create --index --checksums"
            )
        super().__init__(index, source.name)
        self.source = source
        self._compares_headers = compare and source.is_remote
        self._checksums = index.checksums.data if verify and index.checksums is not None else None
        self._fields = [fields if len(set(fields)) == len(fields) else None for fields in index.fields_of_kind]
        # A mapped source returns its whole map for any window, so one request serves all reads.
        view, base = source.window(0, 0)
        self._map = view if base == 0 and len(view) == source.identity.size else None
        # A slice of the mmap object is `bytes` already; a slice of its memoryview would have to be converted.
        whole: Any = view.obj
        self._bytes = whole if self._map is not None and len(whole) == len(view) else self._map
        self._special = sorted({*index.sparse, *index.broken_links})
        most = max(map(len, index.fields_of_kind), default=0) * int(index.sizes.max(initial=0))
        self._next_large = 0
        self._has_large = self._map is not None and most >= _LARGE_SAMPLE_BYTES

    def read(self, position: int, make: Callable[[Any], Any], fields: Container[str] | None = None) -> dict[str, Any]:
        """Return `{field: make(bytes)}` of one sample; for arguments and errors see `read_into`."""
        sample: dict[str, Any] = {}
        self.read_into(sample, position, make, fields)
        return sample

    def read_into(
        self,
        sample: dict[str, Any],
        position: int,
        make: Callable[[Any], Any],
        fields: Container[str] | None = None,
    ) -> None:
        """Put `make(bytes)` of each field of one sample into `sample`, in archive order.

        Args:
            sample: The dict to fill.
            position: In `[0, num_samples)`.
            make: Called with each member's bytes, for example `bytes` or `io.BytesIO`; `memoryview` for a view without a
                copy.
            fields: Names of the only fields to read; None for all.

        Raises:
            IndexError: The position is out of range.
            TarFormatError: A field occurs twice, or a hard link has no target.
            ShardMismatchError: The source ends before the member does, or a checksum differs.
            StaleIndexError: The source is remote, and a header in it differs from the index.
            ValueError: A sparse member is larger than `MAX_SPARSE_BYTES`.
            OSError: The source cannot be read.
        """
        try:
            number = self._starts[position]
            names = self._fields[self._kinds[position]]
            if names is None or (self._special and self._has_special(number, self._starts[position + 1])):
                self._read_slowly(sample, position, make, fields)
                return
            offsets, sizes, checksums = self._offsets, self._sizes, self._checksums
            view = self._map if make is memoryview else self._bytes
            if view is None:
                self._read_windows(sample, position, make, fields)
                return
            if self._has_large and make is not memoryview:
                self._ask_for_large(position, fields)
            for name in names:
                if fields is None or name in fields:
                    start = offsets[number]
                    size = sizes[number]
                    part = view[start : start + size]
                    if len(part) != size:
                        self._raise_short(start, size)
                    if checksums is not None:
                        self._compare(part, number, name, position)
                    # A slice of an mmap object is bytes already.
                    sample[name] = part if part.__class__ is make else make(part)
                number += 1
        except IndexError:
            self._raise_unless_past_end(position)

    def will_need(self, positions: Iterable[int], fields: Container[str] | None = None) -> None:
        """Ask the system to read the bytes of these samples from disk, all at once and nothing else.

        Raises:
            IndexError: A position is out of range.
        """
        self.source.advise([span for position in positions for span in self.spans(position, fields)], "willneed")

    def _ask_for_large(self, position: int, fields: Container[str] | None) -> None:
        is_next, self._next_large = position == self._next_large, position + 1
        if is_next:  # the system reads ahead by itself when samples are read in order
            return
        spans = self.spans(position, fields)
        if sum(stop - start for start, stop in spans) >= _LARGE_SAMPLE_BYTES:
            self.source.advise(spans, "willneed")

    def spans(self, position: int, fields: Container[str] | None = None) -> list[Span]:
        """Return the byte ranges of the source that a read of these fields of a sample needs.

        Raises:
            IndexError: The position is out of range.
        """
        numbers = [number for number, name in self._members(position) if fields is None or name in fields]
        segments = [segment for number in numbers for segment in self._segments(number)]
        before = BLOCK if self._compares_headers else 0
        return [(max(0, stored - before), stored + length) for _, stored, length in segments]

    def open(self, position: int, field: str) -> io.BufferedReader:
        """Return a seekable file over one member; only the bytes that are read from it are copied.

        Raises:
            KeyError: The sample has no such field.
            TarFormatError: As for `read`.
        """
        self._check_fields(position)
        for number, name in self._members(position):
            if name == field:
                if self._compares_headers:
                    start = self._offsets[number] - BLOCK
                    self._compare_header(
                        number, name, position, self.source.window(start, start + _REMOTE_BUFFER_BYTES)
                    )
                file = MemberFile(self.source, self._segments(number), self._sizes[number])
                return io.BufferedReader(
                    file, _REMOTE_BUFFER_BYTES if self.source.is_remote else io.DEFAULT_BUFFER_SIZE
                )
        raise KeyError(field)

    # Sources that are read window by window

    def _read_windows(
        self, sample: dict[str, Any], position: int, make: Callable[[Any], Any], fields: Container[str] | None
    ) -> None:
        """Do what `read_into` does, for a source that is not mapped and a sample without special members."""
        members = [(number, name) for number, name in self._members(position) if fields is None or name in fields]
        if not members:
            return
        windows = self.source.windows(self.spans(position, fields))
        for (number, name), (view, base) in zip(members, windows, strict=True):
            if self._compares_headers:
                self._compare_header(number, name, position, (view, base))
            start = self._offsets[number] - base
            size = self._sizes[number]
            part = view[start : start + size]
            if len(part) != size:
                self._raise_short(self._offsets[number], size)
            if self._checksums is not None:
                self._compare(part, number, name, position)
            sample[name] = make(part)

    def _compare_header(self, number: int, name: str, position: int, window: Window) -> None:
        start = self._offsets[number] - BLOCK
        # The header before the data of a hard link is that of the earlier member that it links to.
        is_link = number > 0 and start < self._offsets[number - 1]
        compare_header(
            window, start, self._sizes[number], self.key(position), name, is_link=is_link, source_name=self.source.name
        )

    # Special members: sparse ones and broken hard links

    def _has_special(self, first: int, stop: int) -> bool:
        place = bisect_right(self._special, first - 1)
        return place < len(self._special) and self._special[place] < stop

    def _read_slowly(
        self,
        sample: dict[str, Any],
        position: int,
        make: Callable[[Any], Any],
        fields: Container[str] | None,
    ) -> None:
        self._check_fields(position)
        for number, name in self._members(position):
            if fields is None or name in fields:
                size = self._sizes[number]
                if number in self._index.sparse and size > MAX_SPARSE_BYTES:
                    raise ValueError(
                        f"{self.source.name}: key {self.key(position)!r}, field {name!r}: is sparse and has {size} bytes, "
                        f"more than the {MAX_SPARSE_BYTES} that are read into memory; read it with open(index, {name!r})"
                    )
                part = memoryview(MemberFile(self.source, self._segments(number), size).readall())
                if self._checksums is not None:
                    self._compare(part, number, name, position)
                sample[name] = make(part)

    def _segments(self, number: int) -> list[Segment]:
        return self._index.sparse.get(number, [(0, self._offsets[number], self._sizes[number])])

    def _compare(self, part: Any, number: int, name: str, position: int) -> None:
        found = xxh3_64_intdigest(part)
        expected = self._checksums[number]  # type: ignore[index]
        if found != expected:
            raise ShardMismatchError(
                f"{self.source.name}: key {self.key(position)!r}, field {name!r}, at byte {self._offsets[number]}: has "
                f"checksum {found:016x}, expected {expected:016x}; fetch the shard again, or see: widsindex verify"
            )

    def _raise_unless_past_end(self, position: int) -> NoReturn:
        """Raise the error that an `IndexError` in the columns stands for: the position is out of range, or the index is wrong."""
        if not -self.num_samples <= position < self.num_samples:
            raise IndexError(f"{self.source.name}: position {position} of {self.num_samples} samples")
        raise TarFormatError(
            f"{self.source.name}: its stored index names members that do not exist; make the index again with: "
            "widsindex create --index"
        )

    def _raise_short(self, offset: int, size: int) -> NoReturn:
        raise ShardMismatchError(
            f"{self.source.name}: the member at byte {offset} has {size} bytes, but the file ends before its last one; "
            "fetch the shard again"
        )
