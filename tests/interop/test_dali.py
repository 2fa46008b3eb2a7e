"""DALI reads with the exported index files, which equal those that its own tool writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import wds2idx
from nvidia.dali import fn, pipeline_def

import wids
from tests.interop.conftest import NUM_SAMPLES
from tests.support import sample_members, write_tar
from wids.cli import main
from wids.source import MmapSource
from wids.tar import build_index, encode_index, parse_offsets

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "shards"
    folder.mkdir()
    places = [("a", 0, 10), ("b", 10, NUM_SAMPLES)]
    return [
        write_tar(folder / f"{name}.tar", sample_members(stop - first, first=first)) for name, first, stop in places
    ]


def their_table(shard: Path, path: Path) -> bytes:
    with wds2idx.IndexCreator(str(shard), str(path), verbose=False) as creator:
        creator.create_index()
    return path.read_bytes()


def test_exported_tables_equal_those_of_wds2idx(shards: list[Path], tmp_path: Path) -> None:
    assert main(["export", str(shards[0].parent), "--to", "dali", "-o", str(tmp_path / "idx")]) == 0

    for shard in shards:
        assert (tmp_path / "idx" / f"{shard.stem}.idx").read_bytes() == their_table(shard, tmp_path / "theirs.idx")


def test_a_table_of_wds2idx_gives_the_index_of_a_scan(shards: list[Path], tmp_path: Path) -> None:
    source = MmapSource(str(shards[1]))

    index = parse_offsets(their_table(shards[1], tmp_path / "theirs.idx"), source)

    assert encode_index(index, "") == encode_index(build_index(source), "")


def test_a_folder_with_tables_of_wds2idx_opens_without_a_scan(shards: list[Path]) -> None:
    for shard in shards:
        their_table(shard, shard.with_suffix(".idx"))

    dataset = wids.ShardListDataset(shards[0].parent)

    assert (len(dataset), dataset.stats()["index_builds"]) == (NUM_SAMPLES, 0)
    assert dataset[NUM_SAMPLES - 1]["txt"] == f"text of {NUM_SAMPLES - 1}"


def test_dali_reads_every_sample_by_exported_tables(shards: list[Path], tmp_path: Path) -> None:
    main(["export", str(shards[0].parent), "--to", "dali", "-o", str(tmp_path / "idx")])
    paths = [str(shard) for shard in shards]
    tables = [str(tmp_path / "idx" / f"{shard.stem}.idx") for shard in shards]

    @pipeline_def(batch_size=NUM_SAMPLES, num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def read() -> object:
        texts, labels = fn.readers.webdataset(paths=paths, index_paths=tables, ext=["txt", "cls"])
        return texts, labels

    pipeline = read()
    pipeline.build()
    texts, labels = ([np.asarray(one).tobytes() for one in column] for column in pipeline.run())

    members = dict(sample_members(NUM_SAMPLES))
    assert texts == [members[f"{number:06d}.txt"] for number in range(NUM_SAMPLES)]
    assert labels == [members[f"{number:06d}.cls"] for number in range(NUM_SAMPLES)]
