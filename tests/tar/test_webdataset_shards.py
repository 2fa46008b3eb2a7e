"""The shards of webdataset's own tests, compared sample by sample with CPython's `tarfile`."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.support import CORPORA
from wids import ShardListDataset

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = CORPORA / "tar" / "webdataset"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"the archives of other projects are not at {CORPORA}")


def read_by_tarfile(path: Path) -> dict[str, dict[str, bytes]]:
    """Return the fields of each key; no key occurs twice in these shards."""
    samples: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as tar:
        for info in tar:
            if info.isreg():
                folder, slash, base = info.name.rpartition("/")
                key, _, field = base.partition(".")
                file = tar.extractfile(info)
                assert file is not None
                samples.setdefault(folder + slash + key, {})["." + field] = file.read()
    return samples


@pytest.mark.parametrize(
    ("name", "count"),
    [("mpdata.tar", 100), ("tendata.tar", 100), ("compressed.tar", 3), ("testgz.tar", 1000), ("sample.tgz", 90)],
)
def test_every_sample_is_what_tarfile_reads(tmp_path: Path, name: str, count: int) -> None:
    expected = read_by_tarfile(FOLDER / name)

    with ShardListDataset([str(FOLDER / name)], transformations=[], cache_dir=str(tmp_path)) as dataset:
        samples = [dataset[index] for index in range(len(dataset))]

    assert len(samples) == count
    assert [sample["__key__"] for sample in samples] == list(expected)
    for sample in samples:
        fields = {field: file.read() for field, file in sample.items() if field.startswith(".")}
        assert fields == expected[sample["__key__"]]
