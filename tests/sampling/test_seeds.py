"""The seeds of samples depend only on seed, epoch and index, whatever reads the samples."""

from __future__ import annotations

import pickle
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import wids
from tests.support import sample_members, write_shards, write_tar
from wids.sampling import DistributedChunkedSampler
from wids.sampling.seeds import SeededIndex, seed_indices

if TYPE_CHECKING:
    from pathlib import Path


def keep(batch: list[Any]) -> list[Any]:
    return batch


def seeds_of(dataset: Any, epoch: int, **kwargs: Any) -> dict[int, int]:
    sampler = DistributedChunkedSampler(dataset, num_replicas=1, rank=0, sample_seeds=True, chunksize=5)
    loader: DataLoader[Any] = DataLoader(dataset, sampler=sampler, batch_size=4, collate_fn=keep, **kwargs)
    for _ in range(epoch):
        list(loader)
    return {sample["__index__"]: sample["__seed__"] for batch in loader for sample in batch}


@pytest.fixture
def dataset(tmp_path: Path) -> wids.ShardListDataset:
    return wids.ShardListDataset(write_shards(tmp_path, [7, 6]))


@pytest.mark.parametrize(
    "workers",
    [{"num_workers": 2}, {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "spawn"}],
    ids=["fork", "persistent spawn"],
)
def test_seeds_do_not_depend_on_workers(dataset: Any, workers: dict[str, Any]) -> None:
    assert seeds_of(dataset, 1, **workers) == seeds_of(dataset, 1)
    assert len(set(seeds_of(dataset, 1).values())) == 13


@given(ranks=st.integers(1, 5), done=st.integers(0, 20), epoch=st.integers(0, 2))
def test_seeds_do_not_depend_on_ranks_or_stops(ranks: int, done: int, epoch: int) -> None:
    def sampler(num_replicas: int, rank: int, **kwargs: Any) -> DistributedChunkedSampler:
        return DistributedChunkedSampler(
            range(40), num_replicas=num_replicas, rank=rank, num_canonical_replicas=3, sample_seeds=True, **kwargs
        )

    def pairs(indices: Any) -> set[tuple[int, int]]:
        return {(int(index), index.sample_seed) for index in indices}

    alone = sampler(1, 0)
    alone.set_epoch(epoch)
    expected = pairs(alone)
    state = {**alone.state_dict(), "epoch": epoch, "place": done}
    for rank in range(ranks):
        restored = sampler(ranks, rank)
        restored.load_state_dict(state)

        assert pairs(restored) <= expected


def test_sample_seeds_differ_between_seeds_epochs_and_indices() -> None:
    made = [
        index.sample_seed
        for seed in (0, 1, -1)
        for epoch in (0, 1)
        for index in seed_indices(np.arange(1000), seed, epoch)
    ]

    assert len(set(made)) == 6000
    assert 0 <= min(made) < 2**58
    assert 2**62 < max(made) < 2**63
    torch.manual_seed(max(made))


def test_a_seeded_index_is_an_index_that_pickles() -> None:
    index = SeededIndex(3, 77)
    again = pickle.loads(pickle.dumps(index))

    assert (again, again.sample_seed, [0, 1, 2, 9][again]) == (3, 77, 9)


def test_views_and_mapped_functions_receive_the_seed(dataset: Any) -> None:
    augmented = dataset[2:].map(lambda sample: (sample["__index__"], sample["__seed__"]))

    assert augmented[SeededIndex(1, 77)] == (3, 77)
    assert "__seed__" not in dataset[0]


def test_a_replacement_of_a_damaged_sample_has_the_seed_of_the_requested_index(tmp_path: Path) -> None:
    members = sample_members(3)
    members[1] = (members[1][0], b"no number")
    shard = write_tar(tmp_path / "a.tar", members)
    dataset = wids.ShardListDataset([(str(shard), 3)], on_error="replace")

    sample = dataset[SeededIndex(0, 77)]

    assert (sample["__index__"], sample["__seed__"]) == (1, 77)


def test_without_sample_seeds_indices_are_plain() -> None:
    assert {type(index) for index in DistributedChunkedSampler(range(9))} == {int}
    assert list(chain(DistributedChunkedSampler(range(9), shuffle=False, sample_seeds=True))) == list(range(9))
