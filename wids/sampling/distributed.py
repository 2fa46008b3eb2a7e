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
    lane_length,
    lane_span,
    repartition,
    repeat_to,
    split_chunks,
)
from wids.sampling.samplers import ChunkedSampler

if TYPE_CHECKING:
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
        even: False to yield every sample exactly once, so that ranks differ in length; for evaluation.
        chunksize: Samples in a chunk; None for about eight shards' worth where the dataset has shards, else 1,000,000.
        repartition_each_epoch: Give each rank other chunks in each epoch, so that over epochs it sees all the data.

    Raises:
        ValueError: A number is out of its range, or only one of `num_replicas` and `rank` can be known.
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
        self._told = (rank, num_replicas)
        self._found: tuple[int, int] | None = None
        if rank is not None and num_replicas is not None:
            self._found = _check_rank(rank, num_replicas)

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
        chunks = self._chunks(epoch)
        return repeat_to(len(self), (self._walk(chunks, epoch) for _ in repeat(None)) if chunks else ())

    def _chunks(self, epoch: int) -> list[Span]:
        length = self._length()
        if self.repartition_each_epoch:
            start, stop = self._span
            used = (start, min(stop, start + length * self.num_replicas))
            parts = repartition(
                split_chunks(used, self.chunksize), self.num_replicas, self.rank, length, epoch_rng(self.seed, epoch)
            )
            if parts or not self.even or length == 0:
                return parts
        lane = self._lane()
        return split_chunks(fill_lane(lane, self._span, length) if self.even else lane, self.chunksize)

    def _lane(self) -> Span:
        rank, num_replicas = self._find_rank()
        return lane_span(self._span, num_replicas, rank, drop_last=self.drop_last)

    def _length(self) -> int:
        start, stop = self._span
        return lane_length(stop - start, self.num_replicas, drop_last=self.drop_last)

    def _find_rank(self) -> tuple[int, int]:
        if self._found is None:
            self._found = _discover_rank(*self._told)
        return self._found


def _chunk_of_shards(dataset: Any) -> int:
    lengths = getattr(dataset, "lengths", None)
    if not lengths:
        return _WITHOUT_SHARDS
    return max(1, _SHARDS_PER_CHUNK * int(sum(lengths)) // len(lengths))


def _discover_rank(rank: int | None, num_replicas: int | None) -> tuple[int, int]:
    """Return `(rank, num_replicas)`, what is not told from the process group, else the environment."""
    group = _ask_process_group()
    where = "the process group"
    if group is None and "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        group = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        where = "RANK and WORLD_SIZE"
    if group is None:
        if rank is not None or num_replicas is not None:
            known, missing = ("rank", "num_replicas") if rank is not None else ("num_replicas", "rank")
            raise ValueError(f"{known} is given, but {missing} is not, and there is no process group to ask; give both")
        group = 0, 1
        where = "neither a process group nor RANK and WORLD_SIZE: one replica"
    found = _check_rank(group[0] if rank is None else rank, group[1] if num_replicas is None else num_replicas)
    logger.info("rank %d of %d, from %s", *found, where)
    return found


def _ask_process_group() -> tuple[int, int] | None:
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    if not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _check_rank(rank: int, num_replicas: int) -> tuple[int, int]:
    if num_replicas < 1 or not 0 <= rank < num_replicas:
        raise ValueError(f"rank is {rank} of {num_replicas}; it must be at least 0 and below the number of replicas")
    return rank, num_replicas
