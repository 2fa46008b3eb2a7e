"""Keys of a dataset: key to index by sorted hashes, 16 bytes a sample instead of a dictionary; all keys as a sequence."""

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
        all_keys: Makes an iterator over the keys of all samples in order, for the message when one is not found.
        key_of: Index to key.
    """

    def __init__(
        self, hashes: NDArray[np.uint64], all_keys: Callable[[], Iterator[str]], key_of: Callable[[int], str]
    ) -> None:
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
    """The keys of all samples in order, read from the indexes when they are asked for.

    Args:
        dataset: Whose keys.
        iterate: Makes an iterator over all of them.
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
        """Return the key of one sample, or for a slice the keys of a view.

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
        """Return the lowest index of the sample with this key, as a list's method.

        Raises:
            ValueError: There is none.
        """
        if start or stop is not None:
            return super().index(key, start, len(self) if stop is None else stop)
        try:
            return self._dataset.index_of(key)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None

    def __iter__(self) -> Iterator[str]:
        """Yield all keys, each at a fraction of what `[i]` costs."""
        return self._iterate()

    def __repr__(self) -> str:
        return f"<keys of {counted(len(self), 'sample')}>"
