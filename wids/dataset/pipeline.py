"""Transformations: the part of `ShardListDataset` whose methods add steps to the list that each sample goes through."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from wids.dataset.attach import AddColumns
from wids.dataset.batches import Batches
from wids.dataset.join import Join
from wids.dataset.steps import REQUIRED, Rename, SelectFields, ToTuple, alternatives
from wids.decode import Decoder, default_decoder
from wids.fields import FieldFilter, list_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Self


class Pipeline:
    """The steps that turn a sample's bytes into what `dataset[i]` returns."""

    transformations: list[Any]
    """Functions of a sample, applied in order."""
    _filter: FieldFilter | None
    _allow_pickle: bool

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _derive(self, **changes: Any) -> Self:
        """Return a copy of this dataset with some attributes changed; it shares all else."""

    @abstractmethod
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch."""

    def decode(self, spec: Any = "PIL", *, size: int | tuple[int, int] | None = None, jpeg: str = "pillow") -> Self:
        """Return a dataset that decodes by `spec` instead of its present decoder.

        The decoding step is replaced at its place in the list of steps; if there is none, the new one comes first. The same
        is done to the other side of a join.

        Args:
            spec: What the constructor's `transformations` takes.
            size: The size that images are scaled to, if `spec` names an image format: the length of the shorter side in
                pixels, or `(height, width)`; see `default_decoder`.
            jpeg: The library that decodes JPEGs, if `spec` names an image format: `"pillow"` or `"simplejpeg"`.

        Raises:
            ValueError: `size` or `jpeg` is invalid, or cannot be used with `spec`.
        """
        if isinstance(spec, str):
            spec = default_decoder(spec, size=size, jpeg=jpeg, allow_pickle=self._allow_pickle)
        elif size is not None or jpeg != "pillow":
            raise ValueError(
                f"size and jpeg need the name of an image format, not {spec!r}; pass them to default_decoder()"
            )
        new = self._make_steps(spec)
        steps = [step.decoded(spec) if isinstance(step, Join) else step for step in self.transformations]
        place = next((place for place, step in enumerate(steps) if isinstance(step, Decoder)), None)
        if place is None:
            return self._derive(transformations=[*new, *steps])
        return self._derive(transformations=[*steps[:place], *new, *steps[place + 1 :]])

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return a dataset that applies `function` to each sample, after the steps that it has already."""
        return self._derive(transformations=[*self.transformations, function])

    def to_tuple(self, *fields: str, missing: Any = REQUIRED) -> Self:
        """Return a dataset whose samples are tuples of field values.

        Args:
            fields: Fields in the order of the tuple; `"jpg;png"` takes the first that a sample has.
            missing: The value for a field that a sample does not have; by default, that is a `KeyError`.
        """
        return self._narrow(fields, ToTuple(fields, missing))

    def select_fields(self, fields: Iterable[str] | str, missing: Any = REQUIRED) -> Self:
        """Return a dataset whose samples have only these fields.

        Args:
            fields: Fields; `"jpg;png"` takes the first that a sample has.
            missing: The value for a field that a sample does not have; by default, that is a `KeyError`.
        """
        names = tuple(list_names(fields))
        return self._narrow(names, SelectFields(names, missing))

    def rename(self, **names: str) -> Self:
        """Return a dataset whose fields are renamed: `rename(image="jpg;png")`."""
        for spec in names.values():
            alternatives(spec)
        return self.map(Rename(tuple(names.items())))

    def batched(self, batch_size: int, *, drop_last: bool = False) -> Batches:
        """Return an iterable over batches of consecutive samples, which must be tuples.

        A batch is a tuple of columns, one for each place in the samples, stacked where the values are alike.

        Raises:
            ValueError: `batch_size` is less than 1.
        """
        return Batches(self, batch_size, drop_last)

    def add_transform(self, transform: Callable[[Any], Any]) -> Self:
        """Append a transformation to this dataset in place, as in 0.1.11, and return the dataset."""
        self.transformations.append(transform)
        return self

    def _narrow(self, fields: tuple[str, ...], step: Any) -> Self:
        narrowed = self._restrict([name for spec in fields for name in alternatives(spec)])
        return narrowed._derive(transformations=[*narrowed.transformations, step])

    def _restrict(self, fields: Sequence[str]) -> Self:
        """Return a dataset that reads only these fields, unless one of its steps might use others."""
        # A function given by the user may use any field. Decoders look at each field alone; the other two only add fields.
        if not all(isinstance(step, (Decoder, AddColumns, Join)) for step in self.transformations):
            return self
        steps = [step.narrowed(fields) if isinstance(step, Join) else step for step in self.transformations]
        return self._derive(
            transformations=[step for step in steps if step is not None],
            _filter=FieldFilter(fields) & self._filter,
        )

    def _make_steps(self, transformations: Any) -> list[Any]:
        if transformations is None:
            return []
        if isinstance(transformations, str):
            return [default_decoder(transformations, allow_pickle=self._allow_pickle)]
        if callable(transformations):
            return [transformations]
        steps = list(transformations)
        for place, step in enumerate(steps):
            if not callable(step):
                raise TypeError(f"transformations[{place}] is {step!r}; it must be callable")
        return steps
