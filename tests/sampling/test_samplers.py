"""The order is 0.1.11's, the ranks are equal, and each epoch is another one."""

from __future__ import annotations

import json
import os
import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.multiprocessing.spawn import spawn
from torch.utils.data import DataLoader, DistributedSampler

import wids
from tests.sampling.make_golden import digest
from wids.sampling import ChunkedSampler, DistributedChunkedSampler, ShardListSampler, iterate_ranges

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())


def make(case: dict[str, Any]) -> Any:
    kinds: dict[str, Any] = {"ChunkedSampler": ChunkedSampler, "ShardListSampler": ShardListSampler}
    return kinds[case["kind"]](range(case["n"]), **case["kwargs"])


def test_every_order_is_that_of_0_1_11() -> None:
    for case in GOLDEN:
        sampler = make(case)
        sampler.set_epoch(case["epoch"])
        order = list(sampler)

        assert order[:5] == case["head"], case
        assert digest(order) == case["digest"], case
        assert len(sampler) == len(order)


@given(
    n=st.integers(0, 200), ranks=st.integers(1, 9), chunksize=st.integers(1, 60), epoch=st.integers(0, 3),
    shuffle=st.booleans(), drop_last=st.booleans(), even=st.booleans(), repartition=st.booleans(),
)  # fmt: skip
def test_ranks_are_equal_and_together_see_everything(
    n: int, ranks: int, chunksize: int, epoch: int, shuffle: bool, drop_last: bool, even: bool, repartition: bool
) -> None:
    orders = []
    for rank in range(ranks):
        sampler = DistributedChunkedSampler(
            range(n), num_replicas=ranks, rank=rank, chunksize=chunksize, shuffle=shuffle, drop_last=drop_last,
            even=even, repartition_each_epoch=repartition,
        )  # fmt: skip
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
        assert len(sampler) == len(orders[-1])
    together = list(chain.from_iterable(orders))

    if even:
        assert len({len(order) for order in orders}) == 1
    if drop_last:
        assert len(set(together)) == len(together) == n // ranks * ranks
    elif even:
        assert set(together) == set(range(n))
    else:
        assert sorted(together) == list(range(n))


def test_a_rank_walks_what_0_1_11_gave_it() -> None:
    for rank in range(4):
        sampler = DistributedChunkedSampler(range(1000), num_replicas=4, rank=rank, chunksize=100, seed=3)
        old = ChunkedSampler(range(1000), num_samples=(250 * rank, 250 * rank + 250), chunksize=100, seed=3)

        assert [list(sampler), list(sampler)] == [list(old), list(old)]


def test_an_epoch_left_early_is_followed_by_the_next_one() -> None:
    sampler = ChunkedSampler(range(100), chunksize=10)
    orders = [list(ChunkedSampler(range(100), chunksize=10)) for _ in range(1)]
    second = ChunkedSampler(range(100), chunksize=10)
    second.set_epoch(1)

    iterator = iter(sampler)
    first_three = [next(iterator) for _ in range(3)]

    assert first_three == orders[0][:3]
    assert list(sampler) == list(second)


def test_an_iterator_that_is_thrown_away_uses_up_nothing() -> None:
    sampler = ChunkedSampler(range(100), chunksize=10)

    iter(sampler)

    assert list(sampler) == list(ChunkedSampler(range(100), chunksize=10))


def test_over_epochs_a_rank_sees_everything_when_repartitioned() -> None:
    sampler = DistributedChunkedSampler(range(64), num_replicas=4, rank=1, chunksize=4, repartition_each_epoch=True)

    assert set(chain.from_iterable(list(sampler) for _ in range(40))) == set(range(64))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_has_a_length_and_goes_through_epochs(workers: int) -> None:
    data = list(range(20))
    for sampler in (ShardListSampler(data, lengths=[10, 10]), ChunkedSampler(data, chunksize=5)):
        loader: DataLoader[int] = DataLoader(data, sampler=sampler, batch_size=3, num_workers=workers)  # type: ignore[arg-type]

        epochs = [torch.cat(list(loader)).tolist() for _ in range(2)]

        assert len(loader) == 7
        assert [sorted(epoch) for epoch in epochs] == [data, data]
        assert epochs[0] != epochs[1]


def test_the_rank_comes_from_arguments_environment_or_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = range(10)

    assert list(DistributedChunkedSampler(data, shuffle=False)) == list(data)
    assert list(DistributedChunkedSampler(data, num_replicas=5, rank=0, shuffle=False)) == [0, 1]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(DistributedChunkedSampler(data, shuffle=False)) == [5, 6, 7, 8, 9]
    assert list(DistributedChunkedSampler(data, rank=0, shuffle=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kwargs", [{"rank": 1}, {"num_replicas": 2}])
def test_half_a_rank_is_an_error(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give both"):
        len(DistributedChunkedSampler(range(10), **kwargs))


@pytest.mark.parametrize(
    "make_wrong",
    [
        lambda: DistributedChunkedSampler(range(10), rank=2, num_replicas=2),
        lambda: ChunkedSampler(range(10), num_samples=11),
        lambda: ChunkedSampler(range(10), num_samples=(3, 2)),
        lambda: ChunkedSampler(range(10), chunksize=0),
    ],
)
def test_numbers_out_of_range_are_errors(make_wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"is \(?\d"):
        make_wrong()


def test_it_is_a_distributed_sampler_and_pickles() -> None:
    sampler = DistributedChunkedSampler(range(10), num_replicas=2, rank=1, chunksize=3)

    assert isinstance(sampler, DistributedSampler)
    assert isinstance(sampler, wids.ChunkedSampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


def test_chunks_default_to_eight_shards() -> None:
    class Sharded:
        lengths = [10] * 20

        def __len__(self) -> int:
            return 200

    assert DistributedChunkedSampler(Sharded()).chunksize == 80
    assert DistributedChunkedSampler(range(3)).chunksize == 1_000_000


def test_iterate_ranges_shuffles_only_what_is_asked() -> None:
    import random

    assert list(iterate_ranges([(0, 2), (5, 7)], random.Random(0), False, False)) == [0, 1, 5, 6]


def _find_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    sampler = DistributedChunkedSampler(range(10), shuffle=False)
    Path(folder, f"{rank}.json").write_text(json.dumps([sampler.rank, list(sampler)]))
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_of_a_real_process_group_are_found(tmp_path: Path) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)

    spawn(_find_rank, args=(str(tmp_path),), nprocs=2)

    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found == [[0, [0, 1, 2, 3, 4]], [1, [5, 6, 7, 8, 9]]]
