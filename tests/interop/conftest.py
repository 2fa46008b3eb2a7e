from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import wids
from tests.support import write_shards
from wids.cli import main

if TYPE_CHECKING:
    from pathlib import Path

NUM_SAMPLES = 25


def pytest_ignore_collect() -> bool | None:
    """Ignore these tests except in `make test-interop`, which makes the environments that they need."""
    return None if os.environ.get("WIDS_INTEROP") else True


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    """A descriptor of three shards with 25 samples in all, each with a text and a number."""
    write_shards(tmp_path, [10, 0, 15])
    assert main(["create", str(tmp_path), "-o", str(tmp_path / "train.json")]) == 0
    return tmp_path / "train.json"


@pytest.fixture
def dataset(descriptor: Path) -> wids.ShardListDataset:
    return wids.ShardListDataset(descriptor)
