"""`DistributedChunkedSampler`: each rank its own part of the dataset, the same number of samples on all of them."""

from __future__ import annotations

import logging
import os
from itertools import repeat
from typing import TYPE_CHECKING, Any

from wids.sampling.order import (
    Span,
    epoch_rng,
    fill_lane,
    iterate_ranges,
    lane_length,
    lane_span,
    repartition,
    repeat_to,
    split_chunks,
)
from wids.sampling.samplers import ChunkedSampler, whole_number

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sized

try:
    from torch.utils.data import DistributedSampler as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]

logger = logging.getLogger(__name__)

_WITHOUT_SHARDS = 1_000_000
_SHARDS_PER_CHUNK = 8


class DistributedChunkedSampler(ChunkedSampler, _Base):  # type: ignore[type-arg,misc]
    """A `ChunkedSampler` over this rank's part of the dataset.

    Args:
        dataset: Anything with a length.
        num_replicas: How many ranks there are; None for the process group's, else `WORLD_SIZE`, else 1.
        rank: This one; None for the process group's, else `RANK`, else 0.
        num_samples: How many of the dataset's samples, or a pair `(start, stop)`; None for all.
        shuffle: False for the order of the dataset.
        shufflefirst: Shuffle the order of the chunks in epoch 0 too.
        seed: The same on all ranks.
        drop_last: Leave out what does not fill all ranks equally, instead of repeating samples.
        even: False to yield every sample exactly once, so that ranks differ in length; for evaluation. Not with
            `drop_last`.
        chunksize: Samples in a chunk; None for about eight shards' worth where the dataset has shards, else 1,000,000.
        repartition_each_epoch: Give each rank other chunks in each epoch, so that over epochs it sees all the data.
            In epoch 0 they stay where they are unless `shufflefirst`. Not with `shuffle=False`.

    Raises:
        ValueError: A number is out of its range, two arguments contradict each other, or only one of `num_replicas` and
            `rank` can be known.

    Two epochs of twelve samples on three ranks, chunks of four, `repartition_each_epoch`; each chunk a letter:

        epoch 0      A A A A | B B B B | C C C C     as without repartition
        epoch 1      C C A A | A A B B | B B C C     chunks permuted (A B C), laid in a ring, which is turned and cut
        epoch 2      B B B A | A A A C | C C C B     permuted (B A C), turned by one
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        num_samples: int | tuple[int, int] | None = None,
        shuffle: bool = True,
        shufflefirst: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        chunksize: int | None = None,
        repartition_each_epoch: bool = False,
    ) -> None:
        if drop_last and not even:
            raise ValueError("drop_last=True leaves samples out and even=False leaves none out; give one of them")
        if repartition_each_epoch and not shuffle:
            raise ValueError("repartition_each_epoch=True moves chunks and shuffle=False leaves them; give one of them")
        super().__init__(
            dataset,
            num_samples=num_samples,
            chunksize=_chunk_of_shards(dataset) if chunksize is None else chunksize,
            seed=seed,
            shuffle=shuffle,
            shufflefirst=shufflefirst,
        )
        self.drop_last = drop_last
        self.even = even
        self.repartition_each_epoch = repartition_each_epoch
        self._told_rank = None if rank is None else whole_number("rank", rank)
        self._told_replicas = None if num_replicas is None else whole_number("num_replicas", num_replicas)
        if self._told_rank is not None and self._told_replicas is not None:
            _check_rank(self._told_rank, self._told_replicas)
        self._found: tuple[int, int] | None = None

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This replica's number."""
        return self._find_rank()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many replicas there are."""
        return self._find_rank()[1]

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """How many indices this rank yields in an epoch, as torch's `DistributedSampler` calls it."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """How many indices all ranks yield in an epoch, as torch's `DistributedSampler` calls it."""
        return self._length() * self.num_replicas

    def __len__(self) -> int:
        if self.even:
            return self._length()
        start, stop = self._lane()
        return stop - start

    def _indices(self, epoch: int) -> Iterator[int]:
        if self.repartition_each_epoch:
            chunks, rng = self._repartitioned_chunks(epoch)
            moved = False  # they are in another order already
        else:
            lane = self._lane()
            chunks = split_chunks(fill_lane(lane, self._span, self._length()) if self.even else lane, self.chunksize)
            rng = epoch_rng(self.seed, epoch)
            moved = self._moves_chunks(epoch)
        state = rng.getstate()

        def walk() -> Iterator[int]:
            rng.setstate(state)
            return iterate_ranges(chunks, rng, indexshuffle=self.shuffle, shardshuffle=moved)

        return repeat_to(len(self), (walk() for _ in repeat(None)) if chunks else ())

    def _repartitioned_chunks(self, epoch: int) -> tuple[list[Span], random.Random]:
        """Return this rank's chunks in their order, and the random numbers to shuffle inside them."""
        start, stop = self._span
        chunks = split_chunks(self._span, self.chunksize)
        rng = epoch_rng(self.seed, epoch)
        turn = 0
        if self._moves_chunks(epoch) and chunks:
            rng.shuffle(chunks)
            turn = rng.randrange(stop - start)
        rank, num_replicas = self._find_rank()
        length = self._length()
        if self.even and length:
            rank = min(rank, (stop - start - 1) // length)  # an empty lane takes its nearest neighbour's
        return repartition(chunks, num_replicas, rank, length, turn), rng

    def _lane(self) -> Span:
        rank, num_replicas = self._find_rank()
        return lane_span(self._span, num_replicas, rank, drop_last=self.drop_last)

    def _length(self) -> int:
        start, stop = self._span
        return lane_length(stop - start, self.num_replicas, drop_last=self.drop_last)

    def _find_rank(self) -> tuple[int, int]:
        """Return `(rank, num_replicas)`: what is told, the rest from the process group, else the environment."""
        if self._told_rank is not None and self._told_replicas is not None:
            return self._told_rank, self._told_replicas
        if self._found is not None:
            return self._found
        group = _ask_process_group()
        found, where = (group, "the process group") if group is not None else self._ask_elsewhere()
        rank, num_replicas = found
        if self._told_rank is not None:
            rank = self._told_rank
        if self._told_replicas is not None:
            num_replicas = self._told_replicas
        _check_rank(rank, num_replicas)
        logger.log(logging.INFO if group else logging.DEBUG, "rank %d of %d, from %s", rank, num_replicas, where)
        if group is not None:  # the rest is asked again: a process group may come yet
            self._found = rank, num_replicas
        return rank, num_replicas

    def _ask_elsewhere(self) -> tuple[tuple[int, int], str]:
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return (_number_in_environment("RANK"), _number_in_environment("WORLD_SIZE")), "RANK and WORLD_SIZE"
        if self._told_rank is None and self._told_replicas is None:
            return (0, 1), "neither a process group nor RANK and WORLD_SIZE: one replica"
        known, missing = ("rank", "num_replicas") if self._told_rank is not None else ("num_replicas", "rank")
        raise ValueError(f"{known} is given, but {missing} is not, and there is no process group to ask; give both")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}  # found anew where it is unpickled: that may be another rank


def _chunk_of_shards(dataset: Any) -> int:
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or len(lengths) == 0 or sum(lengths) != len(dataset):
        return _WITHOUT_SHARDS
    return max(1, _SHARDS_PER_CHUNK * len(dataset) // len(lengths))


def _number_in_environment(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the environment variable {name} is {text!r}; it must be a whole number") from None


def _ask_process_group() -> tuple[int, int] | None:
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    if not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _check_rank(rank: int, num_replicas: int) -> None:
    if num_replicas < 1 or not 0 <= rank < num_replicas:
        raise ValueError(f"rank is {rank} of {num_replicas}; it must be at least 0 and below the number of replicas")
