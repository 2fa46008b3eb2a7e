"""Announce to a dataset which shards a rank will need next, while the rank's indices are yielded.

The dataset has a method `prefetch(upcoming)`, which takes shard numbers in the order in which they will be needed and
returns at once. It is called whenever this list changes, with the whole list: the shards of the chunks being read, and
`shards_ahead` more. A shard that was announced before is announced again as long as it is still ahead.
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
    """A span of a lane: the step at which it begins, its first index, and the index after its last."""


class Prefetches(Protocol):
    """A dataset that can fetch shards in advance."""

    lengths: Sequence[int]

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Start fetching these shards, given by number, in the order in which they will be needed; return at once."""


class ShardsAhead:
    """Announces to a dataset the shards that come next.

    Args:
        dataset: The dataset.
        num_ahead: How many shards to announce beyond those of the chunks being read.
        lanes: The pieces of each lane that the rank reads from, in order.
        from_step: The step at which the rank begins.
    """

    def __init__(self, dataset: Prefetches, num_ahead: int, lanes: Iterable[Iterable[Piece]], from_step: int) -> None:
        self._dataset = dataset
        self._num_ahead = num_ahead
        self._lengths = np.asarray(dataset.lengths, np.int64)
        self._stops = np.cumsum(self._lengths)
        self._pieces = (piece for piece in merge(*lanes) if piece[0] + piece[2] - piece[1] > from_step)
        self._reading: list[Piece] = []
        self._later: deque[Piece] = deque()
        self._announced: list[int] = []

    def reach(self, start: int, stop: int) -> None:
        """Announce what is ahead while the steps `start` to `stop` are read."""
        self._reading = [piece for piece in self._reading if piece[0] + piece[2] - piece[1] > start]
        while (self._later or self._pull()) and self._later[0][0] < stop:
            self._reading.append(self._later.popleft())
        reading = dict.fromkeys(shard for piece in self._reading for shard in self._shards(piece))
        later = {shard: None for piece in self._later for shard in self._shards(piece) if shard not in reading}
        while len(later) < self._num_ahead and self._pull():
            later.update({shard: None for shard in self._shards(self._later[-1]) if shard not in reading})
        upcoming = [*reading, *islice(later, self._num_ahead)]
        if upcoming != self._announced:
            self._announced = upcoming
            self._dataset.prefetch(upcoming)

    def next_change(self, step: int) -> int:
        """Return the first step after this one at which the pieces being read may change."""
        ends = (piece[0] + piece[2] - piece[1] for piece in self._reading)
        begins = (piece[0] for piece in islice(self._later, 1))
        return max(step + 1, min((*ends, *begins), default=step + 1))

    def _pull(self) -> bool:
        """Take in one more piece; return False at the end."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._later.append(piece)
        return piece is not None

    def _shards(self, piece: Piece) -> list[int]:
        _, begin, end = piece
        first, last = np.searchsorted(self._stops, [begin, end - 1], side="right").tolist()
        return [shard for shard in range(first, last + 1) if self._lengths[shard]]


def check_ahead(dataset: Any, shards_ahead: int) -> int:
    """Return `shards_ahead` after a check that it suits the dataset.

    Raises:
        TypeError: Shards are to be announced to a dataset without `prefetch`.
        ValueError: The number is negative.
    """
    if shards_ahead < 0:
        raise ValueError(f"shards_ahead is {shards_ahead}; it must be at least 0")
    if shards_ahead and not (hasattr(dataset, "prefetch") and hasattr(dataset, "lengths")):
        raise TypeError(
            f"shards_ahead is {shards_ahead}, but a {type(dataset).__name__} has no prefetch(); leave it at 0"
        )
    return shards_ahead
