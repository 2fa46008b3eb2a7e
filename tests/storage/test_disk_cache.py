"""The disk cache fetches each shard once for all processes, and holds only whole and verified ones."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import signal
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.storage.reading import content, shards, unfinished, wait_until
from tests.storage.web_server import WebServer, hold
from wids.errors import FetchError
from wids.storage import Storage, disk_cache, folder, space

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = bytes(range(256)) * 8192
SPAWN: Any = multiprocessing.get_context("spawn")
FORK: Any = multiprocessing.get_context("fork")


def open_in_child(storage: Storage, urls: list[str], answers: Any) -> None:
    for url in urls:
        answers.put((url, content(storage.open({"url": url, "filesize": len(DATA)})) == DATA))


def start_reader(
    storage: Storage, urls: list[str], context: Any = SPAWN, work: Callable[..., None] = open_in_child
) -> tuple[Any, Any]:
    answers = context.Queue()
    child = context.Process(target=work, args=(storage, urls, answers))
    child.start()
    return child, answers


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_concurrent_processes_fetch_each_shard_once(server: WebServer, make_storage: Callable[..., Storage]) -> None:
    server.objects |= {f"{number}.tar": DATA for number in range(5)}
    urls = [server.url(path) for path in server.objects]

    readers = [start_reader(make_storage(), urls) for _ in range(4)]

    for child, answers in readers:
        assert [answers.get(timeout=60) for _ in urls] == [(url, True) for url in urls]
        child.join(60)
    assert set(server.bodies.values()) == {1}


def test_concurrent_threads_fetch_a_shard_once(server: WebServer, make_storage: Callable[..., Storage]) -> None:
    server.objects["a.tar"] = DATA
    storage = make_storage()
    right: list[bool] = []

    def read() -> None:
        right.append(content(storage.open({"url": server.url("a.tar")})) == DATA)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert right == [True] * 8
    assert server.bodies["a.tar"] == 1


def test_waiting_for_one_shard_does_not_hold_up_another(
    server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    server.objects |= {"slow.tar": DATA, "quick.tar": DATA}
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["slow.tar"] = [hold(started, go_on, at=1000)]
    child, answers = start_reader(make_storage(), [server.url("slow.tar")])
    assert started.wait(60)

    assert content(make_storage().open({"url": server.url("quick.tar")})) == DATA

    go_on.set()
    assert answers.get(timeout=60)[1]
    child.join(60)


def test_a_partial_file_is_never_visible(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["a.tar"] = [hold(started, go_on, at=1_500_000)]
    child, answers = start_reader(make_storage(), [server.url("a.tar")])
    assert started.wait(60)
    wait_until(lambda: any(path.stat().st_size for path in unfinished(cache_dir)))

    assert not shards(cache_dir)

    go_on.set()
    assert answers.get(timeout=60)[1]
    child.join(60)
    assert [path.stat().st_size for path in shards(cache_dir)] == [len(DATA)]
    assert not unfinished(cache_dir)


@pytest.mark.parametrize("context", [SPAWN, FORK], ids=["spawn", "fork"])
def test_a_waiting_process_takes_over_when_the_fetching_one_is_killed(
    context: Any, server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["a.tar"] = [hold(started, go_on, at=1_500_000)]
    first, _ = start_reader(make_storage(), [server.url("a.tar")], context)
    assert started.wait(60)
    second, answers = start_reader(make_storage(), [server.url("a.tar")], work=open_and_report_waiting)
    assert answers.get(timeout=60) == "waiting"

    os.kill(first.pid, signal.SIGKILL)

    assert answers.get(timeout=60)[1]
    second.join(60)
    first.join(60)
    go_on.set()
    assert [path.stat().st_size for path in shards(cache_dir)] == [len(DATA)]


def open_and_report_waiting(storage: Storage, urls: list[str], answers: Any) -> None:
    """Send an answer once another process holds the lock, which filelock logs at each attempt."""

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "not acquired" in record.msg:
                answers.put("waiting")
                logging.getLogger("filelock").setLevel(logging.WARNING)

    logging.getLogger("filelock").addHandler(Waiting())
    logging.getLogger("filelock").setLevel(logging.DEBUG)
    open_in_child(storage, urls, answers)


def test_a_child_forked_during_a_download_does_not_keep_the_lock(
    server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    """The downloading process forks a child and is killed; the child must not keep its lock."""
    server.objects["a.tar"] = DATA
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["a.tar"] = [hold(started, go_on, at=1_500_000)]
    storage = make_storage()
    pids = SPAWN.Queue()
    may_fork = SPAWN.Event()
    parent = SPAWN.Process(target=download_and_fork, args=(storage, server.url("a.tar"), may_fork, pids))
    parent.start()
    assert started.wait(60)
    may_fork.set()
    grandchild = pids.get(timeout=60)

    os.kill(parent.pid, signal.SIGKILL)
    try:
        assert content(storage.open({"url": server.url("a.tar")})) == DATA
    finally:
        os.kill(grandchild, signal.SIGKILL)
        go_on.set()
        parent.join(60)


def download_and_fork(storage: Storage, url: str, may_fork: Any, pids: Any) -> None:
    threading.Thread(target=storage.open, args=({"url": url},), daemon=True).start()
    may_fork.wait(60)
    pid = os.fork()
    if pid == 0:
        signal.pause()
    pids.put(pid)
    signal.pause()


def test_a_lock_has_at_most_one_holder_at_any_time(tmp_path: Path) -> None:
    """Many processes take and release the lock; if its file were removed, two could hold it at once."""
    children = [SPAWN.Process(target=take_turns, args=(tmp_path,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)

    assert [child.exitcode for child in children] == [0] * 4


def take_turns(path: Path) -> None:
    from wids.storage.names import CacheKey

    cache = disk_cache.DiskCache(folder.CacheFolder(str(path)))
    cache.folder.make()
    key = CacheKey("a.tar", "source", "version", None, "a.tar", is_own_name=True)
    for _ in range(50):
        with cache._turn(key):
            held = os.open(path / "held", os.O_CREAT | os.O_EXCL)  # fails if another process holds the lock too
            os.close(held)
            (path / "held").unlink()


def test_a_shard_is_fetched_without_the_lock_when_its_holder_hangs(
    server: WebServer, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["a.tar"] = DATA
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["a.tar"] = [hold(started, go_on, at=1_500_000)]
    child, answers = start_reader(make_storage(), [server.url("a.tar")])
    assert started.wait(60)
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(disk_cache, "_POLL_S", 0.05)
    monkeypatch.setattr(disk_cache, "_PATIENCE_S", 0.3)

    assert content(make_storage().open({"url": server.url("a.tar")})) == DATA

    os.kill(child.pid, signal.SIGCONT)
    go_on.set()
    assert answers.get(timeout=60)[1]
    child.join(60)


def test_a_cached_shard_is_not_asked_for_again_by_another_process(
    server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    server.objects["a.tar"] = DATA
    make_storage().open({"url": server.url("a.tar"), "filesize": len(DATA)})
    server.objects.clear()

    child, answers = start_reader(make_storage(), [server.url("a.tar")])

    assert answers.get(timeout=60)[1]
    child.join(60)
    assert len(server.requests) == 1


@pytest.mark.parametrize("facts", [{}, {"filesize": len(DATA)}], ids=["size unknown", "size known"])
def test_a_damaged_cached_file_is_fetched_again(
    facts: dict[str, int], server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    shard = {"url": server.url("a.tar"), **facts}
    make_storage().open(shard)
    damage(*shards(cache_dir))

    assert content(make_storage().open(shard)) == DATA
    assert server.bodies["a.tar"] == 2


def test_a_shard_with_a_damaged_record_is_still_read(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    shard = {"url": server.url("a.tar"), "filesize": len(DATA)}
    make_storage().open(shard)
    for record in cache_dir.glob(".wids/*.json"):
        record.write_text('{"source": ')

    assert content(make_storage().open(shard)) == DATA

    damage(*shards(cache_dir))
    assert content(make_storage().open(shard)) == DATA


def test_a_file_the_cache_did_not_write_is_used_if_its_size_fits_else_left_alone(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    cache_dir.mkdir()
    theirs = cache_dir / "a.tar"
    theirs.write_bytes(DATA[::-1])
    storage = make_storage(localname=lambda url: url.rpartition("/")[2])

    assert content(storage.open({"url": server.url("a.tar"), "filesize": len(DATA)})) == DATA[::-1]

    with pytest.raises(FetchError, match=r"the cache did not write this file and leaves it alone"):
        storage.open({"url": server.url("a.tar"), "filesize": 7})
    assert theirs.read_bytes() == DATA[::-1]
    assert not server.requests


def test_a_localname_that_gives_two_urls_one_name_is_refused(
    server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    server.objects |= {"x/0.tar": DATA, "y/0.tar": DATA[::-1]}
    storage = make_storage(localname=lambda url: url.rpartition("/")[2])
    storage.open({"url": server.url("x/0.tar")})

    with pytest.raises(FetchError, match=r"y/0\.tar: localname gives it the name '0\.tar', as it does for .*x/0\.tar"):
        storage.open({"url": server.url("y/0.tar")})


def test_a_shard_with_a_localname_is_fetched_again_when_the_descriptor_changes(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    storage = make_storage(localname=lambda _: "a.tar")
    storage.open({"url": server.url("a.tar"), "filesize": len(DATA)})
    server.objects["a.tar"] = DATA + b"more"

    source = storage.open({"url": server.url("a.tar"), "filesize": len(DATA) + 4})

    assert content(source) == DATA + b"more"
    assert shards(cache_dir) == [cache_dir / "a.tar"]


def test_a_shard_with_a_localname_can_be_opened_while_another_thread_replaces_it(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another opens it at the moment after its record is written and before its file is in place."""
    server.objects["a.tar"] = DATA
    make_storage(localname=lambda _: "a.tar").open({"url": server.url("a.tar"), "filesize": len(DATA)})
    server.objects["a.tar"] = DATA + b"more"
    shard = {"url": server.url("a.tar"), "filesize": len(DATA) + 4}
    found: list[bytes] = []
    other = threading.Thread(
        target=lambda: found.append(content(make_storage(localname=lambda _: "a.tar").open(shard)))
    )
    looked = threading.Event()
    rename, read_record = Path.rename, space.read_record

    def rename_when_looked_for(path: Path, target: Path) -> Path:
        if target == cache_dir / "a.tar":
            other.start()
            assert looked.wait(60)
        return rename(path, target)

    def look(path: str) -> Any:
        record = read_record(path)
        if threading.current_thread() is other:
            looked.set()
        return record

    monkeypatch.setattr(Path, "rename", rename_when_looked_for)
    monkeypatch.setattr(disk_cache, "read_record", look)

    make_storage(localname=lambda _: "a.tar").open(shard)
    other.join(60)

    assert found == [DATA + b"more"]
    assert server.bodies["a.tar"] == 2


def test_an_open_shard_outlives_its_file(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    source = make_storage().open({"url": server.url("a.tar")})
    for path in shards(cache_dir):
        path.unlink()

    assert content(source) == DATA


def test_files_in_an_explicit_cache_folder_follow_the_umask(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    before = os.umask(0o002)
    try:
        make_storage().open({"url": server.url("a.tar")})
    finally:
        os.umask(before)

    assert {stat.S_IMODE(path.stat().st_mode) for path in cache_dir.rglob("*") if path.is_file()} == {0o664}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_read_only_cache_folder_is_read(server: WebServer, make_storage: Callable[..., Storage]) -> None:
    server.objects |= {"a.tar": DATA, "b.tar": DATA}
    urls = [server.url("a.tar"), server.url("b.tar")]
    answers = FORK.Queue()
    with tempfile.TemporaryDirectory() as shared:
        Path(shared).chmod(0o755)
        make_storage(cache_dir=shared).open({"url": urls[0], "filesize": len(DATA)})

        child = FORK.Process(target=open_as_nobody, args=(make_storage(cache_dir=shared), urls, answers))
        child.start()

        assert answers.get(timeout=60) == "read"
        assert "cannot be written" in answers.get(timeout=60)
        child.join(60)


def open_as_nobody(storage: Storage, urls: list[str], answers: Any) -> None:
    os.setgid(65534)
    os.setuid(65534)
    for url in urls:
        try:
            storage.open({"url": url, "filesize": len(DATA)})
        except FetchError as error:
            answers.put(str(error))
        else:
            answers.put("read")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "quota"])
def test_a_full_disk_or_quota_is_an_error_and_leaves_no_file(
    number: int,
    server: WebServer,
    make_storage: Callable[..., Storage],
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.objects |= {"a.tar": DATA, "small.tar": b"small"}
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 1000:
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(FetchError, match=r"the disk of the cache folder .*cache is full; free some of it, or set"):
        make_storage().open({"url": server.url("a.tar")})

    assert not shards(cache_dir)
    assert not unfinished(cache_dir)
    assert content(make_storage().open({"url": server.url("small.tar")})) == b"small"


def test_leftovers_of_dead_processes_are_removed_at_the_next_start(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path, tmp_path: Path
) -> None:
    paths = ["dead.tar", "alive.tar", "next.tar"]
    server.objects |= dict.fromkeys(paths, DATA)
    started, go_on = [threading.Event(), threading.Event()], threading.Event()
    for path, event in zip(paths, started, strict=False):
        server.behaviours[path] = [hold(event, go_on, at=1_500_000)]
    wait = f"while ! test -e {tmp_path}/go; do sleep 0.05; done"
    dead = start_reader(make_storage(), [server.url("dead.tar")])
    dead_command = start_reader(make_storage(allow_pipe=True), [f"pipe:echo x > {{local}}; {wait}"])
    alive = start_reader(make_storage(), [server.url("alive.tar")])
    wait_until(lambda: all(event.is_set() for event in started) and any(cache_dir.glob(".wids/*.scratch/shard")))
    for child, _ in (dead, dead_command):
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
    assert len(unfinished(cache_dir)) == 4  # a command leaves its scratch file and its unfinished shard

    make_storage().open({"url": server.url("next.tar")})

    assert len(unfinished(cache_dir)) == 1
    (tmp_path / "go").touch()
    go_on.set()
    assert alive[1].get(timeout=60)[1]
    alive[0].join(60)
    assert not unfinished(cache_dir)


def test_a_decompression_bomb_is_stopped_before_the_disk_is_full(
    tmp_path: Path, make_storage: Callable[..., Storage], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(100 << 20), compresslevel=1))
    disk = os.statvfs(tmp_path)
    looks = []

    def filling(_: object) -> os.statvfs_result:
        looks.append(1)
        free = 1 << 30 if len(looks) < 3 else 1 << 20
        return os.statvfs_result((*disk[:1], 4096, disk.f_blocks, free // 4096, free // 4096, *disk[5:]))

    monkeypatch.setattr(os, "statvfs", filling)

    with pytest.raises(FetchError, match=r"bomb\.tar\.gz: the disk of the cache folder"):
        make_storage().open({"url": str(path)})

    assert not shards(cache_dir)
    assert not unfinished(cache_dir)


def test_the_record_of_a_cached_file_has_its_size_inode_and_redacted_url(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["a.tar"] = DATA
    make_storage().open({"url": server.url("a.tar?token=hunter2")})

    (record,) = (json.loads(path.read_text()) for path in cache_dir.glob(".wids/*.json"))
    assert record["size"] == len(DATA)
    assert record["inode"] == shards(cache_dir)[0].stat().st_ino
    assert record["label"] == server.url("a.tar?token=***")
