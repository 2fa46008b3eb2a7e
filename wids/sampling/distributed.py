"""`DistributedChunkedSampler`: each rank reads its own part of the dataset, and all ranks equally many samples."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from wids.sampling.epochs import whole_number
from wids.sampling.lanes import Lanes
from wids.sampling.rank import RankFinder
from wids.sampling.ranked import RankedSampler
from wids.sampling.samplers import ChunkedSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized

    from wids.sampling.epochs import Walk

logger = logging.getLogger(__name__)

_CHUNK_WITHOUT_SHARDS = 1_000_000
_SHARDS_PER_CHUNK = 8
_MANY_LANES = 8
"""More lanes than these on one rank are warned about."""
_MUCH_MEMORY = 256 << 20
"""More bytes of chunks than these on one rank are warned about."""


class DistributedChunkedSampler(RankedSampler, ChunkedSampler):
    """A `ChunkedSampler` over this rank's part of the dataset; every rank yields the same number of indices.

    The dataset is split into canonical replicas (lanes), each shuffled by chunks on its own, and ranks take the places
    of the epoch in turn (drawn in `wids.sampling.lanes`). With as many ranks as lanes, each rank reads one lane; with
    any other number of ranks the same samples come in the same global order.

    Args:
        dataset: Anything with a length.
        num_replicas: Number of ranks; None for the size of the process group, else `WORLD_SIZE`, else 1.
        rank: Number of this rank; None for its number in the process group, else `RANK`, else 0.
        num_samples: How many samples all ranks read, counted from the first, or a pair of indices `(start, stop)`; None
            for all.
        shuffle: False to keep the order of the dataset.
        shufflefirst: Shuffle the order of the chunks in epoch 0 too, instead of only from epoch 1 on.
        seed: Determines the order; must be the same on all ranks.
        drop_last: Leave out samples that do not fill all ranks equally, instead of repeating some.
        even: False to yield every sample exactly once, so that ranks may differ in length; for evaluation. Cannot be
            combined with `drop_last`.
        chunksize: Samples per chunk; None for that of a restored state, else about eight shards' worth if the dataset
            has shards, else 1,000,000.
        num_canonical_replicas: Number of lanes; None for that of a restored state, else the number of ranks. If the
            number of ranks is not a multiple of it, each rank reads from several lanes, and so from several parts of
            the dataset at once.
        repartition_each_epoch: Deal the chunks out to the ranks anew in each epoch, so that over epochs each rank sees
            all the data. In epoch 0 they stay in place unless `shufflefirst`. Cannot be combined with `shuffle=False`.
        shards_ahead: As for `ChunkedSampler`.
        sample_seeds: Yield indices that carry a seed for their sample; the dataset stores it in the sample as
            `__seed__`.

    Raises:
        TypeError: An argument that must be a whole number is not one, or `shards_ahead` is given for a dataset without
            `prefetch`.
        ValueError: A number is out of range, two arguments contradict each other, or only one of `num_replicas` and
            `rank` is known.

    Examples:
        >>> options = {"num_replicas": 2, "chunksize": 4}
        >>> ranks = [DistributedChunkedSampler(range(16), rank=rank, **options) for rank in range(2)]
        >>> [list(sampler) for sampler in ranks]
        [[2, 0, 1, 3, 4, 5, 7, 6], [10, 8, 9, 11, 12, 13, 15, 14]]
        >>> state = ranks[0].state_dict(consumed=10)
        >>> three = [DistributedChunkedSampler(range(16), num_replicas=3, rank=rank, chunksize=4) for rank in range(3)]
        >>> for sampler in three:
        ...     sampler.load_state_dict(state)
        >>> [list(sampler) for sampler in three]
        [[5, 15], [13, 6], [7, 14]]

    With `repartition_each_epoch`, three epochs of twelve samples on three ranks in chunks of four; each chunk is a
    letter:

        epoch 0      A A A A | B B B B | C C C C     as without it
        epoch 1      C C A A | A A B B | B B C C     chunks permuted (A B C) and laid in a ring, which is turned and cut
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
        num_canonical_replicas: int | None = None,
        repartition_each_epoch: bool = False,
        shards_ahead: int = 0,
        sample_seeds: bool = False,
    ) -> None:
        if drop_last and not even:
            raise ValueError("drop_last=True leaves samples out and even=False leaves none out; give one of them")
        if repartition_each_epoch and not shuffle:
            raise ValueError("repartition_each_epoch=True moves chunks and shuffle=False leaves them; give one of them")
        super().__init__(
            dataset,
            num_samples=num_samples,
            chunksize=default_chunksize(dataset) if chunksize is None else chunksize,
            seed=seed,
            shuffle=shuffle,
            shufflefirst=shufflefirst,
            shards_ahead=shards_ahead,
        )
        self.drop_last = drop_last
        self.even = even
        self.repartition_each_epoch = repartition_each_epoch
        self.sample_seeds = sample_seeds
        self._chunksize_given = chunksize is not None
        self._lanes_given = num_canonical_replicas is not None
        if num_canonical_replicas is not None:
            num_canonical_replicas = whole_number("num_canonical_replicas", num_canonical_replicas)
            if num_canonical_replicas < 1:
                raise ValueError(f"num_canonical_replicas is {num_canonical_replicas}; it must be at least 1")
        self.num_canonical_replicas = num_canonical_replicas
        self._finder = RankFinder(rank, num_replicas)
        self._warned = False

    def _num_lanes(self) -> int:
        return self.num_replicas if self.num_canonical_replicas is None else self.num_canonical_replicas

    def _lanes(self, epoch: int | None) -> Lanes:
        start, stop = self._span(epoch)
        return Lanes(stop - start, self._num_lanes(), self.drop_last, self.even)

    def _blocks(self, walk: Walk) -> Iterator[Iterable[int]]:
        self._warn_of_lanes(walk.epoch)
        return super()._blocks(walk)

    def _warn_of_lanes(self, epoch: int) -> None:
        """Warn once if many lanes on one rank are costly."""
        share = self._share(epoch, 0)
        if self._warned or share.num_lanes == 1:
            return
        self._warned = True
        num_lanes, replicas = share.lanes.num_lanes, share.num_replicas
        if share.num_lanes > _MANY_LANES:
            logger.warning(
                "rank %d of %d reads from %d of %d canonical replicas at once, so as many shards are open and fetched; "
                "a multiple or a large divisor of %d ranks reads from fewer",
                share.rank,
                replicas,
                share.num_lanes,
                num_lanes,
                num_lanes,
            )
        buffers = 4 * share.num_lanes * min(self.chunksize, share.lanes.length)
        if self.repartition_each_epoch and buffers > _MUCH_MEMORY:
            logger.warning(
                "the chunks of %d canonical replicas take %d MB on this rank; a chunksize below %d takes less",
                share.num_lanes,
                buffers >> 20,
                self.chunksize,
            )

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            "drop_last": bool(self.drop_last),
            "even": bool(self.even),
            "repartition_each_epoch": bool(self.repartition_each_epoch),
            "num_canonical_replicas": self._num_lanes(),
        }

    def _not_given(self) -> set[str]:
        names = {"chunksize": self._chunksize_given, "num_canonical_replicas": self._lanes_given}
        return {name for name, given in names.items() if not given}


def default_chunksize(dataset: Any) -> int:
    """Return the default chunk size: about eight shards' worth of samples if the dataset has shards, else 1,000,000.

    For a view, that is eight times the average number of its rows per shard, whatever their order.
    """
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or len(lengths) == 0 or sum(lengths) != len(dataset):
        return _CHUNK_WITHOUT_SHARDS
    num_shards = getattr(dataset, "num_shards", len(lengths))
    return max(1, _SHARDS_PER_CHUNK * len(dataset) // num_shards)
