"""Several datasets are indexed as one."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

import wids
from tests.support import sample_members, write_shards, write_tar
from wids.sampling.seeds import SeededIndex

if TYPE_CHECKING:
    from pathlib import Path


def keep(batch: list[Any]) -> list[Any]:
    return batch


@pytest.fixture
def both(tmp_path: Path) -> Any:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = wids.ShardListDataset(write_shards(tmp_path / "a", [2, 3]), dataset_name="a")
    second = wids.ShardListDataset(write_shards(tmp_path / "b", [4]), dataset_name="b", transformations=None)
    return wids.concat([first, range(0), second[1:]])


def test_each_dataset_keeps_its_own_transformations_and_names(both: Any) -> None:
    samples = [both[index] for index in range(len(both))]

    assert [(sample["__dataset__"], sample["__index__"]) for sample in samples] == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2), ("b", 3),
    ]  # fmt: skip
    assert samples[4]["txt"] == "text of 4"
    assert samples[5]["txt"].read() == b"text of 1"


def test_negative_indices_count_from_the_end_and_indices_out_of_range_are_errors(both: Any) -> None:
    assert both[-1]["__key__"] == "000003"
    for index in (8, -9):
        with pytest.raises(IndexError, match=f"index {index} is out of range for 8 samples in 3 datasets"):
            both[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_batches_in_order(both: Any, workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(
        both, batch_size=3, sampler=[7, 0, 5, 1, 6, 2], num_workers=workers, collate_fn=keep
    )

    assert [[sample["__key__"] for sample in batch] for batch in loader] == [
        ["000003", "000000", "000001"], ["000001", "000002", "000002"],
    ]  # fmt: skip


def test_a_concatenation_has_the_methods_and_attributes_of_a_dataset(both: Any) -> None:
    assert [sample["__key__"] for sample in both] == [both.key(index) for index in range(8)]
    assert both.read(5)[".cls"] == b"1"
    assert bytes(both.view(0, ["txt"])[".txt"]) == b"text of 0"
    assert (both.lengths, both.component_lengths, both.total_length) == ([2, 3, 0, 3], [5, 0, 3], 8)
    assert [shard["url"][-14:] for shard in both.shards if shard["url"]] == [
        "shard-0000.tar", "shard-0001.tar", "shard-0000.tar",
    ]  # fmt: skip
    assert repr(both) == "<ConcatDataset: 8 samples in 3 datasets>"


@pytest.fixture
def shards(tmp_path: Path) -> Any:
    for name, fields in {"a": {"txt": b"one", "cls": b"1"}, "b": {"txt": b"other", "bin": b"!"}}.items():
        write_tar(
            tmp_path / f"{name}.tar",
            [(f"{number}.{field}", data) for number in range(2) for field, data in fields.items()],
        )
    return [wids.ShardListDataset(str(tmp_path / f"{name}.tar"), transformations=None) for name in "ab"]


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.select_fields(["txt"]).decode("numpy").map(lambda sample: sample["txt"].upper()),
        lambda dataset: dataset.decode().rename(text="txt").to_tuple("text", "cls", missing=None),
        lambda dataset: dataset.select_fields(iter(["cls", "txt"]), missing=b"").map(len),
    ],
    ids=["select and map", "rename and to_tuple", "fields that can be iterated once"],
)
def test_transformations_of_a_concatenation_are_applied_to_each_dataset(shards: list[Any], change: Any) -> None:
    changed = change(wids.concat(shards))

    assert list(changed) == [sample for dataset in shards for sample in change(dataset)]
    assert changed.component_lengths == [2, 2]


def test_sizes_fields_and_locations_of_a_concatenation_are_those_of_its_datasets(shards: list[Any]) -> None:
    both = wids.concat([wids.concat(shards[:1]), *shards[1:]])

    assert (both.sizes("txt").tolist(), both.sizes("txt").dtype.name) == ([3, 3, 5, 5], "int64")
    assert (both.has("txt", "cls").tolist(), both.has("bin").dtype.name) == ([True, True, False, False], "bool")
    assert wids.concat([]).sizes("txt").tolist() == []
    assert both.locate(3) == shards[1].locate(1)
    with both.open(2, "txt") as file:
        assert file.read() == b"other"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("decode", []),
        ("map", [len]),
        ("to_tuple", ["a"]),
        ("select_fields", ["a"]),
        ("rename", []),
        ("sizes", ["a"]),
        ("has", []),
    ],
)
def test_a_method_that_one_of_the_datasets_lacks_is_an_error_that_names_it(
    shards: list[Any], method: str, arguments: list[Any]
) -> None:
    message = rf"datasets\[1\] is a range, which has no {method}\(\); call it on the others before concat\(\)"
    with pytest.raises(TypeError, match=message):
        getattr(wids.concat([shards[0], range(3)]), method)(*arguments)


def test_concatenations_can_be_nested_pickled_and_closed(both: Any) -> None:
    nested = pickle.loads(pickle.dumps(wids.concat([both, both])))

    with nested:
        assert nested[8 + 5]["__key__"] == "000001"
    assert nested[2]["__key__"] == "000002"


def test_a_seed_goes_to_the_dataset_that_holds_the_sample(both: Any) -> None:
    assert both[SeededIndex(5, 77)]["__seed__"] == 77
    assert both.__getitems__([SeededIndex(1, 9), SeededIndex(6, 8)])[1]["__seed__"] == 8


def test_prefetch_passes_each_dataset_the_numbers_of_its_own_shards() -> None:
    class RecordsPrefetch:
        def __init__(self) -> None:
            self.lengths = [1, 2]
            self.shards = [{"url": "a.tar"}, {"url": "b.tar"}]
            self.calls: list[list[int]] = []

        def __len__(self) -> int:
            return 3

        def prefetch(self, upcoming: list[int]) -> None:
            self.calls.append(upcoming)

    first, last = RecordsPrefetch(), RecordsPrefetch()

    wids.concat([first, range(5), last]).prefetch([4, 2, 0, 3])

    assert (first.calls, last.calls) == ([[0]], [[1, 0]])


def test_a_sampler_of_a_concatenation_uses_the_shards_of_all_its_datasets(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", sample_members(3))
    one = wids.ShardListDataset(str(tmp_path / "x.tar"))

    sampler = wids.ShardListSampler(wids.concat([one, one]))

    assert sampler.lengths == [3, 3]
    assert sorted(sampler) == [0, 1, 2, 3, 4, 5]
