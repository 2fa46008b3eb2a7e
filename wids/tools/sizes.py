"""Sizes of many members to their statistics: minimum, median, maximum, and a histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MERGED_AT_LEAST = 1 << 20
"""Sizes collected before they are merged into the counts."""


class Sizes:
    """Counts of members by size; takes memory for each distinct size, not for each member.

    Examples:
        >>> sizes = Sizes()
        >>> sizes.add(np.array([5, 3, 5, 9]))
        >>> sizes.count, sizes.total, sizes.least, sizes.median, sizes.most
        (4, 22, 3, 5, 9)
        >>> sizes.histogram(3)
        [1, 2, 1]
    """

    def __init__(self) -> None:
        self._values = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._new: list[NDArray[np.integer]] = []
        self._num_new = 0

    def add(self, sizes: NDArray[np.integer]) -> None:
        """Take `(num_members,)` integers, bytes."""
        self._new.append(sizes)
        self._num_new += len(sizes)
        if self._num_new >= max(_MERGED_AT_LEAST, len(self._values)):
            self._merge()

    @property
    def count(self) -> int:
        """How many members there are."""
        self._merge()
        return int(self._numbers.sum())

    @property
    def total(self) -> int:
        """Bytes of all of them."""
        self._merge()
        return int((self._values * self._numbers).sum())

    @property
    def least(self) -> int:
        """Bytes of the smallest."""
        self._merge()
        return int(self._values[0])

    @property
    def median(self) -> int:
        """Bytes of the median one; for an even number of members, of the smaller of the middle two."""
        middle = (self.count - 1) // 2
        return int(self._values[np.searchsorted(np.cumsum(self._numbers), middle, "right")])

    @property
    def most(self) -> int:
        """Bytes of the largest."""
        self._merge()
        return int(self._values[-1])

    def histogram(self, num_bins: int) -> list[int]:
        """Return the number of members in each of `num_bins` bins from the smallest to the largest, on a logarithmic scale."""
        self._merge()
        places = np.log1p(self._values)
        span = places[-1] - places[0]
        bins = np.zeros(len(places), int) if span == 0 else ((places - places[0]) / span * num_bins).astype(int)
        counts: list[int] = np.bincount(bins.clip(max=num_bins - 1), self._numbers, num_bins).astype(int).tolist()
        return counts

    def _merge(self) -> None:
        if self._new:
            values, inverse = np.unique(np.concatenate([self._values, *self._new]), return_inverse=True)
            weights = np.concatenate([self._numbers, np.ones(self._num_new, np.int64)])
            self._values = values.astype(np.int64)
            self._numbers = np.bincount(inverse.reshape(-1), weights).astype(np.int64)
            self._new, self._num_new = [], 0
