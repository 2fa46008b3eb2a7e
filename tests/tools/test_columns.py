"""`widsindex columns` extracts values of JSON fields, reads each shard once, and resumes after a kill."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from tests.storage.web_server import hold, web_server
from tests.support import write_descriptor, write_tar
from wids.cli import main
from wids.errors import DescriptorError, WidsError
from wids.tools import create_index
from wids.tools.columns import extract_columns

if TYPE_CHECKING:
    from collections.abc import Sequence


def write(folder: Path, shards: Sequence[Sequence[Any]], field: str = "json") -> Path:
    """Write a descriptor, and shards whose samples hold these values, as JSON, or as they are if they are bytes."""
    listed = []
    for number, values in enumerate(shards):
        members = []
        for position, value in enumerate(values):
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            members += [(f"{number}-{position}.txt", b"text"), (f"{number}-{position}.{field}", data)]
        path = write_tar(folder / f"{number:02d}.tar", members)
        listed.append({"url": path.name, "nsamples": len(values)})
    return write_descriptor(folder / "train.json", listed, info="kept")


def listed(path: Path, name: str) -> list[Any]:
    column = wids.ShardListDataset(path)._columns[name].column
    values = [column.value(row) for row in range(len(column))]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


VALUES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False),
        "word": st.none() | st.text(max_size=4),
        "flag": st.none() | st.booleans(),
        "meta": st.none() | st.integers() | st.fixed_dictionaries({}, optional={"lang": st.sampled_from("ab")}),
    },
)


@settings(max_examples=20)
@given(st.lists(st.lists(VALUES.map(lambda value: value or {}), max_size=4), min_size=1, max_size=3))
def test_columns_line_up_with_the_json_of_the_samples(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[dict[str, Any]]]
) -> None:
    path = write(tmp_path_factory.mktemp("columns"), shards)

    extract_columns(path, ["n", "x", "word", "flag", "meta.lang"])

    dataset = wids.ShardListDataset(path, transformations=[])
    facts = [json.loads(dataset.read(index)[".json"]) for index in range(len(dataset))]
    for name in ("n", "x", "word", "flag"):
        assert listed(path, name) == [fact.get(name) for fact in facts]
    expected = [fact["meta"].get("lang") if isinstance(fact.get("meta"), dict) else None for fact in facts]
    assert listed(path, "meta.lang") == expected


def test_a_dataset_has_extracted_columns_at_once_and_maps_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, [[{"width": n, "similarity": n / 4, "word": str(n)} for n in range(5)], [{"width": 7}]])
    before = orjson.loads(path.read_bytes())

    status = main(["columns", str(path), "--from-json", "width, similarity,word", "--workers", "2"])

    assert status == 0
    assert capsys.readouterr().out.splitlines() == [
        "width: int64, 6 samples, 0 of them without a value",
        "similarity: float64, 6 samples, 1 of them without a value",
        "word: text, 6 samples, 1 of them without a value",
    ]
    dataset = wids.ShardListDataset(path)
    assert dataset.columns == ("width", "similarity", "word")
    width = dataset.column("width")
    assert (width.tolist(), width.dtype, width.shape) == ([0, 1, 2, 3, 4, 7], np.int64, (6,))  # type: ignore[union-attr]
    assert any("width.arrow" in line for line in Path("/proc/self/maps").read_text().splitlines())
    assert list(dataset[::5].column("word")) == ["0", None]
    assert len(dataset.select(where="similarity > 0.3 and word != '4'")) == 2
    assert "width" not in dataset[0]
    content = orjson.loads(path.read_bytes())
    assert content.pop("columns") == {name: f"train.columns/{name}.arrow" for name in dataset.columns}
    assert content == before
    assert sorted(file.name for file in (tmp_path / "train.columns").iterdir()) == [
        "similarity.arrow",
        "width.arrow",
        "word.arrow",
    ]
    assert len(pickle.dumps(dataset)) < 5000


def test_a_second_extraction_adds_or_replaces_a_column_and_keeps_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": 1, "b/é": "x"}]])
    extract_columns(path, ["a"])
    extract_columns(path, ["b/é"])
    extract_columns(path, ["a"])

    assert (listed(path, "a"), listed(path, "b/é")) == ([1], ["x"])
    assert len(list((tmp_path / "train.columns").iterdir())) == 2


def test_a_killed_extraction_reads_only_the_remaining_shards_when_run_again(tmp_path: Path) -> None:
    rows = [[{"n": 10 * shard + n} for n in range(3)] for shard in range(4)]
    path = write(tmp_path, rows)
    content = orjson.loads(path.read_bytes())
    started, go_on = threading.Event(), threading.Event()
    with web_server() as server:
        server.objects["02.tar"] = (tmp_path / "02.tar").read_bytes()
        server.behaviours["02.tar"] = [hold(started, go_on, 100)] * 9
        content["shardlist"][2]["url"] = server.url("02.tar")
        path.write_bytes(orjson.dumps(content))
        command = [sys.executable, "-m", "wids", "columns", str(path), "--from-json", "n"]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
        assert started.wait(60)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        go_on.set()
        assert path.read_bytes() == orjson.dumps(content)
        assert not list((tmp_path / "train.columns").glob("*.arrow"))
        server.behaviours.clear()
        for done in ("00.tar", "01.tar"):
            (tmp_path / done).unlink()  # what is read again fails now

        assert main(["columns", str(path), "--from-json", "n"]) == 0

    assert listed(path, "n") == [row["n"] for shard in rows for row in shard]
    assert [file.name for file in (tmp_path / "train.columns").iterdir()] == ["n.arrow"]


def test_extractions_at_the_same_time_lose_none_of_their_columns(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": shard, "b": shard, "c": shard}] for shard in range(9)])
    started, go_on = threading.Event(), threading.Event()
    content = orjson.loads(path.read_bytes())
    with web_server() as server, ThreadPoolExecutor(3) as pool:
        server.objects["08.tar"] = (tmp_path / "08.tar").read_bytes()
        server.behaviours["08.tar"] = [hold(started, go_on, 100)]
        content["shardlist"][8]["url"] = server.url("08.tar")
        path.write_bytes(orjson.dumps(content))
        first = pool.submit(extract_columns, path, ["a"])
        assert started.wait(60)
        others = [pool.submit(extract_columns, path, [name]) for name in ("b", "a")]
        go_on.set()
        for run in (first, *others):
            run.result()

    assert [listed(path, name) for name in ("a", "b")] == [list(range(9))] * 2
    assert sorted(file.name for file in (tmp_path / "train.columns").iterdir()) == ["a.arrow", "b.arrow"]


def test_parts_of_an_interrupted_extraction_are_not_used_for_another_column(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": 1, "b": 2}], [b"broken"]])
    with pytest.raises(WidsError, match="is not JSON"):
        extract_columns(path, ["a"])
    write(tmp_path, [[{"a": 1, "b": 2}], [{"a": 3, "b": 4}]])
    os.utime(tmp_path / "01.tar", (0, 0))  # as large as before, and perhaps written in the same tick of the clock

    extract_columns(path, ["b"])
    extract_columns(path, ["a"])

    assert (listed(path, "a"), listed(path, "b")) == ([1, 3], [2, 4])


@pytest.mark.parametrize(
    ("shards", "names", "what"),
    [
        (
            [[{"a": 1}, {"a": "x"}]],
            ["a"],
            r"00\.tar: the values of 'a' have no common type .*: 1 at key '0-0'; 'x' at key '0-1'; leave",
        ),
        (
            [[{"a": 1}], [{"a": "x"}]],
            ["a"],
            r"the values of 'a' are of different types: int64 in .*00\.tar, string in .*01\.tar",
        ),
        ([[{"a": [1]}]], ["a"], r"the values of 'a' have no common type that a column can have: \[1\] at key '0-0'"),
        ([[{"a": 2**63}]], ["a"], r"no common type that a column can have: 9223372036854775808"),
        (
            [[b"{"]],
            ["a"],
            r"00\.tar: key '0-0', field '\.json': is not JSON: .*; leave such values missing with --skip-damaged",
        ),
        ([[b"[1]"]], ["a"], r"field '\.json': holds a list, expected an object"),
        ([[{"a": 1}]], ["a", "a"], "the name 'a' is given twice"),
        ([[{"a": 1}]], ["a..b"], "'a..b' is not the name of a column"),
    ],
)
def test_values_that_cannot_be_a_column_are_an_error_that_names_shard_and_key(
    tmp_path: Path, shards: list[list[Any]], names: list[str], what: str
) -> None:
    path = write(tmp_path, shards)
    before = path.read_bytes()

    with pytest.raises((WidsError, ValueError), match=what):
        extract_columns(path, names)

    assert path.read_bytes() == before


def test_damaged_values_are_missing_with_skip_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": 1}, {"a": "x"}, b"{", {"a": 2}, {"a": 2**63}], [{"a": "y"}], [{"a": 0.5}]])

    extract_columns(path, ["a"], skip_damaged=True)

    assert listed(path, "a") == [1, None, None, 2, None, None, 0.5]


def test_columns_made_for_other_data_are_refused_with_a_remedy(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": 1}], [{"a": 2}]])
    extract_columns(path, ["a"])
    content = orjson.loads(path.read_bytes())
    content["shardlist"].pop()
    path.write_bytes(orjson.dumps(content))

    with pytest.raises(DescriptorError, match=r"made for other data: 2 samples .* expected 1 .*widsindex columns"):
        wids.ShardListDataset(path).column("a")


@pytest.mark.parametrize("name", ["folder", "shard", "gone"])
def test_extracting_columns_of_anything_but_a_descriptor_is_an_error(tmp_path: Path, name: str) -> None:
    write(tmp_path, [[{"a": 1}]])
    path = {"folder": tmp_path, "shard": tmp_path / "00.tar", "gone": tmp_path / "gone.json"}[name]

    with pytest.raises(DescriptorError, match=r"descriptor|is a folder"):
        extract_columns(path, ["a"])


def test_remote_columns_are_fetched_when_they_are_used(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": 1, "b": "x"}, {"a": 2}]])
    extract_columns(path, ["a", "b"])
    with web_server() as server:
        server.has_ranges = True
        for file in tmp_path.rglob("*"):
            if file.is_file():
                server.objects[str(file.relative_to(tmp_path))] = file.read_bytes()
        for access in ("download", "range"):
            dataset = wids.ShardListDataset(server.url("train.json"), access=access)
            assert dataset.columns == ("a", "b")
            assert dataset.column("a").tolist() == [1, 2]  # type: ignore[union-attr]

        asked = {target for target, _ in server.requests}
    assert asked == {"/train.json", "/train.columns/a.arrow"}


def test_threads_extract_the_same_columns_as_one_thread(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"a": shard * 5 + n} for n in range(5)] for shard in range(8)])
    with ThreadPoolExecutor(4) as pool:
        extract_columns(path, ["a"], executor=pool)

    assert listed(path, "a") == list(range(40))
    with pa.memory_map(str(tmp_path / "train.columns" / "a.arrow")) as file:
        assert pa.ipc.open_file(file).num_record_batches == 1


def test_extracting_columns_keeps_the_index_pack_of_the_descriptor(tmp_path: Path) -> None:
    write(tmp_path, [[{"a": 1}], [{"a": 2}]])
    create_index(str(tmp_path), tmp_path / "all.json", index=True)

    extract_columns(tmp_path / "all.json", ["a"])

    content = orjson.loads((tmp_path / "all.json").read_bytes())
    assert (content["index"], content["columns"]) == ("all.widx", {"a": "all.columns/a.arrow"})
