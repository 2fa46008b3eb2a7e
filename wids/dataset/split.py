"""Splits by hash: a sample's part depends only on its key or group, and not on which other samples there are.

A sample's hash is xxh3-64 (https://github.com/Cyan4973/xxHash) of its key, or of the text of its group, in UTF-8. The
numbers from 0 to 2**64 are divided among the parts in their order: with `{"train": 0.9, "val": 0.1}` a sample is in
`train` if its hash is below 0.9 * 2**64.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

_ALL = 1 << 64
_ROUNDING = 1e-9
"""Fractions whose sum differs from 1 by less than this are taken to add up to 1."""


def check_fractions(fractions: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the range of hashes of each part, `(first, stop)` with `stop` exclusive.

    Raises:
        TypeError: `fractions` is not a mapping of names to numbers.
        ValueError: There are no fractions, one is out of range, or their sum is more than 1.

    Examples:
        >>> check_fractions({"train": 0.75, "val": 0.25})["val"] == (3 << 62, 1 << 64)
        True
    """
    if not hasattr(fractions, "items"):
        raise TypeError(
            f"split() takes names and fractions, as in {{'train': 0.99, 'val': 0.01}}, and not {fractions!r}"
        )
    if not fractions:
        raise ValueError("split() was given no parts; name some, as in {'train': 0.99, 'val': 0.01}")
    for name, fraction in fractions.items():
        if isinstance(fraction, bool) or not hasattr(fraction, "__float__"):
            raise TypeError(f"the fraction of {name!r} is {fraction!r}; it must be a number")
        if not 0 <= fraction <= 1:
            raise ValueError(f"the fraction of {name!r} is {fraction}; it must be between 0 and 1")
    sums = [0.0, *accumulate(map(float, fractions.values()))]
    if sums[-1] > 1 + _ROUNDING:
        raise ValueError(f"the fractions add up to {sums[-1]:.12g}; together they must be at most 1")
    bounds = [_ALL if total > 1 - _ROUNDING else int(total * _ALL) for total in sums]
    return dict(zip(fractions, pairwise(bounds), strict=True))


def check_seed(seed: int) -> int:
    """Return `seed` as an int, after a check that the hash function accepts it.

    Raises:
        TypeError: The seed is not a whole number.
        ValueError: The seed is out of range.
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed is {seed!r}; it must be a whole number")
    if not 0 <= seed < _ALL:
        raise ValueError(f"seed is {seed}; it must be at least 0 and below 2**64")
    return int(seed)


def hash_groups(keys: Iterable[str], num_keys: int, group_of: Callable[[str], Any], seed: int) -> NDArray[np.uint64]:
    """Return `(num_keys,)` uint64, the hash of each key's group.

    Raises:
        TypeError: A group is neither text nor a whole number; the message names the key.
    """

    def hash_group(key: str) -> int:
        group = group_of(key)
        if not isinstance(group, (str, int, np.integer)) or isinstance(group, bool):
            raise TypeError(f"by({key!r}) returned {group!r}; a group is a string or a whole number")
        return int(xxh3_64_intdigest(str(group).encode("utf-8", "surrogateescape"), seed))

    return np.fromiter(map(hash_group, keys), np.uint64, num_keys)


def find_part(hashes: NDArray[np.uint64], first: int, stop: int) -> NDArray[np.bool_]:
    """Return a mask of the hashes in the range `[first, stop)` of a part."""
    if first == stop:
        return np.zeros(len(hashes), np.bool_)
    return (hashes >= np.uint64(first)) & (hashes <= np.uint64(stop - 1))
