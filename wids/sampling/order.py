"""The arithmetic of the samplers: pure functions, nothing else.

Ten samples on four ranks, chunks of two, unshuffled; a lane is what one rank walks:

    lanes        0 1 2 | 3 4 5 | 6 7 8 | 9
    chunks       0 1,2 | 3 4,5 | 6 7,8 | 9
    rank 0       0 1 2
    rank 1       3 4 5
    rank 2       6 7 8
    rank 3       9 9 9     a short lane repeats its own sequence, so that all ranks yield the same number

With `drop_last` lanes are two long and nothing repeats; with `even=False` rank 3 yields 9 alone.
"""

from __future__ import annotations

import random
from itertools import chain, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Span = tuple[int, int]
"""Indices `start` to `stop`, `stop` exclusive."""

_EPOCH_STRIDE = 1289738273
"""What 0.1.11 adds to the seed for each epoch."""


def epoch_rng(seed: int, epoch: int) -> random.Random:
    """Return the random numbers of one epoch, those of 0.1.11."""
    return random.Random(seed + _EPOCH_STRIDE * epoch)  # noqa: S311  # an order, no secret


def iterate_ranges(
    ranges: Sequence[Span], rng: random.Random, indexshuffle: bool = True, shardshuffle: bool = True
) -> Iterator[int]:
    """Yield the indices of ranges one range after the other; memory is that of the largest range.

    Args:
        ranges: Of indices.
        rng: Where the order comes from; the sequence for a given state is that of 0.1.11.
        indexshuffle: Shuffle inside each range.
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


def split_chunks(span: Span, chunksize: int) -> list[Span]:
    """Return a span in chunks, the last one shorter where it must be.

    Examples:
        >>> split_chunks((0, 5), 2)
        [(0, 2), (2, 4), (4, 5)]
    """
    start, stop = span
    return [(low, min(low + chunksize, stop)) for low in range(start, stop, chunksize)]


def lane_span(span: Span, num_lanes: int, lane: int, *, drop_last: bool) -> Span:
    """Return which indices a lane has, by 0.1.11's rule: as many as the first one, as long as there are any.

    Examples:
        >>> [lane_span((0, 10), 4, lane, drop_last=False) for lane in range(4)]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
        >>> [lane_span((0, 10), 4, lane, drop_last=True) for lane in range(4)]
        [(0, 2), (2, 4), (4, 6), (6, 8)]
    """
    start, stop = span
    length = lane_length(stop - start, num_lanes, drop_last=drop_last)
    low = min(start + lane * length, stop)
    return low, min(low + length, stop)


def lane_length(num_samples: int, num_lanes: int, *, drop_last: bool) -> int:
    """Return how many indices the longest lane has."""
    return num_samples // num_lanes if drop_last else -(-num_samples // num_lanes)


def fill_lane(span: Span, num_samples_span: Span, length: int) -> Span:
    """Return the lane itself, or for an empty one its nearest neighbour's, which are the last indices there are.

    Examples:
        >>> fill_lane((9, 9), (0, 9), 2)
        (8, 9)
    """
    start, stop = span
    if start < stop or length == 0:
        return span
    first, last = num_samples_span
    low = first + (last - 1 - first) // length * length
    return low, last


def repartition(chunks: list[Span], num_lanes: int, lane: int, length: int, turn: int) -> list[Span]:
    """Return a lane's chunks after all chunks were laid end to end in a ring, which is cut into equal lanes.

    A chunk that straddles two lanes is cut. The last lane is short where the chunks are not enough.

    Args:
        chunks: Of the whole dataset, in their order in the ring.
        num_lanes: How many lanes there are.
        lane: Which one.
        length: Indices per lane.
        turn: Where lane 0 begins in the ring, in indices; without it a chunk larger than a lane would always be cut at
            the same places.

    Examples:
        >>> [repartition([(4, 8), (0, 4), (8, 10)], 2, lane, 5, 0) for lane in range(2)]
        [[(4, 8), (0, 1)], [(1, 4), (8, 10)]]
        >>> [repartition([(4, 8), (0, 4), (8, 10)], 2, lane, 5, 3) for lane in range(2)]
        [[(7, 8), (0, 4)], [(8, 10), (4, 7)]]
    """
    assert 0 <= lane < num_lanes, "the sampler checks its rank"
    total = sum(stop - start for start, stop in chunks)
    begin, end = turn + lane * length, min(turn + (lane + 1) * length, turn + total)
    parts = []
    place = 0
    for start, stop in chunks * 2:  # twice round: lanes end at most one round after they begin
        low, high = max(begin, place), min(end, place + stop - start)
        if low < high:
            parts.append((start + low - place, start + high - place))
        place += stop - start
    return parts


def repeat_to(length: int, make: Iterable[Iterator[int]]) -> Iterator[int]:
    """Yield `length` indices: the first iterator's, then those of the next, which begins again."""
    return islice(chain.from_iterable(make), length)
