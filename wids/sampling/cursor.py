"""Read a lane, a sequence of spans that are shuffled one by one, from any step on.

A cursor only moves forward. It skips spans before the requested step without shuffling them, and holds one span at a
time, as an array.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from wids.sampling.order import Span, chunk_spans, count_chunks, epoch_seed, ring_spans
from wids.sampling.shuffle import Positions, SeparateShuffles, ShuffleStream, Unshuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from wids.sampling.lanes import Lanes

    Shuffler = ShuffleStream | SeparateShuffles | Unshuffled
    Open = Callable[[int], tuple[Iterator[Span], Shuffler]]


class LaneCursor:
    """Reads the indices of one lane.

    Args:
        open_lane: Returns the lane's spans in order, and what shuffles inside them; called with the number of times
            that the lane has ended before.
        num_indices: Number of indices in all spans together, at least 1.
        repeats: Start over when the lane ends, instead of ending.
    """

    def __init__(self, open_lane: Open, num_indices: int, *, repeats: bool) -> None:
        self._open_lane = open_lane
        self._num_indices = num_indices
        self._repeats = repeats
        self._round = -1
        self._latest: tuple[tuple[int, int], Positions] | None = None

    def read(self, start: int, stop: int) -> Positions:
        """Return the indices at the steps `start` to `stop`, fewer where the lane ends.

        Args:
            start: Not less than in the previous call.
            stop: Exclusive.
        """
        if self._latest is None or self._latest[0] != (start, stop):
            self._latest = (start, stop), self._read(start, stop if self._repeats else min(stop, self._num_indices))
        return self._latest[1]

    def _read(self, start: int, stop: int) -> Positions:
        parts = []
        while start < stop:
            number, step = divmod(start, self._num_indices)
            if number != self._round:
                self._spans, self._shuffler = self._open_lane(number)
                self._round, self._first, self._span = number, 0, np.empty(0, np.int32)
                self._offset = 0
            self._seek(step)
            part = self._span[step - self._first :][: stop - start]
            parts.append(part.astype(np.int64) + self._offset)
            start += part.size
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def _seek(self, step: int) -> None:
        """Load the span that contains a step."""
        first = self._first + self._span.size
        if step < first:
            return
        for begin, end in self._spans:
            size = end - begin
            if step < first + size:
                self._span, self._offset, self._first = self._shuffler.shuffled(size), begin, first
                return
            self._shuffler.skip(size)
            first += size
        raise AssertionError("a step within the lane lies in one of its spans")


class ChunkedOrder:
    """The order of one epoch, in which each lane has its own chunks, or all chunks are dealt out to the lanes anew.

    Args:
        lanes: The layout of the epoch.
        chunksize: Samples per chunk.
        seed: The sampler's seed.
        epoch: The number of the epoch.
        shuffle: Shuffle inside chunks.
        move: Shuffle the order of the chunks.
        repartition: Lay all chunks end to end in a ring, in their order, turn the ring if `move`, and cut it into
            lanes.
    """

    def __init__(
        self, lanes: Lanes, chunksize: int, seed: int, epoch: int, *, shuffle: bool, move: bool, repartition: bool
    ) -> None:
        self._lanes = lanes
        self._chunksize = chunksize
        self._move = move
        self._turn = 0
        self._shuffle = shuffle
        self._seed = epoch_seed(seed, epoch)
        self._ring: Positions | None = None
        if repartition and lanes.num_samples:
            stream = ShuffleStream(self._seed)
            self._ring = order_chunks(stream, lanes.num_samples, chunksize, move=move)
            if move:
                # Without the turn, a chunk larger than a lane would be cut at the same places in every epoch.
                self._turn = stream.below(lanes.num_samples)
        self._cursors: dict[int, LaneCursor] = {}

    def read(self, lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return `(offset, positions)`; their sums are the indices at the steps `start` to `stop` of a lane."""
        held = self._lanes.held(lane)
        if held == 0:
            return 0, np.empty(0, np.int64)
        # As in 0.1.11 all lanes have the same seed, so lanes of equal length have the same order, each within its own
        # indices. One cursor serves them all.
        alike = held if self._ring is None else lane
        if alike not in self._cursors:
            self._cursors[alike] = LaneCursor(lambda _round: self._open(lane), held, repeats=self._lanes.even)
        first = lane * self._lanes.length if self._ring is None else 0
        return first, self._cursors[alike].read(start, stop)

    def pieces(self, lane: int) -> Iterator[tuple[int, int, int]]:
        """Yield a lane's spans in order, each with the step at which it begins."""
        first = lane * self._lanes.length if self._ring is None else 0
        return with_steps((begin + first, end + first) for begin, end in self._open(lane)[0])

    def _open(self, lane: int) -> tuple[Iterator[Span], Shuffler]:
        held = self._lanes.held(lane)
        if self._ring is None:
            stream = ShuffleStream(self._seed) if self._shuffle else Unshuffled()
            order = order_chunks(stream, held, self._chunksize, move=self._move)
            return chunk_spans(order, held, self._chunksize), stream
        begin = self._turn + lane * self._lanes.length
        spans = ring_spans(self._ring, self._lanes.num_samples, self._chunksize, begin, begin + held)
        return spans, SeparateShuffles((self._seed << 64) + (lane << 32))


def with_steps(spans: Iterable[Span]) -> Iterator[tuple[int, int, int]]:
    """Yield consecutive spans, each with the step at which it begins; empty ones are left out.

    Examples:
        >>> list(with_steps([(5, 8), (0, 5)]))
        [(0, 5, 8), (3, 0, 5)]
    """
    step = 0
    for begin, end in spans:
        if begin < end:
            yield step, begin, end
        step += end - begin


def order_chunks(stream: Shuffler, num_samples: int, chunksize: int, *, move: bool) -> Positions:
    """Return chunk numbers in the order in which the chunks are read, shuffled if `move`."""
    num_chunks = count_chunks(num_samples, chunksize)
    return stream.shuffled(num_chunks) if move else Unshuffled().shuffled(num_chunks)


class ShardOrder:
    """The order of one epoch, shard by shard, in a single lane.

    Args:
        lengths: Number of samples in each shard.
        seed: The sampler's seed.
        epoch: The number of the epoch.
        move: Shuffle the order of the shards.
    """

    def __init__(self, lengths: Sequence[int], seed: int, epoch: int, *, move: bool) -> None:
        self._lengths = lengths
        self._seed = epoch_seed(seed, epoch)
        self._move = move
        self._cursor = LaneCursor(self._open, max(1, sum(lengths)), repeats=True)

    def read(self, lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return 0 and the indices at the steps `start` to `stop`."""
        return 0, self._cursor.read(start, stop)

    def pieces(self, lane: int) -> Iterator[tuple[int, int, int]]:
        """Yield the shards' spans in order, each with the step at which it begins."""
        return with_steps(self._open(lane)[0])

    def _open(self, _round: int) -> tuple[Iterator[Span], Shuffler]:
        spans = list(pairwise(accumulate(self._lengths, initial=0)))
        stream = ShuffleStream(self._seed)
        order = stream.shuffled(len(spans)) if self._move else range(len(spans))
        return (spans[number] for number in order), stream
