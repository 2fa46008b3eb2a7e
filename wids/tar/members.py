"""A shard to its members: where each file's bytes are, what it is called, and how the archive ends.

The scan proceeds in runs. A run is many ordinary headers parsed at once (`wids.tar.runs`). It stops at the first header
that is unusual or damaged; this module parses that one by itself, with all checks, and the next run begins after it.
Both read through `Source.window`, so the pages of a mapped file that hold no header are never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from wids.errors import TarFormatError
from wids.tar import extended
from wids.tar.headers import (
    BLOCK,
    GNU_LONG_LINK,
    GNU_LONG_NAME,
    HARD_LINK,
    PAX_GLOBAL,
    PAX_LOCAL,
    WITH_OTHER_DATA,
    WITHOUT_DATA,
    Header,
    cut_at_nul,
    name_damage,
    padded,
    parse_header,
)
from wids.tar.names import Names
from wids.tar.runs import Run, RunFinder
from wids.tar.sparse import MAX_PARTS, is_sparse, read_sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source
    from wids.tar.extended import PaxRecords
    from wids.tar.sparse import Segment

_MAX_EXTENSION_BYTES = 1 << 20
"""Most bytes of data of one pax or long-name header, as in libarchive and Go. PATH_MAX is 4 KiB; attributes take 64 KiB."""
_HERE = re.compile(rb"(?:\./+)+")
_SHOWN_BYTES = 200
"""Bytes of a name that a message quotes at most."""


@dataclass(slots=True)
class Members:
    """The files of a shard in archive order, as columns.

    Directories, devices and symbolic links are left out. A hard link has the bytes of its target.
    """

    names: Names
    """`(num_members,)`, full paths as stored in the archive."""
    offsets: NDArray[np.int64]
    """`(num_members,)` int64, bytes from the start of the shard to the member's first byte."""
    sizes: NDArray[np.int64]
    """`(num_members,)` int64, bytes in the member; the logical size of a sparse one."""
    sparse: dict[int, list[Segment]]
    """Member number to the segments of a sparse member."""
    broken_links: dict[int, str]
    """Member number to what is wrong with a hard link whose target is not an earlier file."""
    end: int
    """Offset of the end-of-archive blocks, or of the end of the file where they are missing."""
    has_end_blocks: bool
    """False when the file ends right after a member."""
    bytes_after_end: int
    """Number of bytes from the end-of-archive blocks to the last byte that is not zero; they are ignored."""


def scan_members(source: Source) -> Members:
    """Read all headers of a tar shard.

    Raises:
        TarFormatError: The file is not a tar archive, or is damaged; the message names the byte.
        OSError: The file cannot be read.
    """
    if source.identity.size == 0:
        raise TarFormatError(f"{source.name}: not a tar archive: the file is empty; fetch or write the shard again")
    return _Scan(source).run()


@dataclass(slots=True)
class _Pending:
    """What the extension headers read so far say about the member that follows them."""

    records: PaxRecords = field(default_factory=dict)
    name: bytes | None = None
    link: bytes | None = None
    offset: int | None = None
    """Offset of the first extension header of the next member; None when there is none."""


class _Scan:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.identity.size
        self._num_members = 0
        self._name_bytes = 0
        self._runs: list[Run] = []
        self._singles: list[tuple[bytes, int, int]] = []
        self._sparse: dict[int, list[Segment]] = {}
        self._broken_links: dict[int, str] = {}
        self._globals: PaxRecords = {}
        self._targets: dict[bytes, tuple[int, int, int]] = {}
        self._num_target_runs = 0
        self._num_target_singles = 0
        self._num_linked_parts = 0

    def run(self) -> Members:
        finder = RunFinder(self._source)
        offset = 0
        at_end = False
        while offset < self._size and not at_end:
            run = None if self._globals else finder.find(offset)
            if run is not None:
                self._add_run(run)
                offset = run.stop
            else:
                offset, at_end = self._read_member(offset)
        return self._finish(offset)

    def _add_run(self, run: Run) -> None:
        self._end_singles()
        self._num_members += len(run.names)
        self._runs.append(run)

    def _end_singles(self) -> None:
        """Turn the members that were added one by one since the last run into a run of their own."""
        if self._singles:
            names, offsets, sizes = zip(*self._singles, strict=True)
            self._runs.append(Run(Names.of(names), np.array(offsets, np.int64), np.array(sizes, np.int64), stop=0))
            self._singles = []
            self._num_target_singles = 0

    def _finish(self, end: int) -> Members:
        self._end_singles()
        has_end_blocks = end + BLOCK <= self._size
        empty = np.zeros(0, np.int64)
        return Members(
            names=Names.joined(run.names for run in self._runs),
            offsets=np.concatenate([empty, *(run.offsets for run in self._runs)]),
            sizes=np.concatenate([empty, *(run.sizes for run in self._runs)]),
            sparse=self._sparse,
            broken_links=self._broken_links,
            end=end,
            has_end_blocks=has_end_blocks,
            bytes_after_end=count_bytes_after(self._source, end) if has_end_blocks else 0,
        )

    # One member, parsed with all checks

    def _read_member(self, offset: int) -> tuple[int, bool]:
        """Add the member whose headers begin at `offset`; return the offset past it, and whether the archive ends there."""
        pending = _Pending()
        while True:
            block = self._read_header(offset, pending)
            if block is None:
                return offset, True
            header = parse_header(block, offset, self._source.name)
            if not self._read_extension(header, pending):
                return self._add_member(header, block, pending), False
            offset = header.data_offset + padded(header.size)

    def _read_header(self, offset: int, pending: _Pending) -> bytes | None:
        block = self._bytes(offset, min(offset + BLOCK, self._size))
        if len(block) < BLOCK and (offset == 0 or block.strip(b"\0")):
            raise TarFormatError(
                f"{self._source.name}: {name_damage(block, offset)}: the file ends at byte {self._size}, inside the "
                f"header at byte {offset}; fetch or write the shard again"
            )
        if not block.strip(b"\0"):
            if pending.offset is not None:
                raise self._damaged(f"the member that the header at byte {pending.offset} describes is missing")
            return None
        return block

    def _read_extension(self, header: Header, pending: _Pending) -> bool:
        """Store what an extension header says in `pending`; return False when `header` is a member's own header."""
        if header.type == PAX_GLOBAL:
            records = extended.parse_pax(self._payload(header), header.offset, self._source.name)
            self._globals |= extended.keep_global(records, header.offset, self._source.name)
            return True
        if header.type in PAX_LOCAL:
            pending.records |= extended.parse_pax(self._payload(header), header.offset, self._source.name)
        elif header.type == GNU_LONG_NAME:
            pending.name = cut_at_nul(self._payload(header))
        elif header.type == GNU_LONG_LINK:
            pending.link = cut_at_nul(self._payload(header))
        else:
            return False
        pending.offset = header.offset if pending.offset is None else pending.offset
        return True

    def _add_member(self, header: Header, block: bytes, pending: _Pending) -> int:
        """Add the member that `header` begins, if it is a file; return the offset past it."""
        records = {**self._globals, **pending.records}
        name = _first_given(records.get(b"path"), pending.name, header.name)
        self._name_bytes += len(name)
        if self._name_bytes > self._size:
            raise self._damaged("a global pax header gives its members names that are longer than the whole file")
        if header.type == HARD_LINK:
            self._add_link(name, _first_given(records.get(b"linkpath"), pending.link, header.link), header)
            return header.data_offset
        # Before directories had a type flag of their own, a name with a slash at the end marked them.
        if header.type in WITHOUT_DATA or (header.type == b"\0" and cut_at_nul(block[:100]).endswith(b"/")):
            return header.data_offset
        pax_size = extended.pax_size(records, header.offset, self._source.name)
        size = header.size if pax_size is None else pax_size
        if is_sparse(header, records):
            return self._add_sparse(name, header, block, size, records)
        stop = self._check_stop(header, header.data_offset + size)
        if header.type not in WITH_OTHER_DATA:
            self._add(name, header.data_offset, size)
        return stop

    def _check_stop(self, header: Header, stop: int) -> int:
        """Return `stop` rounded up to whole blocks; raise when the file ends before that."""
        if padded(stop) > self._size:
            where = "data" if stop > self._size else "padding"
            raise self._damaged(
                f"the file ends at byte {self._size}, inside the {where} of the member whose header is at byte "
                f"{header.offset}, which reaches to byte {padded(stop)}"
            )
        return padded(stop)

    def _add(self, name: bytes, offset: int, size: int) -> None:
        self._num_members += 1
        self._singles.append((name, offset, size))

    def _add_link(self, name: bytes, target: bytes, header: Header) -> None:
        """Add a hard link; its bytes are those of the last earlier file that has its target's name."""
        self._learn_targets()
        number, offset, size = self._targets.get(_plain_path(target), (-1, header.data_offset, 0))
        linked = self._num_members
        if number < 0:
            shown = target[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
            self._broken_links[linked] = (
                f"the hard link at byte {header.offset} is to {shown!r}, which is not an earlier file of the archive"
            )
        if number in self._sparse:
            self._sparse[linked] = self._sparse[number]
            self._num_linked_parts += len(self._sparse[number])
            if self._num_linked_parts > MAX_PARTS:  # an index stores them once per link
                raise self._damaged(f"its hard links to sparse files have more than {MAX_PARTS} parts together")
        if number in self._broken_links:
            self._broken_links[linked] = self._broken_links[number]
        self._add(name, offset, size)

    def _learn_targets(self) -> None:
        """Add the members that were found since the last hard link to the possible targets."""
        runs = self._runs[self._num_target_runs :]
        number = self._num_members - len(self._singles) - sum(len(run.names) for run in runs)
        for run in runs:
            for name, offset, size in zip(run.names, run.offsets.tolist(), run.sizes.tolist(), strict=True):
                self._targets[_plain_path(name)] = number, offset, size
                number += 1
        self._num_target_runs = len(self._runs)
        # Single members are added a second time once `_end_singles` has made a run of them, with the same values.
        for name, offset, size in self._singles[self._num_target_singles :]:
            self._targets[_plain_path(name)] = number + self._num_target_singles, offset, size
            self._num_target_singles += 1

    def _add_sparse(self, name: bytes, header: Header, block: bytes, stored: int, records: PaxRecords) -> int:
        """Add a sparse member with `stored` bytes of data; return the offset past it."""
        self._check_stop(header, header.data_offset + stored)
        try:
            file = read_sparse(header, block, records, stored, self._read_block)
        except TarFormatError:
            raise
        except ValueError as error:
            raise self._damaged(f"the sparse member whose header is at byte {header.offset}: {error}") from None
        stop = self._check_stop(header, file.stop)
        self._sparse[self._num_members] = file.segments
        self._add(_first_given(records.get(b"GNU.sparse.name"), name), file.start, file.size)
        return stop

    def _payload(self, header: Header) -> bytes:
        stop = header.data_offset + header.size
        if padded(stop) > self._size:
            raise self._damaged(
                f"the file ends at byte {self._size}, inside the data of the header at byte {header.offset}"
            )
        if header.size > _MAX_EXTENSION_BYTES:
            raise self._damaged(f"the header at byte {header.offset} has {header.size} bytes of names and attributes")
        return self._bytes(header.data_offset, stop)

    def _read_block(self, offset: int) -> bytes:
        if offset + BLOCK > self._size:
            raise self._damaged(f"the file ends at byte {self._size}, inside a header")
        return self._bytes(offset, offset + BLOCK)

    def _bytes(self, start: int, stop: int) -> bytes:
        view, base = self._source.window(start, stop)
        return bytes(view[start - base : stop - base])

    def _damaged(self, what: str) -> TarFormatError:
        return TarFormatError(f"{self._source.name}: damaged: {what}; fetch or write the shard again")


def _first_given(*names: bytes | None) -> bytes:
    """Return the first name that is not None; an empty name counts as given."""
    return next(name for name in names if name is not None)


def _plain_path(name: bytes) -> bytes:
    """Return `name` in the form in which link targets are compared: without any leading `./`."""
    found = _HERE.match(name)
    return name[found.end() :] if found else name


def count_bytes_after(source: Source, end: int) -> int:
    """Return the number of bytes from the end-of-archive blocks, which begin at `end`, to the last byte that is not zero."""
    step = 1 << 20
    # Search backwards: the zeros at the end of the file are few, and the bytes before them may be many.
    for stop in range(source.identity.size, end, -step):
        start = max(end, stop - step)
        view, base = source.window(start, stop)
        part = bytes(view[start - base : stop - base]).rstrip(b"\0")
        if part:
            return start + len(part) - min(end + 2 * BLOCK, start + len(part))
    return 0
