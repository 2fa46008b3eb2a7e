"""What is done to the samples of a dataset: the part of `ShardListDataset` that makes a list of steps of what users ask for."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from wids.dataset.attach import AddColumns
from wids.dataset.batches import Batches
from wids.dataset.join import Join
from wids.dataset.steps import REQUIRED, Rename, SelectFields, ToTuple, alternatives
from wids.decode import Decoder, default_decoder
from wids.fields import FieldFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Self


class Pipeline:
    """Steps from a sample's bytes to what `dataset[i]` returns."""

    transformations: list[Any]
    """Functions of a sample, applied one after the other."""
    _filter: FieldFilter | None
    _allow_pickle: bool

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _derive(self, **changes: Any) -> Self:
        """Return a dataset that shares everything with this one but for these attributes."""

    @abstractmethod
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch."""

    def decode(self, spec: Any = "PIL", *, size: int | tuple[int, int] | None = None, jpeg: str = "pillow") -> Self:
        """Return a dataset that decodes by `spec` (what `transformations` takes), in place of the present decoding.

        The decoding step is replaced wherever it stands; where there is none, the new one comes first. So it is on the
        other side of a join.

        Args:
            spec: What `transformations` takes.
            size: With the name of an image format: pixels that the shorter side of each image becomes, or
                `(height, width)`; see `default_decoder`.
            jpeg: With the name of an image format: what decodes JPEGs, `"pillow"` or `"simplejpeg"`.

        Raises:
            ValueError: `size` or `jpeg` are none, or do not go with `spec`.
        """
        if isinstance(spec, str):
            spec = default_decoder(spec, size=size, jpeg=jpeg, allow_pickle=self._allow_pickle)
        elif size is not None or jpeg != "pillow":
            raise ValueError(f"size and jpeg go with the name of an image format, not with {spec!r}; give both to it")
        new = self._make_steps(spec)
        steps = [step.decoded(spec) if isinstance(step, Join) else step for step in self.transformations]
        place = next((place for place, step in enumerate(steps) if isinstance(step, Decoder)), None)
        if place is None:
            return self._derive(transformations=[*new, *steps])
        return self._derive(transformations=[*steps[:place], *new, *steps[place + 1 :]])

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return a dataset that applies `function` to each sample after what is done already."""
        return self._derive(transformations=[*self.transformations, function])

    def to_tuple(self, *fields: str, missing: Any = REQUIRED) -> Self:
        """Return a dataset of tuples: one value per field, the first that is there of `"jpg;png"`.

        Args:
            fields: In the order of the tuple.
            missing: What stands for a field that is not there; without it that is a `KeyError`.
        """
        return self._narrow(fields, ToTuple(fields, missing))

    def select_fields(self, fields: Iterable[str] | str, missing: Any = REQUIRED) -> Self:
        """Return a dataset whose samples have only these fields."""
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        return self._narrow(names, SelectFields(names, missing))

    def rename(self, **names: str) -> Self:
        """Return a dataset whose fields are renamed: `rename(image="jpg;png")`."""
        for spec in names.values():
            alternatives(spec)
        return self.map(Rename(tuple(names.items())))

    def batched(self, batch_size: int, *, drop_last: bool = False) -> Batches:
        """Return an iterable over batches in order: of tuples, one column per place, stacked where values are alike.

        Raises:
            ValueError: `batch_size` is less than 1.
        """
        return Batches(self, batch_size, drop_last)

    def add_transform(self, transform: Callable[[Any], Any]) -> Self:
        """Append a transformation to this very dataset, as in 0.1.11, and return it."""
        self.transformations.append(transform)
        return self

    def _narrow(self, fields: tuple[str, ...], step: Any) -> Self:
        narrowed = self._restrict([name for spec in fields for name in alternatives(spec)])
        return narrowed._derive(transformations=[*narrowed.transformations, step])

    def _restrict(self, fields: Sequence[str]) -> Self:
        """Return a dataset that reads nothing but these fields, where no step may look at others."""
        # A function of the user's may look at any field; decoders look at each alone, and these steps only add some.
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
