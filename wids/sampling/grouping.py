"""Group samples in a global order into batches that share a bucket, one batch per rank at a time. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Batch = list[int]
Item = tuple[int, int, float]
"""An index, its bucket and its cost."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of batches, and how many are formed together."""

    num_replicas: int
    """Number of batches formed together, one per rank."""
    batch_size: int | None
    """Maximum number of samples in a batch; None for no limit."""
    max_cost: float | None
    """Maximum sum of the costs in a batch; None for no limit."""


class Grouping:
    """Forms batches; those of a bucket wait until there is one for every rank.

    Examples:
        >>> grouping, limits = Grouping(), Limits(num_replicas=2, batch_size=2, max_cost=None)
        >>> list(grouping.form(zip(range(7), [0, 1, 0, 0, 1, 0, 0], [0.0] * 7), limits))
        [[[0, 2], [3, 5]]]
        >>> list(grouping.rest(limits))
        [[[1], [4]], [[6], [6]]]
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[Batch]] = {}
        self._open_cost: dict[int, float] = {}

    def take_waiting(self) -> list[int]:
        """Remove and return the samples that have not been yielded in a batch."""
        samples = [index for batches in self._waiting.values() for batch in batches for index in batch]
        self._waiting, self._open_cost = {}, {}
        return samples

    def form(self, items: Iterable[Item], limits: Limits) -> Iterator[list[Batch]]:
        """Yield one batch per rank whenever a bucket has that many."""
        for item in items:
            bucket = item[1]
            batches = self._waiting.setdefault(bucket, [])
            self._append(batches, item, limits)
            if len(batches) > limits.num_replicas:  # the last one holds the sample that had no room in the others
                self._waiting[bucket] = batches[limits.num_replicas :]
                yield batches[: limits.num_replicas]
            elif len(batches) == limits.num_replicas and len(batches[-1]) == limits.batch_size:
                del self._waiting[bucket]
                yield batches

    def _append(self, batches: list[Batch], item: Item, limits: Limits) -> None:
        index, bucket, cost = item
        total = self._open_cost.get(bucket, 0) + cost
        has_room = (
            batches and len(batches[-1]) != limits.batch_size and (limits.max_cost is None or total <= limits.max_cost)
        )
        if has_room:
            batches[-1].append(index)
            self._open_cost[bucket] = total
        else:
            batches.append([index])
            self._open_cost[bucket] = cost

    def rest(self, limits: Limits) -> Iterator[list[Batch]]:
        """Yield what is left, bucket by bucket, in smaller batches; samples repeat where there are fewer than ranks."""
        for bucket in list(self._waiting):
            yield spread(self._waiting.pop(bucket), limits.num_replicas)


def spread(batches: list[Batch], num_batches: int) -> list[Batch]:
    """Return `num_batches` batches, by halving the largest; batches repeat where there are fewer samples than that.

    Examples:
        >>> spread([[1, 2, 3, 4], [5]], 4), spread([[1, 2]], 3)
        ([[1], [2], [3, 4], [5]], [[1], [2], [1]])
    """
    batches = [list(batch) for batch in batches]
    while len(batches) < num_batches:
        largest = max(range(len(batches)), key=lambda place: len(batches[place]))
        batch = batches[largest]
        if len(batch) == 1:
            return list(islice(cycle(batches), num_batches))
        half = (len(batch) + 1) // 2
        batches[largest : largest + 1] = [batch[:half], batch[half:]]
    return batches
