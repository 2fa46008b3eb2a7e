"""Key to index, without a dictionary of all keys: sorted hashes, 16 bytes a sample."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable


class KeyTable:
    """Finds samples by their keys.

    Args:
        key_of: Index to key.
        num_samples: How many samples there are; all their keys are read once, here.
    """

    def __init__(self, key_of: Callable[[int], str], num_samples: int) -> None:
        hashes = np.fromiter((_hash(key_of(index)) for index in range(num_samples)), np.uint64, num_samples)
        # A stable order puts the lowest index first where keys are equal.
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._key_of = key_of

    def find(self, key: str) -> int:
        """Return the lowest index of this key.

        Raises:
            KeyError: There is none; names its neighbours in sorted order.
        """
        wanted = np.uint64(_hash(key))
        first = bisect_left(self._hashes, wanted)
        for place in range(first, bisect_right(self._hashes, wanted, lo=first)):
            index = int(self._order[place])
            if self._key_of(index) == key:
                return index
        raise KeyError(f"{key!r}: no sample has this key; its neighbours are {self._neighbours(key)}")

    def _neighbours(self, key: str) -> str:
        below: str | None = None
        above: str | None = None
        for index in range(len(self._order)):
            other = self._key_of(index)
            if other < key and (below is None or other > below):
                below = other
            elif other > key and (above is None or other < above):
                above = other
        return (
            " and ".join(repr(other) for other in (below, above) if other is not None) or "none, there are no samples"
        )


def _hash(key: str) -> int:
    return xxh3_64_intdigest(key.encode("utf-8", "surrogateescape"))
