"""Concatenation: several datasets as one, the samples of the first before those of the second, and so on.

Each dataset keeps its own transformations.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.closing import Closing
from wids.dataset.steps import REQUIRED
from wids.fields import list_names
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
    """Return one dataset with all samples of several, one dataset after the other.

    Args:
        datasets: Anything with a length and `[]`: `ShardListDataset`s, views of them, other concatenations.

    Raises:
        TypeError: One of the datasets has no length.

    Examples:
        >>> both = concat(["abc", "de"])
        >>> len(both), both[3], both[-1], both.component_lengths
        (5, 'd', 'e', [3, 2])
    """
    return ConcatDataset(datasets)


class ConcatDataset(Closing, _Base):  # type: ignore[type-arg]
    """Several datasets as one; what `concat` returns.

    A sample is the same as in its own dataset: its `__index__`, for example, is the index there. Methods that transform
    samples, as `decode` and `map` do, call the method of the same name of each dataset.

    Args:
        datasets: The datasets, as `concat` takes them.
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
        """Return the samples of a batch, in the order of `indices`.

        Those of one dataset are read together, if it has `__getitems__`.
        """
        wanted: dict[int, list[tuple[int, int]]] = {}
        for slot, index in enumerate(indices):
            component, place = self.find(index)
            wanted.setdefault(component, []).append((slot, place))
        samples: list[Any] = [None] * len(indices)
        for component, places in wanted.items():
            dataset = self.datasets[component]
            asked = [place for _, place in places]
            together = (
                dataset.__getitems__(asked) if hasattr(dataset, "__getitems__") else map(dataset.__getitem__, asked)
            )
            for (slot, _), sample in zip(places, together, strict=True):
                samples[slot] = sample
        return samples

    def __iter__(self) -> Iterator[Any]:
        """Yield every sample in order."""
        for dataset in self.datasets:
            yield from dataset

    def find(self, index: Any) -> tuple[int, Any]:
        """Return the number of the dataset that holds a sample, and the sample's index in it.

        An index that carries a seed, as samplers with `sample_seeds=True` give them, keeps its seed.

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

    def read(self, index: int, fields: Iterable[str] | str | None = None) -> dict[str, bytes]:
        """Return `{field: bytes}` of one sample, as `read` of its dataset does."""
        component, place = self.find(index)
        return self.datasets[component].read(place, fields)  # type: ignore[no-any-return]

    def view(self, index: int, fields: Iterable[str] | str | None = None) -> dict[str, memoryview]:
        """Return `{field: memoryview}` of one sample, as `view` of its dataset does."""
        component, place = self.find(index)
        return self.datasets[component].view(place, fields)  # type: ignore[no-any-return]

    def open(self, index: int, field: str) -> BufferedReader:
        """Return a seekable binary file over one member, as `open` of its dataset does."""
        component, place = self.find(index)
        return self.datasets[component].open(place, field)  # type: ignore[no-any-return]

    def locate(self, index: int) -> dict[str, MemberLocation]:
        """Return `{field: MemberLocation(url, offset, size)}` of one sample, as `locate` of its dataset does."""
        component, place = self.find(index)
        return self.datasets[component].locate(place)  # type: ignore[no-any-return]

    def key(self, index: int) -> str:
        """Return the key of one sample, as `key` of its dataset does."""
        component, place = self.find(index)
        return self.datasets[component].key(place)  # type: ignore[no-any-return]

    def decode(self, spec: Any = "PIL", **options: Any) -> Self:
        """Call `decode` of each dataset, and return the concatenation of the results.

        Args:
            spec: As for `ShardListDataset.decode`.
            options: The keyword arguments of `ShardListDataset.decode`.

        Raises:
            TypeError: One of the datasets has no such method; a list has none.
        """
        return type(self)(self._ask_each("decode", spec, **options))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return a concatenation that applies `function` to each sample.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return type(self)(self._ask_each("map", function))

    def to_tuple(self, *fields: str, missing: Any = REQUIRED) -> Self:
        """Return a concatenation whose samples are tuples of these fields.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return type(self)(self._ask_each("to_tuple", *fields, missing=missing))

    def select_fields(self, fields: Iterable[str] | str, missing: Any = REQUIRED) -> Self:
        """Return a concatenation whose samples have only these fields.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return type(self)(self._ask_each("select_fields", list_names(fields), missing=missing))

    def rename(self, **names: str) -> Self:
        """Return a concatenation whose fields are renamed.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return type(self)(self._ask_each("rename", **names))

    def sizes(self, field: str) -> NDArray[np.int64]:
        """Return the size in bytes of a field in each sample, from the indexes alone.

        Returns:
            `(len,)` int64, -1 where a sample has no such field.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return np.concatenate([np.empty(0, np.int64), *self._ask_each("sizes", field)])

    def has(self, *fields: str) -> NDArray[np.bool_]:
        """Return which samples have all of these fields, from the indexes alone.

        Returns:
            `(len,)` bool.

        Raises:
            TypeError: One of the datasets has no such method.
        """
        return np.concatenate([np.empty(0, np.bool_), *self._ask_each("has", *fields)])

    def _ask_each(self, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Call a method of each dataset, and return the results."""
        for place, dataset in enumerate(self.datasets):
            if not hasattr(dataset, method):
                raise TypeError(
                    f"datasets[{place}] is a {type(dataset).__name__}, which has no {method}(); call it on the others before concat()"
                )
        return [getattr(dataset, method)(*arguments, **options) for dataset in self.datasets]

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The shards of all datasets, each with the name of its dataset; a dataset without shards counts as one shard."""
        return [shard for dataset in self.datasets for shard in _shards(dataset)[0]]

    @property
    def lengths(self) -> list[int]:
        """Number of samples in each of `shards`."""
        return [length for dataset in self.datasets for length in _shards(dataset)[1]]

    @property
    def total_length(self) -> int:
        """Number of samples."""
        return len(self)

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Call `prefetch` of each dataset that has it with the shards of its own that are needed next.

        Args:
            upcoming: Positions in `shards`, the next one first.
        """
        first = 0
        for dataset in self.datasets:
            stop = first + len(_shards(dataset)[1])
            mine = [shard - first for shard in upcoming if first <= shard < stop]
            if mine and hasattr(dataset, "prefetch"):
                dataset.prefetch(mine)
            first = stop

    def close(self) -> None:
        """Close each dataset that has a `close` method."""
        for dataset in self.datasets:
            if hasattr(dataset, "close"):
                dataset.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {counted(len(self), 'sample')} in {counted(len(self.datasets), 'dataset')}>"


def _shards(dataset: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the shards of a dataset and their lengths; one shard with all samples if it has none of its own."""
    shards, lengths = getattr(dataset, "shards", None), getattr(dataset, "lengths", None)
    if shards is None or lengths is None or len(shards) != len(lengths):
        return [{"url": ""}], [len(dataset)]
    return shards, lengths
