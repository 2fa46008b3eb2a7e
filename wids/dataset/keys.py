"""Key to index, without a dictionary of all keys: sorted hashes, 16 bytes a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class KeyTable:
    """Finds samples by their keys.

    Args:
        all_keys: Makes an iterator over the keys of all samples in order; they are read once here, and again for the
            message when one is not found.
        key_of: Index to key.
        num_samples: How many samples there are.
    """

    def __init__(self, all_keys: Callable[[], Iterator[str]], key_of: Callable[[int], str], num_samples: int) -> None:
        hashes = np.fromiter(map(_hash, all_keys()), np.uint64, num_samples)
        # A stable order puts the lowest index first where keys are equal.
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._all_keys = all_keys
        self._key_of = key_of

    def find(self, key: str) -> int:
        """Return the lowest index of this key.

        Raises:
            KeyError: There is none; names its neighbours in sorted order.
        """
        wanted = np.uint64(_hash(key))
        first, stop = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        for place in range(first, stop):
            index = int(self._order[place])
            if self._key_of(index) == key:
                return index
        raise KeyError(f"{key!r}: no sample has this key; its neighbours are {self._neighbours(key)}")

    def _neighbours(self, key: str) -> str:
        below: str | None = None
        above: str | None = None
        for other in self._all_keys():
            if other < key and (below is None or other > below):
                below = other
            elif other > key and (above is None or other < above):
                above = other
        return (
            " and ".join(repr(other) for other in (below, above) if other is not None) or "none, there are no samples"
        )


def _hash(key: str) -> int:
    return xxh3_64_intdigest(key.encode("utf-8", "surrogateescape"))
