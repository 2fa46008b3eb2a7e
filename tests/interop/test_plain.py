"""Without torch, a dataset can be read by index, in loops and in several processes."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import wids
from tests.interop.conftest import NUM_SAMPLES

if TYPE_CHECKING:
    from pathlib import Path


def read_text(task: tuple[wids.ShardListDataset, int]) -> str:
    dataset, index = task
    return str(dataset[index]["txt"])


def test_this_environment_has_no_torch() -> None:
    assert importlib.util.find_spec("torch") is None


def test_loops_slices_and_batches_need_no_torch(dataset: wids.ShardListDataset) -> None:
    texts = [f"text of {number}" for number in range(NUM_SAMPLES)]

    assert [sample["txt"] for sample in dataset] == texts
    assert [dataset[index]["txt"] for index in range(-NUM_SAMPLES, 0)] == texts
    assert [sample["txt"] for sample in dataset[5:20:3]] == texts[5:20:3]
    assert [sample["txt"] for sample in dataset.__getitems__([3, 1, 2])] == [texts[3], texts[1], texts[2]]


def test_samplers_need_no_torch(dataset: wids.ShardListDataset) -> None:
    sampler: Any = wids.ChunkedSampler(dataset, seed=3)

    assert sorted(sampler) == list(range(NUM_SAMPLES))


def test_a_process_pool_reads_every_sample(dataset: wids.ShardListDataset) -> None:
    with ProcessPoolExecutor(2) as pool:
        texts = list(pool.map(read_text, [(dataset, index) for index in range(NUM_SAMPLES)]))

    assert texts == [f"text of {number}" for number in range(NUM_SAMPLES)]


def test_a_view_of_bytes_is_an_array_without_a_copy(descriptor: Path) -> None:
    import numpy as np

    dataset = wids.ShardListDataset(descriptor, transformations=[])

    array = np.frombuffer(dataset.view(3)[".txt"], np.uint8)

    assert array.tobytes() == b"text of 3"
    assert not array.flags.owndata
