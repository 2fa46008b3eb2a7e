"""Shards are read by byte ranges from a real server."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import random
import tarfile
import threading
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import exit_status_of_fork
from tests.storage.reading import shards as cached_shards
from tests.storage.web_server import WebServer, status, tag
from tests.support import sample_members, write_tar
from wids.errors import FetchError, ShardMismatchError
from wids.source import join_spans
from wids.storage import ReadAhead, Storage, StorageOptions
from wids.storage.ranges import BlockCache
from wids.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler as Handler
    from pathlib import Path

needs_torch = pytest.mark.needs_torch


@pytest.fixture
def ranges(server: WebServer) -> WebServer:
    server.has_ranges = True
    return server


def put_shards(server: WebServer, folder: Path, counts: list[int], size: int = 0) -> list[dict[str, Any]]:
    """Write shards, serve them, and return their entries."""
    entries = []
    first = 0
    for number, count in enumerate(counts):
        members = [(name, data + bytes(size)) for name, data in sample_members(count, first=first)]
        path = write_tar(folder / f"{number:04d}.tar", members)
        server.objects[path.name] = path.read_bytes()
        entries.append({"url": server.url(path.name), "nsamples": count})
        first += count
    return entries


def put_pack(server: WebServer, folder: Path, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make an index pack of these shards, serve it, and return entries that name it."""
    paths = [str(folder / entry["url"].rpartition("/")[2]) for entry in entries]
    wids.create_index(paths, folder / "train.json", index=True)
    server.objects["train.widx"] = (folder / "train.widx").read_bytes()
    return [{**entry, "index": server.url("train.widx")} for entry in entries]


def by_ranges(entries: list[dict[str, Any]], cache: Path, **options: Any) -> wids.ShardListDataset:
    return wids.ShardListDataset(
        entries, **{"access": "range", "transformations": [], "cache_dir": str(cache), **options}
    )


def test_a_sample_costs_one_request_and_at_most_three_if_its_shard_is_new(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [1000] * 4, size=2000))
    dataset = by_ranges(entries, tmp_path / "cache")
    dataset.read(0)  # fetches the pack's directory
    counts = []
    for index in (1500, 1501, 1999, 2500, 3000):
        before = len(ranges.requests)
        dataset.read(index)
        counts.append(len(ranges.requests) - before)

    assert counts[1:3] == [1, 1]
    assert max(counts) <= 3
    assert not cached_shards(tmp_path / "cache")


def test_100_samples_of_100_shards_cost_less_than_2_mb_beyond_the_pack(ranges: WebServer, tmp_path: Path) -> None:
    put_shards(ranges, tmp_path, [1000], size=1000)
    entries = []
    for number in range(100):
        name = f"{number:04d}.tar"
        ranges.objects[name] = ranges.objects["0000.tar"]
        (tmp_path / name).write_bytes(ranges.objects[name])
        entries.append({"url": ranges.url(name), "nsamples": 1000})
    entries = put_pack(ranges, tmp_path, entries)
    dataset = by_ranges(entries, tmp_path / "cache")
    draw = random.Random(3)
    for index in draw.sample(range(len(dataset)), 100):
        dataset.read(index)

    assert ranges.num_bytes - len(ranges.objects["train.widx"]) < 2_000_000


def test_without_a_pack_only_headers_are_read_once_and_the_index_is_kept(ranges: WebServer, tmp_path: Path) -> None:
    large = put_shards(ranges, tmp_path, [12], size=1_200_000)
    read = [by_ranges(large, tmp_path / "cache").read(7)]
    assert ranges.num_bytes < 2 * 1_200_000 + 24 * 20_000
    first = len(ranges.requests)
    read.append(by_ranges(large, tmp_path / "cache").read(7))

    assert len(ranges.requests) - first == 2  # the head, then the sample: the index was kept
    assert read[0] == read[1] == {".txt": b"text of 7" + bytes(1_200_000), ".cls": b"7" + bytes(1_200_000)}


def test_small_members_are_scanned_with_many_headers_per_request(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_shards(ranges, tmp_path, [5000])
    dataset = by_ranges(entries, tmp_path / "cache")
    dataset.read(4000)

    assert len(ranges.requests) < 15
    assert ranges.num_bytes < 1.2 * len(ranges.objects["0000.tar"])


@pytest.mark.parametrize("access", ["range", "auto"])
@pytest.mark.parametrize("pack", [False, True])
def test_the_bytes_are_those_of_download_mode(ranges: WebServer, tmp_path: Path, access: str, pack: bool) -> None:
    entries = put_shards(ranges, tmp_path, [40, 0, 3, 100], size=100)
    if pack:
        entries = put_pack(ranges, tmp_path, entries)
    whole = by_ranges(entries, tmp_path / "whole", access="download")
    parts = by_ranges(entries, tmp_path / "parts", access=access)
    batch = [*range(0, len(whole), 7), 3, 3, 141]
    expected = [whole.read(index) for index in range(len(whole))]

    assert [parts.read(index) for index in range(len(parts))] == expected
    assert [content(sample) for sample in parts] == expected
    assert [content(sample) for sample in parts.__getitems__(batch)] == [expected[index] for index in batch]
    assert [bytes(parts.view(index)[".txt"]) for index in batch] == [expected[index][".txt"] for index in batch]
    assert [parts.open(index, "txt").read() for index in batch] == [expected[index][".txt"] for index in batch]


def content(sample: dict[str, Any]) -> dict[str, bytes]:
    return {name: value.getvalue() for name, value in sample.items() if isinstance(value, io.BytesIO)}


def test_only_the_selected_fields_are_fetched(ranges: WebServer, tmp_path: Path) -> None:
    members = [("a.mp4", bytes(5_000_000)), ("a.txt", b"one"), ("b.mp4", bytes(5_000_000)), ("b.txt", b"two")]
    ranges.objects["v.tar"] = write_tar(tmp_path / "v.tar", members).read_bytes()
    dataset = by_ranges([{"url": ranges.url("v.tar"), "nsamples": 2}], tmp_path / "cache", fields=["txt"])

    assert [content(dataset[0]), content(dataset[1])] == [{".txt": b"one"}, {".txt": b"two"}]
    assert ranges.num_bytes < 200_000


def test_the_requests_of_a_batch_are_concurrent(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [50] * 60, size=3000))
    dataset = by_ranges(entries, tmp_path / "cache")
    dataset.read(0)
    ranges.most_at_once = 0
    ranges.waits_for = 16  # without as many requests at once there is no answer
    indices = random.Random(1).sample(range(len(dataset)), 256)
    batch = dataset.__getitems__(indices)

    assert [sample["__index__"] for sample in batch] == indices


def test_near_samples_of_a_batch_share_a_request(ranges: WebServer, tmp_path: Path) -> None:
    dataset = by_ranges(put_shards(ranges, tmp_path, [500]), tmp_path / "cache")
    dataset.read(0)
    before = len(ranges.requests)
    dataset.__getitems__(list(range(100, 164)))

    assert len(ranges.requests) - before == 1


def test_open_is_a_seekable_file_over_ranges(ranges: WebServer, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000)
    ranges.objects["v.tar"] = write_tar(tmp_path / "v.tar", [("a.mp4", data), ("a.txt", b"t")]).read_bytes()
    dataset = by_ranges([{"url": ranges.url("v.tar"), "nsamples": 1}], tmp_path / "cache")
    dataset.key(0)
    before = ranges.num_bytes
    file = dataset.open(0, "mp4")
    file.seek(1_000_000)
    part = file.read(1000)
    read = ranges.num_bytes - before
    file.seek(0)

    assert part == data[1_000_000:1_001_000]
    assert read < 700_000
    assert file.read() == data


def test_an_object_that_changes_between_two_ranges_is_an_error(ranges: WebServer, tmp_path: Path) -> None:
    other = put_shards(ranges, tmp_path, [10], size=1_500_000)
    dataset = by_ranges(other, tmp_path / "cache")
    dataset.read(0)
    ranges.objects["0000.tar"] = ranges.objects["0000.tar"].replace(b"text", b"TEXT")

    with pytest.raises(FetchError, match=r"has changed since it was opened.*open the dataset again"):
        dataset.read(5)
    assert by_ranges(other, tmp_path / "cache").read(5)[".txt"].startswith(b"TEXT")


def short_part(handler: Handler, body: bytes) -> None:
    """Announce the requested part, and send half of it."""
    first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
    part = body[int(first) : int(last) + 1]
    handler.send_response(206)
    handler.send_header("ETag", tag(body))
    handler.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}")
    handler.end_headers()
    handler.wfile.write(part[: len(part) // 2])
    handler.close_connection = True


def other_part(handler: Handler, body: bytes) -> None:
    """Answer with another range than was requested."""
    first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    part = body[first + 1 : last + 2]
    handler.send_response(206)
    handler.send_header("ETag", tag(body))
    handler.send_header("Content-Range", f"bytes {first + 1}-{first + len(part)}/{len(body)}")
    handler.send_header("Content-Length", str(len(part)))
    handler.end_headers()
    handler.wfile.write(part)


@pytest.mark.parametrize(
    "wrong", [short_part, other_part, status(503), status(500)], ids=["truncated", "other range", "503", "500"]
)
def test_a_response_that_is_not_the_requested_range_is_tried_again(
    ranges: WebServer, tmp_path: Path, make_storage: Callable[..., Storage], wrong: Any
) -> None:
    put_shards(ranges, tmp_path, [10], size=1000)
    source = make_storage(access="range").open({"url": ranges.url("0000.tar")})
    ranges.behaviours["0000.tar"] = [wrong, wrong]
    view, base = source.window(5000, 6000)

    assert bytes(view[5000 - base : 6000 - base]) == ranges.objects["0000.tar"][5000:6000]


def test_a_server_without_ranges_is_one_clear_error(server: WebServer, tmp_path: Path) -> None:
    entries = put_shards(server, tmp_path, [10])
    with pytest.raises(FetchError, match="sends the whole object where a part is asked for; set access to 'download'"):
        by_ranges(entries, tmp_path / "cache").read(0)


def test_auto_downloads_shards_of_a_server_without_ranges(server: WebServer, tmp_path: Path) -> None:
    entries = put_shards(server, tmp_path, [10, 10])
    dataset = by_ranges(entries, tmp_path / "cache", access="auto", lru_size=1)

    assert [dataset.read(index)[".txt"] for index in (3, 13, 4)] == [b"text of 3", b"text of 13", b"text of 4"]
    # Per shard a request for a part, then one for the whole; the third read finds the first shard in the cache.
    assert [path for path, _ in server.requests] == ["/0000.tar", "/0000.tar", "/0001.tar", "/0001.tar"]


@pytest.mark.parametrize("code", [403, 404])
def test_a_permanent_status_is_raised_without_another_attempt(ranges: WebServer, tmp_path: Path, code: int) -> None:
    entries = put_shards(ranges, tmp_path, [10])
    ranges.behaviours["0000.tar"] = [status(code)] * 5
    with pytest.raises(FetchError, match=str(code)):
        by_ranges(entries, tmp_path / "cache").read(0)
    assert len(ranges.requests) == 1


def test_a_wrong_size_is_a_mismatch(ranges: WebServer, tmp_path: Path) -> None:
    (entry,) = put_shards(ranges, tmp_path, [10])
    with pytest.raises(ShardMismatchError, match="the descriptor says 7"):
        by_ranges([{**entry, "filesize": 7}], tmp_path / "cache").read(0)


def test_an_empty_object_is_an_error(ranges: WebServer, tmp_path: Path) -> None:
    ranges.objects["e.tar"] = b""
    with pytest.raises(ValueError, match=r"e\.tar: not a tar archive: the file is empty"):
        by_ranges([{"url": ranges.url("e.tar"), "nsamples": 1}], tmp_path / "cache").read(0)


def test_a_pack_of_other_shards_is_noticed_at_the_first_header(
    ranges: WebServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The pack's entry has the right name and size, but the shard has been shuffled since."""
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [20]))
    members = sample_members(20)
    shuffled = [
        member for pair in sorted(zip(members[::2], members[1::2], strict=True), reverse=True) for member in pair
    ]
    path = write_tar(tmp_path / "other.tar", shuffled)
    assert path.stat().st_size == len(ranges.objects["0000.tar"])
    ranges.objects["0000.tar"] = path.read_bytes()
    dataset = by_ranges(entries, tmp_path / "cache")

    assert [dataset.read(index)[".txt"] for index in (1, 0, 19)] == [b"text of 18", b"text of 19", b"text of 0"]
    assert "its index does not match the shard" in caplog.text
    assert by_ranges(entries, tmp_path / "cache")[1][".txt"].getvalue() == b"text of 18"
    assert by_ranges(entries, tmp_path / "cache").open(1, "txt").read() == b"text of 18"


def test_hard_links_and_long_names_are_read_by_ranges(ranges: WebServer, tmp_path: Path) -> None:
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "l.tar", "w", format=tar_format) as tar:
            for number in range(3):
                info = tarfile.TarInfo(f"{'d' * 60}/{'e' * 60}/{number}.txt")
                info.size = 2
                tar.addfile(info, io.BytesIO(b"%d!" % number))
                link = tarfile.TarInfo(f"{number}x.txt")
                link.type = tarfile.LNKTYPE
                link.linkname = f"{'d' * 60}/{'e' * 60}/0.txt"
                tar.addfile(link)
        ranges.objects["l.tar"] = (tmp_path / "l.tar").read_bytes()
        dataset = by_ranges([{"url": ranges.url("l.tar"), "nsamples": 6}], tmp_path / "cache")
        assert [dataset.read(index)[".txt"] for index in range(6)] == [b"0!", b"0!", b"1!", b"0!", b"2!", b"0!"]


def test_compressed_shards_are_refused_or_fetched_whole(ranges: WebServer, tmp_path: Path) -> None:
    put_shards(ranges, tmp_path, [5])
    for name in ("a.tar.gz", "disguised.tar"):
        ranges.objects[name] = gzip.compress(ranges.objects["0000.tar"])
        entries = [{"url": ranges.url(name), "nsamples": 5}]
        with pytest.raises(FetchError, match=r"is compressed.*set access to 'download'"):
            by_ranges(entries, tmp_path / "cache").read(0)
        assert by_ranges(entries, tmp_path / "cache", access="auto").read(4)[".txt"] == b"text of 4"


def test_a_command_cannot_be_read_by_ranges(tmp_path: Path) -> None:
    dataset = by_ranges([{"url": "pipe:cat x", "nsamples": 1}], tmp_path, allow_pipe=True)
    with pytest.raises(FetchError, match="a command cannot be asked for a part"):
        dataset.read(0)


def test_range_mode_refuses_to_compare_an_md5() -> None:
    with pytest.raises(ValueError, match="checksum is 'md5', which needs whole shards"):
        StorageOptions(access="range", checksum="md5")


def test_auto_fetches_the_whole_shard_once_half_of_it_was_read(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [100, 100], size=3000))
    dataset = by_ranges(entries, tmp_path / "cache", access="auto")
    for index in range(20):
        dataset.read(index)
    assert not cached_shards(tmp_path / "cache")
    read = [dataset.read(index)[".txt"] for index in range(100)]

    assert [name.name[:4] for name in cached_shards(tmp_path / "cache")] == ["0000"]
    assert read == [b"text of %d" % index + bytes(3000) for index in range(100)]


def test_a_shard_that_is_cached_is_not_read_by_ranges(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_shards(ranges, tmp_path, [10])
    by_ranges(entries, tmp_path / "cache", access="download").read(0)
    requests = len(ranges.requests)
    by_ranges(entries, tmp_path / "cache").read(9)

    assert len(ranges.requests) == requests


def test_range_mode_works_without_a_writable_cache_folder(ranges: WebServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    dataset = by_ranges(put_shards(ranges, tmp_path, [10]), tmp_path / "file" / "cache")

    assert dataset.read(3)[".txt"] == b"text of 3"


def _read_in_worker(dataset: Any, answers: Any) -> None:
    answers.put([content(sample) for sample in dataset.__getitems__([0, 55, 99, 3])])


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_child_processes_read_ranges_after_their_parent(ranges: WebServer, tmp_path: Path, method: Any) -> None:
    dataset = by_ranges(put_shards(ranges, tmp_path, [50, 50]), tmp_path / "cache")
    expected = [content(sample) for sample in dataset.__getitems__([0, 55, 99, 3])]
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    workers = [context.Process(target=_read_in_worker, args=(dataset, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()

    assert found == [expected] * 2
    assert [content(sample) for sample in dataset.__getitems__([0, 55, 99, 3])] == expected


def test_threads_share_a_dataset(ranges: WebServer, tmp_path: Path) -> None:
    dataset = by_ranges(put_shards(ranges, tmp_path, [50] * 10), tmp_path / "cache", lru_size=3)
    wrong: list[object] = []

    def read(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(10):
            indices = [draw.randrange(500) for _ in range(20)]
            for index, sample in zip(indices, dataset.__getitems__(indices), strict=True):
                if sample[".txt"].getvalue() != b"text of %d" % index:
                    wrong.append(index)

    threads = [threading.Thread(target=partial(read, seed)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


class Upper(wids.ShardListDataset):
    """A subclass with its own `__getitem__`, which reading a batch must call."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)[".txt"].getvalue().upper()


def test_a_batch_calls_the_getitem_of_a_subclass(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_shards(ranges, tmp_path, [5])
    dataset = Upper(entries, access="range", transformations=[], cache_dir=str(tmp_path / "cache"))

    assert dataset.__getitems__([4, 0]) == [b"TEXT OF 4", b"TEXT OF 0"]


def test_an_error_in_a_batch_is_raised_where_the_sample_is_read(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_shards(ranges, tmp_path, [5, 5])
    ranges.behaviours["0001.tar"] = [status(404)] * 9
    dataset = by_ranges(entries, tmp_path / "cache")

    assert len(dataset.__getitems__([0, 1])) == 2
    with pytest.raises(FetchError, match=r"0001.tar: does not exist"):
        dataset.__getitems__([0, 7])


def test_the_block_cache_is_bounded() -> None:
    blocks = BlockCache(1000)
    source, other = object(), object()
    for start in range(0, 5000, 100):
        blocks.put(source, start, bytes([start // 100]) * 100)
    blocks.put(other, 0, b"other" * 20)

    assert blocks.find(source, 0, 10) is None
    assert blocks.find(source, 4910, 4990) == (memoryview(bytes([49]) * 100), 4900)
    assert blocks.find(source, 4990, 5010) is None
    with blocks.holding():
        for start in range(0, 5000, 100):
            blocks.put(source, start, bytes(100))
        assert blocks.find(source, 0, 10) is not None
    assert blocks.find(source, 100, 110) is None
    blocks.forget(source)
    assert blocks.find(source, 4900, 4910) is None


def test_joined_spans_cover_all_spans() -> None:
    draw = random.Random(2)
    for _ in range(200):
        spans = [(start, start + draw.randrange(200)) for start in (draw.randrange(5000) for _ in range(20))]
        joined = join_spans(spans, 50, 600)
        for start, stop in spans:
            assert any(low <= start and stop <= high for low, high in joined)
        for (_, before), (after, _) in pairwise(joined):
            assert after >= before - 200


def test_reading_ahead_returns_the_bytes_of_the_object(ranges: WebServer, tmp_path: Path) -> None:
    put_shards(ranges, tmp_path, [200], size=2000)
    data = ranges.objects["0000.tar"]
    storage = Storage(StorageOptions(access="range", cache_dir=str(tmp_path)), retry=RetryPolicy(attempts=1))
    ahead = ReadAhead(storage.open({"url": ranges.url("0000.tar")}))
    draw = random.Random(4)
    place = 0
    while place < len(data):
        view, base = ahead.window(place, place + 512)
        assert bytes(view[place - base : place - base + 512]) == data[place : place + 512]
        place += draw.choice((512, 1024, 40_000))


def test_every_member_that_is_read_is_compared_with_the_pack(ranges: WebServer, tmp_path: Path) -> None:
    """The shard was rewritten with other captions: with equal size, and the same first member in each sample."""
    before = [
        (f"{n}.{field}", text) for n in range(5) for field, text in (("jpg", b"picture"), ("txt", b"a long old text"))
    ]
    after = [(name, b"short" if name.endswith("txt") else data) for name, data in before]
    ranges.objects["0000.tar"] = write_tar(tmp_path / "0000.tar", before).read_bytes()
    entries = put_pack(ranges, tmp_path, [{"url": ranges.url("0000.tar"), "nsamples": 5}])
    ranges.objects["0000.tar"] = write_tar(tmp_path / "0000.tar", after).read_bytes()
    dataset = by_ranges(entries, tmp_path / "cache", lru_size=1)

    assert dataset.read(2) == {".jpg": b"picture", ".txt": b"short"}
    assert dataset.open(3, "txt").read() == b"short"


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_an_index_that_fits_is_not_taken_for_stale(
    ranges: WebServer, tmp_path: Path, tar_format: int, caplog: pytest.LogCaptureFixture
) -> None:
    with tarfile.open(tmp_path / "0000.tar", "w", format=tar_format) as tar:
        for name in ("日本.txt", "a" * 150 + ".txt", "d" * 90 + "/ü" * 20 + ".txt", "plain.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            info.mtime = 1.5  # as webdataset writes it
            tar.addfile(info, io.BytesIO(name.encode()[:4]))
        link = tarfile.TarInfo("link.txt")
        link.type = tarfile.LNKTYPE
        link.linkname = "plain.txt"
        tar.addfile(link)
    ranges.objects["0000.tar"] = (tmp_path / "0000.tar").read_bytes()
    entries = put_pack(ranges, tmp_path, [{"url": ranges.url("0000.tar"), "nsamples": 5}])
    dataset = by_ranges(entries, tmp_path / "cache")

    assert [dataset.read(index)[".txt"] for index in range(5)] == [
        "日本".encode()[:4],
        b"aaaa",
        b"dddd",
        b"plai",
        b"plai",
    ]
    assert not caplog.records


def test_a_pack_is_opened_once_by_concurrent_readers(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [5] * 8))
    ranges.delay_s = 0.02
    by_ranges(entries, tmp_path / "cache").__getitems__(list(range(0, 40, 5)))
    directory = [headers["Range"] for target, headers in ranges.requests if target == "/train.widx"]

    assert directory.count("bytes=0-511") == 1


def test_a_pack_that_was_written_again_is_fetched_again(
    ranges: WebServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [5, 5]))
    by_ranges(entries, tmp_path / "cache", access="download").read(0)
    newer = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [7, 7]))
    dataset = by_ranges(
        [{**entry, "nsamples": 7, "filesize": len(ranges.objects["0000.tar"])} for entry in newer],
        tmp_path / "cache",
        access="download",
    )

    assert dataset.read(13)[".txt"] == b"text of 13"
    assert dataset.stats()["index_builds"] == 0
    assert not caplog.records


def test_auto_compares_an_md5_with_the_whole_shard(ranges: WebServer, tmp_path: Path) -> None:
    entries = [{**entry, "md5sum": "0" * 32} for entry in put_shards(ranges, tmp_path, [5])]
    with pytest.raises(ShardMismatchError, match="has MD5"):
        by_ranges(entries, tmp_path / "cache", access="auto", checksum="md5").read(0)


def test_a_child_forked_during_a_batch_still_limits_its_open_shards(ranges: WebServer, tmp_path: Path) -> None:
    entries = put_pack(ranges, tmp_path, put_shards(ranges, tmp_path, [5] * 6))
    dataset = by_ranges(entries, tmp_path / "cache", lru_size=2)

    def read_some() -> int:
        for index in range(0, 30, 5):
            dataset.read(index)
        return len(dataset._cache)

    with dataset._cache.read_together([(0, 0)], None):
        assert exit_status_of_fork(read_some) == 2


def test_errors_and_logs_of_a_command_have_no_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tar(tmp_path / "a.tar", sample_members(3))
    url = f"pipe:cat {tmp_path}/a.tar # hunter2"
    dataset = wids.ShardListDataset([(url, 5)], allow_pipe=True, cache_dir=str(tmp_path / "c"))
    with pytest.raises(ShardMismatchError) as caught:
        dataset[0]
    more = wids.ShardListDataset([(url, 2)], allow_pipe=True, cache_dir=str(tmp_path / "c"))
    more.read(0)

    assert str(caught.value).startswith("pipe:cat …: has 3 samples")
    assert "hunter2" not in caplog.text
