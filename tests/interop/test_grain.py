"""A dataset is a `RandomAccessDataSource` for Grain: in pipelines, in loaders with workers, with restored states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grain.python as grain
import pytest

import wids
from tests.interop.conftest import NUM_SAMPLES

if TYPE_CHECKING:
    from pathlib import Path


def make_loader(dataset: wids.ShardListDataset, num_workers: int) -> Any:
    sampler = grain.IndexSampler(
        num_records=len(dataset), shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=0
    )
    return grain.DataLoader(data_source=dataset, sampler=sampler, worker_count=num_workers)


def test_a_dataset_is_a_random_access_data_source(dataset: wids.ShardListDataset) -> None:
    assert isinstance(dataset, grain.RandomAccessDataSource)


def test_a_pipeline_reads_each_sample_once(dataset: wids.ShardListDataset) -> None:
    pipeline = grain.MapDataset.source(dataset).shuffle(seed=1).map(lambda sample: sample["cls"]).batch(4)

    batches = [pipeline[number].tolist() for number in range(len(pipeline))]

    assert sorted(label for batch in batches for label in batch) == sorted(number % 10 for number in range(NUM_SAMPLES))


def test_processes_that_read_ahead_read_each_sample_once(dataset: wids.ShardListDataset) -> None:
    pipeline = grain.MapDataset.source(dataset).seed(3).shuffle().to_iter_dataset()

    ahead = pipeline.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))

    assert sorted(sample["__index__"] for sample in ahead) == list(range(NUM_SAMPLES))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_resumes_from_its_state_with_the_dataset_opened_again(descriptor: Path, num_workers: int) -> None:
    loader = iter(make_loader(wids.ShardListDataset(descriptor), num_workers))
    first = [next(loader)["__index__"] for _ in range(7)]
    state = loader.get_state()

    # The state contains the source's repr, which must not change from process to process.
    again = iter(make_loader(wids.ShardListDataset(descriptor), num_workers))
    again.set_state(state)
    rest = [sample["__index__"] for sample in again]

    assert sorted(first + rest) == list(range(NUM_SAMPLES))
