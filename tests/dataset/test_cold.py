"""Files that are not in the page cache: by the system's count, disks deliver the samples' pages and little else."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import wids
from tests.support import sample_members, write_tar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST = 1.3
"""Maximum bytes read per byte of the pages that hold the samples."""
PAGE = mmap.PAGESIZE
COUNTS = Path("/proc/thread-self/io")


@pytest.fixture(autouse=True)
def _needs_a_disk(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(1 << 20))
    drop([probe])
    if not COUNTS.exists() or bytes_read(probe.read_bytes) < 1 << 20:
        pytest.skip("the temporary folder lies in memory, or the system does not count what is read")


@pytest.fixture(autouse=True)
def _code_in_memory(tmp_path: Path) -> None:
    """Do once what is measured, so that no code is loaded during the measurement, which would count too."""
    dataset = wids.ShardListDataset([str(write_tar(tmp_path / "small.tar", sample_members(2)))], transformations=[])
    dataset.read(0), dataset[1], dataset.view(0), dataset.select_fields("txt").__getitems__([0, 1])


def drop(files: Sequence[Path]) -> None:
    """Drop files from the page cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDWR)
        os.fsync(descriptor)  # dirty pages would stay in the cache
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def bytes_read(function: Callable[[], object]) -> int:
    """Return how many bytes this thread reads from disks while a function runs."""

    def count() -> int:
        lines = COUNTS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])

    before = count()
    function()
    return count() - before


def bytes_of_pages(dataset: wids.ShardListDataset, indices: Sequence[int]) -> int:
    """Return the total size of the pages that hold these samples, in bytes."""
    pages = set()
    for index in indices:
        for place in dataset.locate(index).values():
            first, last = place.offset // PAGE, (place.offset + place.size - 1) // PAGE
            pages |= {(place.url, page) for page in range(first, last + 1)}
    return len(pages) * PAGE


def make_cold(folder: Path, size: int, count: int) -> wids.ShardListDataset:
    """Return a dataset whose two shards are open, with only the first and the last sample in the page cache."""
    draw = random.Random(size)
    shards = [folder / f"{number}.tar" for number in range(2)]
    for shard in shards:
        names = [f"{number:05d}.{field}" for number in range(count // 2) for field in ("bin", "txt")]
        write_tar(shard, [(name, draw.randbytes(size) if name.endswith("bin") else b"some text") for name in names])
    dataset = wids.ShardListDataset([str(shard) for shard in shards], transformations=[])
    dataset.read(0), dataset.read(count - 1)  # their pages stay mapped, and so in the page cache
    drop(shards)
    return dataset


@pytest.mark.parametrize("size", [300, 14_000])
def test_a_batch_reads_little_more_than_the_pages_of_its_samples(tmp_path: Path, size: int) -> None:
    dataset = make_cold(tmp_path, size, 2000)
    draw = random.Random(1)
    batches = [draw.sample(range(len(dataset)), 30) for _ in range(5)]

    found = bytes_read(lambda: [dataset.__getitems__(batch) for batch in batches])

    assert found <= MOST * bytes_of_pages(dataset, [index for batch in batches for index in batch])
    assert found > 0


def test_reading_ahead_resumes_after_many_batches_that_were_in_memory(tmp_path: Path) -> None:
    dataset = make_cold(tmp_path, 14_000, 400)
    shards = [Path(shard["url"]) for shard in dataset.shards]
    for _ in range(20):
        dataset.__getitems__(range(200))

    wanted = range(2, 200, 20)
    dataset.close()  # mapped pages are not dropped
    drop(shards)
    dataset.__getitems__([201])  # this read from the disk makes the dataset read ahead again
    dataset.close()
    drop(shards)
    found = bytes_read(lambda: dataset.__getitems__(wanted))

    assert 0 < found <= MOST * bytes_of_pages(dataset, wanted)


def test_a_batch_does_not_read_fields_that_were_not_selected(tmp_path: Path) -> None:
    dataset = make_cold(tmp_path, 300_000, 40).select_fields("txt")

    found = bytes_read(lambda: dataset.__getitems__(range(0, 40, 4)))

    assert 0 < found <= MOST * 10 * PAGE


@pytest.mark.parametrize("size", [64 << 10, 700_000])
def test_a_large_sample_reads_little_more_than_its_own_pages(tmp_path: Path, size: int) -> None:
    dataset = make_cold(tmp_path, size, 60)
    wanted = range(3, 60, 9)

    found = bytes_read(lambda: [dataset[index] for index in wanted])

    assert 0 < found <= MOST * bytes_of_pages(dataset, wanted)


def test_a_view_of_a_large_sample_is_not_read_before_it_is_touched(tmp_path: Path) -> None:
    dataset = make_cold(tmp_path, 20 << 20, 4)
    views = []

    found = bytes_read(lambda: views.append(dataset.view(1)))

    assert found <= PAGE
    # The kernel keeps pages in folios of up to 2 MiB; the one that the sample shares with its neighbour, which is mapped, stayed.
    assert bytes_read(lambda: bytes(views[0]["bin"])) >= 18 << 20
