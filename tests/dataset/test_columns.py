"""Columns line up with the samples, whatever they are made from and whichever rows a view has."""

from __future__ import annotations

import json
import pickle
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from tests.support import write_tar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEYS = [f"{number:05d}" for number in range(12)]
FACTS = {
    key: {"width": number * 100, "score": number / 8, "word": f"é{number}", "safe": number % 3 > 0}
    for number, key in enumerate(KEYS)
}


def write_dataset(folder: Path, counts: Sequence[int] = (5, 0, 7), **options: Any) -> wids.ShardListDataset:
    shards = []
    keys = iter(KEYS)
    for shard, count in enumerate(counts):
        members = [(f"{key}.json", json.dumps(FACTS[key]).encode()) for key in islice(keys, count)]
        shards.append((str(write_tar(folder / f"{shard:03d}.tar", members)), count))
    return wids.ShardListDataset(shards, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> wids.ShardListDataset:
    folder = tmp_path_factory.mktemp("samples")
    return write_dataset(folder, cache_dir=str(folder / "cache"))


def rows_of(keys: Sequence[str]) -> list[dict[str, Any]]:
    return [{"key": key, **FACTS[key]} for key in keys]


def write_source(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Any:
    table = pa.Table.from_pylist(rows)
    if kind == "table":
        return table
    if kind == "arrays":
        return {name: table.column(name).to_numpy() for name in table.column_names}
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=5)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pyarrow.feather.write_feather(table, path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "arrow", "arrays", "table"])
def test_columns_from_every_kind_of_source_line_up_with_the_samples(
    tmp_path: Path, whole: wids.ShardListDataset, kind: str
) -> None:
    shuffled = np.random.default_rng(0).permutation(len(KEYS))

    dataset = whole.add_columns(write_source(tmp_path, kind, rows_of([KEYS[row] for row in shuffled])))

    assert dataset.columns == ("width", "score", "word", "safe")
    for index in range(len(dataset)):
        expected = json.loads(dataset.read(index)[".json"])
        assert {name: dataset.column(name)[index] for name in expected} == expected
        assert {name: dataset[index][name] for name in expected} == expected
    assert [dataset.column(name).dtype for name in ("width", "score", "safe")] == [np.int64, np.float64, np.bool_]  # type: ignore[union-attr]


@settings(max_examples=30)
@given(data=st.data())
def test_columns_follow_views_of_views(whole: wids.ShardListDataset, data: st.DataObject) -> None:
    view = whole
    table = {"key": KEYS, "word": [FACTS[key]["word"] for key in KEYS], "width": [FACTS[key]["width"] for key in KEYS]}
    when = data.draw(st.integers(0, 3))
    for step in range(4):
        if step == when:
            view = view.add_columns(table)
        row = st.integers(0, len(view) - 1)
        if data.draw(st.booleans()):
            part = view[data.draw(st.slices(len(view)))]
            view = part if len(part) else view
        else:
            view = view.select(data.draw(st.lists(row, min_size=1, unique=step < when)))

    expected = [json.loads(view.read(index)[".json"]) for index in range(len(view))]
    for copy in (view, pickle.loads(pickle.dumps(view))):
        assert list(copy.column("word")) == [facts["word"] for facts in expected]
        assert list(copy.column("width")) == [facts["width"] for facts in expected]
        assert [sample["word"] for sample in copy] == [facts["word"] for facts in expected]
        assert copy.matches("word != 'é3' and width < 900").tolist() == [
            facts["word"] != "é3" and facts["width"] < 900 for facts in expected
        ]


def test_secrets_of_a_shard_whose_file_has_too_few_rows_are_not_shown(tmp_path: Path) -> None:
    url = "https://me:password@host/000.tar?X-Amz-Signature=secret"
    dataset = wids.ShardListDataset([(url, 3)])
    (tmp_path / "000.jsonl").write_text('{"n": 1}\n')

    with pytest.raises(ValueError, match="has 3 samples and 1 row") as caught:
        dataset.add_columns(str(tmp_path / "{shard}.jsonl"), on="index")

    assert "https://***@host/000.tar?X-Amz-Signature=*** has" in str(caught.value)


def test_rows_of_a_file_per_shard_are_matched_within_that_shard(tmp_path: Path, whole: wids.ShardListDataset) -> None:
    for shard, keys in (("000", KEYS[:5]), ("001", []), ("002", KEYS[5:])):
        # Keys are matched within their own shard only; "zz" is in none.
        pa.parquet.write_table(
            pa.table(
                {"id": [*reversed(keys), "zz"], "n": [*range(len(keys)), -1]},
                pa.schema({"id": pa.string(), "n": pa.int32()}),
            ),
            tmp_path / f"{shard}.parquet",
        )
    source = str(tmp_path / "{shard}.parquet")

    dataset = whole.add_columns(source, key_column="id", extra="ignore")

    assert dataset.column("n").tolist() == [4, 3, 2, 1, 0, 6, 5, 4, 3, 2, 1, 0]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="3 rows have keys that no sample has: 'zz', 'zz', 'zz'; leave them out"):
        whole.add_columns(source, key_column="id")
    with pytest.raises(
        ValueError, match=r"3 files do not have one row for each sample: .*000\.tar has 5 samples and 6 rows"
    ):
        whole.add_columns(source, on="index")
    (tmp_path / "001.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*001\.parquet"):
        whole.add_columns(source, key_column="id")


def test_columns_are_read_from_folders_and_patterns_under_given_names(
    tmp_path: Path, whole: wids.ShardListDataset
) -> None:
    for part in range(3):
        path = tmp_path / f"part-{part}.jsonl"
        rows = [{"key": key, "meta": {"size": {"w": number}}, "other": 1} for number, key in enumerate(KEYS[part::3])]
        path.write_text("\n".join(map(json.dumps, rows)))
    expected = [number // 3 for number in range(12)]

    for source in (tmp_path, tmp_path / "part-*.jsonl", str(tmp_path / "part-{0..2}.jsonl")):
        dataset = whole.add_columns(source, columns={"w": "meta.size.w"})
        assert dataset.columns == ("w",)
        assert dataset.column("w").tolist() == expected  # type: ignore[union-attr]


def test_missing_values_are_errors_unless_a_value_is_given(whole: wids.ShardListDataset) -> None:
    table = {"key": KEYS[:10], "n": range(10), "x": np.arange(10) / 2, "word": ["a", None] * 5}

    with pytest.raises(ValueError, match=r"2 of 12 samples have no row: '00010', '00011'; give missing= a value"):
        whole.add_columns(table)
    none = whole.add_columns(table, missing=None)
    filled = whole.add_columns(table, missing={"n": -1, "word": "…"})

    with pytest.raises(
        ValueError, match=r"column 'n': 2 of 12 samples have no value, the first is index 10; give missing="
    ):
        none.column("n")
    assert none[:10].column("n").tolist() == list(range(10))  # type: ignore[union-attr]
    assert none.column("n", missing=-7).tolist()[-3:] == [9, -7, -7]  # type: ignore[union-attr]
    assert np.isnan(none.column("x")[-2:]).all()
    assert list(none.column("word"))[-3:] == [None, None, None]
    assert (none[11]["n"], none[11]["word"]) == (None, None)
    assert np.flatnonzero(none.matches("n is None")).tolist() == [10, 11]
    assert len(none.select(where="n >= 0")) == 10
    assert filled.column("n").tolist()[-2:] == [-1, -1]  # type: ignore[union-attr]
    assert list(filled.column("word")) == ["a", "…"] * 5 + ["…", "…"]


@pytest.mark.parametrize(
    ("table", "options", "what"),
    [
        ({"key": [*KEYS, "00000x", "y"], "n": range(14)}, {}, "2 rows have keys that no sample has: '00000x', 'y'"),
        (
            {"key": [*KEYS, "00003"], "n": range(13)},
            {},
            "1 sample has a key that is in the table more than once: '00003'",
        ),
        ({"key": KEYS, "n": range(11)}, {}, "different lengths: 'n' has 11, 'key' has 12"),
        ({"n": range(11)}, {"on": "index"}, "has 11 rows, expected 12, one for each sample"),
        ({"n": range(12)}, {}, "there is no column 'key'; there are n"),
        ({"key": range(12), "n": range(12)}, {}, "the column 'key' holds int64; keys are text"),
        (
            {"key": [*KEYS[:11], None], "n": range(12)},
            {},
            "1 row has no key in the column 'key', the first is row 11",
        ),
        (
            {"key": KEYS, "wdith": range(12)},
            {"columns": ["width"]},
            "there is no column 'width'; did you mean 'wdith'?",
        ),
        ({"key": KEYS, "n": [[1]] * 12}, {}, "column 'n' has the shape (12, 1); it must be one value for each row"),
        ({"key": KEYS, "n": [b"a"] * 12}, {}, "column 'n' holds |S1; only numbers, booleans and text"),
        ({"key": KEYS, ".n": range(12)}, {}, "column '.n' has the name of a field"),
        ({"key": KEYS, "n": range(12)}, {"on": "keys"}, "on is 'keys'; it must be 'key' or 'index'"),
    ],
)
def test_bad_tables_are_errors_that_name_what_is_wrong(
    whole: wids.ShardListDataset, table: Any, options: Any, what: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        whole.add_columns(table, **options)


def test_bad_files_are_errors_that_name_them(tmp_path: Path, whole: wids.ShardListDataset) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing of the kind")
    (tmp_path / "mixed.jsonl").write_text('{"key": "00000", "a": 1}\n{"key": "00001", "a": "x"}\n')
    (tmp_path / "x.xml").touch()

    with pytest.raises(ValueError, match=r"bad\.parquet: cannot be read"):
        whole.add_columns(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"mixed\.jsonl: cannot be read as a table: .*changed from number to string"):
        whole.add_columns(tmp_path / "mixed.jsonl")
    with pytest.raises(ValueError, match=r"x\.xml: has an unknown extension"):
        whole.add_columns(tmp_path / "x.xml")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone\.parquet"):
        whole.add_columns(tmp_path / "gone.parquet")
    with pytest.raises(TypeError, match="source is of type int"):
        whole.add_columns(7)


def test_a_view_takes_its_own_rows_from_a_table_of_the_whole_dataset(whole: wids.ShardListDataset) -> None:
    view = whole.select([7, 2, 9]).add_columns({"key": KEYS, "n": range(12)})

    assert view.column("n").tolist() == [7, 2, 9]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="'x'"):
        whole.select([7]).add_columns({"key": [*KEYS, "x"], "n": range(13)})
    with pytest.raises(ValueError, match=r"this view has a sample more than once; add the columns before select\(\)"):
        whole.select([7, 7]).add_columns({"n": [1, 2]}, on="index")


def test_samples_with_columns_can_be_narrowed_and_renamed(whole: wids.ShardListDataset) -> None:
    dataset = whole.add_columns({"width": range(12), "word": ["a"] * 12}, on="index")

    assert dataset.to_tuple("width", "json")[3] == (3, FACTS[KEYS[3]])
    assert dataset.select_fields(["width"])[3] == {
        "width": 3,
        **{name: value for name, value in whole[3].items() if name.startswith("__")},
    }
    assert "w" in dataset.rename(w="width")[3]
    assert dataset.select_fields(["width"])._filter is not None
    with pytest.raises(KeyError, match="there is no such column; did you mean 'width'"):
        dataset.column("witdh")
    with pytest.raises(ValueError, match="column 'width' already exists"):
        dataset.add_columns({"width": range(12)}, on="index")
    with pytest.raises(TypeError, match="but a step before it made a tuple"):
        _ = whole.to_tuple("json").add_columns({"n": range(12)}, on="index")[0]


def test_added_columns_are_pickled_by_path_and_found_by_the_copy(tmp_path: Path) -> None:
    count = 20_000
    shard = write_tar(tmp_path / "many.tar", [(f"{number:06d}.cls", b"1") for number in range(count)])
    dataset = wids.ShardListDataset([(str(shard), count)], transformations=[]).add_columns(
        {"n": np.arange(count), "word": [f"w{number}" for number in range(count)]}, on="index"
    )

    sent = pickle.dumps(dataset)

    assert len(sent) < 10_000
    copy = pickle.loads(sent)
    assert copy[19_999]["word"] == "w19999"
    assert np.array_equal(copy.column("n"), np.arange(count))
