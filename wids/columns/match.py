"""Which row of one table is which of another, by hashes of their keys: sorted parts instead of a dictionary.

Keys are 64-bit hashes here, and equal ones are taken for equal keys: of ten million keys on either side, no two that differ have
one hash with a probability of 0.99999.
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
"""About as many rows are sorted at a time, so that the work fits into caches and memory stays near that of the result."""

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Match:
    """Rows of one table for the rows of another."""

    rows: NDArray[np.int64]
    """`(num_wanted,)` int64, the first row that is offered with the same hash; -1 where there is none."""
    ambiguous: NDArray[np.int64]
    """Rows that are wanted and offered more than once, ascending."""
    repeated: NDArray[np.int64]
    """Rows that are offered, and were before, ascending."""
    unused: NDArray[np.int64]
    """Rows that are offered and not wanted, ascending."""


def match_hashes(wanted: NDArray[np.uint64], offered: NDArray[np.uint64]) -> Match:
    """Return which of the offered rows have the hashes that are wanted.

    Args:
        wanted: `(num_wanted,)` uint64; may repeat.
        offered: `(num_offered,)` uint64.

    Examples:
        >>> found = match_hashes(np.array([7, 9, 8, 7], np.uint64), np.array([8, 7, 7, 5], np.uint64))
        >>> found.rows.tolist(), found.ambiguous.tolist(), found.repeated.tolist(), found.unused.tolist()
        ([1, -1, 0, 1], [0, 3], [2], [3])
    """
    rows = np.full(len(wanted), -1, np.int64)
    used = np.zeros(len(offered), np.bool_)
    ambiguous, repeated = np.zeros(len(wanted), np.bool_), np.zeros(len(offered), np.bool_)
    bits = max(0, (max(len(wanted), len(offered)) // _PART_ROWS).bit_length())
    for part in range(1 << bits):
        mine, theirs = _rows_of_part(wanted, bits, part), _rows_of_part(offered, bits, part)
        if not len(theirs):
            continue
        theirs = theirs[np.argsort(offered[theirs], kind="stable")]
        mine = mine[np.argsort(wanted[mine])]  # sorted queries find their places in neighbouring memory
        hashes = offered[theirs]
        is_again = np.concatenate([[False], hashes[1:] == hashes[:-1]])
        repeated[theirs[is_again]] = True
        places = np.searchsorted(hashes, wanted[mine])
        places[places == len(hashes)] = 0
        found = hashes[places] == wanted[mine]
        mine, places = mine[found], places[found]
        rows[mine] = theirs[places]
        ambiguous[mine] = np.append(is_again, False)[places + 1]
        used[theirs[places]] = True
    return Match(rows, np.flatnonzero(ambiguous), np.flatnonzero(repeated), np.flatnonzero(~(used | repeated)))


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


def mark_groups(hashes: NDArray[np.uint64], groups: NDArray[np.integer]) -> None:
    """Change hashes in place so that those of different groups differ: equal keys match within a group alone.

    Args:
        hashes: `(num_rows,)` uint64.
        groups: `(num_rows,)` integers of at least 0.
    """
    for start in range(0, len(hashes), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        # Multiples of an odd constant, 2**64 over the golden ratio, are far from each other.
        hashes[part] ^= (groups[part].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def _rows_of_part(hashes: NDArray[np.uint64], bits: int, part: int) -> NDArray[np.int64]:
    """Return the rows whose hashes begin with these bits."""
    if not bits:
        return np.arange(len(hashes))
    return np.flatnonzero((hashes >> np.uint64(64 - bits)) == part)
