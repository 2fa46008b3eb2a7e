"""When an epoch begins, and where a restored one resumes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wids
from wids.sampling import (
    BucketBatchSampler,
    ChunkedSampler,
    DistributedChunkedSampler,
    MixtureSampler,
    ShardListSampler,
)

STATES = json.loads(Path(__file__).with_name("states_v1.json").read_text())


class Sharded:
    def __init__(self, counts: list[int], folder: str = "/data", prefix: str = "train") -> None:
        self.lengths = counts
        query = "?sig=a/b" if "://" in folder else ""
        self.shards = [{"url": f"{folder}/{prefix}-{number}.tar{query}"} for number in range(len(counts))]

    def __len__(self) -> int:
        return sum(self.lengths)


def make(kind: str, data: Any = None, **kwargs: Any) -> Any:
    data = Sharded([20, 30, 50]) if data is None else data
    if kind == "MixtureSampler":
        return MixtureSampler(wids.concat([data, range(40)]), weights=[0.3, 0.7], chunksize=10, **kwargs)
    if kind == "BucketBatchSampler":
        inner = DistributedChunkedSampler(data, num_replicas=2, rank=1, repartition_each_epoch=True, **kwargs)
        return BucketBatchSampler(inner, 4, np.arange(100) // 7 % 3)
    if kind == "ChunkedSampler":
        return ChunkedSampler(data, chunksize=10, **kwargs)
    if kind == "ShardListSampler":
        return ShardListSampler(data, **kwargs)
    return DistributedChunkedSampler(data, num_replicas=1, rank=0, **kwargs)


KINDS = pytest.mark.parametrize("kind", ["ChunkedSampler", "ShardListSampler", "DistributedChunkedSampler"])


def orders_of(kind: str) -> list[list[int]]:
    sampler = make(kind)
    return [list(sampler) for _ in range(4)]


def taken(sampler: Any, count: int) -> list[int]:
    return list(islice(sampler, count))


@KINDS
def test_a_state_is_restored_without_set_epoch_and_the_next_epoch_follows(kind: str) -> None:
    epochs = orders_of(kind)
    sampler, again = make(kind), make(kind)
    sampler.set_epoch(2)
    taken(sampler, 30)

    again.load_state_dict(json.loads(json.dumps(sampler.state_dict())))

    assert (len(again), again.remaining, again.epoch) == (100, 70, 2)
    assert list(again) == epochs[2][30:]
    assert (again.remaining, again.epoch) == (100, 3)
    assert list(again) == epochs[3]


@KINDS
def test_set_epoch_of_the_restored_epoch_keeps_the_place_until_it_has_ended(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 40})

    for _ in range(2):
        sampler.set_epoch(1)
        assert taken(sampler, 5) == epochs[1][40:45]
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1][40:]
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]


@KINDS
def test_set_epoch_of_another_epoch_starts_at_its_beginning(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 40})

    sampler.set_epoch(3)

    assert sampler.remaining == 100
    assert list(sampler) == epochs[3]


@KINDS
def test_iterators_that_were_never_advanced_leave_a_restored_place_unused(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 40})

    iter(sampler)
    iter(sampler)

    assert list(sampler) == epochs[1][40:]


@KINDS
def test_a_restored_epoch_that_is_left_early_is_followed_by_the_next(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 40})

    taken(sampler, 5)

    assert sampler.state_dict()["place"] == 45
    assert list(sampler) == epochs[2]


@KINDS
def test_one_started_iterator_may_be_discarded_after_a_beginning_is_restored(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 0})

    ahead = iter(sampler)
    next(ahead)

    assert list(sampler) == epochs[1]
    assert list(sampler) == epochs[2]
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 0})
    assert list(sampler) == epochs[1]
    assert list(sampler) == epochs[2]


@KINDS
def test_set_epoch_during_an_epoch_applies_to_the_next_iterator(kind: str) -> None:
    epochs = orders_of(kind)
    sampler = make(kind)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": 0})
    iterator = iter(sampler)
    next(iterator)

    sampler.set_epoch(1)
    list(iterator)

    assert list(sampler) == epochs[1]


@KINDS
def test_the_state_at_the_end_of_an_epoch_is_the_beginning_of_the_next(kind: str) -> None:
    sampler = make(kind)
    sampler.set_epoch(1)
    iterator = iter(sampler)

    for _ in range(100):
        next(iterator)

    beginning = {**make(kind).state_dict(), "epoch": 2, "place": 0}
    assert sampler.state_dict() == beginning
    assert sampler.epoch == 1, "the iterator has not been asked for more"
    assert list(iterator) == []
    assert (sampler.state_dict(), sampler.epoch) == (beginning, 2)
    assert sampler.state_dict(consumed=100) == beginning
    assert sampler.state_dict(consumed=30) == {**beginning, "epoch": 1, "place": 30}


@KINDS
def test_a_state_taken_after_set_epoch_is_of_that_epoch(kind: str) -> None:
    sampler = make(kind)
    list(sampler)

    sampler.set_epoch(5)

    assert (sampler.state_dict()["epoch"], sampler.state_dict()["place"]) == (5, 0)
    assert sampler.state_dict(consumed=7)["epoch"] == 5


@pytest.mark.parametrize("kind", sorted(STATES))
def test_a_stored_state_of_version_1_loads(kind: str) -> None:
    sampler = make(kind, seed=3)

    sampler.load_state_dict(STATES[kind]["state"])

    assert list(sampler) == STATES[kind]["rest"]
    assert list(sampler)[:20] == STATES[kind]["next"]


@pytest.mark.parametrize(
    ("kwargs", "difference"),
    [
        ({"seed": 4}, "seed=0, but this sampler has 4"),
        ({"shuffle": False}, "shuffle=True, but this sampler has False"),
        ({"shufflefirst": True}, "shufflefirst=False"),
        ({"drop_last": True}, "drop_last=False"),
        ({"even": False}, "even=True"),
        ({"repartition_each_epoch": True}, "repartition_each_epoch=False"),
        ({"chunksize": 7}, "chunksize=100, but this sampler has 7"),
        ({"num_canonical_replicas": 3}, "num_canonical_replicas=1, but this sampler has 3"),
        ({"num_samples": 50}, r"num_samples=None, but this sampler has \[0, 50\]"),
    ],
)
def test_a_state_of_other_arguments_is_refused_with_the_difference(kwargs: dict[str, Any], difference: str) -> None:
    state = make("DistributedChunkedSampler", chunksize=100).state_dict()

    with pytest.raises(ValueError, match=difference):
        make("DistributedChunkedSampler", **kwargs).load_state_dict(state)


@pytest.mark.parametrize(
    ("data", "difference"),
    [
        (Sharded([20, 30, 51]), "of 100 samples in 3 shards, this dataset has 101 in 3"),
        (Sharded([30, 20, 50]), "under other names or with other counts"),
        (Sharded([20, 30, 50], prefix="val"), "under other names or with other counts"),
        (range(100), "of 100 samples in 3 shards, this dataset has 100 in 0"),
        (Sharded([20, 30]), "this dataset has 50 in 2"),
        (Sharded([20, 30, 50, 1], prefix="val"), "this dataset has 101 in 4"),
    ],
    ids=["a sample more", "other order", "other names", "no shards", "a shard less", "added to other data"],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_state_of_other_data_is_refused_with_the_difference(data: Any, difference: str, strict: bool) -> None:
    state = make("DistributedChunkedSampler").state_dict()

    with pytest.raises(ValueError, match=difference):
        make("DistributedChunkedSampler", data).load_state_dict(state, strict=strict)


@KINDS
def test_a_state_loads_for_the_same_data_in_another_place(kind: str) -> None:
    state = make(kind, Sharded([20, 30, 50], folder="s3://me:secret@bucket/x")).state_dict()

    make(kind, Sharded([20, 30, 50], folder="/local")).load_state_dict(state)

    assert "secret" not in json.dumps(state)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("ChunkedSampler", [20, 30, 50, 40]),
        ("ChunkedSampler", None),
        ("DistributedChunkedSampler", [20, 30, 50, 40]),
        ("DistributedChunkedSampler", None),
        ("ShardListSampler", [20, 30, 50, 40]),
    ],
)
def test_a_restored_epoch_ends_with_its_own_data_when_shards_were_added(kind: str, more: list[int] | None) -> None:
    before = range(100) if more is None else Sharded(more[:3])
    after = range(140) if more is None else Sharded(more)
    sampler, again, new = make(kind, before), make(kind, after), make(kind, after)
    sampler.set_epoch(2)
    list(islice(sampler, 30))
    state = sampler.state_dict()
    sampler.set_epoch(2)
    rest = list(sampler)[30:]

    with pytest.raises(ValueError, match=r"strict=False\) ends the epoch"):
        again.load_state_dict(state)
    again.load_state_dict(state, strict=False)

    assert again.remaining == 70
    assert again.state_dict() == state, "stopped again before it goes on"
    assert list(again) == rest
    assert len(again) == 140
    following = list(again)
    assert sorted(following) == list(range(140))
    if kind != "DistributedChunkedSampler":  # its chunk size stays that of the state
        new.set_epoch(3)
        assert following == list(new)


def test_lanes_and_chunk_size_come_from_the_state_unless_they_are_given() -> None:
    data = Sharded([10] * 100)
    before = [DistributedChunkedSampler(data, num_replicas=4, rank=rank, chunksize=50) for rank in range(4)]
    state = before[0].state_dict()

    after = DistributedChunkedSampler(data, num_replicas=2, rank=0)
    after.load_state_dict(state)

    assert (after.num_canonical_replicas, after.chunksize) == (4, 50)
    first, third = (list(before[rank]) for rank in (0, 2))
    assert list(after)[:4] == [first[0], third[0], first[1], third[1]]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "not the state of a sampler"),
        ({"_index_sampler_state": None}, "not the state of a sampler"),
        ({"version": 2, "epoch": 0, "place": 0}, "version 2"),
        ({"version": 1, "kind": "ChunkedSampler", "epoch": 0, "place": 0, "data": {}}, "no 'arguments'"),
        ({**make("ShardListSampler").state_dict()}, "of a ShardListSampler"),
        ({**make("ChunkedSampler").state_dict(), "place": -1}, "place is -1"),
    ],
)
def test_loading_anything_but_a_state_is_an_error(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("ChunkedSampler").load_state_dict(state)


def test_a_negative_number_of_consumed_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="consumed is -1"):
        make("ChunkedSampler").state_dict(consumed=-1)
