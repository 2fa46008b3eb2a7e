"""Columns hold the values of the lists they were made from, whichever rows are taken, in memory and in a file."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.columns import KeptColumn, NumberColumn, StoredColumn, TextColumn, match_hashes, write_column
from wids.columns.arrow import from_arrow, to_arrow
from wids.errors import DescriptorError, FetchError
from wids.storage import Storage, StorageOptions

TEXTS = st.lists(st.none() | st.text(max_size=5), max_size=20)
NUMBERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20)
FLAGS = st.lists(st.none() | st.booleans(), max_size=20)
FLOATS = st.lists(st.none() | st.floats(allow_nan=False), max_size=20)
LISTS = TEXTS | NUMBERS | FLAGS | FLOATS


def make(values: list[Any], *, kind: str = "") -> NumberColumn | TextColumn:
    return from_arrow(pa.array(values, kind or None), "x")


def listed(column: NumberColumn | TextColumn) -> list[Any]:
    return without_nan([column.value(row) for row in range(len(column))])


def without_nan(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def rows_of(values: list[Any]) -> st.SearchStrategy[Any]:
    row = st.integers(0, max(0, len(values) - 1))
    slices = st.slices(len(values)).map(lambda part: range(len(values))[part])
    return slices | st.lists(row, max_size=10 if values else 0).map(lambda rows: np.array(rows, np.int64))


@settings(max_examples=50)
@given(LISTS)
def test_a_column_from_arrow_has_its_values_and_converts_back(values: list[Any]) -> None:
    column = make(values)

    assert listed(column) == values
    assert len(column.missing_rows()) == values.count(None)
    assert without_nan(to_arrow(column).to_pylist()) == values


@settings(max_examples=50)
@given(TEXTS, st.data())
def test_a_slice_of_an_arrow_array_becomes_a_column_of_that_slice(values: list[Any], data: st.DataObject) -> None:
    part = data.draw(st.slices(len(values)).filter(lambda part: part.step in {None, 1}))
    start, stop, _ = part.indices(len(values))
    array = pa.array(values, pa.string()).slice(start, max(0, stop - start))

    assert listed(from_arrow(array, "x")) == values[start:stop]


@settings(max_examples=50)
@given(LISTS, st.data())
def test_take_equals_indexing_a_list(values: list[Any], data: st.DataObject) -> None:
    rows = data.draw(rows_of(values))

    assert listed(make(values).take(rows)) == [values[row] for row in rows]


@pytest.mark.parametrize("values", [["a", None, "b"], [1, None, 3]])
def test_a_range_step_may_exceed_64_bits(values: list[Any]) -> None:
    assert listed(make(values).take(range(3)[:: 1 << 63])) == values[:1]
    assert listed(make(values).take(range(3)[:: -(1 << 70)])) == values[-1:]
    assert listed(make(values).take(range(3)[3 :: 1 << 63])) == []


@settings(max_examples=50)
@given(LISTS, st.data())
def test_scatter_puts_each_row_at_its_place(values: list[Any], data: st.DataObject) -> None:
    places = data.draw(st.permutations(range(len(values) + 3))).copy()[: len(values)]
    expected: list[Any] = [None] * (len(values) + 3)
    for place, value in zip(places, values, strict=True):
        expected[place] = value

    column = make(values, kind="" if set(values) - {None} else "string")

    assert listed(column.scatter(np.array(places, np.int64), len(expected))) == expected


@settings(max_examples=50)
@given(TEXTS)
def test_a_text_column_is_a_sequence_and_converts_to_an_array(values: list[Any]) -> None:
    column = TextColumn.from_texts(values)

    assert list(column) == values
    assert column == values
    assert np.asarray(column).tolist() == values
    assert list(column[::-2]) == values[::-2]
    assert list(column.filled("…")) == ["…" if value is None else value for value in values]


@pytest.mark.parametrize(
    ("values", "kind", "fill"),
    [([1, None], "int8", 300), ([1, None], "int8", 0.5), ([1, None], "int64", "a"), (["a", None], "string", 1)],
)
def test_filling_with_a_value_that_the_type_cannot_hold_is_an_error(values: list[Any], kind: str, fill: Any) -> None:
    with pytest.raises(ValueError, match="cannot hold it"):
        make(values, kind=kind).filled(fill)


def test_a_column_of_lists_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"column 'x' is list<.*>; only numbers, booleans and text can be columns"):
        make([[1], [2]])


@settings(max_examples=25)
@given(LISTS)
def test_a_column_file_keeps_all_values(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    path = tmp_path_factory.mktemp("columns") / "x.arrow"
    write_column(path, "x", make(values), "abc")
    stored = StoredColumn("x", str(path), Storage(), "abc", len(values))

    assert listed(stored.column) == values
    assert listed(pickle.loads(pickle.dumps(stored)).column) == values
    assert without_nan(pa.ipc.open_file(path).read_all()["x"].to_pylist()) == values


def test_numbers_in_a_file_are_mapped_and_not_copied(tmp_path: Path) -> None:
    values = np.arange(100_000, dtype=np.int32)
    write_column(tmp_path / "x.arrow", "x", NumberColumn(values), "abc")

    column = StoredColumn("x", str(tmp_path / "x.arrow"), Storage(), "abc", len(values)).column

    assert isinstance(column, NumberColumn)
    assert column.data.dtype == np.int32
    assert not column.data.flags.owndata
    assert not column.data.flags.writeable
    address = column.data.__array_interface__["data"][0]
    maps = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    ranges = [[int(end, 16) for end in fields[0].split("-")] for fields in maps if fields[-1].endswith("x.arrow")]
    assert any(first <= address < stop for first, stop in ranges)


@pytest.mark.parametrize(
    ("fingerprint", "count", "what"),
    [
        ("abd", 3, "was made for other data: 3 samples with fingerprint abc, expected 3 with abd"),
        ("abc", 4, "expected 4"),
    ],
)
def test_a_column_of_other_data_is_refused(tmp_path: Path, fingerprint: str, count: int, what: str) -> None:
    write_column(tmp_path / "x.arrow", "x", make([1, 2, 3]), "abc")

    with pytest.raises(DescriptorError, match=what):
        _ = StoredColumn("x", str(tmp_path / "x.arrow"), Storage(), fingerprint, count).column


def test_a_column_file_truncated_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write_column(path, "x", make(["a", None, "bc"]), "abc")
    data = path.read_bytes()

    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(DescriptorError, match="widsindex columns"):
            _ = StoredColumn("x", str(path), Storage(), "abc", 3).column


def test_kept_columns_are_pickled_by_path_and_stored_once(tmp_path: Path) -> None:
    storage = Storage(StorageOptions(cache_dir=str(tmp_path / "cache")))
    values = np.arange(1_000_000)

    kept = KeptColumn(NumberColumn(values), storage)
    sent = pickle.dumps(kept)
    again = KeptColumn(NumberColumn(values), storage)

    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent).column.data, values)
    assert np.array_equal(again.column.arrays()["data"], values)
    assert len(list((tmp_path / "cache" / ".wids" / "columns").iterdir())) == 1


def test_old_files_of_kept_columns_are_not_removed_when_they_are_used_again(tmp_path: Path) -> None:
    storage = Storage(StorageOptions(cache_dir=str(tmp_path / "cache")))
    numbers = np.arange(100_000)
    KeptColumn(NumberColumn(numbers), storage)
    (path,) = (tmp_path / "cache" / ".wids" / "columns").iterdir()
    os.utime(path, (0, 0))

    again = KeptColumn(NumberColumn(numbers), storage)
    KeptColumn(NumberColumn(numbers + 1), storage)

    assert np.array_equal(again.column.arrays()["data"], numbers)


def test_a_kept_column_whose_file_was_removed_is_an_error(tmp_path: Path) -> None:
    kept = KeptColumn(NumberColumn(np.arange(100_000)), Storage(StorageOptions(cache_dir=str(tmp_path / "cache"))))
    for path in (tmp_path / "cache" / ".wids" / "columns").iterdir():
        path.unlink()

    with pytest.raises(FetchError, match="open the dataset again"):
        _ = pickle.loads(pickle.dumps(kept)).column


def test_columns_are_pickled_whole_when_the_cache_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = KeptColumn(
        NumberColumn(np.arange(100_000)), Storage(StorageOptions(cache_dir=str(tmp_path / "file" / "cache")))
    )

    assert len(pickle.dumps(kept)) > 100_000
    assert np.array_equal(pickle.loads(pickle.dumps(kept)).column.data, np.arange(100_000))


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 9), max_size=20), st.lists(st.integers(0, 9), max_size=20), st.sampled_from([1, 2, 1 << 20])
)
def test_hashes_are_matched_as_a_dictionary_matches_them(wanted: list[int], offered: list[int], part: int) -> None:
    mix = 0x9E3779B97F4A7C15  # spreads values over the leading bits, as a hash does
    hashes = [np.array([value * mix % 2**64 for value in values], np.uint64) for values in (wanted, offered)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wids.columns.match._PART_ROWS", part)
        found = match_hashes(*hashes)

    assert [None if row < 0 else offered[row] for row in found.rows.tolist()] == [
        value if value in offered else None for value in wanted
    ]
    assert found.ambiguous.tolist() == [row for row, value in enumerate(wanted) if offered.count(value) > 1]
    assert found.unused.tolist() == sorted(set(range(len(offered))) - set(found.rows.tolist()))
