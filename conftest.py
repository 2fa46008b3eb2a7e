"""The files and names that the examples in docstrings use.

In their working folder: `train.json` and its two shards of fifty samples each, with `.txt` and `.cls`. As `dataset`: a
dataset of twenty samples in two shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import write_descriptor, write_shards

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _example(doctest_namespace: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    import wids

    folder = tmp_path_factory.mktemp("example")
    shards = write_shards(folder, [12, 8])
    doctest_namespace["dataset"] = wids.ShardListDataset(shards, cache_dir=str(folder / "cache"), transformations=[])


@pytest.fixture(autouse=True)
def _in_a_folder_with_shards(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(request.node, pytest.DoctestItem) and _reads_shards(request.node):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
        shards = [{"url": url, "nsamples": count} for url, count in write_shards(tmp_path, [50, 50])]
        write_descriptor(tmp_path / "train.json", shards, name="train")


def _reads_shards(item: pytest.DoctestItem) -> bool:
    return any(name in line.source for line in item.dtest.examples for name in ("train.json", "shard-0000.tar"))
