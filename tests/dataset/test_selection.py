"""Selecting samples, compared with plain lists and CPython's `tarfile`."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import wids
from tests.support import write_descriptor, write_shards, write_tar
from wids.dataset.rows import Rows, find_visits, to_array
from wids.tools import create_index

COUNTS = [7, 0, 12, 1, 9]
TOTAL = sum(COUNTS)

Oracle = list[tuple[str, dict[str, int]]]
"""Each sample's key, and the sizes of its fields."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """Return shards whose samples have different fields, written by `tarfile`."""
    folder = tmp_path_factory.mktemp("mixed")
    written = []
    number = 0
    for shard, count in enumerate(COUNTS):
        members = []
        for _ in range(count):
            key = f"d/{'k' * (number % 3)}{number:03d}"
            fields = [[".jpg", ".txt"], [".PNG", ".txt", ".seg.png"], [".txt"], [".json"]][number % 4]
            members += [(key + field, b"x" * (number * 3 % 17 + place)) for place, field in enumerate(fields)]
            number += 1
        written.append((str(write_tar(folder / f"s-{shard}.tar", members)), count))
    return written


@pytest.fixture(scope="module")
def dataset(shards: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> wids.ShardListDataset:
    return wids.ShardListDataset(shards, transformations=[], cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def oracle(shards: list[tuple[str, int]]) -> Oracle:
    samples: Oracle = []
    for path, _ in shards:
        with tarfile.open(path) as tar:
            for member in tar:
                folder, _, base = member.name.rpartition("/")
                stem, _, rest = base.partition(".")
                key = f"{folder}/{stem}"
                if not samples or samples[-1][0] != key:
                    samples.append((key, {}))
                samples[-1][1][f".{rest}"] = member.size
    return samples


def indices_of(view: wids.ShardListDataset) -> list[int]:
    return [sample["__index__"] for sample in view]


places = st.lists(st.integers(-TOTAL, TOTAL - 1), max_size=2 * TOTAL)
masks = st.lists(st.booleans(), min_size=TOTAL, max_size=TOTAL)
slices = st.slices(TOTAL)


@given(places)
def test_select_by_indices_equals_indexing_a_list(dataset: wids.ShardListDataset, chosen: list[int]) -> None:
    assert indices_of(dataset.select(chosen)) == [range(TOTAL)[place] for place in chosen]


@given(masks, masks)
def test_select_by_masks_and_exclusions_equals_a_loop(
    dataset: wids.ShardListDataset, mask: list[bool], other: list[bool]
) -> None:
    expected = [i for i in range(TOTAL) if mask[i]]

    assert indices_of(dataset.select(np.array(mask))) == expected
    assert indices_of(dataset.select(mask, exclude=np.flatnonzero(other))) == [i for i in expected if not other[i]]
    assert indices_of(dataset.select(exclude=other)) == [i for i in range(TOTAL) if not other[i]]


@given(st.lists(st.one_of(slices, st.randoms(use_true_random=False)), max_size=4))
def test_views_of_views_equal_repeated_indexing_of_a_list(dataset: wids.ShardListDataset, steps: list[Any]) -> None:
    view, expected = dataset, list(range(TOTAL))
    for step in steps:
        if isinstance(step, slice):
            view, expected = view[step], expected[step]
        else:
            chosen = [step.randrange(-len(expected), len(expected)) for _ in range(len(expected) // 2)]
            view, expected = view.select(chosen), [expected[place] for place in chosen]

    assert indices_of(view) == expected
    assert len(view) == len(expected)
    assert [view[place]["__index__"] for place in range(-len(expected), 0)] == expected


def test_a_slice_step_may_exceed_64_bits(dataset: wids.ShardListDataset) -> None:
    far = 1 << 63
    shuffled = dataset.select([3, 1, 2])

    assert list(dataset[::far].keys()) == list(dataset.select(range(0, TOTAL, far)).keys()) == [dataset.key(0)]
    assert list(dataset[::far].select([0, 0]).keys()) == [dataset.key(0)] * 2
    assert list(shuffled[::-far].keys()) == [dataset.key(2)]
    assert len(dataset[TOTAL::far]) == 0


@given(places)
def test_a_view_reads_the_same_samples_as_its_parent(dataset: wids.ShardListDataset, chosen: list[int]) -> None:
    view = dataset.select(np.array(chosen, np.int64))

    assert list(view.keys()) == [dataset.key(place) for place in chosen]
    assert [view.key(place) for place in range(len(view))] == [dataset.key(place) for place in chosen]
    for row, place in enumerate(chosen[:5]):
        assert view.read(row) == dataset.read(place)
        assert view.view(row) == dataset.view(place)
        assert view.locate(row) == dataset.locate(place)
        field = next(iter(view.read(row)))
        assert view.open(row, field).read() == dataset.read(place)[field]
        assert view.index_of(view.key(row)) == next(i for i, p in enumerate(chosen) if p % TOTAL == place % TOTAL)
    assert [s["__key__"] for s in view.__getitems__(list(range(len(view))))] == list(view.keys())
    again = pickle.loads(pickle.dumps(view))
    assert indices_of(again) == indices_of(view)


@given(st.one_of(places, masks))
def test_the_shards_of_a_view_are_the_runs_of_its_rows(dataset: wids.ShardListDataset, rows: Any) -> None:
    view = dataset.select(rows)
    expected: list[list[Any]] = []
    for sample in view:
        if expected and expected[-1][0] == sample["__shard__"]:
            expected[-1][1] += 1
        else:
            expected.append([sample["__shard__"], 1])

    assert [[shard["url"], length] for shard, length in zip(view.shards, view.lengths, strict=True)] == expected
    assert view.num_shards == len({url for url, _ in expected})
    assert view.cum_lengths == list(np.cumsum([count for _, count in expected]))


@given(slices)
def test_a_slice_has_the_same_runs_as_its_indices(chosen: slice) -> None:
    rows = range(TOTAL)[chosen]
    starts = [0, *np.cumsum(COUNTS).tolist()]

    assert find_visits(rows, starts) == find_visits(Rows(np.array(rows, np.int64)), starts)


@pytest.mark.parametrize("field", ["jpg", ".TXT", "jpg;png", "seg.png", "nothing", "json; jpg"])
def test_sizes_and_has_are_what_tarfile_says(dataset: wids.ShardListDataset, oracle: Oracle, field: str) -> None:
    wanted = ["." + name.strip().lstrip(".").lower() for name in field.split(";")]
    expected = []
    for _, fields in oracle:
        lowered = {name.lower(): size for name, size in fields.items()}
        expected.append(next((lowered[name] for name in wanted if name in lowered), -1))
    rows = [5, 28, 3, 3, 10]

    sizes = dataset.sizes(field)

    assert (sizes.dtype, sizes.tolist()) == (np.dtype(np.int64), expected)
    assert dataset.has(field).tolist() == [size >= 0 for size in expected]
    assert dataset.select(rows).sizes(field).tolist() == [expected[row] for row in rows]
    assert dataset[3:20:2].has(field).tolist() == [size >= 0 for size in expected[3:20:2]]


def test_has_requires_all_of_its_fields_and_one_of_each_alternative(
    dataset: wids.ShardListDataset, oracle: Oracle
) -> None:
    expected = [bool({".jpg", ".PNG"} & set(fields)) and ".txt" in fields for _, fields in oracle]

    assert dataset.has("png;jpg", "txt").tolist() == expected
    assert dataset.has().all()


def test_fields_counts_the_samples_with_each_list_of_fields(dataset: wids.ShardListDataset, oracle: Oracle) -> None:
    def count(samples: Oracle) -> dict[tuple[str, ...], int]:
        kinds = [tuple(fields) for _, fields in samples]
        return {kind: kinds.count(kind) for kind in kinds}

    assert dataset.fields == count(oracle)
    assert list(dataset.fields.values()) == sorted(dataset.fields.values(), reverse=True)
    assert dataset.select([1, 5, 5]).fields == {(".PNG", ".txt", ".seg.png"): 3}
    assert dataset[:0].fields == {}


def test_keys_are_a_sequence(dataset: wids.ShardListDataset, oracle: Oracle) -> None:
    keys, expected = dataset.keys(), [key for key, _ in oracle]

    assert list(keys) == expected
    assert (len(keys), keys[3], keys[-1]) == (TOTAL, expected[3], expected[-1])
    assert list(keys[4:20:3]) == expected[4:20:3]
    assert expected[8] in keys
    assert "nowhere" not in keys
    assert cast("Any", 7) not in keys
    assert (keys.index(expected[8]), keys.count(expected[8])) == (8, 1)
    with pytest.raises(ValueError, match="nowhere"):
        keys.index("nowhere")
    with pytest.raises(IndexError):
        keys[TOTAL]


def test_tables_come_from_the_index_pack_without_opening_shards(tmp_path: Path) -> None:
    """With an index pack no shard is opened: shards may even be missing."""
    written = write_shards(tmp_path, [4, 6])
    create_index([path for path, _ in written], tmp_path / "train.json", index=True)
    dataset = wids.ShardListDataset(tmp_path / "train.json", lru_size=1)
    for path, _ in written:
        Path(path).unlink()

    assert dataset.sizes("cls").tolist() == [1] * 10
    assert dataset.has("txt", "cls").all()
    assert list(dataset.keys()) == [f"{number:06d}" for number in range(10)]
    assert list(dataset.select([7, 2]).keys()) == ["000007", "000002"]
    assert dataset.fields == {(".txt", ".cls"): 10}
    assert sum(map(len, dataset.split({"a": 0.5, "b": 0.5}).values())) == 10
    assert dataset.get_stats() == (0, 0)


def test_tables_leave_the_open_shards_as_they_are(tmp_path: Path) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [2] * 12), lru_size=2)
    dataset[0], dataset[5]
    before = sorted(dataset._cache._readers)

    assert dataset.sizes("txt").tolist() == [len(f"text of {number}") for number in range(24)]
    list(dataset.keys())
    assert sorted(dataset._cache._readers) == before
    assert dataset.get_stats() == (2, 2)


def test_a_pack_entry_for_a_shard_of_another_size_is_not_used(tmp_path: Path) -> None:
    """The shard's other size is noticed without reading it."""
    written = write_shards(tmp_path, [4, 6])
    create_index([path for path, _ in written], tmp_path / "train.json", index=True)
    write_tar(Path(written[0][0]), [(f"{n}.txt", b"x" * 3000) for n in range(4)])
    dataset = wids.ShardListDataset(tmp_path / "train.json", checksum="none")

    assert dataset.sizes("txt")[:5].tolist() == [3000, 3000, 3000, 3000, 9]


def test_a_pack_is_used_after_its_shards_have_moved(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    written = write_shards(tmp_path / "here", [4, 6])
    content = create_index([path for path, _ in written], tmp_path / "here" / "train.json", index=True)
    (tmp_path / "there").mkdir()
    for path, _ in written:
        Path(path).rename(tmp_path / "there" / Path(path).name)
    shardlist = [{**shard, "url": f"there/{shard['url']}"} for shard in content["shardlist"]]
    moved = write_descriptor(tmp_path / "moved.json", shardlist, index="here/train.widx")
    dataset = wids.ShardListDataset(moved)

    assert dataset.sizes("cls").tolist() == [1] * 10
    assert dataset.stats()["index_builds"] == 0


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        pytest.param([True] * 5, ValueError, "mask of 5 samples, expected one of 29", id="short mask"),
        pytest.param([3, 29], IndexError, r"rows\[1\] is 29", id="beyond"),
        pytest.param([-30], IndexError, r"rows\[0\] is -30", id="before"),
        pytest.param(range(20, 40), IndexError, "out of range", id="long range"),
        pytest.param([0.5], TypeError, "float64", id="floats"),
        pytest.param(["a"], TypeError, "bool or integers", id="texts"),
        pytest.param([[1, 2]], TypeError, "one dimension", id="matrix"),
        pytest.param({1, 2}, TypeError, "set", id="no order"),
        pytest.param(3, TypeError, "int", id="a number"),
        pytest.param(np.array(2**63 + 5, np.uint64).reshape(1), IndexError, "9223372036854775813", id="huge"),
    ],
)
def test_wrong_rows_are_errors_that_name_them(
    dataset: wids.ShardListDataset, rows: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dataset.select(rows)
    with pytest.raises(error, match=message.replace("rows", "exclude")):
        dataset.select(exclude=rows)


def test_select_without_arguments_is_an_error(dataset: wids.ShardListDataset) -> None:
    with pytest.raises(TypeError, match="exclude="):
        dataset.select()


def test_select_accepts_lists_ranges_arrays_and_iterators(dataset: wids.ShardListDataset) -> None:
    assert indices_of(dataset.select([])) == []
    assert indices_of(dataset.select(range(5, -1, -2))) == [5, 3, 1]
    assert indices_of(dataset[3:9].select(range(5, -1, -2))) == [8, 6, 4]
    assert indices_of(dataset.select(range(-3, 0))) == [26, 27, 28]
    assert indices_of(dataset.select(np.array([3, -1], np.int8))) == [3, 28]
    assert indices_of(dataset.select(iter([3, 1]))) == [3, 1]


def test_an_index_out_of_range_of_a_view_is_an_error(dataset: wids.ShardListDataset) -> None:
    with pytest.raises(IndexError, match="view of 2 samples"):
        dataset.select([1, 2])[2]


def test_a_view_does_not_change_with_the_array_it_was_made_from(dataset: wids.ShardListDataset) -> None:
    rows = np.array([3, 9, 1], np.uint32)
    view = dataset.select(rows)
    rows[:] = 0

    assert indices_of(view) == [3, 9, 1]


def test_a_view_of_ten_million_samples_pickles_small() -> None:
    dataset = wids.ShardListDataset([{"url": f"s-{n}.tar", "nsamples": 100_000} for n in range(100)])
    rng = np.random.default_rng(0)
    mask = rng.random(len(dataset)) < 0.3
    few = np.sort(rng.choice(len(dataset), 1000, replace=False))

    views = [dataset.select(mask), dataset.select(few), dataset.select(rng.permutation(few)), dataset[5:9_000_000:3]]
    views += [dataset.select(np.arange(10_000_000) // 1000 % 2 == 0)]
    sizes = [len(pickle.dumps(view)) for view in views]

    assert sizes[0] < 1_200_000
    assert max(sizes[1:]) < 40_000
    for view in views:
        again = pickle.loads(pickle.dumps(view))
        assert again._rows is not None
        assert view._rows is not None
        assert np.array_equal(to_array(again._rows), to_array(view._rows))


def test_damaged_samples_of_a_view_are_replaced_by_others_of_the_view(tmp_path: Path) -> None:
    """A sample outside the view, such as one held out, never replaces a damaged one."""
    members = [(f"{number:02d}.cls", b"no number" if number == 4 else str(number).encode()) for number in range(10)]
    path = str(write_tar(tmp_path / "a.tar", members))
    dataset = wids.ShardListDataset([(path, 10)], on_error="replace")

    assert dataset.select([1, 4, 8])[1]["__index__"] == 8
    assert dataset.select([8, 2, 4])[2]["__index__"] == 8
    assert dataset[:5][4]["__index__"] == 0
    with pytest.raises(wids.DecodeError):
        dataset.select([4])[0]


def test_select_then_map_equals_map_then_select(dataset: wids.ShardListDataset) -> None:
    rows = [9, 2, 17]
    one = dataset.select(rows).map(lambda sample: sample["__index__"])
    other = dataset.map(lambda sample: sample["__index__"]).select(rows)

    assert list(one) == list(other) == rows


def test_fingerprints_depend_on_data_and_rows_and_not_on_locations() -> None:
    def listed(folder: str, counts: list[int], prefix: str = "s") -> wids.ShardListDataset:
        return wids.ShardListDataset(
            [{"url": f"{folder}/{prefix}-{number}.tar", "nsamples": count} for number, count in enumerate(counts)]
        )

    here = listed("/here", [4, 6])
    moved = listed("https://host/there", [4, 6])
    grown = listed("/here", [4, 6, 5])

    assert here.fingerprint == moved.fingerprint
    assert here[:].fingerprint == here.fingerprint == grown[:10].fingerprint
    assert here.select([5, 2]).fingerprint == moved.select([5, 2]).fingerprint == grown.select([5, 2]).fingerprint
    assert here[2:7].fingerprint == here.select([2, 3, 4, 5, 6]).fingerprint
    others = [
        here, grown, listed("/here", [6, 4]), listed("/here", [4, 6], "t"), here[1:], here[::-1],
        here.select([5, 2]), here.select([2, 5]), here.select([5, 3]), here.select([1, 5]), here.select([]),
    ]  # fmt: skip
    assert len({other.fingerprint for other in others}) == len(others)
