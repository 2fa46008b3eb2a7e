"""`IndexedTarSamples`: one local shard, without a dataset around it."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import sample_members, write_tar
from wids import IndexedTarSamples
from wids.errors import FetchError, ShardMismatchError, TarFormatError

if TYPE_CHECKING:
    from pathlib import Path


def read(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value.read() if name.startswith(".") else value for name, value in sample.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", sample_members(5))


def test_samples_are_read_by_position_negative_position_and_key(path: Path) -> None:
    with IndexedTarSamples(path) as samples:
        assert len(samples) == 5
        assert read(samples[3]) == {".txt": b"text of 3", ".cls": b"3", "__key__": "000003"}
        assert read(samples[-2]) == read(samples[3]) == read(samples["000003"])
        assert samples.keys() == ["000000", "000001", "000002", "000003", "000004"]
        assert [sample["__key__"] for sample in samples] == samples.keys()
        assert "000003" in samples
        assert "000005" not in samples
        assert 3 not in samples


@pytest.mark.parametrize("position", [5, -6, 2**70])
def test_a_position_out_of_range_is_an_index_error(path: Path, position: int) -> None:
    with pytest.raises(IndexError, match=rf"a\.tar: position {position} is out of range for 5 samples"):
        IndexedTarSamples(path)[position]


def test_an_unknown_key_is_a_key_error(path: Path) -> None:
    with pytest.raises(KeyError, match=r"'5': .*a\.tar has no sample with this key"):
        IndexedTarSamples(path)["5"]


def test_a_repeated_key_returns_its_first_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("b.txt", b"2"), ("a.txt", b"3")])

    assert read(IndexedTarSamples(path)["a"]) == {".txt": b"1", "__key__": "a"}


def test_number_of_samples_and_md5_are_compared(path: Path) -> None:
    md5 = hashlib.md5(path.read_bytes()).hexdigest()

    assert len(IndexedTarSamples(path, expected_size=5, md5sum=md5.upper())) == 5
    with pytest.raises(ShardMismatchError, match=r"a\.tar: has 5 samples, expected 4"):
        IndexedTarSamples(path, expected_size=4)
    with pytest.raises(ShardMismatchError, match=rf"a\.tar: has MD5 {md5}, expected 0{{32}}"):
        IndexedTarSamples(path, md5sum="0" * 32)


@pytest.mark.parametrize("kind", ["file", "moved file", "replaced file", "memory", "gzip", "pipe"])
def test_a_stream_is_read_whole(path: Path, kind: str) -> None:
    content = path.read_bytes()
    stream: Any
    if kind == "memory":
        stream = io.BytesIO(content)
    elif kind == "gzip":
        path.write_bytes(gzip.compress(content))
        stream = gzip.GzipFile(path)
    elif kind == "pipe":
        stream = io.BufferedReader(Unseekable(content))
    else:
        stream = path.open("rb")
        stream.seek(700)
        if kind != "file":
            path.rename(path.with_name("b.tar"))
        if kind == "replaced file":
            write_tar(path, sample_members(2))

    with stream, IndexedTarSamples(stream=stream) as samples:
        assert len(samples) == 5
        assert read(samples[4])[".txt"] == b"text of 4"


class Unseekable(io.RawIOBase):
    def __init__(self, content: bytes) -> None:
        self._rest = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._rest.readinto(buffer)


def test_giving_both_path_and_stream_or_neither_is_an_error(path: Path) -> None:
    with pytest.raises(ValueError, match="give either path or stream"):
        IndexedTarSamples()
    with pytest.raises(ValueError, match="give either path or stream"):
        IndexedTarSamples(path, stream=io.BytesIO())


def test_reading_after_close_is_an_error_and_earlier_samples_stay_readable(path: Path) -> None:
    samples = IndexedTarSamples(path)
    sample = samples[0]
    samples.close()
    samples.close()

    assert sample[".txt"].read() == b"text of 0"
    with pytest.raises(ValueError, match=r"a\.tar: was closed"):
        samples[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.tar", b"This is a text file.\n" * 100, "not a tar archive: the header at byte 0"),
        ("empty.tar", b"", "not a tar archive: the file is empty"),
        ("zip.tar", b"PK\3\4" + bytes(600), "not a tar archive: the header at byte 0"),
        ("gz.tar", gzip.compress(b"x" * 2000), "not a tar archive but compressed with gzip"),
        ("xz.tar", b"\xfd7zXZ\0" + bytes(600), "not a tar archive but compressed with xz"),
        ("bz2.tar", b"BZh91AY&SY" + bytes(600), "not a tar archive but compressed with bzip2"),
        ("zst.tar", b"\x28\xb5\x2f\xfd" + bytes(600), "not a tar archive but compressed with zstd"),
    ],
    ids=["text", "empty", "zip", "gzip", "xz", "bzip2", "zstd"],
)
def test_a_file_that_is_no_tar_is_an_error_that_names_its_kind(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(TarFormatError, match=rf"{name}: {message}"):
        IndexedTarSamples(tmp_path / name)


def test_a_folder_or_a_missing_file_is_a_fetch_error(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="cannot be"):
        IndexedTarSamples(tmp_path)
    with pytest.raises(FetchError, match=r"missing\.tar: cannot be opened"):
        IndexedTarSamples(tmp_path / "missing.tar")


def test_missing_end_blocks_and_trailing_bytes_log_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: 10 * 1024])
    with caplog.at_level(logging.WARNING):
        assert len(IndexedTarSamples(path)) == 5
    assert "a.tar: the archive ends without its end blocks" in caplog.text

    path.write_bytes(content + b"x" * 100)
    with caplog.at_level(logging.WARNING):
        assert len(IndexedTarSamples(path)) == 5
    assert "bytes follow the end of the archive and are not read" in caplog.text
