"""Batches of consecutive samples, each a tuple of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.decode import stack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.dataset.pipeline import Pipeline


class Batches:
    """The batches of a dataset, in order; an iterable that can be iterated any number of times.

    Args:
        dataset: The dataset that the samples come from.
        batch_size: Number of samples in a batch, at least 1.
        drop_last: Leave out the last batch if it is smaller than the others.
    """

    def __init__(self, dataset: Pipeline, batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        self._dataset = dataset
        self._batch_size = batch_size
        self._drop_last = drop_last

    def __len__(self) -> int:
        whole, rest = divmod(len(self._dataset), self._batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[Any]:
        for batch in range(len(self)):
            first = batch * self._batch_size
            stop = min(first + self._batch_size, len(self._dataset))
            samples = self._dataset.__getitems__(range(first, stop))
            if not isinstance(samples[0], tuple):
                raise TypeError(
                    f"batched() takes tuples, but sample {first} is of type {type(samples[0]).__name__}; call to_tuple() first"
                )
            yield stack_columns(samples)
