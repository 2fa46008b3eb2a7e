"""Match the rows of two tables by hashes of their keys, with sorted arrays instead of a dictionary.

Hashes have 64 bits, and equal hashes are taken for equal keys. With ten million keys on either side, the probability that no
two different keys have the same hash is 0.99999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.columns.column import TextColumn

_PART_ROWS = 1 << 20
"""About this many rows are sorted at a time, which fits into the processor's caches and needs little memory."""

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of one table (offered) that match the rows of another (wanted)."""

    rows: NDArray[np.integer]
    """`(num_wanted,)` int32 or int64, for each wanted row the offered row with the same hash; -1 if there is none."""
    ambiguous: NDArray[np.int64]
    """Wanted rows whose hash is offered more than once, ascending."""
    unused: NDArray[np.int64]
    """Offered rows that match no wanted row, ascending."""


def match_hashes(wanted: NDArray[np.uint64], offered: NDArray[np.uint64]) -> Match:
    """Match hashes.

    Args:
        wanted: `(num_wanted,)` uint64, the hashes to find; they may repeat.
        offered: `(num_offered,)` uint64, the hashes to find them among.

    Examples:
        >>> found = match_hashes(np.array([7, 9, 8, 7], np.uint64), np.array([8, 7, 5, 6, 6], np.uint64))
        >>> found.rows.tolist(), found.ambiguous.tolist(), found.unused.tolist()
        ([1, -1, 0, 1], [], [2, 3, 4])
    """
    rows: NDArray[np.integer] = np.full(len(wanted), -1, np.int32 if len(offered) < 1 << 31 else np.int64)
    used, ambiguous = np.zeros(len(offered), np.bool_), np.zeros(len(wanted), np.bool_)
    num_bits = min(8, (max(len(wanted), len(offered)) // _PART_ROWS).bit_length())
    parts, offered_parts = _first_bits(wanted, num_bits), _first_bits(offered, num_bits)
    for part in range(1 << num_bits):
        theirs, hashes = _sorted(offered, offered_parts == part)
        if not len(theirs):
            continue
        mine, queries = _sorted(wanted, parts == part)  # sorted queries access neighbouring memory, which is faster
        places = np.searchsorted(hashes, queries)
        places[places == len(hashes)] = 0
        is_found = hashes[places] == queries
        if not is_found.all():
            mine, places = mine[is_found], places[is_found]
        taken = theirs[places]
        rows[mine] = taken
        used[taken] = True
        is_again = hashes[1:] == hashes[:-1]
        if is_again.any():  # searchsorted() finds the first of several equal hashes
            ambiguous[mine] = np.append(is_again, False)[places]
    return Match(rows, np.flatnonzero(ambiguous), np.flatnonzero(~used))


def _first_bits(hashes: NDArray[np.uint64], num_bits: int) -> NDArray[np.uint8]:
    """Return the highest `num_bits` bits of each hash as a number; at most eight."""
    first_bytes = hashes.astype("<u8", copy=False).view(np.uint8)[7::8]
    return first_bytes >> np.uint8(8 - num_bits) if num_bits else np.zeros(len(hashes), np.uint8)


def _sorted(hashes: NDArray[np.uint64], is_part: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the rows of a part, sorted by their hashes, and the sorted hashes."""
    rows = np.flatnonzero(is_part)
    part = hashes[rows]
    order = np.argsort(part)
    return rows[order], part[order]


def hash_texts(texts: TextColumn) -> NDArray[np.uint64]:
    """Return `(num_rows,)` uint64, xxh3-64 of each text in UTF-8."""
    hashes = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _BLOCK_ROWS):
        edges = texts.ends[start : start + _BLOCK_ROWS + 1]
        data = texts.data[edges[0] : edges[-1]].tobytes()
        places = (edges - edges[0]).tolist()
        pieces = map(data.__getitem__, map(slice, places, places[1:]))
        hashes[start : start + len(edges) - 1] = np.fromiter(map(xxh3_64_intdigest, pieces), np.uint64, len(edges) - 1)
    return hashes


def group_marks(num_groups: int) -> NDArray[np.uint64]:
    """Return a mark for each group: combined by `^` with hashes, it makes equal hashes of different groups differ.

    Returns:
        `(num_groups,)` uint64; the mark of group 0 is 0, which changes nothing.
    """
    # Multiples of an odd constant, 2**64 divided by the golden ratio, are far from each other.
    return np.arange(num_groups, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
