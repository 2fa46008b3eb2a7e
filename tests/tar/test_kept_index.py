"""A kept index equals a scan, fits only its own shard, and is used whole or not at all."""

from __future__ import annotations

import importlib
import io
import logging
import multiprocessing
import os
import pickle
import shutil
import tarfile
import threading
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from tests.storage.web_server import web_server
from tests.support import make_tar, sample_members, write_tar
from wids.errors import ShardMismatchError, TarFormatError
from wids.index_files import IndexCache, IndexFiles, IndexPack, entry_name, pack_index, write_pack
from wids.source import BufferSource, Identity, MmapSource
from wids.storage import Storage, StorageOptions
from wids.tar import TarReader, add_checksums, build_index, decode_index, encode_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.source import Source
    from wids.tar import TarIndex


def facts(index: TarIndex) -> dict[str, Any]:
    """Return the content of an index, independent of the types of its columns."""
    plain = {name: getattr(index, name) for name in index.__slots__}
    plain["keys"] = bytes(index.keys)
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in plain.items()}


def storage(folder: Path) -> Storage:
    return Storage(StorageOptions(cache_dir=str(folder)))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "train-0001.tar", sample_members(40))


names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=40)
written = st.lists(st.tuples(names, st.binary(max_size=700)), max_size=60)


@settings(max_examples=60)
@given(written)
def test_an_index_reads_back_as_it_was_written(members: list[tuple[str, bytes]]) -> None:
    source = BufferSource(make_tar(members, tar_format=tarfile.PAX_FORMAT), "a.tar")
    index = build_index(source)
    if not index.broken_links:
        add_checksums(index, source)

    again = decode_index(memoryview(encode_index(index, "it")), "it")

    assert facts(again) == facts(index)


def test_sparse_members_and_broken_links_are_kept(tmp_path: Path) -> None:
    index = build_index(MmapSource(str(write_tar(tmp_path / "a.tar", sample_members(2)))))
    index.sparse = {1: [(0, 1024, 5), (4096, 1536, 7)], 3: [(0, 3072, 1)]}
    index.broken_links = {2: "the hard link at byte 512 is to 'ö', which is no earlier file"}

    assert facts(decode_index(memoryview(encode_index(index, "it")), "it")) == facts(index)


def test_an_index_takes_fewer_than_25_bytes_for_a_member(tmp_path: Path) -> None:
    members = [(f"{number:08d}.bin", b"x" * (number % 600)) for number in range(20_000)]
    index = build_index(MmapSource(str(write_tar(tmp_path / "a.tar", members))))

    # Bytes of a member's offset and size: 4 + 2; of a sample's start, kind and end of key: 4 + 1 + 4; of its key: 8.
    assert len(encode_index(index, "it")) < 20_000 * (2 + 4 + 2 + 1 + 4 + 4 + 8)


def test_a_damaged_byte_of_an_index_is_noticed_or_has_no_effect(shard: Path) -> None:
    index = build_index(MmapSource(str(shard)))
    data = encode_index(index, "it")

    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x11
        try:
            again = decode_index(memoryview(damaged), "it")
        except ValueError as error:
            assert "it is" in str(error) or "it belongs" in str(error)
        else:
            # The damaged byte was padding of the header.
            assert facts(again) == facts(index)


def test_a_truncated_index_is_refused(shard: Path) -> None:
    data = encode_index(build_index(MmapSource(str(shard))), "it")

    for length in range(len(data)):
        with pytest.raises(ValueError, match="it is damaged"):
            decode_index(memoryview(data[:length]), "it")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b"null",
        b'{"__metadata__": []}',
        b'{"__metadata__": {}, "starts": 3}',
        b'{"__metadata__": {}, "starts": {"dtype": "F8", "shape": [1], "data_offsets": [0, 8]}}',
        b'{"__metadata__": {}, "starts": {"dtype": "U64", "shape": [-1], "data_offsets": [0, 8]}}',
        b'{"__metadata__": {}, "starts": {"dtype": "U64", "shape": [9999999999], "data_offsets": [0, 8]}}',
        b'{"__metadata__": {}, "starts": {"dtype": "U64", "shape": [1], "data_offsets": [-8, 8]}}',
        b'{"__metadata__": {}, "starts": {"dtype": "U64", "shape": [1], "data_offsets": ["a", 8]}}',
        b'{"__metadata__": {}, "starts": {"dtype": "U64", "shape": [1], "data_offsets": [0]}}',
        b"\xff\xfe",
        b'{"a": ' * 3000,
    ],
)
def test_an_index_with_an_impossible_header_is_refused(header: bytes) -> None:
    data = len(header).to_bytes(8, "little") + header + bytes(64)

    with pytest.raises(ValueError, match="it is "):
        decode_index(memoryview(data), "it")


@settings(max_examples=150)
@given(st.data())
def test_a_forged_index_reads_nothing_outside_its_shard(data: st.DataObject) -> None:
    archive = make_tar(sample_members(4))
    source = BufferSource(archive, "a.tar")
    index = build_index(source)
    column = data.draw(st.sampled_from(["starts", "offsets", "sizes", "kinds", "key_ends"]))
    row = data.draw(st.integers(0, len(getattr(index, column)) - 1))
    setattr(index, column, getattr(index, column).astype(np.int64))
    getattr(index, column)[row] = data.draw(st.sampled_from([0, 1, 7, 511, 1 << 20, 1 << 40, (1 << 63) - 1]))
    reader = TarReader(source, decode_index(memoryview(encode_index(index, "it")), "it"))

    for position in range(reader.num_samples):
        try:
            sample = reader.read(position, bytes)
        except (TarFormatError, ShardMismatchError):
            continue
        assert all(value in archive for value in sample.values())


@pytest.mark.parametrize(
    ("members", "is_same"),
    [
        pytest.param([("a.txt", b"1"), ("a.cls", b"2"), ("b.txt", b"34")], True, id="other bytes"),
        pytest.param([("a.txt", b"x"), ("a.cls", b"y"), ("c.txt", b"zz")], False, id="other key"),
        pytest.param([("a.txt", b"x"), ("a.jpg", b"y"), ("b.txt", b"zz")], False, id="other field"),
        pytest.param([("a.txt", b"x"), ("b.cls", b"y"), ("b.txt", b"zz")], False, id="other sample"),
        pytest.param([("a.txt", b"x"), ("a.cls", b"y"), ("b.txt", b"z")], False, id="other size"),
        pytest.param([("README", b""), ("a.txt", b"x"), ("a.cls", b"y"), ("b.txt", b"zz")], False, id="other place"),
        pytest.param([], False, id="none"),
    ],
)
def test_the_digest_tells_indexes_apart_and_knows_a_stored_one(
    tmp_path: Path, members: list[tuple[str, bytes]], is_same: bool
) -> None:
    first = [("a.txt", b"x"), ("a.cls", b"y"), ("b.txt", b"zz")]
    index, other = (
        build_index(MmapSource(str(write_tar(tmp_path / f"{number}.tar", each))))
        for number, each in enumerate((first, members))
    )

    assert (index.digest() == other.digest()) is is_same
    for each in (index, other):
        assert decode_index(memoryview(encode_index(each, "it")), "it").digest() == each.digest()


def test_an_index_of_another_shard_or_a_newer_version_is_refused(shard: Path) -> None:
    data = encode_index(build_index(MmapSource(str(shard))), "it")
    columns = load(data)
    length = int.from_bytes(data[:8], "little")
    facts, digest = orjson.loads(orjson.loads(data[8 : 8 + length])["__metadata__"]["wids_index"])
    newer = {"wids_index": orjson.dumps([{**facts, "version": "2"}, digest]).decode()}

    with pytest.raises(ValueError, match="another shard"):
        decode_index(memoryview(data), "that")
    with pytest.raises(ValueError, match="of version 2, expected 1"):
        decode_index(memoryview(save(columns, metadata=newer)), "it")


# In the cache folder


def test_a_second_opening_uses_the_kept_index_without_a_scan(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = IndexFiles(storage(tmp_path / "cache")).obtain(MmapSource(str(shard)), {"url": str(shard)})
    monkeypatch.setattr("wids.index_files.files.build_index", lambda _: pytest.fail("it was scanned again"))

    again = IndexFiles(storage(tmp_path / "cache")).obtain(MmapSource(str(shard)), {"url": str(shard)})

    assert facts(again) == facts(first)


def rewrite_in_place(path: Path) -> None:
    """Overwrite the file with other samples of the same size, and restore its modification time."""
    status = path.stat()
    content = path.read_bytes()
    other = write_tar(path.with_name("other"), sample_members(40, first=100)).read_bytes()
    assert len(other) == len(content)
    with path.open("r+b") as file:
        file.write(other)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_file(path: Path) -> None:
    """Put another file of the same size and modification time in its place."""
    status = path.stat()
    other = write_tar(path.with_name("other"), sample_members(40, first=100))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


@pytest.mark.parametrize("change", [rewrite_in_place, replace_file])
def test_a_changed_shard_is_indexed_anew(shard: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    files = IndexFiles(storage(tmp_path / "cache"))
    files.obtain(MmapSource(str(shard)), {"url": str(shard)})
    change(shard)

    source = MmapSource(str(shard))
    reader = TarReader(source, files.obtain(source, {"url": str(shard)}))

    assert [reader.key(0), reader.key(39)] == ["000100", "000139"]
    assert reader.read(0, bytes)[".txt"] == b"text of 100"


def test_a_shard_rewritten_within_one_step_of_the_clock_for_file_times_is_indexed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_ns = 200_000_000  # long enough for all that is done to a shard here

    def from_stat(status: os.stat_result) -> Identity:
        ctime_ns = status.st_ctime_ns // step_ns * step_ns
        return Identity(status.st_size, status.st_mtime_ns, ctime_ns, status.st_ino)

    monkeypatch.setattr(Identity, "from_stat", from_stat)
    monkeypatch.setattr("wids.index_files.cache._CLOCK_STEP_NS", step_ns)
    files = IndexFiles(storage(tmp_path / "cache"))

    for number in range(2):
        shard = write_tar(tmp_path / f"{number}.tar", sample_members(40))
        files.obtain(MmapSource(str(shard)), {"url": str(shard)})
        rewrite_in_place(shard)
        source = MmapSource(str(shard))
        assert TarReader(source, files.obtain(source, {"url": str(shard)})).key(0) == "000100"


def test_a_damaged_cached_index_is_made_anew(shard: Path, tmp_path: Path) -> None:
    files = IndexFiles(storage(tmp_path / "cache"))
    expected = facts(files.obtain(MmapSource(str(shard)), {"url": str(shard)}))
    (kept,) = (tmp_path / "cache").rglob("*.widx")
    whole = kept.read_bytes()

    for content in (b"", b"x", whole[:-1], whole[: len(whole) // 2], bytes(len(whole))):
        kept.write_bytes(content)
        assert facts(files.obtain(MmapSource(str(shard)), {"url": str(shard)})) == expected
        assert kept.read_bytes() == whole


def test_shards_are_indexed_without_a_writable_cache_folder(shard: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    files = IndexFiles(storage(tmp_path / "file" / "cache"))

    index = files.obtain(MmapSource(str(shard)), {"url": str(shard)})

    assert facts(index) == facts(build_index(MmapSource(str(shard))))


def test_the_total_size_of_cached_indexes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wids.index_files.cache._MAX_CACHED_BYTES", 20_000)
    monkeypatch.setattr("wids.index_files.cache._CHECK_EVERY", 2)
    cache = IndexCache(storage(tmp_path / "cache"))

    for number in range(30):
        source = MmapSource(str(write_tar(tmp_path / f"{number}.tar", sample_members(10))))
        cache.keep(source, build_index(source))

    kept = list((tmp_path / "cache").rglob("*.widx"))
    assert sum(path.stat().st_size for path in kept) < 23_000
    assert cache.find(source) is not None


def test_the_least_recently_used_indexes_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = IndexCache(storage(tmp_path / "cache"))
    sources = [MmapSource(str(write_tar(tmp_path / f"{number}.tar", sample_members(10)))) for number in range(11)]
    files: list[Path] = []
    for number, source in enumerate(sources[:10]):
        cache.keep(source, build_index(source))
        (new,) = set((tmp_path / "cache").rglob("*.widx")) - set(files)
        os.utime(new, (number, number))
        files.append(new)
    size = files[0].stat().st_size
    monkeypatch.setattr("wids.index_files.cache._MAX_CACHED_BYTES", 10.5 * size)

    assert cache.find(sources[0]) is not None
    another = IndexCache(storage(tmp_path / "cache"))  # compares the total size when it first writes
    another.keep(sources[10], build_index(sources[10]))

    # Eleven indexes are more than 10.5; eight are left, the largest number within 80 % of that.
    assert [number for number, file in enumerate(files) if not file.exists()] == [1, 2, 3]


def test_the_index_of_a_source_without_change_time_or_etag_is_not_kept(tmp_path: Path) -> None:
    source = BufferSource(write_tar(tmp_path / "a.tar", sample_members(2)).read_bytes(), "a.tar")
    cache = IndexCache(storage(tmp_path / "cache"))

    cache.keep(source, build_index(source))

    assert cache.find(source) is None
    assert not (tmp_path / "cache").exists()


def count_in_process(shards: list[str], cache: str, barrier: Any) -> tuple[int, int]:
    import wids

    scanned = []
    module: Any = importlib.import_module("wids.index_files.files")
    build = module.build_index

    def counted(source: Any) -> Any:
        scanned.append(source)
        return build(source)

    module.build_index = counted
    barrier.wait()
    return len(wids.ShardListDataset(shards, cache_dir=cache)), len(scanned)


def test_one_process_indexes_all_shards_while_the_others_wait(tmp_path: Path) -> None:
    shards = [str(write_tar(tmp_path / f"{n}.tar", sample_members(20))) for n in range(30)]
    with multiprocessing.Manager() as manager, ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        barrier = manager.Barrier(4)
        found = list(pool.map(count_in_process, [shards] * 4, [str(tmp_path / "cache")] * 4, [barrier] * 4))

    assert [length for length, _ in found] == [600] * 4
    assert sorted(scanned for _, scanned in found) == [0, 0, 0, 30]


# In a pack


def make_pack(folder: Path, shards: list[Path], *, checksums: bool = False) -> Path:
    entries = []
    for path in shards:
        source = MmapSource(str(path))
        index = build_index(source)
        if checksums:
            add_checksums(index, source)
        entries.append((str(path), *pack_index(source, index)))
    pack = folder / "train.widx"
    write_pack(pack, str(pack), entries)
    return pack


def find(pack: Path, shard: Path) -> TarIndex | None:
    return IndexPack(MmapSource(str(pack)), str(pack)).find(str(shard), MmapSource(str(shard)))


def test_a_pack_gives_each_shard_its_index(tmp_path: Path) -> None:
    shards = []
    for folder, first in (("x", 0), ("y", 50)):
        (tmp_path / folder).mkdir()
        shards += [write_tar(tmp_path / folder / f"{n}.tar", sample_members(7, first=first + 7 * n)) for n in range(3)]
    pack = make_pack(tmp_path, shards)

    for path in shards:
        index = find(pack, path)
        assert index is not None
        assert facts(index) == facts(build_index(MmapSource(str(path))))


def test_a_pack_is_a_reproducible_zip_of_safetensors(tmp_path: Path, shard: Path) -> None:
    pack = make_pack(tmp_path, [shard])

    with zipfile.ZipFile(pack) as archive:
        assert archive.namelist() == ["train-0001.tar"]
        columns = load(archive.read("train-0001.tar"))

    assert columns["offsets"].tolist()[:2] == [512, 1536]
    assert pack.read_bytes() == make_pack(tmp_path, [shard]).read_bytes()


def test_entries_of_a_pack_are_aligned_to_64_bytes(tmp_path: Path) -> None:
    shards = [write_tar(tmp_path / f"{'x' * n}.tar", sample_members(n)) for n in range(1, 9)]
    pack = make_pack(tmp_path, shards)
    reader = IndexPack(MmapSource(str(pack)), str(pack))
    start = np.frombuffer(MmapSource(str(pack)).buffer, np.uint8).ctypes.data % 64

    assert start == 0
    for entry in reader._by_name.values():
        assert np.frombuffer(reader._window(entry), np.uint8).ctypes.data % 64 == 0


def test_a_pack_that_was_copied_with_its_shards_still_fits(tmp_path: Path, shard: Path) -> None:
    pack = make_pack(tmp_path, [shard])
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    moved = Path(shutil.copyfile(shard, tmp_path / "elsewhere" / "deep" / shard.name))
    os.utime(moved, (1, 1))

    assert find(Path(shutil.copyfile(pack, tmp_path / "elsewhere" / "deep" / "train.widx")), moved) is not None
    assert find(Path(shutil.copyfile(pack, tmp_path / "elsewhere" / "other.widx")), moved) is not None


def test_shards_that_changed_after_the_pack_are_indexed_anew_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shards = [write_tar(tmp_path / f"{n}.tar", sample_members(5)) for n in range(3)]
    pack = make_pack(tmp_path, shards)
    for path in shards[1:]:
        write_tar(path, sample_members(6))
    files = IndexFiles(storage(tmp_path / "cache"))

    counts = [
        files.obtain(MmapSource(str(path)), {"url": str(path), "index": str(pack)}).num_samples for path in shards
    ]

    assert counts == [5, 6, 6]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "no entry that fits" in caplog.text


def test_threads_that_find_a_cached_pack_out_of_date_all_use_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shards = [write_tar(tmp_path / f"{n}.tar", sample_members(5)) for n in range(2)]
    with web_server() as server:
        entries = [{"url": str(path), "index": server.url("train.widx")} for path in shards]
        server.objects["train.widx"] = make_pack(tmp_path, shards).read_bytes()
        IndexFiles(storage(tmp_path / "cache")).obtain(MmapSource(str(shards[0])), entries[0])
        for path in shards:
            write_tar(path, sample_members(6))
        server.objects["train.widx"] = make_pack(tmp_path, shards).read_bytes()
        files = IndexFiles(storage(tmp_path / "cache"))
        find_in_pack = IndexPack.find
        both_found_nothing = threading.Barrier(2, timeout=60)

        def find_at_the_same_time(pack: IndexPack, url: str, source: Source) -> TarIndex | None:
            found = find_in_pack(pack, url, source)
            if found is None:
                both_found_nothing.wait()
            return found

        monkeypatch.setattr(IndexPack, "find", find_at_the_same_time)
        with ThreadPoolExecutor(2) as pool:
            indexes = list(pool.map(lambda entry: files.obtain(MmapSource(entry["url"]), entry), entries))

    assert [index.num_samples for index in indexes] == [6, 6]
    assert server.bodies["train.widx"] == 2
    assert not caplog.records


@pytest.mark.parametrize(
    "content", [b"", b"no zip", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" + bytes(100)], ids=["0", "text", "none", "cut"]
)
def test_an_unusable_pack_causes_a_warning_and_the_shard_is_indexed(
    tmp_path: Path, shard: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.widx").write_bytes(content)
    files = IndexFiles(storage(tmp_path / "cache"))

    index = files.obtain(MmapSource(str(shard)), {"url": str(shard), "index": str(tmp_path / "train.widx")})

    assert index.num_samples == 40
    assert "train.widx" in caplog.text


def test_a_missing_pack_causes_a_warning_and_the_shard_is_indexed(
    tmp_path: Path, shard: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = pickle.loads(pickle.dumps(IndexFiles(storage(tmp_path / "cache"))))

    index = files.obtain(MmapSource(str(shard)), {"url": str(shard), "index": str(tmp_path / "gone.widx")})

    assert index.num_samples == 40
    assert "gone.widx" in caplog.text


def test_a_damaged_byte_of_a_pack_never_gives_a_wrong_index(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", sample_members(3))
    whole = make_pack(tmp_path, [shard]).read_bytes()
    expected = facts(build_index(MmapSource(str(shard))))
    damaged_pack = tmp_path / "damaged.widx"

    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        damaged_pack.write_bytes(damaged)
        files = IndexFiles(storage(tmp_path / "cache"))
        index = files.obtain(MmapSource(str(shard)), {"url": str(shard), "index": str(damaged_pack)})
        assert facts(index) == expected


def test_an_interrupted_write_leaves_the_previous_pack_unchanged(tmp_path: Path, shard: Path) -> None:
    pack = make_pack(tmp_path, [shard])
    before = pack.read_bytes()

    def broken() -> Any:
        yield str(shard), "x", b"y"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pack(pack, str(pack), broken())

    assert pack.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train-0001.tar", "train.widx"]


@pytest.mark.parametrize(
    ("url", "pack", "name"),
    [
        ("/data/a.tar", "/data/train.widx", "a.tar"),
        ("/data/x/a.tar", "/data/train.widx", "x/a.tar"),
        ("/else/a.tar", "/data/train.widx", "/else/a.tar"),
        ("a.tar", "train.widx", "a.tar"),
        ("https://me:secret@x.org/d/a.tar?sig=secret", "https://me:secret@x.org/d/t.widx?sig=other", "a.tar"),
        ("s3://b/d/a.tar", "s3://b/t.widx", "d/a.tar"),
        ("/data/a?b.tar", "/data/train.widx", "a?b.tar"),
    ],
)
def test_entries_are_named_relative_to_the_pack_without_secrets(url: str, pack: str, name: str) -> None:
    assert entry_name(url, pack) == name


# Checksums of members


def test_a_changed_byte_of_a_member_is_found_on_every_read(shard: Path) -> None:
    index = build_index(MmapSource(str(shard)))
    add_checksums(index, MmapSource(str(shard)))
    damaged = bytearray(shard.read_bytes())
    offset = int(index.offsets[10])
    damaged[offset + 3] ^= 1
    reader = TarReader(BufferSource(bytes(damaged), "a.tar"), index, verify=True)

    for make in (bytes, io.BytesIO, memoryview):
        for _ in range(2):
            with pytest.raises(
                ShardMismatchError, match=rf"key '000005', field '\.txt', at byte {offset}: has checksum"
            ):
                reader.read(5, make)
    assert reader.read(5, bytes, {".cls"}) == {".cls": b"5"}
    assert reader.read(4, bytes) == {".txt": b"text of 4", ".cls": b"4"}


def test_verifying_members_without_checksums_is_an_error_at_once(shard: Path) -> None:
    source = MmapSource(str(shard))

    with pytest.raises(ShardMismatchError, match="widsindex create --index --checksums"):
        TarReader(source, build_index(source), verify=True)
