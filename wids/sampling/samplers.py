"""`ChunkedSampler` and `ShardListSampler`: one process, chunk by chunk or shard by shard."""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate, pairwise
from operator import index as as_index
from typing import TYPE_CHECKING, Any

from wids.sampling.order import Span, epoch_rng, iterate_ranges, split_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized

try:
    from torch.utils.data import Sampler as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]


class EpochSampler(_Base):  # type: ignore[type-arg]
    """Counts epochs: one begins at an iterator's first `next()`, and the next iterator begins the next one.

    Libraries call `iter()` more often than users do, so an iterator that is thrown away unused uses up nothing.
    """

    seed: int

    def _start(self, seed: int) -> None:
        self.seed = seed
        self._epoch = 0
        self._next_epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator that has begun, the next one when that has ended; setting is `set_epoch`."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator yield this epoch."""
        self._epoch = self._next_epoch = whole_number("epoch", epoch)

    def __iter__(self) -> Iterator[int]:
        # The body of a generator runs at its first next().
        epoch = self._next_epoch
        self._epoch = epoch
        self._next_epoch = epoch + 1
        yield from self._indices(epoch)
        if self._epoch == epoch:
            self._epoch = self._next_epoch

    @abstractmethod
    def _indices(self, epoch: int) -> Iterator[int]:
        """Yield the indices of one epoch."""


class ChunkedSampler(EpochSampler):
    """Shuffles inside chunks of consecutive indices, and the order of the chunks, so that few shards are read at a time.

    Args:
        dataset: Anything with a length.
        num_samples: How many of its samples, from the first, or a pair `(start, stop)`; None for all.
        chunksize: Samples in a chunk.
        seed: Of the order; for a seed, an epoch and a chunk size the order is that of 0.1.11.
        shuffle: False for the order of the dataset.
        shufflefirst: Shuffle the order of the chunks in epoch 0 too.
        dslength_per_replica: What `len` says, where it is not the number of indices; -1 for that number.

    Raises:
        ValueError: A number is out of its range.
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        num_samples: int | tuple[int, int] | None = None,
        chunksize: int = 2000,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool = False,
        dslength_per_replica: int = -1,
    ) -> None:
        chunksize = whole_number("chunksize", chunksize)
        if chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}; it must be at least 1")
        self._start(seed)
        self.dataset = dataset
        self.chunksize = chunksize
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst
        self._span = find_span(dataset, num_samples)
        self._told_length = dslength_per_replica

    @property
    def dslength_per_replica(self) -> int:
        """What `len` says, as 0.1.11 calls it."""
        return len(self)

    def __len__(self) -> int:
        start, stop = self._span
        return self._told_length if self._told_length > 0 else stop - start

    def _indices(self, epoch: int) -> Iterator[int]:
        return iterate_ranges(
            split_chunks(self._span, self.chunksize),
            epoch_rng(self.seed, epoch),
            indexshuffle=self.shuffle,
            shardshuffle=self._moves_chunks(epoch),
        )

    def _moves_chunks(self, epoch: int) -> bool:
        return self.shuffle and (self.shufflefirst or epoch > 0)


class ShardListSampler(EpochSampler):
    """Shuffles inside each shard, and from epoch 1 on the order of the shards.

    Args:
        dataset: With `lengths`, the number of samples in each shard.
        lengths: Instead of the dataset's.
        seed: Of the order; for a seed and an epoch it is that of 0.1.11.
        shufflefirst: Shuffle the order of the shards in epoch 0 too.

    Raises:
        ValueError: A length is negative.
    """

    def __init__(
        self, dataset: Any, *, lengths: Sequence[int] | None = None, seed: int = 0, shufflefirst: bool = False
    ) -> None:
        self._start(seed)
        self.dataset = dataset
        self.shufflefirst = shufflefirst
        self.lengths = [
            whole_number("a length", length) for length in (dataset.lengths if lengths is None else lengths)
        ]
        if self.lengths and min(self.lengths) < 0:
            raise ValueError(f"lengths has {min(self.lengths)}; a shard has at least 0 samples")
        self._ranges = list(pairwise(accumulate(self.lengths, initial=0)))

    def __len__(self) -> int:
        return sum(self.lengths)

    def _indices(self, epoch: int) -> Iterator[int]:
        return iterate_ranges(
            self._ranges,
            epoch_rng(self.seed, epoch),
            indexshuffle=True,
            shardshuffle=self.shufflefirst or epoch > 0,
        )


ShardedSampler = ShardListSampler


def find_span(dataset: Sized, num_samples: int | tuple[int, int] | None) -> Span:
    """Return which indices are meant.

    Raises:
        ValueError: They are not all in the dataset.
    """
    length = len(dataset)
    if num_samples is None:
        return 0, length
    try:
        start, stop = 0, as_index(num_samples)  # type: ignore[arg-type]  # numpy's whole numbers too
    except TypeError:
        start, stop = (whole_number("num_samples", bound) for bound in num_samples)  # type: ignore[union-attr]
    if not 0 <= start <= stop <= length:
        raise ValueError(f"num_samples is {num_samples}, but the dataset has the indices 0 to {length - 1}")
    return start, stop


def whole_number(name: str, value: Any) -> int:
    """Return a whole number of any kind, numpy's too, as an int.

    Raises:
        TypeError: It is none.
    """
    try:
        return as_index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be a whole number") from None
