"""Batches share a bucket, ranks have equally many, and no sample is lost by a stop."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.sampling.test_ahead import RecordsPrefetch
from wids.sampling import BucketBatchSampler, ChunkedSampler, DistributedChunkedSampler, MixtureSampler
from wids.sampling.seeds import SeededIndex

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


def make(
    n: int, ranks: int, rank: int, batch_size: int | None, num_buckets: int = 3, **kwargs: Any
) -> BucketBatchSampler:
    sampler = DistributedChunkedSampler(range(n), num_replicas=ranks, rank=rank, chunksize=20, num_canonical_replicas=2)
    return BucketBatchSampler(sampler, batch_size, np.arange(n) % 7 % num_buckets, **kwargs)


def cost_of(index: int) -> int:
    return 1 + index * 37 % 10


LIMITS = st.sampled_from([{"batch_size": 1}, {"batch_size": 4}, {"batch_size": None}, {"batch_size": 3, "cost": True}])


def with_cost(n: int, limits: dict[str, Any]) -> dict[str, Any]:
    if limits["batch_size"] is None or limits.get("cost"):
        return {"batch_size": limits["batch_size"], "cost": [cost_of(index) for index in range(n)], "max_cost": 15}
    return limits


@given(
    n=st.integers(0, 150), ranks=st.integers(1, 5), num_buckets=st.integers(1, 4), epoch=st.integers(0, 2),
    drop_last=st.booleans(), limits=LIMITS,
)  # fmt: skip
def test_ranks_have_equal_numbers_of_batches_of_one_bucket_and_see_everything(
    n: int, ranks: int, num_buckets: int, epoch: int, drop_last: bool, limits: dict[str, Any]
) -> None:
    limits = with_cost(n, limits)
    dealt = []
    for rank in range(ranks):
        batches = make(n, ranks, rank, num_buckets=num_buckets, drop_last=drop_last, **limits)
        batches.set_epoch(epoch)
        announced = len(batches)
        dealt.append(list(batches))
        assert announced == len(dealt[-1])
    together = Counter(chain.from_iterable(chain.from_iterable(dealt)))

    assert len({len(batches) for batches in dealt}) == 1
    for batches_at_once in zip(*dealt, strict=True):
        assert len({index % 7 % num_buckets for batch in batches_at_once for index in batch}) == 1
        for batch in batches_at_once:
            assert 1 <= len(batch) <= (limits["batch_size"] or 15)
            if "cost" in limits:
                assert sum(map(cost_of, batch)) <= 15
            elif drop_last:
                assert len(batch) == limits["batch_size"]
    places = Counter(chain.from_iterable(block.tolist() for block in make(n, ranks, 0, 1).sampler.global_order(epoch)))
    if drop_last:
        assert together <= places
    else:
        assert together >= places
        assert sum((together - places).values()) <= num_buckets * (ranks - 1)


@given(
    n=st.integers(0, 150), epoch=st.integers(0, 2), limits=LIMITS,
    stops=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(1, 5)), max_size=4),
)  # fmt: skip
def test_resuming_with_other_ranks_and_batch_sizes_loses_no_sample(
    n: int, epoch: int, limits: dict[str, Any], stops: list[tuple[int, int, int]]
) -> None:
    limits = with_cost(n, limits)
    seen: Counter[int] = Counter()
    repeats = 0
    state = {**make(n, 1, 0, **limits).state_dict(), "epoch": epoch}
    for ranks, steps, batch_size in [*stops, (1, 10_000, 2)]:
        samplers = [make(n, ranks, rank, **{**limits, "batch_size": batch_size}) for rank in range(ranks)]
        for sampler in samplers:
            sampler.load_state_dict(state)
        if samplers[0].epoch > epoch:
            break
        remaining = samplers[0].remaining
        taken = [list(islice(sampler, steps)) for sampler in samplers]
        assert {len(batches) for batches in taken} == {min(steps, remaining)}
        seen.update(chain.from_iterable(chain.from_iterable(taken)))
        repeats += 3 * (ranks - 1)
        state = json.loads(json.dumps(samplers[0].state_dict()))
    places = Counter(chain.from_iterable(block.tolist() for block in make(n, 1, 0, 1).sampler.global_order(epoch)))

    assert state["epoch"] == epoch + 1 or not n
    assert seen >= places
    assert sum((seen - places).values()) <= repeats


def test_resuming_with_the_same_ranks_yields_the_same_batches() -> None:
    whole = make(100, 2, 1, 4)
    epochs = [list(whole) for _ in range(3)]
    sampler = make(100, 2, 1, 4)
    sampler.set_epoch(1)
    list(islice(sampler, 5))
    for done in (3, 5):  # how many of the yielded batches training has used
        again = make(100, 2, 1, 4)
        again.load_state_dict(sampler.state_dict(consumed=done))
        again.set_epoch(1)

        assert list(again) == epochs[1][done:]
        assert list(again) == epochs[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders_accept_bucket_batches_as_batch_sampler(workers: int) -> None:
    data = list(range(100))
    expected = make(100, 2, 1, 4)
    epochs = [list(expected) for _ in range(2)]
    plain: DataLoader[int] = DataLoader(data, batch_sampler=make(100, 2, 1, 4), num_workers=workers)  # type: ignore[arg-type]
    stateful = StatefulDataLoader(data, batch_sampler=make(100, 2, 1, 4), num_workers=workers)
    again = StatefulDataLoader(data, batch_sampler=make(100, 2, 1, 4), num_workers=workers)

    first = [batch.tolist() for batch in islice(stateful, 4)]
    again.load_state_dict(stateful.state_dict())

    assert [[batch.tolist() for batch in plain] for _ in range(2)] == epochs
    assert len(plain) > 0
    assert first + [batch.tolist() for batch in again] == epochs[0]
    assert [batch.tolist() for batch in again] == epochs[1]


def test_set_epoch_of_the_inner_sampler_sets_the_epoch_of_the_batches() -> None:
    first, second = make(50, 1, 0, 4), make(50, 1, 0, 4)

    first.set_epoch(2)
    second.sampler.set_epoch(2)

    assert list(first) == list(second)
    assert second.epoch == second.sampler.epoch == 3


def test_buckets_may_be_names_or_a_function_that_is_called_once_per_index() -> None:
    calls: Counter[int] = Counter()

    def bucket(index: int) -> str:
        calls[index] += 1
        return "ab"[index % 2]

    by_function = BucketBatchSampler(ChunkedSampler(range(20)), 3, bucket)
    by_array = BucketBatchSampler(ChunkedSampler(range(20)), 3, ["ab"[index % 2] for index in range(20)])

    assert [list(by_function), list(by_function)] == [list(by_array), list(by_array)]
    assert set(calls.values()) == {1}
    assert all(len({index % 2 for index in batch}) == 1 for batch in by_array)


def test_batches_of_a_mixture_keep_the_sample_seeds() -> None:
    import wids

    mixture = MixtureSampler(wids.concat([range(10), range(30)]), weights=[1, 1], sample_seeds=True)
    batches = list(BucketBatchSampler(mixture, 5, [0] * 10 + [1] * 30))

    assert {(len(batch), {index < 10 for index in batch} in ({True}, {False})) for batch in batches} == {(5, True)}
    assert all(isinstance(index, SeededIndex) for batch in batches for index in batch)
    assert torch.tensor(batches[0]).tolist() == batches[0]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((None,), {}, "neither batch_size nor max_cost"),
        ((0,), {}, "batch_size is 0"),
        ((4, [1, 2]), {}, r"buckets has the shape \(2,\)"),
        ((4,), {"max_cost": 3}, "give both"),
        ((4,), {"cost": [1, 2, 9, 4], "max_cost": 5}, "index 2 costs 9"),
        ((4,), {"cost": [1, -2, 9, 4], "max_cost": 5}, "index 1 costs -2"),
    ],
)
def test_wrong_limits_are_errors(args: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(BucketBatchSampler(ChunkedSampler(range(4)), *args, **kwargs))


def test_a_sampler_with_shards_ahead_is_refused() -> None:
    data = RecordsPrefetch([5, 5])

    with pytest.raises(ValueError, match="which buckets change; leave it at 0"):
        BucketBatchSampler(ChunkedSampler(data, shards_ahead=1), 2)


def test_a_sampler_of_another_package_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a sampler of wids"):
        BucketBatchSampler([1, 2, 3], 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"drop_last": True}, "drop_last=False"), ({"num_buckets": 2}, "other buckets")],
)
def test_a_state_of_other_arguments_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(50, 1, 0, 4, **kwargs).load_state_dict(make(50, 1, 0, 4).state_dict())


def test_consumed_beyond_what_was_yielded_is_an_error() -> None:
    sampler = make(50, 1, 0, 4)
    list(islice(sampler, 2))

    with pytest.raises(ValueError, match="only 2 were yielded"):
        sampler.state_dict(consumed=3)
