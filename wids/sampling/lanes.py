"""Map the places of an epoch to lanes, steps and ranks. Pure arithmetic.

The `N` indices are split into `L` lanes (canonical replicas) of `ceil(N / L)`, of which the last ones may hold fewer.
Each lane is shuffled on its own. Place `p` of the epoch is step `p // L` of lane `p % L`. Rank `r` of `R` takes the
places `r`, `r + R`, `r + 2R`, …, so which sample is at a place does not depend on the number of ranks. Ten samples, not
shuffled, in two canonical replicas:

    lane 0       0   1   2   3   4
    lane 1       5   6   7   8   9
    places       0 5 1 6 2 7 3 8 4 9                   step 0 of all lanes, then step 1, …

    1 rank       0 5 1 6 2 7 3 8 4 9
    2 ranks      0   1   2   3   4                     rank r walks lane r and nothing else
                   5   6   7   8   9
    4 ranks      0       2       4                     three each: places past the end wrap, so
                   5       7       9                   ranks 2 and 3 repeat the places 0 and 1
                     1       3       0
                       6       8       5

In four canonical replicas each lane has three steps, and the last lane, which is short, repeats its own sequence:

    lanes        0 1 2 | 3 4 5 | 6 7 8 | 9 9 9

With `drop_last` each lane has two steps; the indices beyond them are left out, and so are last places that do not fill
all ranks. With `even=False` the places that a short lane does not fill are skipped, so ranks differ in length.
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
    """Maps a lane, its first step and the step after its last to `(offset, positions)`, whose sums are the indices."""

_BLOCK = 8192
"""Maximum number of indices that are computed together."""

_STEPS = 65536
"""Maximum number of steps of a lane that are computed together, unless the rank's next index lies beyond them."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How an epoch's indices are laid out in lanes."""

    num_samples: int
    """At least 0."""
    num_lanes: int
    """At least 1."""
    drop_last: bool = False
    """Round the length of the lanes down, which leaves samples out, instead of up."""
    even: bool = True
    """A lane that holds fewer indices repeats them, so that all lanes are equally long."""

    @property
    def length(self) -> int:
        """Number of steps in each lane."""
        return self.num_samples // self.num_lanes if self.drop_last else -(-self.num_samples // self.num_lanes)

    @property
    def num_places(self) -> int:
        """Number of places in the epoch."""
        return self.length * self.num_lanes

    def held(self, lane: int) -> int:
        """Return how many indices a lane holds; as in 0.1.11, the first lanes are full.

        Examples:
            >>> [Lanes(10, 4).held(lane) for lane in range(4)], [Lanes(10, 4, drop_last=True).held(lane) for lane in range(4)]
            ([3, 3, 3, 1], [2, 2, 2, 2])
        """
        return max(0, min(self.length, self.num_samples - lane * self.length))

    def filled(self, lane: int) -> int:
        """Return the lane whose indices a lane yields: itself, or if it is empty its nearest neighbour."""
        return min(lane, (self.num_samples - 1) // self.length) if self.even and self.length else lane

    def count_samples(self, place: int) -> int:
        """Return how many places below `place` hold a sample."""
        if self.even:
            return place
        steps, lanes = divmod(place, self.num_lanes)
        return sum(min(self.held(lane), steps + (lane < lanes)) for lane in range(self.num_lanes))

    def find_place(self, num_samples: int) -> int:
        """Return the first place with `num_samples` samples below it, or the end of the epoch if there are fewer.

        Examples:
            >>> Lanes(10, 4, even=False).find_place(8)
            9
        """
        return _first(self.num_places, lambda place: self.count_samples(place) >= num_samples)


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's share of an epoch, from a place on."""

    lanes: Lanes
    start: int
    """Place of rank 0's first index; all ranks together have consumed the places below it."""
    rank: int
    """In `[0, num_replicas)`."""
    num_replicas: int
    """At least 1."""

    @property
    def num_lanes(self) -> int:
        """Number of lanes that the rank reads from in turn."""
        return self.lanes.num_lanes // gcd(self.lanes.num_lanes, self.num_replicas)

    @property
    def stride(self) -> int:
        """Number of steps between consecutive indices that the rank takes from one lane."""
        return self.num_replicas // gcd(self.lanes.num_lanes, self.num_replicas)

    def walked_lanes(self) -> list[int]:
        """Return the lanes that the rank reads from, in the order of its places."""
        first = self.start + self.rank
        return [(first + turn * self.num_replicas) % self.lanes.num_lanes for turn in range(self.num_lanes)]

    def step_after(self, rows: int) -> int:
        """Return the step of the rank's next place after it has taken `rows` places."""
        return (self.start + self.rank + rows * self.num_replicas) // self.lanes.num_lanes

    def count(self, rows: int | None = None) -> int:
        """Return how many indices the rank takes, in all or in its first `rows` places.

        Args:
            rows: Number of the rank's places to count; None for all.
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
        """Return the place that all ranks have reached once this one has taken `count` indices."""
        if self.lanes.even:
            return self.start + count * self.num_replicas
        most = -(-max(0, self.lanes.num_places - self.start) // self.num_replicas)
        return self.start + self.num_replicas * _first(most, lambda rows: self.count(rows) >= count)

    def indices(self, read: Read, again: Read) -> Iterator[Positions]:
        """Yield the rank's indices, in `(n,) int64` blocks.

        Args:
            read: Returns the indices of a lane; called with steps that never decrease.
            again: The same over a fresh copy of the order, for places that wrap around to the beginning.
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
        """Return the rank's indices from one of its places on, with -1 where a place holds no sample."""
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
    """Return the least number below `stop` for which `holds`, else `stop`; once true, it must stay true."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
