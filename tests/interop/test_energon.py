"""Energon opens what wids exports, and wids opens what Energon prepares."""

from __future__ import annotations

import io
import sqlite3
import tarfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    WorkerConfig,
    get_savable_loader,
    get_train_dataset,
    stateless,
)
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

import wids
from tests.support import sample_members, write_tar
from wids.cli import main

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"parts/{number}.tar" for number in range(3)]


def write_parts(folder: Path) -> Path:
    """Write a plain shard, one with long names and one with directories between its samples."""
    (folder / "parts").mkdir(parents=True)
    write_tar(folder / NAMES[0], sample_members(4))
    long = [(f"{'x' * 120}/{name}", data) for name, data in sample_members(3, first=10)]
    write_tar(folder / NAMES[1], long, tar_format=tarfile.GNU_FORMAT)
    with tarfile.open(folder / NAMES[2], "w") as tar:
        for name, data in sample_members(3, first=20):
            directory = tarfile.TarInfo(f"d{name}")
            directory.type = tarfile.DIRTYPE
            tar.addfile(directory)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder that was prepared by an export from wids."""
    folder = write_parts(tmp_path / "ours")
    assert main(["export", f"train={folder}/parts", "--to", "energon", "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with the same shards, prepared by Energon."""
    folder = write_parts(tmp_path / "theirs")
    WebdatasetPreparator.prepare_dataset(
        EPath(folder), NAMES, split_parts_ratio=[("train", 2.0), ("val", 1.0)], shuffle_seed=None, workers=1,
        progress_fn=lambda shards, _: shards,
    )  # fmt: skip
    return folder


def rows(folder: Path) -> list[list[Any]]:
    with closing(sqlite3.connect(folder / ".nv-meta" / "index.sqlite")) as database:
        return [
            database.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3, 4, 5").fetchall()
            for name in ("samples", "sample_parts")
        ]


def test_exported_index_files_equal_those_of_energon(ours: Path, theirs: Path) -> None:
    for name in NAMES:
        assert (ours / name).with_suffix(".tar.idx").read_bytes() == (theirs / name).with_suffix(
            ".tar.idx"
        ).read_bytes()
    assert rows(ours) == rows(theirs)


def test_a_folder_prepared_by_energon_opens_by_split(theirs: Path) -> None:
    train = wids.ShardListDataset(theirs, split="train")
    val = wids.ShardListDataset(theirs, split="val")

    assert ([len(train), len(val)], train.stats()["index_builds"]) == ([7, 3], 0)
    assert [sample["txt"] for sample in val] == [f"text of {number}" for number in range(20, 23)]


@stateless  # type: ignore[untyped-decorator]
def cook(sample: Any) -> Any:
    return {"__key__": sample["__key__"], "__restore_key__": sample["__restore_key__"], "txt": sample["txt"]}


class Encoder(DefaultTaskEncoder):  # type: ignore[misc]
    """Leaves samples unchanged."""

    cookers = [Cooker(cook)]  # noqa: RUF012 - as Energon documents it

    def batch(self, samples: list[Any]) -> Any:
        return [sample["txt"] for sample in samples]


@pytest.mark.filterwarnings("ignore")
def test_energon_reads_each_sample_of_an_exported_folder(ours: Path) -> None:
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    loader = get_savable_loader(
        get_train_dataset(
            str(ours), worker_config=config, batch_size=2, shuffle_buffer_size=None, max_samples_per_sequence=None,
            task_encoder=Encoder(), repeat=False,
        )
    )  # fmt: skip

    texts = [text for batch in loader for text in batch]

    expected = [f"text of {number}" for number in [*range(4), *range(10, 13), *range(20, 23)]]
    assert sorted(text.decode() if isinstance(text, bytes) else text for text in texts) == sorted(expected)
