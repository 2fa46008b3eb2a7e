"""Attach columns to a dataset: match the rows of a table with samples, and add the values to the samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.columns import group_marks, hash_texts, match_hashes
from wids.dataset.join import check_sample, list_keys
from wids.dataset.rows import to_array
from wids.errors import redact
from wids.words import counted, counted_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.columns import Column, KeptColumn, Table


class AddColumns:
    """A step that adds a sample's values of some columns to the sample.

    Args:
        columns: The columns by name, each over the whole dataset.
    """

    def __init__(self, columns: Mapping[str, KeptColumn]) -> None:
        self._columns = columns

    def __call__(self, sample: Any) -> Any:
        """Add the values to the sample, and return it.

        Raises:
            TypeError: An earlier step has turned the sample into something else.
        """
        index = check_sample(sample, "add_columns()")["__index__"]
        for name, kept in self._columns.items():
            sample[name] = kept.column.value(index)
        return sample


def match_table(dataset: Any, table: Table, *, must_have: bool, may_have_more: bool) -> NDArray[np.integer]:
    """Find the row of a table for each sample.

    Args:
        dataset: A dataset or a view.
        table: The table.
        must_have: Whether a sample without a row is an error.
        may_have_more: Whether rows without a sample are allowed.

    Returns:
        `(len(dataset),)` integers, the row of each sample, -1 where there is none.

    Raises:
        ValueError: There are too few or too many rows, or several for one key; the message names up to five keys.
    """
    if table.keys is None:
        return _match_numbers(dataset, table)
    # Where there is a file for each shard, the keys in a file are matched with those of its shard only.
    marks = None if table.lengths is None else group_marks(len(table.lengths))
    wanted, offered = dataset._key_hashes(marks=marks), hash_texts(table.keys)
    if marks is not None and table.lengths is not None:
        offered ^= np.repeat(marks, table.lengths)
    found = match_hashes(wanted, offered)
    if len(found.ambiguous):
        count = len(found.ambiguous)
        raise ValueError(
            f"{table.name}: {counted(count, 'sample has a key that is', 'samples have keys that are')} in the table more than once: "
            f"{list_keys(dataset, found.ambiguous, count)}; leave one row for each key"
        )
    gone = np.flatnonzero(found.rows < 0)
    if must_have and len(gone):
        raise ValueError(
            f"{table.name}: {counted_of(len(gone), len(dataset), 'sample', 'has', 'have')} no row: {list_keys(dataset, gone, len(gone))}; give "
            "missing= a value for them, or None to leave them without"
        )
    if not may_have_more:
        _check_unused(dataset, table, found.unused, offered, marks)
    return found.rows


def _check_unused(
    dataset: Any, table: Table, unused: NDArray[np.int64], offered: NDArray[np.uint64], marks: NDArray[np.uint64] | None
) -> None:
    """Check that each row left over belongs to a sample of the whole dataset that a view leaves out."""
    if len(unused) and dataset._rows is not None:
        hashes = dataset._derive(_rows=None)._key_hashes(marks=marks)
        unused = unused[match_hashes(offered[unused], hashes).rows < 0]
    if len(unused):
        assert table.keys is not None, "the rows were matched by key"
        shown = ", ".join(repr(table.keys[row]) for row in unused[:5].tolist())
        raise ValueError(
            f"{table.name}: {counted(len(unused), 'row has a key', 'rows have keys')} that no sample has: "
            f"{shown}{', …' if len(unused) > 5 else ''}; "
            "leave them out with extra='ignore'"
        )


def _match_numbers(dataset: Any, table: Table) -> NDArray[np.int64]:
    if table.lengths is None:
        if len(table) != len(dataset):
            raise ValueError(
                f"{table.name}: has {counted(len(table), 'row')}, expected {len(dataset)}, one for each sample"
            )
        return np.arange(len(dataset))
    lengths = dataset._offsets.lengths
    wrong = [shard for shard, (has, needs) in enumerate(zip(table.lengths, lengths, strict=True)) if has != needs]
    if wrong:
        shown = ", ".join(
            f"{redact(str(dataset._cache.shards[shard]['url']))} has {counted(lengths[shard], 'sample')} and "
            f"{counted(table.lengths[shard], 'row')}"
            for shard in wrong[:5]
        )
        raise ValueError(
            f"{table.name}: {counted(len(wrong), 'file does', 'files do')} not have one row for each sample: "
            f"{shown}; match them on='key'"
        )
    return np.arange(len(dataset)) if dataset._rows is None else to_array(dataset._rows)


def attach(dataset: Any, table: Table, rows: NDArray[np.integer], missing: Any) -> dict[str, Column]:
    """Return the columns of a table, laid out over the whole dataset that a view selects from.

    Args:
        dataset: A dataset or a view.
        table: The table.
        rows: The row of each sample, as `match_table` returned them.
        missing: Replaces missing values: one value for all columns, or `{column: value}`; None leaves them missing.

    Raises:
        ValueError: A view contains a sample several times, or a column cannot hold the value given for `missing`.
    """
    indices = np.arange(len(dataset)) if dataset._rows is None else to_array(dataset._rows)
    if dataset._rows is not None and len(np.unique(indices)) != len(indices):
        raise ValueError("this view has a sample more than once; add the columns before select()")
    there = rows >= 0
    is_whole = dataset._rows is None and bool(there.all())
    filled = {}
    for name, column in table.columns.items():
        if is_whole:
            over_all = column.take(rows)
        else:
            over_all = column.take(rows[there]).scatter(indices[there], len(dataset._offsets))
        fill = missing.get(name) if isinstance(missing, Mapping) else missing
        filled[name] = over_all if fill is None else over_all.filled(fill)
    return filled
