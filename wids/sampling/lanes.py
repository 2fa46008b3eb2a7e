"""Places of an epoch to lanes, steps and ranks. Pure arithmetic, nothing else.

The indices are split into lanes (canonical replicas), as even as can be, each in an order of its own. Place `p` of the epoch
is lane `p % L`, step `p // L`. Rank `r` of `R` takes the places `r`, `r + R`, `r + 2R`, …; so which sample stands at a place
does not depend on the number of ranks. Ten samples, unshuffled, in two canonical replicas:

    lane 0       0   1   2   3   4
    lane 1       5   6   7   8   9
    places       0 5 1 6 2 7 3 8 4 9                   first all lanes' step 0, then their step 1, …

    1 rank       0 5 1 6 2 7 3 8 4 9
    2 ranks      0   1   2   3   4                     rank r walks lane r and nothing else
                   5   6   7   8   9
    4 ranks      0       2       4                     three each: places past the end wrap, so
                   5       7       9                   ranks 2 and 3 repeat the places 0 and 1
                     1       3       0
                       6       8       5

In four canonical replicas lanes are three long, and the last one, which is short, repeats its own sequence:

    lanes        0 1 2 | 3 4 5 | 6 7 8 | 9 9 9

With `drop_last` lanes are two long, and what is beyond them or does not fill all ranks is left out; with `even=False` the
places that a short lane does not fill are left out, and ranks differ in length.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.sampling.shuffle import Positions

    Read = Callable[[int, int, int], tuple[int, Positions]]
    """Lane, first step, step behind the last: what to add, and what to add it to, in the order of the steps."""

_BLOCK = 8192
"""Indices that are computed together, at most."""

_STEPS = 65536
"""Steps of a lane that are computed together, at most, unless the rank's next index lies beyond."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How an epoch's indices are laid out in lanes."""

    num_samples: int
    """At least 0."""
    num_lanes: int
    """At least 1."""
    drop_last: bool = False
    """Lanes hold as many as all of them can hold, instead of as many as are needed for all samples."""
    even: bool = True
    """A lane that holds fewer repeats what it holds."""

    @property
    def length(self) -> int:
        """Steps of each lane."""
        return self.num_samples // self.num_lanes if self.drop_last else -(-self.num_samples // self.num_lanes)

    @property
    def num_places(self) -> int:
        """Places of the epoch."""
        return self.length * self.num_lanes

    def held(self, lane: int) -> int:
        """Return how many indices a lane holds: by 0.1.11's rule the first lanes are full.

        Examples:
            >>> [Lanes(10, 4).held(lane) for lane in range(4)], [Lanes(10, 4, drop_last=True).held(lane) for lane in range(4)]
            ([3, 3, 3, 1], [2, 2, 2, 2])
        """
        return max(0, min(self.length, self.num_samples - lane * self.length))

    def filled(self, lane: int) -> int:
        """Return the lane whose indices a lane yields: itself, or for an empty one its nearest neighbour."""
        return min(lane, (self.num_samples - 1) // self.length) if self.even and self.length else lane

    def count_samples(self, place: int) -> int:
        """Return how many places below `place` have a sample."""
        if self.even:
            return place
        steps, lanes = divmod(place, self.num_lanes)
        return sum(min(self.held(lane), steps + (lane < lanes)) for lane in range(self.num_lanes))

    def find_place(self, num_samples: int) -> int:
        """Return the first place below which there are `num_samples` samples; the end where there are fewer.

        Examples:
            >>> Lanes(10, 4, even=False).find_place(8)
            9
        """
        return _first(self.num_places, lambda place: self.count_samples(place) >= num_samples)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank takes of an epoch, from a place on."""

    lanes: Lanes
    start: int
    """Place of rank 0's first index; all ranks together have taken the places below it."""
    rank: int
    """In `[0, num_replicas)`."""
    num_replicas: int
    """At least 1."""

    @property
    def num_lanes(self) -> int:
        """How many lanes the rank walks, in turn."""
        return self.lanes.num_lanes // gcd(self.lanes.num_lanes, self.num_replicas)

    @property
    def stride(self) -> int:
        """Steps from one index that the rank takes of a lane to the next."""
        return self.num_replicas // gcd(self.lanes.num_lanes, self.num_replicas)

    def walked_lanes(self) -> list[int]:
        """Return which lanes the rank walks, the one that it begins with first."""
        first = self.start + self.rank
        return [(first + turn * self.num_replicas) % self.lanes.num_lanes for turn in range(self.num_lanes)]

    def step_after(self, rows: int) -> int:
        """Return the step at which the rank stands when it has taken its first places."""
        return (self.start + self.rank + rows * self.num_replicas) // self.lanes.num_lanes

    def count(self, rows: int | None = None) -> int:
        """Return how many indices the rank takes, in all or in its first places.

        Args:
            rows: How many of its places to count.
        """
        left = max(0, self.lanes.num_places - self.start)
        all_rows = left // self.num_replicas if self.lanes.drop_last else -(-left // self.num_replicas)
        rows = all_rows if rows is None else min(rows, all_rows)
        if self.lanes.even:
            return rows
        total = 0
        for turn in range(min(self.num_lanes, rows)):
            step, lane = divmod(self.start + self.rank + turn * self.num_replicas, self.lanes.num_lanes)
            of_lane = -(-(rows - turn) // self.num_lanes)
            total += max(0, min(of_lane, -(-(self.lanes.held(lane) - step) // self.stride)))
        return total

    def place_after(self, count: int) -> int:
        """Return the place that all ranks have reached when this one has taken `count` indices."""
        if self.lanes.even:
            return self.start + count * self.num_replicas
        most = -(-max(0, self.lanes.num_places - self.start) // self.num_replicas)
        return self.start + self.num_replicas * _first(most, lambda rows: self.count(rows) >= count)

    def indices(self, read: Read, again: Read) -> Iterator[Positions]:
        """Yield the rank's indices, in blocks.

        Args:
            read: Gives the indices of a lane; asked for steps that never fall.
            again: The same, from the beginning, for places that wrap.
        """
        lanes, place = self.lanes, self.start + self.rank
        left = self.count()
        while left and place < lanes.num_places:
            block = self._block(place, read)
            place += block.size * self.num_replicas
            block = (block if lanes.even else block[block >= 0])[:left]
            left -= block.size
            yield block
        if left:
            step, lane = divmod(place % lanes.num_places, lanes.num_lanes)
            first, positions = again(lanes.filled(lane), step, step + 1)
            yield positions.astype(np.int64) + first

    def _block(self, place: int, read: Read) -> Positions:
        """Return the indices from one of the rank's places on, -1 where there is none."""
        lanes, turns = self.lanes, self.num_lanes
        first_step = place // lanes.num_lanes
        stop_step = min(first_step + self.stride * max(1, min(_BLOCK // turns, _STEPS // self.stride)), lanes.length)
        size = -(-(stop_step * lanes.num_lanes - place) // self.num_replicas)
        block = np.full(size, -1, np.int64)
        for turn in range(min(turns, size)):
            step, lane = divmod(place + turn * self.num_replicas, lanes.num_lanes)
            first, positions = read(lanes.filled(lane), first_step, stop_step)
            taken = positions[step - first_step :: self.stride]
            column = block[turn::turns]
            column[: taken.size] = taken[: column.size]
            column[: taken.size] += first
        return block


def _first(stop: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from 0 to `stop` for which a claim holds, that from there on always holds; else `stop`."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
