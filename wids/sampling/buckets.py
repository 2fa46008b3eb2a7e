"""`BucketBatchSampler`: batches whose samples share a bucket, the same number of batches on all ranks.

Batches are formed over the global order: the samples of a bucket wait until there is a batch of that bucket for every
rank. So each rank walks through the whole order and looks up the bucket of every sample, not only of its own. This
takes each rank about a microsecond per sample of the epoch.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from wids.sampling.epochs import EpochSampler, whole_number
from wids.sampling.grouping import Grouping, Limits
from wids.sampling.samplers import LaneSampler
from wids.sampling.seeds import seed_indices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from wids.sampling.epochs import Walk
    from wids.sampling.grouping import Batch, Item

    PerIndex = Callable[[int], Any] | Sequence[Any] | NDArray[Any]

History = list[list[Any]]
"""What was taken of an epoch, stretch by stretch: number of ranks, `batch_size`, `max_cost`, and batches per rank."""


class BucketBatchSampler(EpochSampler):
    """Yields batches of indices that share a bucket, for `DataLoader(dataset, batch_sampler=…)`.

    It shares its epochs with `sampler`: `set_epoch` of either sets both.

    Args:
        sampler: Provides the order and the rank: a `DistributedChunkedSampler`, or any other sampler of this package.
        batch_size: Maximum number of samples in a batch; None where only `max_cost` limits it.
        buckets: The bucket of each index, as numbers or strings; or a function from an index to its bucket, which each
            rank calls once for every index of the dataset. None to put all samples into one bucket.
        drop_last: Leave out batches that are not full, instead of yielding smaller ones.
        cost: The cost of each index, such as its length; or a function from an index to its cost, called as for
            `buckets`.
        max_cost: Maximum sum of the costs in a batch.

    Raises:
        TypeError: `sampler` is not a sampler of this package, or `batch_size` is not a whole number.
        ValueError: A number is out of range, arguments are missing or contradict each other, or `sampler` has
            `shards_ahead`. On first use: buckets or costs are not one for each index, or a cost is negative or above
            `max_cost`.

    Examples:
        >>> from wids import ChunkedSampler
        >>> widths = [64, 32, 32, 64, 64, 32, 32, 64]
        >>> list(BucketBatchSampler(ChunkedSampler(range(8), chunksize=8), 2, buckets=widths))
        [[1, 5], [4, 0], [3, 7], [2, 6]]
    """

    def __init__(
        self,
        sampler: LaneSampler,
        batch_size: int | None,
        buckets: PerIndex | None = None,
        drop_last: bool = False,
        *,
        cost: PerIndex | None = None,
        max_cost: float | None = None,
    ) -> None:
        if not isinstance(sampler, LaneSampler):
            raise TypeError(
                f"sampler is of type {type(sampler).__name__}; it must be a sampler of wids, which knows all ranks' order"
            )
        if batch_size is None and max_cost is None:
            raise ValueError("neither batch_size nor max_cost is given; give one")
        if batch_size is not None and whole_number("batch_size", batch_size) < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        if (cost is None) != (max_cost is None):
            raise ValueError("cost and max_cost belong together; give both")
        if sampler.shards_ahead:
            raise ValueError("shards_ahead follows the sampler's own order, which buckets change; leave it at 0")
        self.sampler = sampler
        self._epochs = sampler._epochs  # noqa: SLF001  # both share one epoch counter
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.max_cost = max_cost
        self._given_buckets = buckets
        self._given_cost = cost
        self._looked_up: tuple[NDArray[np.int64], NDArray[np.float64], str] | None = None
        self._counted: tuple[Any, int] | None = None

    def __len__(self) -> int:
        """Return how many batches this epoch has, by forming them; other epochs may have more or fewer."""
        return self._count(self._position()[0], [])

    def _blocks(self, walk: Walk) -> Iterator[Iterable[list[int]]]:
        rank = self._limits_and_rank()[1]
        ahead: Batch | None = None
        done = 0
        for batches in self._form(walk.epoch, walk.start):
            if ahead is not None:
                yield [self._seeded(ahead, walk.epoch)]
            ahead = batches[rank]
            done += 1
        walk.total = done
        if ahead is not None:
            yield [self._seeded(ahead, walk.epoch)]

    def _seeded(self, batch: Batch, epoch: int) -> list[int]:
        if not self.sampler.sample_seeds:
            return batch
        return list(seed_indices(np.array(batch, np.int64), self.sampler.seed, epoch))

    def _form(self, epoch: int, history: History) -> Iterator[list[Batch]]:
        """Yield the rest of an epoch after what `history` says was taken of it: each time one batch per rank."""
        grouping = Grouping()
        order = chain.from_iterable(map(self._items, self.sampler.global_order(epoch)))
        for num_replicas, batch_size, max_cost, num_batches in history:
            taken = self._stretch(grouping, order, Limits(num_replicas, batch_size, max_cost))
            for _ in islice(taken, num_batches):
                pass
            order = chain(self._items(np.array(grouping.take_waiting(), np.int64)), order)
        return self._stretch(grouping, order, self._limits_and_rank()[0])

    def _items(self, indices: NDArray[np.int64]) -> Iterator[Item]:
        buckets, costs, _ = self._look_up()
        return zip(indices.tolist(), buckets[indices].tolist(), costs[indices].tolist(), strict=True)

    def _stretch(self, grouping: Grouping, order: Iterator[Item], limits: Limits) -> Iterator[list[Batch]]:
        yield from grouping.form(order, limits)
        if not self.drop_last:
            yield from grouping.rest(limits)

    def _limits_and_rank(self) -> tuple[Limits, int]:
        rank, num_replicas = self.sampler._find_rank()  # noqa: SLF001  # a class of this package
        return Limits(num_replicas, self.batch_size, self.max_cost), rank

    # Buckets and costs

    def _look_up(self) -> tuple[NDArray[np.int64], NDArray[np.float64], str]:
        """Return the bucket numbers and the costs of all indices, `(length,)` each, and a digest of both.

        Costs are 0 where there are none.
        """
        if self._looked_up is None:
            length = len(self.sampler.dataset)
            values = (
                np.zeros(length, np.int64)
                if self._given_buckets is None
                else _values("buckets", self._given_buckets, length)
            )
            buckets = np.unique(values, return_inverse=True)[1].astype(np.int64)
            costs = np.zeros(length)
            if self._given_cost is not None and self.max_cost is not None:
                costs = _values("cost", self._given_cost, length).astype(np.float64)
                wrong = np.flatnonzero(~((costs >= 0) & (costs <= self.max_cost)))
                if wrong.size:
                    raise ValueError(
                        f"index {wrong[0]} costs {costs[wrong[0]]:g}; it must be at least 0 and at most max_cost, {self.max_cost}"
                    )
            content = buckets.tobytes() + (b"" if self._given_cost is None else costs.tobytes())
            self._looked_up = buckets, costs, xxhash.xxh3_64_hexdigest(content)
        return self._looked_up

    # State

    def _beginning(self) -> History:
        return []

    def _checked_place(self, place: Any) -> History:
        if not isinstance(place, list) or any(len(entry) != 4 for entry in place):
            raise ValueError(f"the state's place is {place!r}; it must be a list of stretches")
        return place

    def _count(self, epoch: int, start: History) -> int:
        key = (epoch, repr(start), self._limits_and_rank()[0])
        if self._counted is None or self._counted[0] != key:
            self._counted = key, sum(1 for _ in self._form(epoch, start))
        return self._counted[1]

    def _place_after(self, walk: Walk) -> History:
        limits = self._limits_and_rank()[0]
        mine = [limits.num_replicas, limits.batch_size, limits.max_cost]
        history = [list(entry) for entry in walk.start]
        if history and history[-1][:3] == mine:
            history[-1][3] += walk.done
        elif walk.done:
            history.append([*mine, walk.done])
        return history

    def _consumed_place(self, epoch: int, consumed: int) -> History:
        walk = self._epochs.walk
        start = (self._epochs.start_of(epoch) or []) if walk is None else walk.start
        done = 0 if walk is None else walk.done
        limits = self._limits_and_rank()[0]
        history: History = []
        left = consumed
        for *entry, num_batches in [*start, [limits.num_replicas, limits.batch_size, limits.max_cost, done]]:
            if left:
                history.append([*entry, min(left, num_batches)])
            left -= min(left, num_batches)
        if left:
            raise ValueError(f"consumed is {consumed} batches, but only {consumed - left} were yielded in this epoch")
        return history

    def _is_end(self, epoch: int, place: History) -> bool:
        walk = self._epochs.walk
        if walk is None or walk.total is None or walk.epoch != epoch:
            return False
        return _num_batches(place) >= _num_batches(walk.start) + walk.total

    def _describe(self, epoch: int) -> dict[str, Any]:
        return {
            **self.sampler._describe(epoch),  # noqa: SLF001  # a class of this package
            "batches": {"drop_last": bool(self.drop_last), "digest": self._look_up()[2]},
        }

    def _adopt(self, state: Mapping[str, Any], *, strict: bool) -> None:
        mine = self._describe(state["epoch"])["batches"]
        if state["batches"]["drop_last"] != mine["drop_last"]:
            raise ValueError(f"the state was taken with drop_last={state['batches']['drop_last']}; use the same")
        if state["batches"] != mine:
            raise ValueError(
                "the state was taken with other buckets or costs; use the same, or start again without the state"
            )
        self.sampler._adopt(state, strict=strict)  # noqa: SLF001  # a class of this package


def _num_batches(history: History) -> int:
    return sum(num_batches for *_, num_batches in history)


def _values(name: str, given: PerIndex, length: int) -> NDArray[Any]:
    """Return one value for each index, `(length,)`.

    Raises:
        ValueError: There are more or fewer values than indices.
    """
    values = np.asarray([given(index) for index in range(length)] if callable(given) else given)
    if values.shape != (length,):
        raise ValueError(f"{name} has the shape {values.shape}; it must be one value for each of {length} samples")
    return values
