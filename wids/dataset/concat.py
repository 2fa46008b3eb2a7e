"""Several datasets as one, by index: the first one's samples, then the second one's, each with its own transformations."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.closing import Closing
from wids.dataset.steps import REQUIRED
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import BufferedReader

    from numpy.typing import NDArray
    from typing_extensions import Self

    from wids.tar import MemberLocation

try:
    from torch.utils.data import Dataset as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]


def concat(datasets: Iterable[Any]) -> ConcatDataset:
    """Return one dataset of all the samples of several.

    Args:
        datasets: Anything with a length and `[]`: `ShardListDataset`s, views of them, other concatenations.

    Raises:
        TypeError: One has no length.

    Examples:
        >>> both = concat(["abc", "de"])
        >>> len(both), both[3], both[-1], both.component_lengths
        (5, 'd', 'e', [3, 2])
    """
    return ConcatDataset(datasets)


class ConcatDataset(Closing, _Base):  # type: ignore[type-arg]
    """What `concat` returns. Samples tell where they come from as they do in their own dataset.

    What is done to the samples is done by each dataset to its own, as its method of that name does it.

    Args:
        datasets: See there.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.component_lengths = [len(dataset) for dataset in self.datasets]
        self._starts = [0, *accumulate(self.component_lengths)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Any:
        """Return one sample.

        Raises:
            IndexError: `index` is out of range.
        """
        component, place = self.find(index)
        return self.datasets[component][place]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch in the order of `indices`; each dataset is asked once, if it takes batches."""
        wanted: dict[int, list[tuple[int, int]]] = {}
        for rank, index in enumerate(indices):
            component, place = self.find(index)
            wanted.setdefault(component, []).append((rank, place))
        samples: list[Any] = [None] * len(indices)
        for component, places in wanted.items():
            dataset = self.datasets[component]
            asked = [place for _, place in places]
            together = (
                dataset.__getitems__(asked) if hasattr(dataset, "__getitems__") else map(dataset.__getitem__, asked)
            )
            for (rank, _), sample in zip(places, together, strict=True):
                samples[rank] = sample
        return samples

    def __iter__(self) -> Iterator[Any]:
        """Yield every sample in order."""
        for dataset in self.datasets:
            yield from dataset

    def find(self, index: Any) -> tuple[int, Any]:
        """Return which dataset holds a sample, and its index there; one that carries a seed goes on carrying it.

        Raises:
            IndexError: `index` is out of range.
        """
        number = as_index(index)
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(
                f"index {index} is out of range for {counted(len(self), 'sample')} in {counted(len(self.datasets), 'dataset')}"
            )
        # bisect_right skips empty datasets: their end equals their start.
        component = bisect_right(self._starts, number) - 1
        place = number - self._starts[component]
        return component, index.at(place) if hasattr(index, "sample_seed") else place

    def read(self, index: int, fields: Iterable[str] | None = None) -> dict[str, bytes]:
        """Return `{field: bytes}` of one sample, as its dataset reads it."""
        component, place = self.find(index)
        return self.datasets[component].read(place, fields)  # type: ignore[no-any-return]

    def view(self, index: int, fields: Iterable[str] | None = None) -> dict[str, memoryview]:
        """Return `{field: memoryview}` of one sample, as its dataset gives it."""
        component, place = self.find(index)
        return self.datasets[component].view(place, fields)  # type: ignore[no-any-return]

    def open(self, index: int, field: str) -> BufferedReader:
        """Return a seekable binary file over one member, as its dataset opens it."""
        component, place = self.find(index)
        return self.datasets[component].open(place, field)  # type: ignore[no-any-return]

    def locate(self, index: int) -> dict[str, MemberLocation]:
        """Return `{field: MemberLocation(url, offset, size)}` of one sample."""
        component, place = self.find(index)
        return self.datasets[component].locate(place)  # type: ignore[no-any-return]

    def key(self, index: int) -> str:
        """Return the key of one sample."""
        component, place = self.find(index)
        return self.datasets[component].key(place)  # type: ignore[no-any-return]

    def decode(self, spec: Any = "PIL", **options: Any) -> Self:
        """Return the datasets put together that decode by `spec`, with the options that theirs has.

        Raises:
            TypeError: One of them has no such method, as a list has none.
        """
        return type(self)(self._ask_each("decode", spec, **options))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return the datasets put together that apply `function` to each sample.

        Raises:
            TypeError: One of them has no such method.
        """
        return type(self)(self._ask_each("map", function))

    def to_tuple(self, *fields: str, missing: Any = REQUIRED) -> Self:
        """Return the datasets put together whose samples are tuples of these fields.

        Raises:
            TypeError: One of them has no such method.
        """
        return type(self)(self._ask_each("to_tuple", *fields, missing=missing))

    def select_fields(self, fields: Iterable[str] | str, missing: Any = REQUIRED) -> Self:
        """Return the datasets put together whose samples have only these fields.

        Raises:
            TypeError: One of them has no such method.
        """
        names = fields if isinstance(fields, str) else tuple(fields)
        return type(self)(self._ask_each("select_fields", names, missing=missing))

    def rename(self, **names: str) -> Self:
        """Return the datasets put together whose fields are renamed.

        Raises:
            TypeError: One of them has no such method.
        """
        return type(self)(self._ask_each("rename", **names))

    def sizes(self, field: str) -> NDArray[np.int64]:
        """Return `(len,)` int64, the bytes that a field takes in each sample, -1 where there is none; from the indexes alone.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return np.concatenate([np.empty(0, np.int64), *self._ask_each("sizes", field)])

    def has(self, *fields: str) -> NDArray[np.bool_]:
        """Return `(len,)` bool, which samples have all of these fields; from the indexes alone.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return np.concatenate([np.empty(0, np.bool_), *self._ask_each("has", *fields)])

    def _ask_each(self, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Return what a method of each dataset returns."""
        for place, dataset in enumerate(self.datasets):
            if not hasattr(dataset, method):
                raise TypeError(
                    f"datasets[{place}] is a {type(dataset).__name__}, which has no {method}(); call it on the others before concat()"
                )
        return [getattr(dataset, method)(*arguments, **options) for dataset in self.datasets]

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The shards of all datasets, each with the name of its dataset; one that has none counts as one shard."""
        return [shard for dataset in self.datasets for shard in _shards(dataset)[0]]

    @property
    def lengths(self) -> list[int]:
        """How many samples each shard has."""
        return [length for dataset in self.datasets for length in _shards(dataset)[1]]

    @property
    def total_length(self) -> int:
        """How many samples there are."""
        return len(self)

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Tell each dataset which of its shards will be needed next, where it wants to know."""
        first = 0
        for dataset in self.datasets:
            stop = first + len(_shards(dataset)[1])
            mine = [shard - first for shard in upcoming if first <= shard < stop]
            if mine and hasattr(dataset, "prefetch"):
                dataset.prefetch(mine)
            first = stop

    def close(self) -> None:
        """Close those of the datasets that can be."""
        for dataset in self.datasets:
            if hasattr(dataset, "close"):
                dataset.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {counted(len(self), 'sample')} in {counted(len(self.datasets), 'dataset')}>"


def _shards(dataset: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the shards of a dataset and their lengths."""
    shards, lengths = getattr(dataset, "shards", None), getattr(dataset, "lengths", None)
    if shards is None or lengths is None or len(shards) != len(lengths):
        return [{"url": ""}], [len(dataset)]
    return shards, lengths
