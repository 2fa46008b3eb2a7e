"""Collate samples into batches: values that are alike are stacked, all others become lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.decode.packages import require
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAME_IN_TORCH = frozenset(map(np.dtype, ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")))
"""The dtypes, in native byte order, that all releases of torch support."""

_INT64 = range(-(2**63), 2**63)


def collate(samples: Sequence[Any]) -> Any:
    """Collate samples into a batch, for `DataLoader(collate_fn=wids.collate)`.

    Where samples are alike, the batch is that of torch's default collate: numbers become one tensor, arrays and tensors of
    the same shape and dtype are stacked, dictionaries with the same keys and tuples of the same length are collated value by
    value, and texts become a list. Everything else becomes a list, too: images, arrays of different shapes, None, and values
    of different types. Integers among floats become floats. A list inside a sample, of boxes say, stays a list; torch would
    transpose a batch of lists whenever their lengths happen to be equal.

    Args:
        samples: At least one sample. Dictionaries make a dictionary of columns, tuples or lists one of columns of the same
            type, and other values a single column.

    Raises:
        ValueError: A field is missing in some samples, samples differ in length or type, or there are no samples; the
            message names the field and the sample.

    Examples:
        >>> collate([{".cls": 3, ".txt": "a"}, {".cls": 4, ".txt": "b"}])
        {'.cls': tensor([3, 4]), '.txt': ['a', 'b']}
    """
    if not len(samples):
        raise ValueError("a batch of no samples cannot be collated; leave empty batches out")
    first = samples[0]
    if isinstance(first, Mapping):
        _check_kinds(samples, Mapping)
        _check_fields(samples)
        return _like_dictionary(first, {name: _collate_column([sample[name] for sample in samples]) for name in first})
    if isinstance(first, (tuple, list)):
        _check_kinds(samples, type(first))
        _check_lengths(samples)
        columns = [_collate_column(list(column)) for column in zip(*samples, strict=True)]
        return _like(first, columns)
    return _collate_column(list(samples))


def stack_columns(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return one column for each place in these tuples, stacked where webdataset's `batched` stacks.

    Numbers become arrays, arrays and tensors of the same shape and dtype are stacked, and everything else becomes a list.

    Raises:
        ValueError: The tuples differ in length.

    Examples:
        >>> stack_columns([(1, "a"), (2, "b")])
        (array([1, 2]), ['a', 'b'])
    """
    _check_lengths(rows)
    return tuple(_stack(list(column)) for column in zip(*rows, strict=True))


def _check_kinds(samples: Sequence[Any], kind: type) -> None:
    for place, sample in enumerate(samples):
        if not isinstance(sample, kind):
            raise ValueError(  # noqa: TRY004  # the same type for every reason why samples cannot be one batch
                f"sample {place} of the batch is of type {type(sample).__name__}, the first of type {type(samples[0]).__name__}; make "
                "them alike"
            )


def _check_fields(samples: Sequence[Mapping[str, Any]]) -> None:
    first = samples[0]
    for sample in samples:
        odd = sorted(sample.keys() ^ first.keys(), key=str)
        if not odd:
            continue
        without = first if odd[0] in sample.keys() else sample  # noqa: SIM118  # `in` of a Sample accepts other spellings
        raise ValueError(
            f"field {odd[0]!r} is missing in the sample with index {without.get('__index__')}, key "
            f"{without.get('__key__')!r}, but not in others of its batch; choose fields that all samples have with "
            "select_fields(), with missing= for the rest"
        )


def _check_lengths(rows: Sequence[Sequence[Any]]) -> None:
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"sample {place} of the batch has {counted(len(row), 'value')}, the first has {len(rows[0])}; make them alike"
            )


def _like_dictionary(first: Mapping[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns as a dictionary of the samples' type, so that `batch["jpg"]` works as `sample["jpg"]` does."""
    try:
        return type(first)(columns) if isinstance(first, dict) else columns
    except TypeError:  # the type takes other arguments, as defaultdict does
        return columns


def _like(row: Any, columns: list[Any]) -> Any:
    """Return columns as a list, tuple or named tuple, whichever `row` is."""
    if isinstance(row, list):
        return columns
    return type(row)(*columns) if hasattr(row, "_fields") else tuple(columns)


def _collate_column(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        if all(isinstance(value, Mapping) and value.keys() == first.keys() for value in values):
            return {name: _collate_column([value[name] for value in values]) for name in first}
        return values
    if isinstance(first, tuple):
        if all(type(value) is type(first) and len(value) == len(first) for value in values):
            return _like(first, [_collate_column(list(column)) for column in zip(*values, strict=True)])
        return values
    return _collate_leaves(values)


def _collate_leaves(values: list[Any]) -> Any:
    torch = require("torch", "torch")
    if all(type(value) is bool for value in values):
        return torch.tensor(values)
    if all(_is_number(value) for value in values):
        dtype = torch.int64 if all(isinstance(value, int) for value in values) else torch.float64
        return torch.tensor(values, dtype=dtype)
    if all(isinstance(value, (np.ndarray, np.generic)) for value in values) and _are_alike(values):
        return _stack_arrays(values)
    if all(isinstance(value, torch.Tensor) for value in values) and _are_alike(values):
        return require("torch.utils.data", "torch").default_collate(values)
    return values


def _is_number(value: Any) -> bool:
    """Return whether this is a number that a torch tensor can hold exactly; booleans do not count."""
    if isinstance(value, int):
        return type(value) is not bool and value in _INT64
    return isinstance(value, float)


def _stack_arrays(values: list[Any]) -> Any:
    torch = require("torch", "torch")
    if values[0].dtype.kind not in "biufc" or isinstance(values[0], np.ma.MaskedArray):
        return values
    if _are_plain(values):
        # In a DataLoader worker, torch stacks tensors directly in memory that is shared with the main process.
        return require("torch.utils.data", "torch").default_collate([torch.from_numpy(value) for value in values])
    stacked = np.stack(values)
    try:
        return torch.from_numpy(stacked.astype(stacked.dtype.newbyteorder("="), copy=False))
    except TypeError:  # torch has no long doubles, and its older releases lack some unsigned integers
        return values


def _are_plain(values: list[Any]) -> bool:
    """Return whether torch can make tensors that share the memory of these arrays, without a copy or a warning."""
    return values[0].dtype in _SAME_IN_TORCH and all(
        type(value) is np.ndarray and value.flags.writeable and min(value.strides, default=0) >= 0 for value in values
    )


def _are_alike(values: list[Any]) -> bool:
    first = values[0]
    return all(
        type(value) is type(first) and value.shape == first.shape and value.dtype == first.dtype for value in values
    )


def _stack(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (int, float)) and all(isinstance(value, (int, float)) for value in values):
        return np.array(values)
    if isinstance(first, np.ndarray) and _are_alike(values):
        return np.stack(values)
    if type(first).__module__ == "torch" and hasattr(first, "dtype") and _are_alike(values):
        return require("torch", "torch").stack(values)
    return values
