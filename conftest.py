"""What the examples in docstrings find at hand: `dataset`, twenty samples in two shards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import write_shards


@pytest.fixture(scope="session", autouse=True)
def _example(doctest_namespace: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    import wids

    folder = tmp_path_factory.mktemp("example")
    shards = write_shards(folder, [12, 8])
    doctest_namespace["dataset"] = wids.ShardListDataset(shards, cache_dir=str(folder / "cache"), transformations=[])
