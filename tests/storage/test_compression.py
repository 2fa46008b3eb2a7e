"""Compressed shards are unpacked into the cache."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.reading import content, shards, unfinished
from tests.support import sample_members, write_tar
from wids.errors import FetchError, TarFormatError
from wids.storage.compression import UnpackingSink
from wids.storage.fetch import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.storage.web_server import WebServer
    from wids.storage import Storage

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tbz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".txz": lzma.compress,
    ".tar.zst": zstandard.compress,
    ".tzst": zstandard.compress,
}
FORMATS = {".tar.gz": "gzip", ".tar.bz2": "bzip2", ".tar.xz": "xz", ".tar.zst": "zstd"}


def unpack(stored: bytes, *, path: str = "a.tar", chunk_bytes: int = 1 << 20) -> bytes:
    target = MemorySink()
    sink = UnpackingSink(target, path, path)
    for start in range(0, len(stored), chunk_bytes):
        sink.write(stored[start : start + chunk_bytes])
    sink.finish()
    return bytes(target.data)


@pytest.fixture
def plain(tmp_path: Path) -> bytes:
    return write_tar(tmp_path / "plain.tar", sample_members(50)).read_bytes()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_local_compressed_shard_is_unpacked(
    suffix: str, plain: bytes, tmp_path: Path, make_storage: Callable[..., Storage]
) -> None:
    stored = COMPRESS[suffix](plain)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(stored)

    source = make_storage().open({"url": str(path), "filesize": len(stored)})

    assert content(source) == plain


@pytest.mark.parametrize(
    "magic",
    [b"\x1f\x8b\x08", b"BZh91AY&SY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"],
    ids=["gzip", "bzip2", "xz", "zstd", "skippable zstd frame"],
)
def test_a_tar_whose_first_name_begins_with_a_magic_number_is_read_as_a_tar(
    magic: bytes, tmp_path: Path, make_storage: Callable[..., Storage]
) -> None:
    path = write_tar(tmp_path / "a.tar", [(os.fsdecode(magic.rstrip(b"\0")), b"text")])
    stored = path.read_bytes()
    assert stored.startswith(magic)

    source = make_storage().open({"url": str(path), "filesize": len(stored)})

    assert content(source) == stored


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_remote_compressed_shard_is_unpacked(
    suffix: str, plain: bytes, server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    stored = server.objects[f"a{suffix}"] = COMPRESS[suffix](plain)
    shard = {"url": server.url(f"a{suffix}"), "filesize": len(stored)}

    assert content(make_storage().open(shard)) == content(make_storage().open(shard)) == plain
    assert len(server.requests) == 1
    assert len(shards(cache_dir)) == 1


def test_compression_is_recognized_by_content_and_not_by_name(
    plain: bytes, tmp_path: Path, server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    (tmp_path / "gzip.tar").write_bytes(gzip.compress(plain))
    (tmp_path / "plain.tar.gz").write_bytes(plain)
    server.objects["remote.tar"] = stored = gzip.compress(plain)
    storage = make_storage()
    remote = {"url": server.url("remote.tar"), "filesize": len(stored)}

    assert content(storage.open({"url": str(tmp_path / "gzip.tar")})) == plain
    assert content(storage.open({"url": str(tmp_path / "plain.tar.gz")})) == plain
    assert content(storage.open(remote)) == content(storage.open(remote)) == plain
    assert len(server.requests) == 1


def test_a_changed_compressed_file_is_unpacked_again(
    plain: bytes, tmp_path: Path, make_storage: Callable[..., Storage]
) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(plain))
    before = make_storage().open({"url": str(path)})
    path.write_bytes(gzip.compress(plain + b"\0" * 512))

    after = make_storage().open({"url": str(path)})

    assert (content(before), content(after)) == (plain, plain + b"\0" * 512)


@settings(max_examples=60)
@given(
    st.sampled_from([gzip.compress, bz2.compress, lzma.compress, zstandard.compress]),
    st.lists(st.binary(max_size=3000), min_size=1, max_size=4),
    st.integers(1, 5000),
    st.integers(0, 2000),
)
def test_concatenated_streams_are_unpacked_as_one(
    compress: Callable[[bytes], bytes], parts: list[bytes], chunk_bytes: int, padding: int
) -> None:
    stored = b"".join(map(compress, parts)) + b"\0" * (padding if any(parts) else 0)

    assert unpack(stored, chunk_bytes=chunk_bytes) == b"".join(parts)


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"

    assert unpack(skippable + zstandard.compress(b"data") + skippable) == b"data"


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("left_bytes", [0, 5, 20, 3000, -9, -1])
def test_a_truncated_stream_is_an_error(suffix: str, left_bytes: int) -> None:
    stored = COMPRESS[suffix](random.Random(0).randbytes(10_000))

    with pytest.raises(TarFormatError, match=rf"a{suffix}: its {FORMATS[suffix]} stream"):
        unpack(stored[:left_bytes], path=f"a{suffix}")


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_damaged_stream_is_an_error_and_leaves_no_file(
    suffix: str, tmp_path: Path, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    compress = COMPRESS[suffix]
    if suffix == ".tar.zst":
        compress = zstandard.ZstdCompressor(write_checksum=True).compress
    stored = bytearray(compress(random.Random(0).randbytes(10_000)))
    stored[5000] ^= 255
    path = tmp_path / f"a{suffix}"
    path.write_bytes(stored)

    with pytest.raises(TarFormatError, match=rf"a{suffix}: its {FORMATS[suffix]} stream is damaged"):
        make_storage().open({"url": str(path)})

    assert not shards(cache_dir)
    assert not unfinished(cache_dir)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_is_compressed_only_by_name_is_an_error(
    suffix: str, tmp_path: Path, make_storage: Callable[..., Storage]
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"<html>not found</html>")

    with pytest.raises(TarFormatError, match=f"its {FORMATS[suffix]} stream begins with the bytes 3c 68"):
        make_storage().open({"url": str(path)})


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_decompression_bomb_does_not_fill_the_memory(suffix: str) -> None:
    class Count(MemorySink):
        size = 0

        def write(self, data: bytes) -> None:
            self.size += len(data)

    size = 300_000_000 if suffix == ".tar.zst" else 100_000_000  # zstd's pieces are larger
    bomb = COMPRESS[suffix](bytes(size))
    target = Count()
    tracemalloc.start()
    sink = UnpackingSink(target, "a.tar", "a.tar")

    sink.write(bomb)
    sink.finish()

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert target.size == size
    assert peak < size / 2


def test_a_missing_zstandard_package_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(FetchError, match=r"a\.tar\.zst: .*run: pip install 'wids\[zstd\]'"):
        unpack(zstandard.compress(b"data"), path="a.tar.zst")
