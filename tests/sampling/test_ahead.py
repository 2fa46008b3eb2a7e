"""While indices are yielded, the coming shards are announced to the dataset."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampling.test_epochs import Sharded
from wids.sampling import ChunkedSampler, DistributedChunkedSampler, ShardListSampler


class RecordsPrefetch(Sharded):
    def __init__(self, counts: list[int]) -> None:
        super().__init__(counts)
        self.calls: list[list[int]] = []

    def prefetch(self, upcoming: list[int]) -> None:
        self.calls.append(list(upcoming))

    def shard_of(self, index: int) -> int:
        shard = 0
        while index >= self.lengths[shard]:
            index -= self.lengths[shard]
            shard += 1
        return shard


def test_shards_are_announced_in_the_order_in_which_they_are_read() -> None:
    data = RecordsPrefetch([20_000] * 6)
    sampler = ShardListSampler(data, shards_ahead=2, seed=1)
    list(sampler)
    data.calls.clear()

    order = list(dict.fromkeys(data.shard_of(index) for index in sampler))

    for call in data.calls:
        first = order.index(call[0])
        assert call == order[first : first + len(call)]
        assert len(call) in {3, 4} or call[-1] == order[-1], "one or two that are being read, and two ahead"
    assert list(dict.fromkeys(shard for call in data.calls for shard in call)) == order


def test_nothing_is_announced_before_an_index_is_asked_for() -> None:
    data = RecordsPrefetch([10] * 4)
    iterator = iter(ChunkedSampler(data, chunksize=20, shards_ahead=1))

    assert data.calls == []
    next(iterator)
    assert data.calls != []


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12), chunksize=st.integers(1, 60), ahead=st.integers(1, 4),
    ranks=st.integers(1, 4), lanes=st.integers(1, 5), place=st.integers(0, 60), repartition=st.booleans(),
)  # fmt: skip
def test_every_shard_that_is_read_was_announced_before(
    counts: list[int], chunksize: int, ahead: int, ranks: int, lanes: int, place: int, repartition: bool
) -> None:
    for rank in range(ranks):
        data = RecordsPrefetch(counts)
        sampler = DistributedChunkedSampler(
            data, num_replicas=ranks, rank=rank, chunksize=chunksize, num_canonical_replicas=lanes, shards_ahead=ahead,
            repartition_each_epoch=repartition, drop_last=True,
        )  # fmt: skip
        sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "place": place})
        expected = DistributedChunkedSampler(
            data, num_replicas=ranks, rank=rank, chunksize=chunksize, num_canonical_replicas=lanes,
            repartition_each_epoch=repartition, drop_last=True,
        )  # fmt: skip
        expected.load_state_dict(sampler.state_dict())
        announced: set[int] = set()

        for index in sampler:
            announced.update(shard for call in data.calls for shard in call)
            assert data.shard_of(index) in announced
        sampler.load_state_dict(expected.state_dict())
        assert list(sampler) == list(expected)


def test_shards_of_several_lanes_are_announced_in_turn() -> None:
    data = RecordsPrefetch([10] * 12)
    sampler = DistributedChunkedSampler(
        data, num_replicas=1, rank=0, num_canonical_replicas=3, chunksize=20, shards_ahead=3, shuffle=False
    )

    next(iter(sampler))

    assert data.calls[0][:6] == [0, 1, 4, 5, 8, 9]


@pytest.mark.parametrize("make", [ChunkedSampler, DistributedChunkedSampler, ShardListSampler])
def test_shards_ahead_of_a_dataset_without_prefetch_is_an_error(make: Any) -> None:
    with pytest.raises(TypeError, match=r"a Sharded has no prefetch\(\); leave it at 0"):
        make(Sharded([3]), shards_ahead=1)
    with pytest.raises(ValueError, match="shards_ahead is -1"):
        make(RecordsPrefetch([3]), shards_ahead=-1)


def test_announcing_does_not_change_the_order() -> None:
    data = RecordsPrefetch([7] * 30)
    plain, ahead = ChunkedSampler(data, chunksize=20), ChunkedSampler(data, chunksize=20, shards_ahead=4)

    assert [list(plain), list(plain)] == [list(ahead), list(ahead)]
    assert list(islice(ahead, 5)) == list(islice(plain, 5))
