"""Ray Data reads samples by index, in its own processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import ray

from tests.interop.conftest import NUM_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import wids

TEXTS = [f"text of {number}" for number in range(NUM_SAMPLES)]


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_ray_rows_are_samples(dataset: wids.ShardListDataset) -> None:
    rows = ray.data.range(len(dataset)).map(lambda row: dataset[row["id"]]).take_all()

    assert sorted(row[".txt"] for row in rows) == sorted(TEXTS)
    assert {type(row) for row in rows} == {dict}


@pytest.mark.filterwarnings("ignore")
def test_ray_batches_are_read_by_getitems(dataset: wids.ShardListDataset) -> None:
    def read(batch: dict[str, Any]) -> dict[str, Any]:
        return {"txt": [sample["txt"] for sample in dataset.__getitems__(batch["id"])]}

    rows = ray.data.range(len(dataset)).map_batches(read, batch_size=4).take_all()

    assert sorted(row["txt"] for row in rows) == sorted(TEXTS)
