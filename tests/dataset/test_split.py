"""Splits are partitions that stay the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from xxhash import xxh3_64_intdigest

import wids
from tests.support import write_shards, write_tar

fractions = st.lists(st.floats(0, 1), min_size=1, max_size=5).filter(lambda shares: sum(shares) <= 1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> wids.ShardListDataset:
    folder = tmp_path_factory.mktemp("split")
    return wids.ShardListDataset(write_shards(folder, [30, 50, 20]), cache_dir=str(folder / "cache"))


def keys_of(parts: dict[str, wids.ShardListDataset]) -> dict[str, list[str]]:
    return {name: list(part.keys()) for name, part in parts.items()}


@given(fractions, st.integers(0, 2**64 - 1))
def test_each_sample_is_in_the_part_that_its_hash_says(
    dataset: wids.ShardListDataset, shares: list[float], seed: int
) -> None:
    named = {f"part {number}": share for number, share in enumerate(shares)}
    expected: dict[str, list[str]] = {name: [] for name in named}
    for key in dataset.keys():  # noqa: SIM118 - this is no dictionary
        place = xxh3_64_intdigest(key.encode(), seed)
        below = 0.0
        for name, share in named.items():
            below += share
            if place < (2**64 if below > 1 - 1e-9 else int(below * 2**64)):
                expected[name].append(key)
                break

    assert keys_of(dataset.split(named, seed=seed)) == expected


@given(st.integers(0, 1000), st.integers(1, 4))
def test_parts_that_add_up_to_one_are_a_partition(dataset: wids.ShardListDataset, seed: int, num_parts: int) -> None:
    parts = dataset.split({str(part): 1 / num_parts for part in range(num_parts)}, seed=seed)
    indices = sorted(index for part in parts.values() for index in part.map(lambda sample: sample["__index__"]))

    assert indices == list(range(100))


def test_samples_stay_in_their_part_when_shards_are_added_moved_or_renamed(tmp_path: Path) -> None:
    shares = {"train": 0.7, "val": 0.3}
    written = write_shards(tmp_path, [30, 50, 20])
    before = keys_of(wids.ShardListDataset(written).split(shares))
    for number, (path, count) in enumerate(reversed(written[:2])):
        moved = Path(path).rename(tmp_path / f"moved-{number}.tar")
        written.append((str(moved), count))
    del written[:2]
    added = write_tar(tmp_path / "added.tar", [(f"added-{number}.txt", b"") for number in range(40)])

    after = keys_of(wids.ShardListDataset([(str(added), 40), *written]).split(shares))

    assert {name: sorted(key for key in keys if not key.startswith("added")) for name, keys in after.items()} == before
    assert sum(key.startswith("added") for keys in after.values() for key in keys) == 40


@given(st.integers(0, 1000))
def test_all_samples_of_a_group_are_in_the_same_part(dataset: wids.ShardListDataset, seed: int) -> None:
    def person(key: str) -> str:
        return key[-1]

    parts = keys_of(dataset.split({"a": 0.5, "b": 0.5}, by=person, seed=seed))

    people = [set(map(person, keys)) for keys in parts.values()]
    assert not people[0] & people[1]
    assert sum(map(len, parts.values())) == 100
    as_numbers = dataset.split({"a": 0.5, "b": 0.5}, by=lambda key: int(key[-1]), seed=seed)
    assert keys_of(as_numbers) == parts


def test_a_first_part_that_is_enlarged_keeps_all_its_samples(dataset: wids.ShardListDataset) -> None:
    small = dataset.split({"val": 0.1, "train": 0.9})["val"]
    large = dataset.split({"val": 0.3, "train": 0.7})["val"]

    assert set(small.keys()) < set(large.keys())


def test_the_sizes_of_parts_are_about_their_fractions(dataset: wids.ShardListDataset) -> None:
    sizes = [len(dataset.split({"few": 0.2}, seed=seed)["few"]) for seed in range(30)]

    # The mean of 30 draws from Binomial(100, 0.2) is within five standard errors.
    assert abs(sum(sizes) / 30 - 20) < 5 * math.sqrt(100 * 0.2 * 0.8 / 30)


def test_a_split_of_a_view_is_the_split_of_the_dataset_limited_to_the_view(dataset: wids.ShardListDataset) -> None:
    shares = {"a": 0.5, "b": 0.5}
    whole = keys_of(dataset.split(shares))
    view = dataset[20:90:3]

    assert keys_of(view.split(shares)) == {
        name: [key for key in view.keys() if key in keys]  # noqa: SIM118 - this is no dictionary
        for name, keys in whole.items()
    }


@pytest.mark.parametrize(
    ("shares", "arguments", "error", "message"),
    [
        pytest.param({}, {}, ValueError, "no parts", id="none"),
        pytest.param(["a"], {}, TypeError, "names and fractions", id="no mapping"),
        pytest.param({"a": 0.9, "b": 0.2}, {}, ValueError, "add up to 1.1", id="too much"),
        pytest.param({"a": -0.1}, {}, ValueError, "'a' is -0.1", id="negative"),
        pytest.param({"a": float("nan")}, {}, ValueError, "'a' is nan", id="not a number"),
        pytest.param({"a": "half"}, {}, TypeError, "must be a number", id="text"),
        pytest.param({"a": 0.5}, {"by": "person"}, TypeError, "by is 'person'", id="by a name"),
        pytest.param({"a": 0.5}, {"by": {}.get}, TypeError, "returned None", id="no group"),
        pytest.param({"a": 0.5}, {"seed": -1}, ValueError, "seed is -1", id="negative seed"),
        pytest.param({"a": 0.5}, {"seed": 1.5}, TypeError, "seed is 1.5", id="broken seed"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(
    dataset: wids.ShardListDataset, shares: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dataset.split(shares, **arguments)
