"""The keys of a dataset: lookup by sorted hashes, which take 16 bytes a sample, and all keys as a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from xxhash import xxh3_64_intdigest

from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from wids.dataset.selection import Selection


class KeyTable:
    """Finds samples by their keys.

    Args:
        hashes: `(num_samples,)` uint64, xxh3-64 of each key.
        all_keys: Returns an iterator over all keys, in order; used for the message when a key is not found.
        key_of: Returns the key of an index.
    """

    def __init__(
        self, hashes: NDArray[np.uint64], all_keys: Callable[[], Iterator[str]], key_of: Callable[[int], str]
    ) -> None:
        # A stable sort keeps the lowest index first among equal keys.
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._all_keys = all_keys
        self._key_of = key_of

    def find(self, key: str) -> int:
        """Return the lowest index of this key.

        Raises:
            KeyError: No sample has this key; the message names its neighbours in sorted order.
        """
        wanted = np.uint64(xxh3_64_intdigest(key.encode("utf-8", "surrogateescape")))
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


class Keys(Sequence[str]):
    """The keys of all samples in order, as a sequence that reads them from the indexes on demand.

    Args:
        dataset: The dataset or view.
        iterate: Returns an iterator over all keys.
    """

    def __init__(self, dataset: Selection, iterate: Callable[[], Iterator[str]]) -> None:
        self._dataset = dataset
        self._iterate = iterate

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        """Return the key of one sample, or a sequence of keys for a slice.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._dataset[index].keys() if isinstance(index, slice) else self._dataset.key(index)

    def __contains__(self, key: object) -> bool:
        try:
            return isinstance(key, str) and self._dataset.index_of(key) >= 0
        except KeyError:
            return False

    def index(self, key: str, start: int = 0, stop: int | None = None) -> int:
        """Return the lowest index of a key, as `list.index` does.

        Raises:
            ValueError: No sample has this key.
        """
        if start or stop is not None:
            return super().index(key, start, len(self) if stop is None else stop)
        try:
            return self._dataset.index_of(key)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None

    def __iter__(self) -> Iterator[str]:
        """Yield all keys; much faster than `[i]` for each."""
        return self._iterate()

    def __repr__(self) -> str:
        return f"<keys of {counted(len(self), 'sample')}>"
