"""`create_index`: repeated and interrupted runs, remote shards, executors, memory."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import tracemalloc
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids
from tests.storage.reading import wait_until
from tests.storage.web_server import WebServer, web_server
from tests.support import sample_members, write_shards, write_tar
from wids.errors import DescriptorError, WidsError
from wids.storage import Storage
from wids.tools import Wanted, describe_shard
from wids.tools.journal import Journal
from wids.tools.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
_opened: list[str] | None = None


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and str(arguments[0]).endswith((".tar", ".gz")):
        _opened.append(Path(arguments[0]).name)


sys.addaudithook(_note_opened)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Names of the shards that this process opens; clear it to begin anew."""
    global _opened  # noqa: PLW0603 - an audit hook cannot be taken back
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`shard-0000.tar` to `shard-0004.tar` in the current folder."""
    monkeypatch.chdir(tmp_path)
    return [Path(path).name for path, _ in write_shards(tmp_path, [3, 0, 2, 4, 1])]


def read(path: str) -> list[dict[str, Any]]:
    shardlist: list[dict[str, Any]] = orjson.loads(Path(path).read_bytes())["shardlist"]
    return shardlist


# Interrupted and repeated runs


def test_a_second_create_index_opens_no_shard_and_writes_the_same(shards: list[str], opened: list[str]) -> None:
    first = wids.create_index(shards, "a.json", checksums=True)
    pack = Path("a.widx").read_bytes()
    assert set(opened) == set(shards)
    opened.clear()

    second = wids.create_index(shards, "a.json", checksums=True)

    assert opened == []
    assert second == first
    assert Path("a.widx").read_bytes() == pack


@pytest.mark.parametrize("change", ["rewritten", "touched", "replaced by one of the same size", "gone"])
def test_a_second_create_index_opens_only_the_shard_that_has_changed(
    shards: list[str], opened: list[str], change: str
) -> None:
    wids.create_index(shards, "a.json", index=True)
    path = Path(shards[2])
    if change == "rewritten":
        write_tar(path, sample_members(9))
    elif change == "touched":
        # Not "now": the clock of the file system may still show the time at which the shard was written.
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))
    elif change == "gone":
        path.unlink()
    else:
        write_tar(Path("new.tar"), sample_members(2, first=7))
        os.utime("new.tar", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        Path("new.tar").replace(path)
    opened.clear()

    if change == "gone":
        with pytest.raises(WidsError, match=r"1 of 5 shards was left out: shard-0002\.tar: cannot be opened"):
            wids.create_index(shards, "a.json", index=True)
    else:
        wids.create_index(shards, "a.json", index=True)

    assert set(opened) <= {path.name}
    assert opened
    kept = Path("a.json").read_bytes(), Path("a.widx").read_bytes()
    if change != "gone":
        wids.create_index(shards, "a.json", index=True, resume=False)
    assert (Path("a.json").read_bytes(), Path("a.widx").read_bytes()) == kept


def test_a_second_create_index_opens_only_the_new_shard(shards: list[str], opened: list[str]) -> None:
    wids.create_index(shards[1:], "a.json")
    opened.clear()

    wids.create_index(shards, "a.json")

    assert set(opened) == {shards[0]}
    assert [entry["url"] for entry in read("a.json")] == shards


def test_create_index_with_other_options_reads_only_what_these_need(
    shards: list[str], opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_md5 = wids.create_index(shards, "a.json")
    opened.clear()

    without = wids.create_index(shards, "a.json", md5=False)
    assert opened == []
    assert all("md5sum" not in entry for entry in without["shardlist"])

    monkeypatch.setattr("wids.storage.stored.digest_source", lambda _: pytest.fail("a shard was digested again"))
    with_index = wids.create_index(shards, "a.json", index=True)
    assert set(opened) == set(shards)
    assert with_index["shardlist"] == with_md5["shardlist"]


def test_a_missing_or_damaged_pack_is_made_again(shards: list[str], opened: list[str]) -> None:
    wids.create_index(shards, "a.json", index=True)
    pack = Path("a.widx").read_bytes()
    for damage in ("gone", "damaged", "of other shards"):
        Path("a.widx").unlink()
        if damage == "damaged":
            Path("a.widx").write_bytes(pack[: len(pack) // 2])
        elif damage == "of other shards":
            wids.create_index(shards[:2], "b.json", index=True)
            Path("b.widx").rename("a.widx")
        opened.clear()

        wids.create_index(shards, "a.json", index=True)

        assert set(opened) == set(shards[2:] if damage == "of other shards" else shards)
        assert Path("a.widx").read_bytes() == pack


def test_create_index_without_resume_opens_all_shards(shards: list[str], opened: list[str]) -> None:
    wids.create_index(shards, "a.json")
    opened.clear()

    wids.create_index(shards, "a.json", resume=False)

    assert set(opened) == set(shards)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_create_reads_only_the_remaining_shards_when_run_again(
    shards: list[str], opened: list[str], workers: str
) -> None:
    whole = wids.create_index(shards, "whole.json", index=True)
    Path(shards[3]).rename("hidden")
    os.mkfifo(shards[3])  # whoever reads it waits
    command = [sys.executable, "-m", "wids", "create", *shards, "-o", "a.json", "--index", "-w", workers]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)
    done = shards[:3] if workers == "1" else [*shards[:3], shards[4]]
    journal = Path(".a.json.journal")
    wait_until(lambda: journal.exists() and all(name.encode() in journal.read_bytes() for name in done))

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not Path("a.json").exists()
    assert not Path("a.widx").exists()
    Path(shards[3]).unlink()
    Path("hidden").rename(shards[3])
    opened.clear()
    again = wids.create_index(shards, "a.json", index=True)

    assert set(opened) == set(shards) - set(done)
    assert {**again, "index": "whole.widx"} == whole
    assert Path("a.widx").read_bytes() == Path("whole.widx").read_bytes()


def test_the_journal_is_small_after_success(shards: list[str]) -> None:
    write_tar(Path("large.tar"), sample_members(3000))

    wids.create_index([*shards, "large.tar"], "a.json", index=True)

    assert Path("a.widx").stat().st_size > 50_000
    assert Path(".a.json.journal").stat().st_size < 3000


def test_a_file_with_the_name_of_the_journal_is_not_overwritten(shards: list[str]) -> None:
    Path(".a.json.journal").write_bytes(b"precious\n")

    with pytest.raises(WidsError, match=r"\.a\.json\.journal: is not a journal of widsindex; move it away"):
        wids.create_index(shards, "a.json")

    assert Path(".a.json.journal").read_bytes() == b"precious\n"


def test_a_journal_that_another_process_has_open_is_not_changed(shards: list[str], opened: list[str]) -> None:
    wids.create_index(shards[:3], "a.json")
    before = Path(".a.json.journal").read_bytes()
    with Journal(Path("a.json"), None):
        opened.clear()
        content = wids.create_index(shards, "a.json", index=True)

    assert set(opened) == set(shards)
    assert len(content["shardlist"]) == 5
    assert Path(".a.json.journal").read_bytes() == before


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_journal_keeps_the_whole_records_before_the_damage(shards: list[str], data: st.DataObject) -> None:
    path = Path(".j.json.journal")
    path.unlink(missing_ok=True)
    wanted = Wanted(index=True)
    found = {name: describe_shard(name, Storage(), wanted) for name in shards}
    ends = []
    with Journal(Path("j.json"), None) as journal:
        for name in shards:
            journal.add(name, found[name])
            ends.append(path.stat().st_size)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(len(b"wids journal 1\n"), len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    with Journal(Path("j.json"), None) as journal:
        kept = [name for name in shards if journal.find(name, name) is not None]
        assert kept == [name for name, end in zip(shards, ends, strict=True) if end <= place]
        for name in kept:
            assert journal.packed(name, name) == found[name].packed
        for name in shards:
            journal.add(name, found[name])
    with Journal(Path("j.json"), None) as journal:
        assert {name: journal.packed(name, name) for name in shards} == {name: found[name].packed for name in shards}


# Shards elsewhere


@pytest.fixture
def server(shards: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """The shards and a large one, on a server that sends parts; none of them may be stored here."""
    write_tar(Path("large.tar"), [(f"{n}.bin", random.Random(n).randbytes(1 << 21)) for n in range(12)])
    monkeypatch.setenv("WIDS_CACHE", "/proc/no/cache/can/be/here")
    with web_server() as state:
        state.has_ranges = True
        for name in (*shards, "large.tar"):
            state.objects[name] = Path(name).read_bytes()
        yield state


@pytest.mark.parametrize("checksums", [False, True], ids=["index", "checksums"])
def test_remote_shards_are_described_like_local_ones_and_not_stored(
    shards: list[str], server: WebServer, checksums: bool
) -> None:
    names = [*shards, "large.tar"]
    local = wids.create_index(names, "local.json", index=True, checksums=checksums)
    size = sum(map(len, server.objects.values()))

    remote = wids.create_index([server.url(name) for name in names], "remote.json", index=True, checksums=checksums)

    assert [{**entry, "url": entry["url"].rpartition("/")[2]} for entry in remote["shardlist"]] == local["shardlist"]
    packs = [Path(name).read_bytes() for name in ("local.widx", "remote.widx")]
    assert len(packs[0]) == pytest.approx(len(packs[1]), abs=6 * 200)
    if not checksums:
        assert server.num_bytes < size + 6 * 20 * 1024


def test_without_md5_only_headers_of_remote_shards_are_fetched(server: WebServer) -> None:
    wids.create_index([server.url("large.tar")], "remote.json", md5=False, index=True)

    assert server.num_bytes < len(server.objects["large.tar"]) / 10


def test_a_remote_shard_is_read_again_when_its_etag_changes(shards: list[str], server: WebServer) -> None:
    urls = [server.url(name) for name in shards]
    wids.create_index(urls, "remote.json")
    server.num_bytes = 0
    same = wids.create_index([f"{url}?X-Amz-Signature=another" for url in urls], "remote.json")
    assert server.num_bytes <= 512 * len(urls)

    write_tar(Path("new.tar"), sample_members(2, first=7))
    server.objects[shards[2]] = Path("new.tar").read_bytes()
    changed = wids.create_index(urls, "remote.json")

    md5s = [[entry["md5sum"] for entry in content["shardlist"]] for content in (same, changed)]
    assert [first == second for first, second in zip(*md5s, strict=True)] == [True, True, False, True, True]
    assert md5s[1][2] == hashlib.md5(server.objects[shards[2]]).hexdigest()


def test_shards_that_are_compressed_or_on_a_server_without_ranges_are_described(
    shards: list[str], server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    server.objects["a.tar.gz"] = stored = gzip.compress(server.objects[shards[0]])
    for has_ranges in (True, False):
        server.has_ranges = has_ranges

        content = wids.create_index([server.url("a.tar.gz"), server.url(shards[3])], "remote.json", resume=False)

        assert [(entry["nsamples"], entry["filesize"], entry["md5sum"]) for entry in content["shardlist"]] == [
            (3, len(stored), hashlib.md5(stored).hexdigest()),
            (4, Path(shards[3]).stat().st_size, hashlib.md5(server.objects[shards[3]]).hexdigest()),
        ]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix in {".tar", ".part"}]


# Executors


class Counting(Executor):
    """Runs work in threads, and counts it; what it was given crosses as bytes, as to another process."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.num_submitted = 0
        self.largest = 0

    def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
        sent = pickle.dumps((function, arguments))
        self.largest = max(self.largest, len(sent))
        again, received = pickle.loads(sent)
        self.num_submitted += 1
        return self.pool.submit(again, *received, **more)


def test_tasks_for_workers_are_small_and_one_for_each_distinct_shard(shards: list[str]) -> None:
    executor = Counting()
    serial = wids.create_index(shards * 200, "a.json", index=True)

    spread_out = wids.create_index(shards * 200, "b.json", index=True, executor=executor)

    assert {**spread_out, "index": "a.widx"} == serial
    assert executor.largest < 2000
    assert executor.num_submitted == len(shards)


def test_an_executor_is_given_at_most_256_things_that_are_not_done() -> None:
    num_taken = num_done = most = 0

    def things() -> Iterator[int]:
        nonlocal num_taken, most
        for number in range(2000):
            num_taken += 1
            most = max(most, num_taken - num_done)
            yield number

    def work(number: int) -> int:
        wait_until(lambda: num_taken >= 256)  # until then nothing is done, so that nothing makes room
        return number

    with ThreadPoolExecutor(2) as executor:
        for thing, result in spread(work, things(), executor):
            num_done += 1
            assert thing == result

    assert (num_done, most) == (2000, 256)


class Breaking(Executor):
    """Does the work at once, and is broken at the last thing but one, as its future or, after that, `submit` tells."""

    def __init__(self, things: int, *, at_submit: bool) -> None:
        self.left = things
        self.at_submit = at_submit

    def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
        self.left -= 1
        future: Future[Any] = Future()
        if self.left > 1:
            future.set_result(function(*arguments))
        elif self.at_submit:
            raise BrokenProcessPool
        else:
            future.set_exception(BrokenProcessPool())
        return future


@pytest.mark.parametrize("at_submit", [False, True], ids=["future fails", "submit fails"])
def test_results_from_before_the_death_of_a_worker_are_not_lost(*, at_submit: bool) -> None:
    done: list[int] = []
    with pytest.raises(WidsError, match="was killed, perhaps for lack of memory"):
        done.extend(thing for thing, _ in spread(abs, range(100), Breaking(100, at_submit=at_submit)))

    assert done == list(range(98))


class KilledWorker(Exception):  # noqa: N818 - as Dask calls it
    """What an executor says in its own words."""


class GivingUp(Executor):
    """Does the work at once, but for what it is told to fail at or to cancel."""

    def __init__(self, given_up: int, error: Exception | None) -> None:
        self.given_up = given_up
        self.error = error

    def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments[0] != self.given_up:
            future.set_result(function(*arguments))
        elif self.error is not None:
            future.set_exception(self.error)
        else:
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, "CancelledError; fix the cause"), (KilledWorker("4 workers died"), "KilledWorker: 4 wor")],
    ids=["cancelled", "own exception"],
)
def test_an_executor_that_gives_up_raises_wids_error(error: Exception | None, message: str) -> None:
    done: list[int] = []
    with pytest.raises(WidsError, match=f"failed or cancelled the work on a shard: {message}"):
        done.extend(thing for thing, _ in spread(abs, range(100), GivingUp(90, error)))

    assert done == list(range(90))


def test_results_of_a_synchronous_executor_are_yielded_at_once() -> None:
    results = spread(abs, range(100), GivingUp(1, KilledWorker()))

    assert next(results) == (0, 0)


def test_shards_keep_their_order_in_whatever_order_an_executor_finishes(shards: list[str]) -> None:
    class Backwards(Executor):
        def __init__(self) -> None:
            self.waiting: list[tuple[Future[Any], Any, Any]] = []

        def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
            self.waiting.append((Future(), function, arguments))
            if len(self.waiting) == len(shards):
                for future, work, given_to_it in reversed(self.waiting):
                    future.set_result(work(*given_to_it))
            return next(future for future, _, arguments_ in reversed(self.waiting) if arguments_ is arguments)

    content = wids.create_index(shards, "a.json", executor=Backwards())

    assert [entry["url"] for entry in content["shardlist"]] == shards


def _end_at(stop: str) -> None:
    """Have this process end when it opens a shard of that name."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith(stop):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_after_the_death_of_a_worker_only_its_shard_and_later_ones_are_read_again(
    shards: list[str], opened: list[str]
) -> None:
    serial = wids.create_index(shards, "serial.json")
    with (
        ProcessPoolExecutor(1, get_context("spawn"), initializer=_end_at, initargs=(shards[3],)) as pool,
        pytest.raises(WidsError, match="a worker process was killed"),
    ):
        wids.create_index(shards, "a.json", executor=pool)
    assert not Path("a.json").exists()
    opened.clear()

    content = wids.create_index(shards, "a.json")

    assert set(opened) == {shards[3], shards[4]}
    assert content == serial


# Memory, and bad places


def test_memory_of_create_index_does_not_grow_with_the_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tar(Path("first.tar"), sample_members(500))
    for number in range(400):
        os.link("first.tar", f"s-{number:03d}.tar")
    peaks = []
    for count in (40, 400):
        tracemalloc.start()
        wids.create_index([f"s-{number:03d}.tar" for number in range(count)], f"{count}.json", md5=False, index=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    # A pack of 400 has 6 MB; a shard costs its facts and its entry's place.
    assert Path("400.widx").stat().st_size > 4_000_000
    assert peaks[1] < peaks[0] + 360 * 4096


def test_create_index_without_an_output_writes_nothing(shards: list[str], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())

    content = wids.create_index(shards, None)

    assert [entry["nsamples"] for entry in content["shardlist"]] == [3, 0, 2, 4, 1]
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(DescriptorError, match="an index pack is written beside its descriptor"):
        wids.create_index(shards, None, index=True)


@pytest.mark.parametrize("output", ["shard-0000.tar", "new.tar.gz", "link.json"])
def test_create_index_refuses_to_write_the_descriptor_over_a_shard(
    shards: list[str], tmp_path: Path, output: str
) -> None:
    Path("link.json").symlink_to("shard-0000.tar")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(
        DescriptorError, match=r"is a name for a shard|is the shard shard-0000\.tar, which would be replaced"
    ):
        wids.create_index(shards, output)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_above_the_shards_may_have_a_name_that_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    folder = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    Path(folder).mkdir()
    monkeypatch.chdir(folder)
    write_shards(Path(folder), [3])

    first = wids.create_index(["shard-0000.tar"], "a.json")
    opened.clear()

    assert wids.create_index(["shard-0000.tar"], "a.json") == first
    assert opened == []
    assert [entry["nsamples"] for entry in read("a.json")] == [3]


def test_a_journal_that_cannot_be_written_is_named_in_the_error(shards: list[str]) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError, match=r"\.a\.json\.journal: cannot be written: File too large; make room"):
            wids.create_index(shards, "a.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)

    assert not Path("a.json").exists()
