"""Samples to batches: stacked where they are alike, lists where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def collate(samples: Sequence[Any]) -> Any:
    """Return a batch of samples, for `DataLoader(collate_fn=wids.collate)`.

    Numbers, and arrays or tensors that agree in shape and dtype, are stacked as torch's default collate does; texts,
    images, dictionaries and ragged fields become lists.

    Args:
        samples: Dictionaries (a batch is a dictionary of columns), tuples (a tuple of columns), or values (one column).

    Raises:
        ValueError: A field is missing in some samples, or tuples differ in length; names field and sample.
    """
    first = samples[0]
    if isinstance(first, dict):
        return {name: _collate_column(_column(samples, name)) for name in _names(samples)}
    if isinstance(first, tuple):
        _check_lengths(samples)
        return tuple(_collate_column(list(column)) for column in zip(*samples, strict=True))
    return _collate_column(list(samples))


def stack_columns(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return one column per place of these tuples, stacked where webdataset's `batched` stacks.

    Numbers become arrays, arrays and tensors of one shape are stacked, all else is a list.

    Examples:
        >>> stack_columns([(1, "a"), (2, "b")])
        (array([1, 2]), ['a', 'b'])
    """
    _check_lengths(rows)
    return tuple(_stack(list(column)) for column in zip(*rows, strict=True))


def _names(samples: Sequence[dict[str, Any]]) -> list[str]:
    names = list(samples[0])
    for sample in samples:
        if sample.keys() == samples[0].keys():
            continue
        odd = sorted(sample.keys() ^ samples[0].keys())
        without = sample if dict.get(sample, odd[0], None) is None else samples[0]
        raise ValueError(
            f"field {odd[0]!r} is missing in the sample with index {without.get('__index__')}, key "
            f"{without.get('__key__')!r}, but not in others of its batch; choose fields that all samples have with "
            "select_fields(), with missing= for the rest"
        )
    return names


def _column(samples: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [sample[name] for sample in samples]


def _check_lengths(rows: Sequence[tuple[Any, ...]]) -> None:
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"sample {place} of the batch has {len(row)} values, the first has {len(rows[0])}; make them alike"
            )


def _collate_column(values: list[Any]) -> Any:
    import torch
    from torch.utils.data import default_collate

    first = values[0]
    if isinstance(first, (bool, int, float)) and all(type(value) is type(first) for value in values):
        return default_collate(values)
    if isinstance(first, (np.ndarray, torch.Tensor)) and _are_alike(values) and not _is_odd(first):
        return default_collate(values)
    return values


def _is_odd(value: Any) -> bool:
    """Tell whether an array's elements have no counterpart in torch."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "biufc"


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
        import torch

        return torch.stack(values)
    return values
