"""The scan finds what CPython's `tarfile` and GNU tar have written, and names the byte at which a shard is damaged."""

from __future__ import annotations

import io
import logging
import os
import random
import struct
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.support import make_tar, sample_members, write_tar
from tests.tar.archives import FORMATS
from wids.errors import FetchError, TarFormatError
from wids.source import BufferSource, MmapSource, PreadSource
from wids.tar import TarReader, build_index, scan_members
from wids.tar.runs import Run, RunFinder

if TYPE_CHECKING:
    from pathlib import Path


def by_tarfile(path: Path) -> list[tuple[bytes, int, int]]:
    with tarfile.open(path) as tar:
        return [
            (member.name.encode("utf-8", "surrogateescape"), member.offset_data, member.size)
            for member in tar
            if member.isreg()
        ]


def by_wids(path: Path, source: type[MmapSource | PreadSource] = MmapSource) -> list[tuple[bytes, int, int]]:
    members = scan_members(source(str(path)))
    return list(zip(members.names, members.offsets.tolist(), members.sizes.tolist(), strict=True))


def read_all(path: Path) -> list[dict[str, bytes]]:
    source = MmapSource(str(path))
    reader = TarReader(source, build_index(source))
    return [{"__key__": reader.key(p).encode(), **reader.read(p, bytes)} for p in range(reader.num_samples)]


@pytest.mark.parametrize("tar_format", FORMATS)
@pytest.mark.parametrize(("count", "largest"), [(5000, 600), (300, 70_000)], ids=["dense", "large"])
@pytest.mark.parametrize("source", [MmapSource, PreadSource])
def test_the_scan_finds_the_members_that_tarfile_finds(
    tmp_path: Path, tar_format: str, count: int, largest: int, source: type[MmapSource | PreadSource]
) -> None:
    rng = random.Random(0)
    written = [(f"{n:06d}.bin", rng.randbytes(rng.randint(0, largest))) for n in range(count)]
    path = write_tar(tmp_path / "a.tar", written, tar_format=FORMATS[tar_format])

    assert by_wids(path, source) == by_tarfile(path)


@pytest.mark.parametrize("length", [90, 99, 100, 101, 130, 255, 256, 4000])
@pytest.mark.parametrize("tar_format", ["gnu", "pax"])
def test_long_names_are_read_whole(tmp_path: Path, length: int, tar_format: str) -> None:
    keys = [f"{n:04d}".rjust(length - 4, "k") for n in range(40)]
    path = write_tar(tmp_path / "a.tar", [(f"{key}.txt", b"x") for key in keys], tar_format=FORMATS[tar_format])

    assert [sample["__key__"].decode() for sample in read_all(path)] == keys


@pytest.mark.parametrize("length", [90, 99, 100, 130])
def test_long_keys_written_by_webdataset_are_read_whole(tmp_path: Path, length: int) -> None:
    webdataset = pytest.importorskip("webdataset")
    path = tmp_path / "a.tar"
    keys = [f"{number:04d}".rjust(length, "k") for number in range(20)]
    with webdataset.TarWriter(str(path)) as writer:
        for key in keys:
            writer.write({"__key__": key, "txt": key})

    assert [(sample["__key__"].decode(), sample[".txt"].decode()) for sample in read_all(path)] == [
        (key, key) for key in keys
    ]


def test_members_with_pax_headers_written_by_webdataset_are_found_by_the_fast_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    webdataset = pytest.importorskip("webdataset")
    path = tmp_path / "a.tar"
    with webdataset.TarWriter(str(path)) as writer:
        for number in range(200):
            writer.write({"__key__": f"日本{number}", "txt": str(number), "cls": number})
    find = RunFinder.find
    in_runs = []

    def find_and_count(finder: RunFinder, offset: int) -> Run | None:
        run = find(finder, offset)
        in_runs.append(0 if run is None else len(run.offsets))
        return run

    monkeypatch.setattr(RunFinder, "find", find_and_count)

    samples = read_all(path)

    assert sum(in_runs) == 400
    assert [sample["__key__"].decode() for sample in samples] == [f"日本{number}" for number in range(200)]
    assert samples[7][".txt"] == b"7"
    assert by_wids(path) == by_tarfile(path)


def test_data_that_looks_like_headers_is_not_taken_for_members(tmp_path: Path) -> None:
    inner = write_tar(tmp_path / "inner.tar", sample_members(20)).read_bytes()
    path = write_tar(tmp_path / "a.tar", [(f"{n:04d}.tar", inner[: 512 * (n % 9 + 1)]) for n in range(500)])

    assert by_wids(path) == by_tarfile(path)


def test_a_hard_link_has_the_bytes_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"the bytes")
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    subprocess.run(["tar", "-cf", "x.tar", "a.txt", "b.txt"], cwd=tmp_path, check=True)

    assert [sample[".txt"] for sample in read_all(tmp_path / "x.tar")] == [b"the bytes", b"the bytes"]


def test_twenty_thousand_hard_links_to_one_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"a"))
        for number in range(20_000):
            link = tarfile.TarInfo(f"{number}.txt")
            link.type, link.linkname = tarfile.LNKTYPE, "a.txt"
            tar.addfile(link)

    assert len(read_all(path)) == 20_001


def test_a_hard_link_to_a_missing_file_fails_only_its_own_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "gone.txt"
        tar.addfile(link)
        info = tarfile.TarInfo("b.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"b"))
    source = MmapSource(str(path))
    reader = TarReader(source, build_index(source))

    with pytest.raises(TarFormatError, match=r"a\.tar: the hard link at byte 0 is to 'gone\.txt'"):
        reader.read(0, bytes)
    assert reader.read(1, bytes) == {".txt": b"b"}


def test_files_without_a_field_belong_to_no_sample(tmp_path: Path) -> None:
    written = [
        ("./README", b"r"), (".DS_Store", b"d"), ("._0001.jpg", b"m"), ("0001.jpg", b"1"), ("._0001.txt", b"m"),
        ("0001.txt", b"2"), ("a/b.c/x.seg.png", b"3"), ("a/b.c/README", b"r"),
    ]  # fmt: skip
    path = write_tar(tmp_path / "a.tar", written)

    assert read_all(path) == [
        {"__key__": b"0001", ".jpg": b"1", ".txt": b"2"},
        {"__key__": b"a/b.c/x", ".seg.png": b"3"},
    ]


def test_a_key_that_occurs_again_after_another_key_is_a_new_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"3"), ("b.txt", b"4")])

    assert [sample["__key__"] for sample in read_all(path)] == [b"a", b"b", b"a", b"b"]


def test_a_repeated_field_fails_only_its_own_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"3")])
    source = MmapSource(str(path))
    reader = TarReader(source, build_index(source))

    assert reader.num_samples == 2
    with pytest.raises(TarFormatError, match=r"'a' has the field '\.txt' twice, at bytes 512 and 1536"):
        reader.read(0, bytes)
    assert reader.read(1, bytes) == {".txt": b"3"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"short", "not a tar archive: the file ends at byte 5, inside the header at byte 0"),
        (b"This is a text file.\n" * 100, "not a tar archive: the header at byte 0"),
        (struct.pack("<512Q", *range(512)), "not a tar archive: the header at byte 0"),
    ],
    ids=["empty", "shorter than a header", "text", "binary"],
)
def test_a_file_that_is_not_a_tar_is_refused_with_a_message_that_says_so(content: bytes, message: str) -> None:
    with pytest.raises(TarFormatError, match=message):
        scan_members(BufferSource(content, "a.tar"))


def test_an_archive_of_end_blocks_only_is_empty(tmp_path: Path) -> None:
    assert read_all(write_tar(tmp_path / "a.tar", [])) == []


@pytest.mark.parametrize("number", [0, 1, 63, 64, 80, 199])
def test_a_header_without_magic_among_headers_with_magic_is_a_member(number: int) -> None:
    content = bytearray(make_tar(sample_members(100)))
    expected = list(scan_members(BufferSource(bytes(content), "a.tar")).names)
    header = content[number * 1024 : number * 1024 + 512]
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[number * 1024 : number * 1024 + 512] = header

    members = scan_members(BufferSource(bytes(content), "a.tar"))

    assert list(members.names) == expected


def test_reading_a_truncated_file_by_pread_is_a_fetch_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", sample_members(50))
    source = PreadSource(str(path))
    reader = TarReader(source, build_index(source))
    os.truncate(path, 1024)

    with pytest.raises(FetchError, match="was truncated in the meantime"):
        reader.read(40, bytes)


def test_a_missing_file_is_a_fetch_error_and_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(FetchError, match=r"missing\.tar: cannot be opened"):
        MmapSource(str(tmp_path / "missing.tar"))
    assert not caplog.records
