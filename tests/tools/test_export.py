"""Files written for DALI and Energon list every sample and file that CPython's `tarfile` finds."""

from __future__ import annotations

import io
import resource
import signal
import sqlite3
import struct
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import wids
from tests.support import sample_members, write_tar
from wids.descriptor import load_descriptor
from wids.errors import DescriptorError, WidsError
from wids.storage import Storage
from wids.tools.export import export_dali, export_energon


def entries(*paths: Path, **more: Any) -> list[dict[str, Any]]:
    return [{"url": str(path), "nsamples": None, **more} for path in paths]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """A plain shard, one with long names and one with directories between its samples."""
    folder = tmp_path / "parts"
    folder.mkdir()
    plain = write_tar(folder / "0.tar", sample_members(3))
    long = [(f"{'x' * 120}/{name}", data) for name, data in sample_members(2, first=10)]
    with tarfile.open(folder / "2.tar", "w") as tar:
        for name, data in sample_members(2, first=20):
            directory = tarfile.TarInfo(f"d{name}")
            directory.type = tarfile.DIRTYPE
            tar.addfile(directory)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return [plain, write_tar(folder / "1.tar", long, tar_format=tarfile.GNU_FORMAT), folder / "2.tar"]


def members_of(path: Path) -> dict[str, list[tarfile.TarInfo]]:
    """Return the files of each sample."""
    samples: dict[str, list[tarfile.TarInfo]] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isreg():
                place, slash, base = member.name.rpartition("/")
                samples.setdefault(place + slash + base.partition(".")[0], []).append(member)
    return samples


def test_dali_tables_list_every_file_of_every_sample(shards: list[Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        paths = export_dali(entries(*shards), tmp_path / "idx", storage=Storage(), executor=executor)

    assert [path.name for path in paths] == ["0.idx", "1.idx", "2.idx"]
    for path, shard in zip(paths, shards, strict=True):
        samples = members_of(shard).values()
        lines = [
            " ".join(
                f"{one.name.rpartition('/')[2].partition('.')[2]} {one.offset_data} {one.size} {one.name}"
                for one in files
            )
            for files in samples
        ]
        assert path.read_text() == "".join(f"{line}\n" for line in [f"v1.2 {len(samples)}", *lines])


def test_exported_dali_tables_are_used_to_open_the_folder(shards: list[Path]) -> None:
    export_dali(entries(*shards), shards[0].parent / "idx", storage=Storage())

    dataset = wids.ShardListDataset(shards[0].parent)

    assert len(dataset) == 7
    assert dataset.stats()["index_builds"] == 0
    assert dataset[4]["txt"] == "text of 11"


def test_a_dali_table_has_no_more_samples_than_the_descriptor(shards: list[Path], tmp_path: Path) -> None:
    (path,) = export_dali([{"url": str(shards[0]), "nsamples": 2}], tmp_path, storage=Storage())

    assert path.read_text().startswith("v1.2 2\n")
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "members", "message"),
    [
        (
            "a.tar",
            [("a b.txt", b"")],
            "has blanks in its name or no extension, which such a table cannot hold; rename it",
        ),
        ("a.tar", [("README", b"")], "has no samples, which DALI does not accept"),
        ("a.tgz", sample_members(1), "is compressed"),
    ],
)
def test_shards_that_dali_cannot_read_are_refused(tmp_path: Path, name: str, members: list[Any], message: str) -> None:
    path = write_tar(tmp_path / name, members)

    with pytest.raises(WidsError, match=message):
        export_dali(entries(path), tmp_path / "idx", storage=Storage())
    assert not (tmp_path / "idx").exists()


def test_a_local_shard_with_a_question_mark_in_its_name_is_exported(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "what?-1.tar", sample_members(2))

    (table,) = export_dali(entries(path), tmp_path / "idx", storage=Storage())

    assert table.name == "what?-1.idx"
    assert table.read_text().startswith("v1.2 2\n")


def test_two_shards_with_the_same_dali_table_are_refused(tmp_path: Path) -> None:
    shards = [{"url": f"/{folder}/0.tar", "nsamples": 1} for folder in "ab"]

    with pytest.raises(DescriptorError, match=r"0.idx: would be the index of two shards"):
        export_dali(shards, tmp_path, storage=Storage())


def test_energon_files_list_every_sample_and_part(shards: list[Path], tmp_path: Path) -> None:
    splits = {"train": entries(*shards[:2]), "val": entries(shards[2])}

    meta = export_energon(splits, tmp_path, storage=Storage())

    names = [f"parts/{number}.tar" for number in range(3)]
    assert orjson.loads((meta / ".info.json").read_bytes())["shard_counts"] == dict(zip(names, [3, 2, 2], strict=True))
    assert yaml.safe_load((meta / "split.yaml").read_text())["split_parts"] == {"train": names[:2], "val": names[2:]}
    with closing(sqlite3.connect(meta / "index.sqlite")) as database:
        found = database.execute("SELECT * FROM samples ORDER BY tar_file_id, sample_index").fetchall()
        parts = database.execute("SELECT * FROM sample_parts ORDER BY 1, 2, 4").fetchall()
    expected: list[Any] = []
    expected_parts: list[Any] = []
    for number, shard in enumerate(shards):
        samples = members_of(shard)
        starts = [files[0].offset for files in samples.values()]
        with tarfile.open(shard) as tar:
            tar.getmembers()
            bounds = [*starts, tar.offset]
        assert shard.with_suffix(".tar.idx").read_bytes() == struct.pack(f"<{len(bounds)}Q", *bounds)
        for place, (key, files) in enumerate(samples.items()):
            expected.append((number, key, place, bounds[place], bounds[place + 1] - bounds[place]))
            expected_parts += [
                (number, place, one.name.rpartition("/")[2].partition(".")[2], one.offset_data, one.size)
                for one in files
            ]
    assert found == expected
    assert parts == expected_parts


def test_a_folder_prepared_for_energon_is_opened_by_split(shards: list[Path], tmp_path: Path) -> None:
    export_energon({"train": entries(*shards[:2]), "val": entries(shards[2])}, tmp_path, storage=Storage())

    found = load_descriptor(tmp_path, fetch=lambda path: Path(path).read_bytes(), split="train").shards

    assert [(shard["url"], shard["nsamples"]) for shard in found] == [(str(shards[0]), 3), (str(shards[1]), 2)]


def test_shards_named_by_file_urls_are_prepared_for_energon(shards: list[Path], tmp_path: Path) -> None:
    export_energon({"train": [{"url": f"file://{shards[2]}", "nsamples": 1}]}, tmp_path, storage=Storage())

    assert len(shards[2].with_suffix(".tar.idx").read_bytes()) == 16


def test_a_folder_that_is_prepared_for_energon_is_not_overwritten(shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()

    with pytest.raises(DescriptorError, match="already exists; remove it"):
        export_energon({"train": entries(*shards)}, tmp_path, storage=Storage())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (sample_members(3), "the key '000000' occurs twice, and Energon accepts each key only once"),
        ([("README", b"")], "has no samples, which Energon does not accept"),
        ([("\udcff.txt", b"")], "is not UTF-8"),
    ],
)
def test_shards_that_energon_cannot_read_are_refused_and_nothing_is_left(
    shards: list[Path], tmp_path: Path, members: list[Any], message: str
) -> None:
    more = write_tar(tmp_path / "parts" / "9.tar", members)

    with pytest.raises(WidsError, match=message):
        export_energon({"train": entries(shards[0], more)}, tmp_path, storage=Storage())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["0.tar", "1.tar", "2.tar", "9.tar", "parts"]


def test_shards_outside_the_folder_are_refused_for_energon(shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    with pytest.raises(DescriptorError, match="Energon accepts only shards directly in the folder"):
        export_energon({"train": entries(shards[0])}, tmp_path / "other", storage=Storage())
    with pytest.raises(DescriptorError, match="Energon accepts only shards directly in the folder"):
        export_energon({"train": [{"url": "s3://bucket/0.tar", "nsamples": 1}]}, tmp_path, storage=Storage())


def test_a_full_disk_during_an_export_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", sample_members(2))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot be written: .*; make room or get permission, or write elsewhere"):
            export_energon({"train": entries(shard)}, tmp_path, storage=Storage())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)

    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]
