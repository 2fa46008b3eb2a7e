"""`ChunkedSampler` and `ShardListSampler` for a single process, and the base class of all samplers of indices."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Protocol

from wids.sampling.ahead import ShardsAhead, check_ahead
from wids.sampling.cursor import ChunkedOrder, ShardOrder
from wids.sampling.epochs import EpochSampler, Walk, whole_number
from wids.sampling.lanes import Lanes, Share
from wids.sampling.scattered import warn_if_scattered
from wids.sampling.seeds import seed_indices
from wids.sampling.state import Fingerprint, check_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized

    from wids.sampling.ahead import Piece
    from wids.sampling.order import Span
    from wids.sampling.shuffle import Positions


class Order(Protocol):
    """The order of the samples in one epoch, lane by lane."""

    def read(self, lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return `(offset, positions)`; their sums are the indices at the steps `start` to `stop` of a lane.

        `stop` is exclusive, and fewer come where the lane ends. `start` is never less than in an earlier call.
        """

    def pieces(self, lane: int) -> Iterator[Piece]:
        """Yield a lane's spans in order, each with the step at which it begins."""


class LaneSampler(EpochSampler):
    """The base of samplers of indices: an epoch is laid out in lanes, whose places the ranks take in turn."""

    dataset: Any
    seed: int
    sample_seeds = False
    shards_ahead = 0

    def __len__(self) -> int:
        return self._share(None, 0).count()

    def _share(self, epoch: int | None, start: int) -> Share:
        return Share(self._lanes(epoch), start, *self._find_rank())

    def _find_rank(self) -> tuple[int, int]:
        return 0, 1

    @abstractmethod
    def _lanes(self, epoch: int | None) -> Lanes:
        """Return the layout of an epoch; with None, of an epoch over all the data."""

    @abstractmethod
    def _open(self, epoch: int) -> tuple[int, Order]:
        """Return the index of an epoch's first sample, and the order of the samples counted from it."""

    def _blocks(self, walk: Walk) -> Iterator[Iterable[int]]:
        share = self._share(walk.epoch, walk.start)
        walk.total = share.count()
        first, order = self._open(walk.epoch)
        ahead = self._look_ahead(share, first, self._open(walk.epoch)[1]) if self.shards_ahead and walk.total else None
        done = 0
        for block in share.indices(order.read, self._open(walk.epoch)[1].read):
            place = 0
            while place < block.size:
                stop = block.size
                if ahead is not None:
                    step = share.step_after(done + place)
                    ahead.reach(step, step + 1)
                    later = range(done + place + 1, done + stop)
                    stop = later.start - done + bisect_left(later, ahead.next_change(step), key=share.step_after)
                indices = block[place:stop] + first
                place = stop
                yield seed_indices(indices, self.seed, walk.epoch) if self.sample_seeds else indices.tolist()
            done += block.size

    def _look_ahead(self, share: Share, first: int, order: Order) -> ShardsAhead:
        def pieces(lane: int) -> Iterator[Piece]:
            return ((step, begin + first, end + first) for step, begin, end in order.pieces(lane))

        lanes = {
            share.lanes.filled(lane) for lane in share.walked_lanes() if share.lanes.held(share.lanes.filled(lane))
        }
        return ShardsAhead(self.dataset, self.shards_ahead, map(pieces, sorted(lanes)), share.step_after(0))

    def global_order(self, epoch: int) -> Iterator[Positions]:
        """Yield the indices of a whole epoch, over all ranks, in the order of its places; in `(n,) int64` blocks."""
        lanes = self._lanes(epoch)
        first, order = self._open(epoch)
        for block in Share(lanes, 0, 0, 1).indices(order.read, order.read):
            yield block + first

    def _count(self, epoch: int, start: int) -> int:
        return self._share(epoch, start).count()

    def _place_after(self, walk: Walk) -> int:
        return self._share(walk.epoch, walk.start).place_after(walk.done)

    def _consumed_place(self, epoch: int, consumed: int) -> int:
        lanes = self._lanes(epoch)
        return consumed if lanes.even else lanes.find_place(consumed)

    def _is_end(self, epoch: int, place: int) -> bool:
        lanes = self._lanes(epoch)
        left = lanes.num_places - place
        return left < self._find_rank()[1] if lanes.drop_last else left <= 0

    # State

    def _arguments(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def _not_given(self) -> set[str]:
        return set()

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint(self.dataset)

    def _described(self) -> dict[str, Any]:
        if self._data is None:
            self._data = self._fingerprint().describe()
        return self._data

    _data: dict[str, Any] | None = None
    _old_data: tuple[int, dict[str, Any]] | None = None
    """A restored epoch that began before samples were appended, and the fingerprint of the data it is limited to."""

    def _describe(self, epoch: int) -> dict[str, Any]:
        data = self._described() if self._old(epoch) is None else self._old(epoch)
        return {"arguments": self._arguments(), "data": data}

    def _adopt(self, state: Mapping[str, Any], *, strict: bool) -> None:
        taken = check_arguments(self._arguments(), state["arguments"], self._not_given())
        data = state["data"]
        if data == self._described():
            self._old_data = None
        else:
            self._fingerprint().check(data, strict=strict)
            self._old_data = state["epoch"], dict(data)
        for name, value in taken.items():
            setattr(self, name, value)

    def _old(self, epoch: int | None) -> dict[str, Any] | None:
        return self._old_data[1] if self._old_data is not None and self._old_data[0] == epoch else None


class ChunkedSampler(LaneSampler):
    """Shuffles inside chunks of consecutive indices, and the order of the chunks, so that few shards are read at a time.

    Args:
        dataset: Anything with a length.
        num_samples: How many samples to yield, counted from the first, or a pair of indices `(start, stop)`; None for
            all.
        chunksize: Samples per chunk.
        seed: Determines the order, which for the same seed, epoch and chunk size is that of 0.1.11.
        shuffle: False to keep the order of the dataset.
        shufflefirst: Shuffle the order of the chunks in epoch 0 too, instead of only from epoch 1 on.
        dslength_per_replica: What `len` returns instead of the number of indices; -1 for the number of indices.
        shards_ahead: How many shards to announce to the dataset beyond those being read, so that it can fetch them in
            advance. The dataset needs a method `prefetch` (see `wids.sampling.ahead`).

    Raises:
        TypeError: An argument that must be a whole number is not one, or `shards_ahead` is given for a dataset without
            `prefetch`.
        ValueError: A number is out of range.

    Examples:
        >>> sampler = ChunkedSampler(range(8), chunksize=4)
        >>> list(sampler), list(sampler)
        ([2, 0, 1, 3, 4, 5, 7, 6], [1, 0, 2, 3, 5, 7, 6, 4])
        >>> list(ChunkedSampler(range(8), shuffle=False, num_samples=(2, 5)))
        [2, 3, 4]
    """

    repartition_each_epoch = False

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
        shards_ahead: int = 0,
    ) -> None:
        chunksize = whole_number("chunksize", chunksize)
        if chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}; it must be at least 1")
        self._start()
        self.dataset = dataset
        self.seed = whole_number("seed", seed)
        self.chunksize = chunksize
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst
        warn_if_scattered(dataset)
        self._given_span = None if num_samples is None else find_span(dataset, num_samples)
        self._given_length = dslength_per_replica
        self.shards_ahead = check_ahead(dataset, shards_ahead)

    @property
    def dslength_per_replica(self) -> int:
        """What `len` returns, under its name in 0.1.11."""
        return len(self)

    def __len__(self) -> int:
        return self._given_length if self._given_length > 0 else super().__len__()

    def _span(self, epoch: int | None) -> Span:
        if self._given_span is not None:
            return self._given_span
        old = self._old(epoch)
        return 0, len(self.dataset) if old is None else old["samples"]

    def _lanes(self, epoch: int | None) -> Lanes:
        start, stop = self._span(epoch)
        return Lanes(stop - start, 1)

    def _open(self, epoch: int) -> tuple[int, Order]:
        order = ChunkedOrder(
            self._lanes(epoch),
            self.chunksize,
            self.seed,
            epoch,
            shuffle=self.shuffle,
            move=self.shuffle and (self.shufflefirst or epoch > 0),
            repartition=self.repartition_each_epoch,
        )
        return self._span(epoch)[0], order

    def _arguments(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "chunksize": self.chunksize,
            "shuffle": bool(self.shuffle),
            "shufflefirst": bool(self.shufflefirst),
            "num_samples": None if self._given_span is None else list(self._given_span),
        }


class ShardListSampler(LaneSampler):
    """Shuffles inside each shard, and from epoch 1 on the order of the shards.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard; may be None where `lengths` is given.
        lengths: Number of samples in each shard, in place of the dataset's `lengths`.
        seed: Determines the order, which for the same seed and epoch is that of 0.1.11.
        shufflefirst: Shuffle the order of the shards in epoch 0 too.
        shards_ahead: As for `ChunkedSampler`.

    Raises:
        TypeError: A length or the seed is not a whole number, or `shards_ahead` is given for a dataset without
            `prefetch`.
        ValueError: A length or `shards_ahead` is negative.

    Examples:
        >>> list(ShardListSampler(None, lengths=[3, 2, 3]))
        [0, 2, 1, 4, 3, 5, 7, 6]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        lengths: Sequence[int] | None = None,
        seed: int = 0,
        shufflefirst: bool = False,
        shards_ahead: int = 0,
    ) -> None:
        self._start()
        self.dataset = dataset
        self.seed = whole_number("seed", seed)
        self.shufflefirst = shufflefirst
        warn_if_scattered(dataset)
        self.lengths = [
            whole_number("a length", length) for length in (dataset.lengths if lengths is None else lengths)
        ]
        if self.lengths and min(self.lengths) < 0:
            raise ValueError(f"lengths has {min(self.lengths)}; a shard has at least 0 samples")
        self.shards_ahead = check_ahead(dataset, shards_ahead)

    def _lengths(self, epoch: int | None) -> list[int]:
        old = self._old(epoch)
        return self.lengths if old is None else self.lengths[: old["shards"]]

    def _lanes(self, epoch: int | None) -> Lanes:
        return Lanes(sum(self._lengths(epoch)), 1)

    def _open(self, epoch: int) -> tuple[int, Order]:
        return 0, ShardOrder(self._lengths(epoch), self.seed, epoch, move=self.shufflefirst or epoch > 0)

    def _arguments(self) -> dict[str, Any]:
        return {"seed": self.seed, "shufflefirst": bool(self.shufflefirst)}

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint(None, self.lengths) if self.dataset is None else Fingerprint(self.dataset, self.lengths)


ShardedSampler = ShardListSampler


def find_span(dataset: Sized, num_samples: int | tuple[int, int]) -> Span:
    """Return the span of indices that `num_samples` stands for.

    Raises:
        TypeError: A bound is not a whole number.
        ValueError: The span is not within the dataset.
    """
    length = len(dataset)
    try:
        start, stop = 0, as_index(num_samples)  # type: ignore[arg-type]  # numpy integers too
    except TypeError:
        start, stop = (whole_number("num_samples", bound) for bound in num_samples)  # type: ignore[union-attr]
    if not 0 <= start <= stop <= length:
        raise ValueError(f"num_samples is {num_samples}, but the dataset has the indices 0 to {length - 1}")
    return start, stop
