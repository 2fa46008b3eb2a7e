"""Index in the dataset to shard and position, by cumulative counts."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import index as as_index
from typing import TYPE_CHECKING

from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable


class ShardOffsets:
    """The range of indices of each shard.

    Args:
        lengths: Number of samples in each shard.
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        self.lengths = list(lengths)
        self.starts = [0, *accumulate(self.lengths)]
        self._total = self.starts[-1]

    def __len__(self) -> int:
        return self._total

    def find_shard(self, index: int) -> tuple[int, int]:
        """Return `(shard, position)` of one sample, in O(log shards).

        Args:
            index: In `[-len(self), len(self))`; negative counts from the end, as for a list.

        Raises:
            IndexError: `index` is outside that range.

        Examples:
            >>> ShardOffsets([3, 0, 2]).find_shard(3)
            (2, 0)
        """
        number = as_index(index)
        if number < 0:
            number += self._total
        if not 0 <= number < self._total:
            raise IndexError(f"index {index} is out of range for a dataset of {counted(self._total, 'sample')}")
        # bisect_right skips empty shards: their end equals their start.
        shard = bisect_right(self.starts, number) - 1
        return shard, number - self.starts[shard]
