"""The order is that of 0.1.11, ranks are equally long, and each epoch has another order."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import assume, given
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
    assume((even or not drop_last) and (shuffle or not repartition))
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


def test_an_epoch_left_early_is_followed_by_the_next_one() -> None:
    sampler = ChunkedSampler(range(100), chunksize=10)
    whole = ChunkedSampler(range(100), chunksize=10)
    epochs = [list(whole) for _ in range(2)]

    first_three = list(islice(sampler, 3))

    assert first_three == epochs[0][:3]
    assert list(sampler) == epochs[1]


def test_an_iterator_that_was_never_advanced_uses_up_no_epoch() -> None:
    sampler = ChunkedSampler(range(100), chunksize=10)

    iter(sampler)

    assert list(sampler) == list(ChunkedSampler(range(100), chunksize=10))


@pytest.mark.parametrize("chunksize", [1, 4, 30, 64, None])
@pytest.mark.parametrize("rank", range(4))
def test_repartitioning_shows_every_sample_to_every_rank_over_the_epochs(rank: int, chunksize: int | None) -> None:
    sampler = DistributedChunkedSampler(
        range(64), num_replicas=4, rank=rank, chunksize=chunksize, repartition_each_epoch=True
    )

    assert set(chain.from_iterable(list(sampler) for _ in range(60))) == set(range(64))


@pytest.mark.parametrize("chunksize", [1, 4, 11, None])
def test_repartitioning_changes_which_samples_drop_last_leaves_out(chunksize: int | None) -> None:
    ranks = [
        DistributedChunkedSampler(
            range(11), num_replicas=4, rank=rank, chunksize=chunksize, drop_last=True, repartition_each_epoch=True
        )
        for rank in range(4)
    ]

    epochs = [set(chain.from_iterable(list(sampler) for sampler in ranks)) for _ in range(60)]

    assert {len(epoch) for epoch in epochs} == {8}
    assert set.union(*({*range(11)} - epoch for epoch in epochs)) == set(range(11))


@pytest.mark.parametrize(("shufflefirst", "same"), [(False, True), (True, False)])
def test_repartition_leaves_chunks_in_place_in_epoch_0_unless_shufflefirst(shufflefirst: bool, same: bool) -> None:
    def lane_of(rank: int, repartition: bool) -> list[int]:
        return sorted(
            DistributedChunkedSampler(
                range(100), num_replicas=4, rank=rank, chunksize=10, shufflefirst=shufflefirst,
                repartition_each_epoch=repartition,
            )
        )  # fmt: skip

    assert all(lane_of(rank, True) == lane_of(rank, False) for rank in range(4)) == same


def test_an_empty_lane_repeats_its_neighbour_when_repartitioned() -> None:
    lanes = []
    for rank in range(8):
        sampler = DistributedChunkedSampler(
            range(9), num_replicas=8, rank=rank, chunksize=4, shufflefirst=True, repartition_each_epoch=True
        )
        lanes.append(list(sampler))

    assert lanes[5] == lanes[6] == lanes[7] == lanes[4]
    assert set(chain.from_iterable(lanes)) == set(range(9))


@pytest.mark.parametrize(
    "options",
    [{"drop_last": True, "even": False}, {"repartition_each_epoch": True, "shuffle": False}],
    ids=["drop_last but every sample", "other chunks but no shuffle"],
)
def test_arguments_that_contradict_each_other_are_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give one of them"):
        DistributedChunkedSampler(range(10), **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_has_a_length_and_goes_through_epochs(workers: int) -> None:
    data = list(range(20))
    for sampler in (ShardListSampler(data, lengths=[10, 10]), ChunkedSampler(data, chunksize=5)):
        loader: DataLoader[int] = DataLoader(data, sampler=sampler, batch_size=3, num_workers=workers)  # type: ignore[arg-type]

        epochs = [torch.cat(list(loader)).tolist() for _ in range(2)]

        assert len(loader) == 7
        assert [sorted(epoch) for epoch in epochs] == [data, data]
        assert epochs[0] != epochs[1]


def test_the_rank_comes_from_arguments_then_environment_else_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = range(10)

    assert list(DistributedChunkedSampler(data, shuffle=False)) == list(data)
    assert list(DistributedChunkedSampler(data, num_replicas=5, rank=0, shuffle=False)) == [0, 1]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(DistributedChunkedSampler(data, shuffle=False)) == [5, 6, 7, 8, 9]
    assert list(DistributedChunkedSampler(data, rank=0, shuffle=False)) == [0, 1, 2, 3, 4]


def test_a_rank_that_is_set_after_the_first_epoch_is_used_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = DistributedChunkedSampler(range(10), shuffle=False)

    alone = list(sampler)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert alone == list(range(10))
    assert list(sampler) == list(pickle.loads(pickle.dumps(sampler))) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_a_rank_in_the_environment_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, "x")

    with pytest.raises(ValueError, match=f"{name} is 'x'; it must be a whole number"):
        len(DistributedChunkedSampler(range(10)))


def test_assigning_the_epoch_has_the_effect_of_set_epoch() -> None:
    for sampler in (ChunkedSampler(range(50), chunksize=10), ShardListSampler(None, lengths=[20, 30])):
        orders = [list(sampler) for _ in range(4)]
        assert sampler.epoch == 4

        sampler.epoch = 3

        assert list(sampler) == orders[3]
        assert sampler.epoch == 4


def test_numpy_integers_are_accepted() -> None:
    lengths = np.array([3, 0, 4])

    assert list(ChunkedSampler(range(9), num_samples=np.int64(4), shuffle=False)) == [0, 1, 2, 3]  # type: ignore[arg-type]
    assert list(ShardListSampler(None, lengths=lengths)) == list(ShardListSampler(None, lengths=[3, 0, 4]))  # type: ignore[arg-type]


def test_dslength_per_replica_is_kept_from_0_1_11() -> None:
    assert ChunkedSampler(range(9)).dslength_per_replica == 9
    assert ChunkedSampler(range(9), dslength_per_replica=4).dslength_per_replica == 4
    assert DistributedChunkedSampler(range(9), num_replicas=2, rank=1).dslength_per_replica == 5


@pytest.mark.parametrize("kwargs", [{"rank": 1}, {"num_replicas": 2}])
def test_rank_or_num_replicas_alone_is_an_error(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give both"):
        len(DistributedChunkedSampler(range(10), **kwargs))


@pytest.mark.parametrize(
    "make_wrong",
    [
        lambda: DistributedChunkedSampler(range(10), rank=2, num_replicas=2),
        lambda: ChunkedSampler(range(10), num_samples=11),
        lambda: ChunkedSampler(range(10), num_samples=(3, 2)),
        lambda: ChunkedSampler(range(10), chunksize=0),
        lambda: ChunkedSampler(range(10), num_samples=-1),
        lambda: ShardListSampler(None, lengths=[3, -1]),
    ],
    ids=[
        "rank",
        "num_samples beyond the end",
        "start after stop",
        "chunksize 0",
        "negative num_samples",
        "negative length",
    ],
)
def test_numbers_out_of_range_are_errors(make_wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"(is|has) \(?-?\d"):
        make_wrong()


@pytest.mark.parametrize(
    "make_wrong",
    [
        lambda: DistributedChunkedSampler(range(10), rank="0", num_replicas=2),  # type: ignore[arg-type]
        lambda: DistributedChunkedSampler(range(10), rank=0, num_replicas=2.0),  # type: ignore[arg-type]
        lambda: ChunkedSampler(range(10), num_samples=(0, 2.5)),  # type: ignore[arg-type]
        lambda: ChunkedSampler(range(10), chunksize=1e6),  # type: ignore[arg-type]
        lambda: ShardListSampler(None, lengths=[1.5]),  # type: ignore[list-item]
        lambda: ChunkedSampler(range(10)).set_epoch("1"),  # type: ignore[arg-type]
    ],
    ids=["rank", "num_replicas", "num_samples", "chunksize", "length", "epoch"],
)
def test_values_that_are_no_whole_numbers_are_errors(make_wrong: Any) -> None:
    with pytest.raises(TypeError, match="must be a whole number"):
        make_wrong()


def test_distributed_chunked_sampler_is_a_distributed_sampler_and_pickles() -> None:
    sampler = DistributedChunkedSampler(range(10), num_replicas=2, rank=1, chunksize=3)

    assert isinstance(sampler, DistributedSampler)
    assert isinstance(sampler, wids.ChunkedSampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


class Sharded:
    def __init__(self, lengths: Any, length: int) -> None:
        self.lengths = lengths
        self.length = length

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize(
    ("dataset", "chunksize"),
    [
        (Sharded([10] * 20, 200), 80),
        (Sharded(np.full(20, 10), 200), 80),
        (Sharded([10] * 20, 7), 1_000_000),
        (Sharded([], 0), 1_000_000),
        (range(3), 1_000_000),
    ],
    ids=["list", "array", "lengths of something else", "no shards", "no lengths"],
)
def test_the_default_chunk_size_is_eight_shards(dataset: Any, chunksize: int) -> None:
    assert DistributedChunkedSampler(dataset).chunksize == chunksize


def test_iterate_ranges_without_shuffling_keeps_the_order() -> None:
    assert list(iterate_ranges([(0, 2), (5, 7)], random.Random(0), False, False)) == [0, 1, 5, 6]


def _find_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    sampler = DistributedChunkedSampler(range(10), shuffle=False)
    Path(folder, f"{rank}.json").write_text(json.dumps([sampler.rank, list(sampler)]))
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_of_a_real_process_group_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    spawn(_find_rank, args=(str(tmp_path),), nprocs=2)

    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found == [[0, [0, 1, 2, 3, 4]], [1, [5, 6, 7, 8, 9]]]


def test_samplers_need_no_torch() -> None:
    program = """
import sys
sys.modules["torch"] = None
import wids
sampler = wids.DistributedChunkedSampler(range(10), num_replicas=2, rank=1, shuffle=False)
mixture = wids.MixtureSampler(wids.concat([range(2), range(2)]), weights=[1, 1], shuffle=False)
print(list(sampler), sampler.state_dict()["epoch"], list(mixture), list(wids.BucketBatchSampler(mixture, 2)))
"""

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout == "[5, 6, 7, 8, 9] 1 [0, 2, 1, 3] [[0, 2], [1, 3]]\n"
