"""Selections as descriptors: written, shared, loaded again, and refused where they do not fit."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import wids
from tests.support import write_descriptor, write_shards
from wids.dataset.rows import compose, to_array
from wids.dataset.stored_rows import rows_from_json, rows_to_json
from wids.tools import create_index, write_selection

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Return a descriptor of eighteen samples, with a pack, in a folder of its own."""
    folder = tmp_path / "data"
    (folder / "shards").mkdir(parents=True)
    write_shards(folder / "shards", [10, 5, 3])
    create_index(str(folder / "shards"), folder / "train.json", name="train", info="all", index=True)
    return folder / "train.json"


@given(
    st.integers(0, 300).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1)) if n else st.just([])))
)
def test_rows_written_as_json_are_read_back(drawn: tuple[int, list[int]]) -> None:
    num_samples, indices = drawn
    for chosen in (indices, sorted(set(indices)), list(range(len(set(indices))))):
        rows = compose(None, np.array(chosen, np.int64))
        content = json.loads(json.dumps(rows_to_json(rows, num_samples, "f")))

        assert to_array(rows_from_json(content, num_samples, "f", "x.json")).tolist() == chosen
        assert content["count"] == len(chosen)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(np.arange(18) % 3 == 0, id="mask"),
        pytest.param([16, 2, 2, 9], id="in the order given"),
        pytest.param(range(3, 15), id="range"),
        pytest.param([], id="nothing"),
    ],
)
@pytest.mark.parametrize("place", ["data/small.json", "elsewhere/small.json"])
def test_a_selection_equals_the_view_in_whatever_folder_it_is_written(
    train: Path, tmp_path: Path, rows: Any, place: str
) -> None:
    view = wids.ShardListDataset(train, transformations=[]).select(rows)
    output = tmp_path / place
    output.parent.mkdir(exist_ok=True)

    content = write_selection(train, rows, output)
    loaded = wids.ShardListDataset(output, transformations=[])

    assert [sample["__index__"] for sample in loaded] == [sample["__index__"] for sample in view]
    assert [sample["__key__"] for sample in loaded] == list(view.keys())
    assert (loaded.fingerprint, loaded.lengths) == (view.fingerprint, view.lengths)
    assert (content["name"], content["info"], loaded.dataset_name) == ("train", "all", "train")
    assert loaded.stats()["index_builds"] == 0
    assert "rows" not in loaded.spec


def test_indices_of_a_selection_of_a_selection_are_those_of_the_whole_dataset(train: Path) -> None:
    write_selection(train, range(4, 16, 2), train.parent / "a.json")
    write_selection(train.parent / "a.json", [5, 0], train.parent / "b.json")

    assert [sample["__index__"] for sample in wids.ShardListDataset(train.parent / "b.json")] == [14, 4]


def test_a_selection_can_be_written_from_an_open_dataset(train: Path) -> None:
    dataset = wids.ShardListDataset(train)

    write_selection(dataset, dataset.sizes("txt") == 9, train.parent / "nines.json")

    assert len(wids.ShardListDataset(train.parent / "nines.json")) == 10


def test_a_random_selection_among_ten_million_samples_is_a_small_file(tmp_path: Path) -> None:
    shards = write_descriptor(tmp_path / "t.json", [{"url": f"{n}.tar", "nsamples": 100_000} for n in range(100)])
    mask = np.random.default_rng(0).random(10_000_000) < 0.3

    write_selection(shards, mask, tmp_path / "small.json")
    write_selection(shards, range(1000, 2_000_000), tmp_path / "range.json")

    assert (tmp_path / "small.json").stat().st_size < 1_600_000
    assert (tmp_path / "range.json").stat().st_size < 10_000
    assert np.array_equal(to_array(wids.ShardListDataset(tmp_path / "small.json")._rows), np.flatnonzero(mask))  # type: ignore[arg-type]


@pytest.mark.usefixtures("train")
def test_a_selection_of_several_datasets_keeps_their_names_and_packs(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_shards(other, [2])
    create_index(str(other), other / "other.json", name="other", index=True)
    both = tmp_path / "both.json"
    both.write_text(
        json.dumps(
            {"wids_version": 1, "datasets": [{"source_url": "data/train.json"}, {"source_url": "other/other.json"}]}
        )
    )

    write_selection(both, [19, 0], tmp_path / "small.json")
    loaded = wids.ShardListDataset(tmp_path / "small.json")

    assert [(sample["__dataset__"], sample["__index__"]) for sample in loaded] == [("other", 19), ("train", 0)]
    assert loaded.stats()["index_builds"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"of": 17}, "rows.of is 17, but its shards have 18", id="of other data"),
        pytest.param({"fingerprint": "0" * 16}, "other names, counts or order", id="other fingerprint"),
        pytest.param({"count": 3}, "rows.count is 3, but it names 2 rows", id="wrong count"),
        pytest.param({"ranges": [[0, 1], [17, 19]]}, r"rows.ranges\[1\] is \[17, 19\]", id="beyond"),
        pytest.param({"ranges": [[-1, 1]]}, r"rows.ranges\[0\] is \[-1, 1\]", id="before"),
        pytest.param({"ranges": [[3, 3]]}, r"rows.ranges\[0\] is \[3, 3\]", id="empty range"),
        pytest.param({"ranges": [[0, 1.5]]}, "pairs of integers", id="broken number"),
        pytest.param({"ranges": [[0, 1, 2]]}, "pairs of integers", id="no pair"),
        pytest.param({"ranges": None, "bits": "AAAA"}, "bits and ranges, or neither", id="both"),
        pytest.param({"ranges": ..., "bits": "*"}, "rows.bits is damaged", id="no base64"),
        pytest.param({"ranges": ..., "bits": "AAAA"}, "rows.bits is damaged", id="no zlib"),
        pytest.param({"ranges": ..., "bits": b"\x01"}, "expected one bit for each of 18", id="few bits"),
        pytest.param({"ranges": ..., "bits": b"\x01\x00\x04"}, "expected one bit for each of 18", id="a bit too many"),
        pytest.param({"ranges": ..., "bits": bytes(1 << 24)}, "expected one bit for each of 18", id="many bits"),
        pytest.param({"ranges": ..., "bits": b"\x07\x00\x00"}, "it names 3 rows", id="bits and count"),
        pytest.param({"ranges": ...}, "bits and ranges, or neither", id="neither"),
        pytest.param({"count": "2"}, "rows.count is '2'", id="text"),
        pytest.param({"fingerprint": None}, "rows.fingerprint is None", id="no fingerprint"),
    ],
)
def test_a_selection_whose_rows_are_invalid_is_refused(train: Path, change: dict[str, Any], message: str) -> None:
    small = train.parent / "small.json"
    content = write_selection(train, [3, 4], small)
    for name, value in change.items():
        content["rows"][name] = base64.b64encode(zlib.compress(value)).decode() if isinstance(value, bytes) else value
        if value is ...:
            del content["rows"][name]
    small.write_text(json.dumps(content))

    with pytest.raises(wids.DescriptorError, match=message) as raised:
        wids.ShardListDataset(small)
    assert str(small) in str(raised.value)


def test_a_selection_whose_rows_are_no_object_is_refused(train: Path) -> None:
    content = json.loads(train.read_text())
    train.write_text(json.dumps({**content, "rows": [1, 2]}))

    with pytest.raises(wids.DescriptorError, match="rows is a list"):
        wids.ShardListDataset(train)


def test_a_selection_among_several_descriptors_is_refused(train: Path) -> None:
    small = train.parent / "small.json"
    write_selection(train, [3, 4], small)
    outer = train.parent / "outer.json"
    outer.write_text(json.dumps({"wids_version": 1, "datasets": [{"source_url": "small.json"}]}))

    for several in (outer, [small, train]):
        with pytest.raises(wids.DescriptorError, match=r"wids\.concat"):
            wids.ShardListDataset(several)


def test_write_selection_does_not_overwrite_the_descriptor_that_it_selects_from(train: Path) -> None:
    before = train.read_bytes()
    os.link(train, train.parent / "same.json")

    for output in (train, train.parent / "same.json"):
        with pytest.raises(wids.DescriptorError, match="select from"):
            write_selection(train, [1], output)
    with pytest.raises(wids.DescriptorError, match="there is no folder"):
        write_selection(train, [1], train.parent / "nowhere" / "small.json")
    with pytest.raises(IndexError, match="18"):
        write_selection(train, [18], train.parent / "small.json")
    assert train.read_bytes() == before
    assert not (train.parent / "small.json").exists()
