"""Which shards a rank will need next, told to its dataset while the rank's indices are yielded.

The dataset has a method `prefetch(upcoming)`, which takes the numbers of shards in the order in which they will be needed and returns
at once. It is called each time that order moves on, with all that is then ahead: the shards of the chunks that are being
read, and `shards_ahead` more. A shard that it was told of before comes again as long as it is ahead.
"""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Piece = tuple[int, int, int]
    """The first step of a lane at which a span is read, the span's first index, and the index behind its last."""


class Prefetches(Protocol):
    """A dataset that can be told what will be needed."""

    lengths: Sequence[int]

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Begin to fetch shards, by their numbers, the one that is needed first first; return at once."""


class ShardsAhead:
    """Tells a dataset of the shards that come next.

    Args:
        dataset: Which one.
        num_ahead: How many shards beyond those of the chunks that are being read.
        lanes: For each lane that the rank walks, its pieces in their order.
        from_step: Where the rank begins.
    """

    def __init__(self, dataset: Prefetches, num_ahead: int, lanes: Iterable[Iterable[Piece]], from_step: int) -> None:
        self._dataset = dataset
        self._num_ahead = num_ahead
        self._lengths = np.asarray(dataset.lengths, np.int64)
        self._stops = np.cumsum(self._lengths)
        self._pieces = (piece for piece in merge(*lanes) if piece[0] + piece[2] - piece[1] > from_step)
        self._reading: list[Piece] = []
        self._later: deque[Piece] = deque()
        self._told: list[int] = []

    def reach(self, start: int, stop: int) -> None:
        """Tell the dataset what is ahead while the steps from `start` to `stop` are read."""
        self._reading = [piece for piece in self._reading if piece[0] + piece[2] - piece[1] > start]
        while (self._later or self._pull()) and self._later[0][0] < stop:
            self._reading.append(self._later.popleft())
        reading = dict.fromkeys(shard for piece in self._reading for shard in self._shards(piece))
        later = {shard: None for piece in self._later for shard in self._shards(piece) if shard not in reading}
        while len(later) < self._num_ahead and self._pull():
            later.update({shard: None for shard in self._shards(self._later[-1]) if shard not in reading})
        upcoming = [*reading, *islice(later, self._num_ahead)]
        if upcoming != self._told:
            self._told = upcoming
            self._dataset.prefetch(upcoming)

    def next_change(self, step: int) -> int:
        """Return the first step behind this one that may need other shards than those told of as being read."""
        ends = (piece[0] + piece[2] - piece[1] for piece in self._reading)
        begins = (piece[0] for piece in islice(self._later, 1))
        return max(step + 1, min((*ends, *begins), default=step + 1))

    def _pull(self) -> bool:
        """Look one piece further; False at the end."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._later.append(piece)
        return piece is not None

    def _shards(self, piece: Piece) -> list[int]:
        _, begin, end = piece
        first, last = np.searchsorted(self._stops, [begin, end - 1], side="right").tolist()
        return [shard for shard in range(first, last + 1) if self._lengths[shard]]


def check_ahead(dataset: Any, shards_ahead: int) -> int:
    """Return how many shards ahead a dataset is to be told of.

    Raises:
        TypeError: The dataset cannot be told.
        ValueError: The number is negative.
    """
    if shards_ahead < 0:
        raise ValueError(f"shards_ahead is {shards_ahead}; it must be at least 0")
    if shards_ahead and not (hasattr(dataset, "prefetch") and hasattr(dataset, "lengths")):
        raise TypeError(
            f"shards_ahead is {shards_ahead}, but a {type(dataset).__name__} has no prefetch(); leave it at 0"
        )
    return shards_ahead
