"""Indices that carry a seed for their sample, which depends only on the sampler's seed, the epoch and the index.

Source of the mixing: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class SeededIndex(int):
    """An index that carries `sample_seed`, from 0 to 2**63 - 1; a dataset stores it in the sample as `__seed__`."""

    sample_seed: int

    def __new__(cls, index: int, sample_seed: int) -> Self:
        """Create an index that carries a seed."""
        made = super().__new__(cls, index)
        made.sample_seed = sample_seed
        return made

    def at(self, index: int) -> Self:
        """Return another index with this seed."""
        return type(self)(index, self.sample_seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededIndex, (int(self), self.sample_seed)


def seed_indices(indices: NDArray[np.int64], seed: int, epoch: int) -> list[SeededIndex]:
    """Return `(n,)` indices, each with the seed of its sample.

    Examples:
        >>> [first, second] = seed_indices(np.array([3, 4]), seed=0, epoch=0)
        >>> first, first.sample_seed == second.sample_seed
        (3, False)
    """
    start = _mix_number(_mix_number(seed) + epoch)
    mixed = _mix(indices.astype(np.uint64) + np.uint64(start)) >> np.uint64(1)
    return list(map(SeededIndex, indices.tolist(), mixed.tolist()))


def _mix_number(number: int) -> int:
    return int(_mix(np.array([number & _MASK], np.uint64))[0])


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Sums and products of uint64 arrays wrap around silently, as is intended here.
    numbers = numbers * np.uint64(_GOLDEN) + np.uint64(_GOLDEN)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
