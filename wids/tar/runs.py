"""Many ordinary headers at once: the fast part of the scan, by numpy over a matrix of header blocks.

A run is a chain of headers, each of which lies where the one before it says that the next begins, and each of which is
ordinary: ustar or GNU magic, octal numbers in their usual form, a right checksum, a file or directory, at most one pax
or GNU long name before it that says no more than its name. The first header that is not all of this ends the run.

Where members are small, candidates for headers are found in one strided look for the magic; the chain then proves that
they are headers, and not data that looks like one. Where members are large, that look would read every page of the
file, and hopping from header to header reads only those that hold headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wids.errors import TarFormatError
from wids.tar.extended import parse_pax
from wids.tar.headers import BLOCK, cut_at_nul, join_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source

DENSE_STRIDE = 24 << 10
"""Mean bytes from header to header up to which looking at every block is faster than hopping (benchmarks/scan_border.py)."""

_FIRST_BATCH = 64
_LARGEST_BATCH = 4096
"""Headers per run: their matrix, 2 MiB, stays in the processor's cache."""
_WORTHWHILE = 16
"""Headers in a run below which numpy costs more than reading them one by one."""
_LONGEST_PAUSE = 64
_MAX_PAYLOAD = 64 << 10

_USTAR = int.from_bytes(b"usta", "little")
_DIRECTORY, _PAX, _LONG_NAME = b"5xL"
_FOLLOWED_BY_DATA = np.isin(np.arange(256), list(b"\x0007xL"))
_ORDINARY = _FOLLOWED_BY_DATA | (np.arange(256) == _DIRECTORY)
_OCTAL_WEIGHTS = 8.0 ** np.arange(10, -1, -1)


@dataclass(frozen=True, slots=True)
class Run:
    """The files of one run, and where it ends."""

    names: list[bytes]
    """`(num_members,)`"""
    offsets: NDArray[np.int64]
    """`(num_members,)` int64, bytes from the start of the shard to the member's first byte."""
    sizes: NDArray[np.int64]
    """`(num_members,)` int64, bytes in the member."""
    stop: int
    """Offset behind the last member, padding included."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What may be headers, in order."""

    starts: NDArray[np.int64]
    """`(num_found,)` int64, bytes from the start of the shard to each block."""
    blocks: NDArray[np.uint8]
    """`(num_found, 512)` uint8."""
    region: NDArray[np.uint8] | None
    """`(num_blocks, 512)` uint8, all blocks from the first candidate on, where they were looked at anyway."""


class RunFinder:
    """Finds runs in one shard; learns from each how far and by which way to look for the next.

    Args:
        source: The shard.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.identity.size
        self._batch = _FIRST_BATCH
        self._stride: float | None = None
        self._has_lookalikes = False
        self._scratch: NDArray[np.uint8] | None = None
        self._pause = 0
        self._next_pause = 1

    def find(self, offset: int) -> Run | None:
        """Return the run that begins at `offset`, None when the header there is not ordinary, or runs do not pay."""
        if self._pause:
            self._pause -= 1
            return None
        dense = self._stride is not None and self._stride <= DENSE_STRIDE and not self._has_lookalikes
        found = self._look(offset, self._stride or 0) if dense else self._hop(offset)
        run, num_headers = self._parse(found)
        if dense and run is not None and num_headers < len(found.starts):
            # The next header is none of the candidates behind the run: they were data.
            self._has_lookalikes = run.stop not in found.starts[num_headers:]
        self._learn(offset, run, num_headers, len(found.starts))
        return run

    def _learn(self, offset: int, run: Run | None, num_headers: int, num_found: int) -> None:
        if run is not None:
            self._stride = (run.stop - offset) / num_headers
        if num_headers < _WORTHWHILE:
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)
            self._batch = _FIRST_BATCH
        else:
            self._next_pause = 1
            whole = num_headers >= num_found - 1
            self._batch = min(4 * self._batch, _LARGEST_BATCH) if whole else _FIRST_BATCH

    # Candidates

    def _look(self, offset: int, stride: float) -> _Candidates:
        """Find headers by their magic, in as many bytes as a batch is likely to take."""
        length = min(int(self._batch * stride) + 2 * BLOCK, self._size - offset) // BLOCK * BLOCK
        view, base = self._source.window(offset, offset + length)
        part = view[offset - base : offset - base + length]
        magic = np.ndarray((length // BLOCK,), "<u4", part, offset=257, strides=(BLOCK,)) if length else np.zeros(0)
        found = np.flatnonzero(magic == _USTAR)[:_LARGEST_BATCH]
        if self._scratch is None:
            self._scratch = np.empty((_LARGEST_BATCH, BLOCK), np.uint8)
        region = np.frombuffer(part, np.uint8).reshape(-1, BLOCK)
        blocks = np.take(region, found, axis=0, out=self._scratch[: len(found)], mode="clip")
        return _Candidates(found * BLOCK + offset, blocks, region)

    def _hop(self, offset: int) -> _Candidates:
        """Find headers by going from each to where it says that the next one lies."""
        window = self._source.window
        starts: list[int] = []
        blocks: list[bytes] = []
        while len(blocks) < self._batch and offset + BLOCK <= self._size:
            view, base = window(offset, offset + BLOCK)
            block = bytes(view[offset - base : offset - base + BLOCK])
            digits = block[124:135]
            if block[257:262] != b"ustar" or not digits.isdigit():
                break
            starts.append(offset)
            blocks.append(block)
            try:
                size = 0 if block[156] == _DIRECTORY else int(digits, 8)
            except ValueError:
                break
            offset += BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
        matrix = np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, BLOCK)
        return _Candidates(np.array(starts, np.int64), matrix, None)

    # Proof and columns

    def _parse(self, found: _Candidates) -> tuple[Run | None, int]:
        """Return the run that the first of these candidates make, and how many headers it has."""
        starts, blocks = found.starts, found.blocks
        types = blocks[:, 156]
        sizes, is_number = _parse_octal(blocks[:, 124:136])
        stops = starts + BLOCK + np.where(_FOLLOWED_BY_DATA[types], (sizes + BLOCK - 1) // BLOCK * BLOCK, 0)
        good = is_number & _ORDINARY[types] & _has_checksum(blocks) & (blocks[:, 261] == ord("r"))
        good &= stops <= self._size
        good[1:] &= stops[:-1] == starts[1:]
        num_headers = len(good) if good.all() else int(good.argmin())
        num_headers = _end_with_member(types[:num_headers])
        given: dict[int, bytes] = {}
        num_headers = self._read_extensions(found, sizes, num_headers, given)
        if num_headers == 0:
            return None, 0
        types = types[:num_headers]
        rows = np.flatnonzero(_FOLLOWED_BY_DATA[types] & ~_is_extension(types))
        names = _read_names(blocks, rows, given)
        return Run(names, starts[rows] + BLOCK, sizes[rows], int(stops[num_headers - 1])), num_headers

    def _read_extensions(
        self, found: _Candidates, sizes: NDArray[np.int64], num_headers: int, given: dict[int, bytes]
    ) -> int:
        """Put the names that extension headers give into `given`, by row; return how many headers are ordinary."""
        types = found.blocks[:num_headers, 156]
        rows = np.flatnonzero(_is_extension(types))
        rows = rows[~_hold_one_mtime(found, rows, sizes[rows])]
        window = self._source.window
        for row in rows.tolist():
            start = int(found.starts[row]) + BLOCK
            size = int(sizes[row])
            if size > _MAX_PAYLOAD:
                return int(row)
            view, base = window(start, start + size)
            payload = bytes(view[start - base : start - base + size])
            name = cut_at_nul(payload) if types[row] == _LONG_NAME else _name_alone(payload)
            if name is None:
                return int(row)
            if name:
                given[row + 1] = name
        return num_headers


def _end_with_member(types: NDArray[np.uint8]) -> int:
    """Return how many of these headers are in ordinary order: after each extension header, a member's own."""
    extensions = np.flatnonzero(_is_extension(types))
    if not len(extensions):
        return len(types)
    in_pairs = np.flatnonzero(np.diff(extensions) == 1)
    if len(in_pairs):
        return int(extensions[in_pairs[0]])
    return len(types) - int(extensions[-1] == len(types) - 1)


def _is_extension(types: NDArray[np.uint8]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (types == _PAX) | (types == _LONG_NAME)
    return found


def _hold_one_mtime(found: _Candidates, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which of these pax headers hold a time and nothing else, as Python's writers make one for each member.

    Only headers of the most usual size are looked at, and only where their data is at hand.
    """
    is_time = np.zeros(len(rows), np.bool_)
    if found.region is None or not len(rows):
        return is_time
    following = (found.starts[rows] - found.starts[0]) // BLOCK + 1
    usual = int(np.bincount(np.minimum(sizes, BLOCK + 1)).argmax())
    record = np.frombuffer(b"%d mtime=" % usual, np.uint8)
    same = np.flatnonzero((sizes == usual) & (following < len(found.region)))
    if not len(record) < usual <= BLOCK or not len(same):
        return is_time
    payloads = found.region[following[same], :usual]
    begins = (payloads[:, : len(record)] == record).all(axis=1)
    ends = (payloads == ord("\n")).argmax(axis=1) == usual - 1
    is_time[same] = begins & ends & (found.blocks[rows[same], 156] == _PAX)
    return is_time


def _name_alone(payload: bytes) -> bytes | None:
    """Return the path that a pax header gives, empty when it gives none; None when it gives more, or is damaged."""
    try:
        records = parse_pax(payload, 0, "")
    except TarFormatError:
        return None  # read again one by one, where the error can name its place
    path = records.pop(b"path", b"")
    if any(key in {b"size", b"linkpath"} or key.startswith(b"GNU.sparse.") for key in records):
        return None
    return path


def _parse_octal(fields: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the numbers in `(n, 12)` fields of 11 octal digits and an end, and which fields are of that form."""
    digits = fields[:, :11] - np.uint8(ord("0"))
    end = fields[:, 11]
    is_number = (digits < 8).all(axis=1) & ((end == 0) | (end == ord(" ")))
    return (digits @ _OCTAL_WEIGHTS).astype(np.int64), is_number


def _has_checksum(blocks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Tell which blocks have the checksum that they say, in its usual form of six octal digits."""
    field = blocks[:, 148:156]
    digits = field[:, :6] - np.uint8(ord("0"))
    ends = field[:, 6:]
    usual = (digits < 8).all(axis=1) & ((ends == 0) | (ends == ord(" "))).all(axis=1)
    expected = blocks.sum(axis=1, dtype=np.uint32) - field.sum(axis=1, dtype=np.uint32) + 8 * ord(" ")
    right: NDArray[np.bool_] = usual & (digits @ _OCTAL_WEIGHTS[-6:] == expected)
    return right


def _read_names(blocks: NDArray[np.uint8], rows: NDArray[np.int64], given: dict[int, bytes]) -> list[bytes]:
    """Return the names of the files in these rows, `given` ones before those in the headers."""
    fields = np.ascontiguousarray(blocks[rows, :100])
    names: list[bytes] = fields.view("S100").ravel().tolist()
    if b"\0" in b"".join(names):
        names = [cut_at_nul(name) for name in names]
    prefixed = (blocks[rows, 345] != 0) & (blocks[rows, 262] == 0)
    for place in np.flatnonzero(prefixed).tolist():
        names[place] = join_name(blocks[rows[place]].tobytes())
    if given:
        places = np.searchsorted(rows, np.fromiter(given, np.int64, len(given))).tolist()
        for (row, name), place in zip(given.items(), places, strict=True):
            if place < len(rows) and rows[place] == row:
                names[place] = name
    return names
