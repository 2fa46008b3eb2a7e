"""The building blocks of 0.1.11's order: the seeds of epochs, and spans of chunks in sequence. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from wids.sampling.shuffle import Positions

Span = tuple[int, int]
"""Indices `start` to `stop`, `stop` exclusive."""

_EPOCH_STRIDE = 1289738273
_NUMBERS_AT_A_TIME = 4096


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one epoch, as 0.1.11 computes it."""
    return seed + _EPOCH_STRIDE * epoch


def iterate_ranges(
    ranges: Sequence[Span], rng: random.Random, indexshuffle: bool = True, shardshuffle: bool = True
) -> Iterator[int]:
    """Yield the indices of ranges, one range after the other, in the memory that the largest range takes.

    Args:
        ranges: Ranges of indices, `stop` exclusive.
        rng: Determines the order, which for a given state of it is that of 0.1.11.
        indexshuffle: Shuffle the indices inside each range.
        shardshuffle: Shuffle the order of the ranges.
    """
    order = list(range(len(ranges)))
    if shardshuffle:
        rng.shuffle(order)
    for number in order:
        start, stop = ranges[number]
        if indexshuffle:
            indices = list(range(start, stop))
            rng.shuffle(indices)
            yield from indices
        else:
            yield from range(start, stop)


def count_chunks(num_samples: int, chunksize: int) -> int:
    """Return the number of chunks, of which the last may be shorter."""
    return -(-num_samples // chunksize)


def chunk_spans(order: Positions, num_samples: int, chunksize: int) -> Iterator[Span]:
    """Yield the spans of chunks, given by number, in the given order; chunk 0 begins at index 0.

    Examples:
        >>> list(chunk_spans(np.array([2, 0, 1]), 5, 2))
        [(4, 5), (0, 2), (2, 4)]
    """
    # As Python ints, all numbers at once would take ten times the memory of the array.
    for first in range(0, len(order), _NUMBERS_AT_A_TIME):
        for number in order[first : first + _NUMBERS_AT_A_TIME].tolist():
            yield number * chunksize, min(number * chunksize + chunksize, num_samples)


def ring_spans(order: Positions, num_samples: int, chunksize: int, begin: int, end: int) -> Iterator[Span]:
    """Yield the spans between two places of a ring in which chunks lie end to end; the first and the last may be cut.

    Args:
        order: The chunks' numbers in the order of the ring, `(num_chunks,)`.
        num_samples: Number of samples in the ring, at least 1.
        chunksize: Samples per chunk; the chunk with the highest number may have fewer.
        begin: First place, at least 0.
        end: Place after the last, at most `begin + num_samples`.

    Examples:
        >>> list(ring_spans(np.array([1, 0, 2]), 10, 4, 3, 11))
        [(7, 8), (0, 4), (8, 10), (4, 5)]
    """
    sizes = np.minimum(order.astype(np.int64) * chunksize + chunksize, num_samples) - order.astype(np.int64) * chunksize
    ends = np.cumsum(sizes)
    left = end - begin
    place = begin % num_samples
    turn = int(np.searchsorted(ends, place, side="right"))
    while left > 0:
        chunk = turn % len(order)
        inside = place - int(ends[chunk] - sizes[chunk])
        take = min(int(sizes[chunk]) - inside, left)
        start = int(order[chunk]) * chunksize + inside
        yield start, start + take
        left -= take
        place = (place + take) % num_samples
        turn += 1
