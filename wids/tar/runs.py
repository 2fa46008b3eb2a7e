"""The fast part of the scan: many ordinary headers are parsed at once, by numpy over a matrix of header blocks.

A run is a chain of ordinary headers, each at the offset where the one before it says that the next begins. A header is
ordinary when it has the ustar or GNU magic, octal numbers in their usual form and a correct checksum, when it describes a
file or a directory, and when at most one pax or GNU long-name header precedes it and affects nothing but the name. The first
header that is not ordinary ends the run.

Where members are small, one strided search for the magic finds candidates for headers; the chain then proves which of
them are headers and not data that looks like one. Where members are large, that search would read every page of the file;
following the chain from header to header touches only the pages that hold headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wids.errors import TarFormatError
from wids.tar.extended import parse_pax
from wids.tar.headers import BLOCK, cut_at_nul, join_name
from wids.tar.names import Names, equal_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source

    _Words = NDArray[np.integer]

DENSE_STRIDE = 48 << 10
"""Mean bytes from header to header up to which searching every block beats following the chain (benchmarks/scan_border.py)."""

_FIRST_BATCH = 64
_FIRST_WORD, _LAST_WORD = 31, 39
"""The 4-byte words of a header that hold its size and checksum: from the first (inclusive) to the last (exclusive)."""
_LARGEST_BATCH = 2560
"""Most headers of a run; their matrix takes 1.25 MiB, which fits the processor's cache."""
_LONGEST_LOOK = 32 << 20
"""Most bytes that are searched at once; a source that is not mapped reads them into memory."""
_WORTHWHILE = 16
"""Headers in a run below which numpy is slower than parsing them one by one."""
_LONGEST_PAUSE = 64
_MAX_PAYLOAD = 64 << 10
_LONGEST_TIME = 64
"""Most bytes of a pax header that holds nothing but a modification time."""

_USTAR = int.from_bytes(b"usta", "little")
_DIRECTORY, _PAX, _LONG_NAME = b"5xL"
_FOLLOWED_BY_DATA = np.isin(np.arange(256), list(b"\x0007xL"))
_ORDINARY = _FOLLOWED_BY_DATA | (np.arange(256) == _DIRECTORY)


@dataclass(frozen=True, slots=True)
class Run:
    """The files of one run, and where it ends."""

    names: Names
    """`(num_members,)`, full paths."""
    offsets: NDArray[np.int64]
    """`(num_members,)` int64, bytes from the start of the shard to the member's first byte."""
    sizes: NDArray[np.int64]
    """`(num_members,)` int64, bytes in the member."""
    stop: int
    """Offset just past the last member, padding included."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Blocks that may be headers, in order."""

    starts: NDArray[np.int64]
    """`(num_found,)` int64, bytes from the start of the shard to each block."""
    blocks: NDArray[np.uint8]
    """`(num_found, 512)` uint8, a copy."""
    region: NDArray[np.uint8] | None
    """`(num_blocks, 512)` uint8, all blocks of the bytes that were searched; None after following the chain."""


class RunFinder:
    """Finds the runs of one shard; each run decides how the next one is searched for, and how far.

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
        """Return the run that begins at `offset`; None when the header there is not ordinary, or recent runs were too short."""
        if self._pause:
            self._pause -= 1
            return None
        dense = self._stride is not None and self._stride <= DENSE_STRIDE and not self._has_lookalikes
        found = self._look(offset, self._stride or 0) if dense else self._hop(offset)
        run, num_headers = self._parse(offset, found)
        if dense and run is not None and num_headers < len(found.starts):
            # When the run ends where no candidate begins, the candidates after it were data that looks like headers.
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
        """Search for candidates by the magic, in as many bytes as one batch of headers is likely to span."""
        length = min(int(self._batch * stride) + 2 * BLOCK, _LONGEST_LOOK, self._size - offset) // BLOCK * BLOCK
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
        """Find candidates by following the chain: each header says where the next one begins."""
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
        matrix = np.frombuffer(bytearray().join(blocks), np.uint8).reshape(-1, BLOCK)
        return _Candidates(np.array(starts, np.int64), matrix, None)

    # Candidates to a run

    def _parse(self, offset: int, found: _Candidates) -> tuple[Run | None, int]:
        """Return the run of candidates that begins at `offset`, and the number of its headers."""
        starts, blocks = found.starts, found.blocks
        types = blocks[:, 156].copy()
        # Copied once, because each of the dozen steps below would gather these words again from blocks 512 bytes apart.
        words = np.ascontiguousarray(blocks.view("<u4")[:, _FIRST_WORD:_LAST_WORD].T)
        sizes, is_number = _read_sizes(words)
        stops = starts + BLOCK + np.where(_FOLLOWED_BY_DATA[types], (sizes + BLOCK - 1) // BLOCK * BLOCK, 0)
        good = is_number & _ORDINARY[types] & _has_checksum(blocks, words) & (blocks[:, 261] == ord("r"))
        good &= stops <= self._size
        old = np.flatnonzero(types == 0)
        if len(old):
            good[old] &= ~_end_with_slash(blocks[old, :100])
        # The chain must begin at `offset` itself: a header without the magic is not among the candidates.
        good &= np.concatenate([[offset], stops[:-1]])[: len(good)] == starts
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
        """Add the names that extension headers give to `given`, by row; return the number of headers that are ordinary."""
        types = found.blocks[:num_headers, 156]
        rows = np.flatnonzero(_is_extension(types))
        rows = rows[~_hold_mtime_only(found, rows, sizes[rows])]
        window = self._source.window
        for row in rows.tolist():
            start = int(found.starts[row]) + BLOCK
            size = int(sizes[row])
            if size > _MAX_PAYLOAD:
                return int(row)
            view, base = window(start, start + size)
            payload = bytes(view[start - base : start - base + size])
            name = (cut_at_nul(payload) or None) if types[row] == _LONG_NAME else _parse_path_only(payload)
            if name is None:
                return int(row)
            if name:
                given[row + 1] = name
        return num_headers


def _end_with_member(types: NDArray[np.uint8]) -> int:
    """Return how many of these headers come in ordinary order: each extension header followed by a member's own header."""
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


def _hold_mtime_only(found: _Candidates, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of these pax headers hold a modification time and nothing else: `(num_rows,)` bool.

    Python's `tarfile` writes one for each member. Headers whose data is not in `found.region` are reported as False.
    """
    is_time = np.zeros(len(rows), np.bool_)
    if found.region is None or not len(rows):
        return is_time
    following = (found.starts[rows] - found.starts[0]) // BLOCK + 1
    is_pax = (found.blocks[rows, 156] == _PAX) & (following < len(found.region))
    # A fraction of a second has nine digits or so at most, so that there are few different sizes.
    for size in np.flatnonzero(np.bincount(sizes[is_pax & (sizes < _LONGEST_TIME)])).tolist():
        record = np.frombuffer(b"%d mtime=" % size, np.uint8)
        if len(record) < size:
            same = np.flatnonzero(is_pax & (sizes == size))
            payloads = found.region[following[same], :size]
            begins = equal_rows(payloads[:, : len(record)], record)
            newlines = payloads[:, len(record) :] == ord("\n")
            is_time[same] = begins & newlines[:, -1] & ~newlines[:, :-1].any(axis=1)
    return is_time


def _parse_path_only(payload: bytes) -> bytes | None:
    """Return the path in the data of a pax header, empty when it has none; None when it has other records or is damaged."""
    try:
        records = parse_pax(payload, 0, "")
    except TarFormatError:
        return None  # the careful scan parses it again and raises an error that names its offset
    path = records.pop(b"path", None)
    if path == b"" or records:
        return None
    return path or b""


def _read_sizes(words: _Words) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sizes in `(8, n)` words of headers, and which have the usual form: 11 octal digits, then NUL or blank."""
    high, high_usual = _four_digits(words[31 - _FIRST_WORD])
    middle, middle_usual = _four_digits(words[32 - _FIRST_WORD])
    last = words[33 - _FIRST_WORD]
    low, low_usual = _four_digits(last << 8 | ord("0"))
    end = last >> 24
    sizes: NDArray[np.int64] = high.astype(np.int64) << 21 | middle << 9 | low
    usual: NDArray[np.bool_] = high_usual & middle_usual & low_usual & ((end == 0) | (end == ord(" ")))
    return sizes, usual


def _four_digits(words: _Words) -> tuple[_Words, NDArray[np.bool_]]:
    """Return the numbers in `(n,)` words of four octal digits, first digit in the lowest byte, and which words are valid."""
    usual: NDArray[np.bool_] = words & 0xF8F8F8F8 == 0x30303030
    return (words & 7) << 9 | (words >> 8 & 7) << 6 | (words >> 16 & 7) << 3 | words >> 24 & 7, usual


def _has_checksum(blocks: NDArray[np.uint8], words: _Words) -> NDArray[np.bool_]:
    """Return which headers have a correct checksum in the usual form: six octal digits, then NULs or blanks.

    Overwrites the checksum fields of `blocks` with blanks, as which they are counted.
    """
    high, high_usual = _four_digits(words[37 - _FIRST_WORD])
    last = words[38 - _FIRST_WORD]
    low, low_usual = _four_digits(last << 16 | int.from_bytes(b"00", "little"))
    ends = last >> 16
    usual = high_usual & low_usual & (ends & ~np.uint32(0x2020) == 0)
    stored = (high << 6) + low
    blocks.view("<u4")[:, 37:39] = int.from_bytes(b"    ", "little")
    right: NDArray[np.bool_] = usual & (stored == blocks.sum(axis=1, dtype=np.uint32))
    return right


def _end_with_slash(fields: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which names in `(n, 100)` name fields end with a slash: in old headers that marks a directory."""
    follows = np.append(fields[:, 1:], np.zeros((len(fields), 1), np.uint8), axis=1)
    before_nul = np.logical_and.accumulate(fields != 0, axis=1)
    found: NDArray[np.bool_] = (before_nul & (fields == ord("/")) & (follows == 0)).any(axis=1)
    return found


def _read_names(blocks: NDArray[np.uint8], rows: NDArray[np.int64], given: dict[int, bytes]) -> Names:
    """Return the names of the files in these rows; a name in `given` overrides the header's."""
    words = blocks.view(np.uint64)[:, :13]
    # Names end at the first column of words that is empty in all rows; most columns of the field are.
    width = 1
    while width < words.shape[1] and words[:, width].any():
        width += 1
    matrix = words[rows, :width].view(np.uint8)[:, :100]
    names = Names.of_matrix(matrix)
    prefixed = np.flatnonzero(blocks[rows, 345])
    if not len(prefixed) and not given:
        return names
    replaced = list(names)
    for place in prefixed.tolist():
        replaced[place] = join_name(blocks[rows[place]].tobytes())
    for place, row in enumerate(rows.tolist()):
        if row in given:
            replaced[place] = given[row]
    return Names.of(replaced)
