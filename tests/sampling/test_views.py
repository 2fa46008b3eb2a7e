"""Samplers over views read from few shards at a time, in this process and in workers, or warn if they cannot."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Subset, random_split

import wids
from tests.support import write_shards
from wids.sampling import scattered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARDS, PER_SHARD = 40, 50


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> wids.ShardListDataset:
    folder = tmp_path_factory.mktemp("views")
    return wids.ShardListDataset(write_shards(folder, [PER_SHARD] * SHARDS), cache_dir=str(folder / "cache"))


@pytest.fixture(autouse=True)
def _unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattered, "_warned", False)


def shards_of(view: wids.ShardListDataset, indices: list[int]) -> set[str]:
    return {view[index]["__shard__"] for index in indices}


def chunks(sampler: Any, size: int) -> Iterator[list[int]]:
    iterator = iter(sampler)
    while chunk := list(islice(iterator, size)):
        yield chunk


def test_a_chunk_of_a_view_touches_few_shards(dataset: wids.ShardListDataset) -> None:
    """With three in ten rows at random, a chunk of as many rows as four shards have touches five or six shards."""
    view = dataset.select(np.random.default_rng(0).random(len(dataset)) < 0.3)
    sampler = wids.ChunkedSampler(view, chunksize=60, shufflefirst=True)

    touched = [len(shards_of(view, chunk)) for chunk in chunks(sampler, 60)]

    assert sorted(sampler) == list(range(len(view)))
    assert sum(touched) / len(touched) < 6
    assert max(touched) <= 7


def test_each_rank_reads_its_own_shards_of_a_view(dataset: wids.ShardListDataset) -> None:
    view = dataset.split({"train": 0.8, "val": 0.2})["train"]
    ranks = [wids.DistributedChunkedSampler(view, num_replicas=4, rank=rank) for rank in range(4)]
    walked = [list(rank) for rank in ranks]

    assert sorted({index for indices in walked for index in indices}) == list(range(len(view)))
    # A quarter of the shards, and one more at each end of the quarter.
    assert max(len(shards_of(view, indices)) for indices in walked) <= SHARDS // 4 + 2


def test_a_shard_list_sampler_visits_each_shard_of_a_view_once(dataset: wids.ShardListDataset) -> None:
    view = dataset.select(exclude=range(200, 1700))
    sampler = wids.ShardListSampler(view, shufflefirst=True)
    walked = [view[index]["__shard__"] for index in sampler]

    visits = 1 + sum(walked[place] != walked[place - 1] for place in range(1, len(walked)))
    assert visits == view.num_shards == 10


def test_shards_ahead_of_a_view_are_those_of_its_rows(
    dataset: wids.ShardListDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = dataset.select(range(1500, 300, -1))
    announced: list[int] = []
    monkeypatch.setattr(dataset._cache, "fetch_ahead", announced.extend)

    next(iter(wids.ChunkedSampler(view, chunksize=50, shuffle=False, shards_ahead=2)))

    assert announced[:3] == [30, 29, 28]


def test_the_default_chunk_of_a_view_is_eight_shards_of_rows_in_any_order(dataset: wids.ShardListDataset) -> None:
    rows = np.flatnonzero(np.random.default_rng(0).random(len(dataset)) < 0.3)
    shuffled = np.random.default_rng(1).permutation(rows)
    samplers = [
        wids.DistributedChunkedSampler(dataset.select(chosen), num_replicas=1, rank=0) for chosen in (rows, shuffled)
    ]

    assert samplers[0].chunksize == samplers[1].chunksize == 8 * len(rows) // SHARDS


def test_a_state_of_one_view_is_refused_by_another(dataset: wids.ShardListDataset) -> None:
    even, odd = dataset[::2], dataset[1::2]
    sampler = wids.ChunkedSampler(even, chunksize=20)
    list(islice(iter(sampler), 30))
    state = sampler.state_dict()

    other = wids.ChunkedSampler(dataset[::2], chunksize=20)
    other.load_state_dict(state)
    assert other.remaining == len(even) - 30
    with pytest.raises(ValueError, match="other names or with other counts"):
        wids.ChunkedSampler(odd, chunksize=20).load_state_dict(state)
    assert even.fingerprint == state["data"]["digest"]


def test_a_state_of_a_view_resumes_when_rows_were_added(tmp_path: Path) -> None:
    written = write_shards(tmp_path, [20, 20, 20])
    before = wids.ShardListDataset(written[:2])[::2]
    after = wids.ShardListDataset(written)[::2]
    sampler = wids.ShardListSampler(before)
    list(islice(iter(sampler), 7))

    grown = wids.ShardListSampler(after)
    grown.load_state_dict(sampler.state_dict(), strict=False)

    assert grown.remaining == len(before) - 7


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_read_the_rows_of_a_view(dataset: wids.ShardListDataset, method: str) -> None:
    view = dataset.select([900, 3, 1999, 3, 40]).map(_index_and_key)
    loader = DataLoader(view, batch_size=2, num_workers=1, multiprocessing_context=method, collate_fn=list)

    found = [pair for batch in loader for pair in batch]

    assert found == [(number, f"{number:06d}") for number in (900, 3, 1999, 3, 40)]


def _index_and_key(sample: dict[str, Any]) -> tuple[int, str]:
    return sample["__index__"], sample["__key__"]


def test_scattered_subsets_and_views_log_one_warning(
    dataset: wids.ShardListDataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, _ = random_split(dataset, [0.5, 0.5])
    scattered_ones = [train, Subset(train, range(300)), dataset.select(list(train.indices))]
    for data in scattered_ones:
        monkeypatch.setattr(scattered, "_warned", False)
        caplog.clear()

        wids.ChunkedSampler(data)  # type: ignore[arg-type]
        wids.DistributedChunkedSampler(data, num_replicas=1, rank=0)  # type: ignore[arg-type]

        messages = [record.getMessage() for record in caplog.records if record.name == scattered.logger.name]
        assert len(messages) == 1
        assert "dataset.select(" in messages[0]
        assert "dataset.split(" in messages[0]


def test_subsets_and_views_that_keep_shards_together_log_no_warning(
    dataset: wids.ShardListDataset, caplog: pytest.LogCaptureFixture
) -> None:
    fine = [
        dataset, dataset[::3], dataset[::-1], dataset.select(np.arange(2000) % 7 == 0), Subset(dataset, range(100, 900)),
        Subset(dataset, []), dataset.select([]), range(100), wids.concat([dataset, dataset]),
    ]  # fmt: skip
    for data in fine:
        wids.ChunkedSampler(data)  # type: ignore[arg-type]

    assert [record for record in caplog.records if record.name == scattered.logger.name] == []
