"""A lane as spans in the order in which they are walked, to its indices from any step on.

A cursor only goes forward: spans before the step that is asked for are skipped without being shuffled, and one span is held
at a time, as an array.
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
        open_lane: Gives the lane's spans in their order, and what shuffles inside them; told how often it ended before.
        num_indices: In all spans together, at least 1.
        repeats: Begin again at the end, instead of ending.
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
            start: Not less than in the call before.
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
        """Hold the span in which a step lies."""
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
    """One epoch's order: lanes of chunks, or chunks that are dealt to the lanes anew.

    Args:
        lanes: The layout.
        chunksize: Samples in a chunk.
        seed: Of the sampler.
        epoch: Which one.
        shuffle: Shuffle inside chunks.
        move: Shuffle the order of the chunks.
        repartition: Lay all chunks in one ring, in their order, turn it where they move, and cut it into lanes.
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
                # Without a turn, a chunk larger than a lane would always be cut at the same places.
                self._turn = stream.below(lanes.num_samples)
        self._cursors: dict[int, LaneCursor] = {}

    def read(self, lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return what to add to the positions of a lane, and the positions at some of its steps."""
        held = self._lanes.held(lane)
        if held == 0:
            return 0, np.empty(0, np.int64)
        # All lanes have one seed, as in 0.1.11, so that those of one length walk in one order, each in its own span.
        alike = held if self._ring is None else lane
        if alike not in self._cursors:
            self._cursors[alike] = LaneCursor(lambda _round: self._open(lane), held, repeats=self._lanes.even)
        first = lane * self._lanes.length if self._ring is None else 0
        return first, self._cursors[alike].read(start, stop)

    def pieces(self, lane: int) -> Iterator[tuple[int, int, int]]:
        """Yield the spans of a lane in their order: the step at which each begins, and its positions."""
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
    """Yield spans that follow each other with the step at which each begins.

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
    """Return the numbers of the chunks of some samples in the order in which they are walked."""
    num_chunks = count_chunks(num_samples, chunksize)
    return stream.shuffled(num_chunks) if move else Unshuffled().shuffled(num_chunks)


class ShardOrder:
    """One epoch's order of samples by shard, in one lane.

    Args:
        lengths: Samples in each shard.
        seed: Of the sampler.
        epoch: Which one.
        move: Shuffle the order of the shards.
    """

    def __init__(self, lengths: Sequence[int], seed: int, epoch: int, *, move: bool) -> None:
        self._lengths = lengths
        self._seed = epoch_seed(seed, epoch)
        self._move = move
        self._cursor = LaneCursor(self._open, max(1, sum(lengths)), repeats=True)

    def read(self, lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return 0 and the indices at some steps."""
        return 0, self._cursor.read(start, stop)

    def pieces(self, lane: int) -> Iterator[tuple[int, int, int]]:
        """Yield the spans of the shards in their order, and the step at which each begins."""
        return with_steps(self._open(lane)[0])

    def _open(self, _round: int) -> tuple[Iterator[Span], Shuffler]:
        spans = list(pairwise(accumulate(self._lengths, initial=0)))
        stream = ShuffleStream(self._seed)
        order = stream.shuffled(len(spans)) if self._move else range(len(spans))
        return (spans[number] for number in order), stream
