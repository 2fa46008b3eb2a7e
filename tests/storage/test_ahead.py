"""Shards are fetched before they are needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import exit_status_of_fork, is_running, shards, unfinished, wait_until
from tests.storage.web_server import WebServer, hold, status
from tests.support import sample_members, write_tar
from wids.errors import FetchError
from wids.storage import CacheSpace, Storage, StorageOptions, ahead
from wids.storage.folder import CacheFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PER_SHARD = 5


@pytest.fixture
def entries(server: WebServer, tmp_path: Path) -> list[dict[str, Any]]:
    """Twelve remote shards of five samples."""
    found = []
    for number in range(12):
        path = write_tar(tmp_path / f"{number:02d}.tar", sample_members(PER_SHARD, first=PER_SHARD * number))
        server.objects[path.name] = path.read_bytes()
        found.append({"url": server.url(path.name), "nsamples": PER_SHARD, "filesize": path.stat().st_size})
    return found


@pytest.fixture
def dataset(entries: list[dict[str, Any]], cache_dir: Path) -> Iterator[wids.ShardListDataset]:
    with wids.ShardListDataset(entries, cache_dir=str(cache_dir), transformations=[]) as opened:
        yield opened


def asked_for(server: WebServer) -> set[str]:
    return {target[1:] for target, _ in server.requests}


@pytest.mark.parametrize("shards_ahead", [1, 3])
def test_the_next_shards_are_fetched_before_the_current_one_is_read_to_its_end(
    server: WebServer, dataset: wids.ShardListDataset, shards_ahead: int
) -> None:
    plain = list(wids.ShardListSampler(dataset))
    sampler = wids.ShardListSampler(dataset, shards_ahead=shards_ahead)
    order = list(dict.fromkeys(index // PER_SHARD for index in plain))
    seen: list[int] = []
    for index in sampler:
        place = order.index(index // PER_SHARD)
        if len(seen) % PER_SHARD == PER_SHARD - 1:  # the last sample of its shard; nobody has read the next shard yet
            for shard in order[place + 1 : place + 1 + shards_ahead]:
                wait_until(lambda name=f"{shard:02d}.tar": name in asked_for(server))  # type: ignore[misc]
        assert dataset.read(index)[".txt"] == b"text of %d" % index
        seen.append(index)

    assert seen == plain
    assert set(server.bodies.values()) == {1}


def test_no_more_shards_are_prefetched_than_the_cache_holds(
    server: WebServer, entries: list[dict[str, Any]], cache_dir: Path
) -> None:
    size = entries[0]["filesize"]
    with wids.ShardListDataset(entries, cache_dir=str(cache_dir), cache_size=3 * size, lru_size=1) as dataset:
        sampler = wids.ShardListSampler(dataset, shards_ahead=10)
        most = 0
        for index in sampler:
            assert dataset.read(index)[".txt"] == b"text of %d" % index
            most = max(most, len(shards(cache_dir)))

    assert most <= 3
    assert set(server.bodies.values()) == {1}  # nothing was removed before it was read


def test_a_failed_prefetch_is_raised_by_the_read_that_needs_the_shard(
    server: WebServer, dataset: wids.ShardListDataset
) -> None:
    server.behaviours["05.tar"] = [status(404)] * 100
    failed = set()
    for index in wids.ShardListSampler(dataset, shards_ahead=3):
        try:
            dataset.read(index)
        except FetchError as error:
            assert "05.tar: does not exist (404" in str(error)
            failed.add(index // PER_SHARD)

    assert failed == {5}


def test_prefetching_adds_no_thread_or_lock_so_that_the_process_can_be_forked(
    server: WebServer, dataset: wids.ShardListDataset, cache_dir: Path
) -> None:
    """The process is forked while a shard is being prefetched."""
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["07.tar"] = [hold(started, go_on, 1000)]
    threads = threading.active_count()
    dataset.prefetch([7])
    assert started.wait(60)
    assert threading.active_count() <= threads + 1  # the server's own thread
    assert exit_status_of_fork(lambda: int(dataset.read(0)[".txt"] != b"text of 0")) == 0
    go_on.set()

    assert dataset.read(35)[".txt"] == b"text of 35"
    assert server.bodies["07.tar"] == 0  # the answer that was held back does not count, and there was no other
    assert not unfinished(cache_dir)


def test_closing_ends_the_prefetch_process_and_leaves_no_unfinished_file(
    server: WebServer, dataset: wids.ShardListDataset, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["03.tar"] = [hold(started, go_on, 1000)]
    before = children()
    dataset.prefetch([3])
    assert started.wait(60)
    wait_until(lambda: unfinished(cache_dir))
    (helper,) = children() - before
    monkeypatch.setattr(ahead, "_PATIENCE_S", 120)  # it must end by itself, not by being killed after a while
    dataset.close()

    assert helper not in children()
    assert not unfinished(cache_dir)
    go_on.set()
    assert dataset.read(15)[".txt"] == b"text of 15"


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_the_prefetch_process_ends_when_its_parent_is_killed(
    entries: list[dict[str, Any]], server: WebServer, cache_dir: Path, tmp_path: Path
) -> None:
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["03.tar"] = [hold(started, go_on, 1000)]
    forked = tmp_path / "forked"
    code = (
        "import os, sys, time, wids\n"
        f"ds = wids.ShardListDataset({entries!r}, cache_dir={str(cache_dir)!r})\n"
        "ds.prefetch([3])\n"
        "if os.fork() == 0:\n"  # the child keeps the pipe open too
        f"    open({str(forked)!r}, 'x')\n"
        "    time.sleep(600)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True
    )
    try:
        assert started.wait(60)
        wait_until(forked.exists)
        (helper,) = [pid for pid in running_with("wids.storage.ahead") if parent(pid) == process.pid]
        process.kill()
        process.wait()
        wait_until(lambda: not is_running(helper))
        assert not unfinished(cache_dir)
    finally:
        go_on.set()
        os.killpg(process.pid, signal.SIGKILL)


def test_the_prefetch_process_ends_when_its_parent_died_before_it_started(cache_dir: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    # The pipe stays open, as if a forked worker held it.
    command = [sys.executable, "-c", ahead._START, str(gone.pid), str(ROOT)]
    helper = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert helper.stdin is not None
    helper.stdin.write(ahead._frame(Storage(StorageOptions(cache_dir=str(cache_dir)))))
    helper.stdin.flush()
    try:
        assert helper.wait(60) == 0
    finally:
        helper.kill()
        helper.stdin.close()


def running_with(text: str) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if text.encode() in command(int(path.name))]


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # the process has ended meanwhile


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_prefetching_local_shards_copies_nothing_into_the_cache(tmp_path: Path, cache_dir: Path) -> None:
    paths = [str(write_tar(tmp_path / f"{n}.tar", sample_members(3, first=3 * n))) for n in range(4)]
    with wids.ShardListDataset([(path, 3) for path in paths], cache_dir=str(cache_dir)) as dataset:
        keys = [dataset.key(index) for index in wids.ShardListSampler(dataset, shards_ahead=2)]
    # What the other process does with each shard; it may not have come to the last ones.
    sizes = [Storage(StorageOptions(cache_dir=str(cache_dir))).make_ready({"url": path}) for path in paths]

    assert sorted(keys) == [f"{number:06d}" for number in range(12)]
    assert sizes == [Path(path).stat().st_size for path in paths]
    assert not shards(cache_dir)


def test_a_localname_that_cannot_be_pickled_gives_a_warning(
    entries: list[dict[str, Any]], cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = wids.ShardListDataset(
        entries, cache_dir=str(cache_dir), localname=lambda url: url.rpartition("/")[2], transformations=[]
    )
    for index in wids.ShardListSampler(dataset, shards_ahead=2):
        assert dataset.read(index)[".txt"] == b"text of %d" % index

    assert [record.message[:36] for record in caplog.records] == ["shards are not fetched ahead, but wh"]


def test_the_first_prefetch_is_announced_once_when_progress_is_shown(
    dataset: wids.ShardListDataset, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIDS_VERBOSE", "1")
    dataset.prefetch([0, 1])
    dataset.prefetch([1, 2])
    dataset.read(20)
    dataset.close()

    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "wids: first batches need 2 shards, 41.0 kB"
    assert len([line for line in lines if "first batches" in line]) == 1


def test_prefetching_prints_nothing_when_stderr_is_no_terminal(
    dataset: wids.ShardListDataset, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WIDS_VERBOSE", raising=False)
    dataset.prefetch([0, 1])
    dataset.read(20)
    dataset.close()

    assert capfd.readouterr() == ("", "")


def test_closing_does_not_wait_for_a_forked_worker(
    dataset: wids.ShardListDataset, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.prefetch([0])
    worker = os.fork()
    if not worker:
        signal.pause()
        os._exit(0)
    try:
        wait_until(lambda: shards(cache_dir))
        monkeypatch.setattr(ahead, "_PATIENCE_S", 120)
        monkeypatch.setattr(subprocess.Popen, "kill", lambda _: pytest.fail("the process did not end by itself"))
        dataset.close()
        assert not list(cache_dir.glob(".wids/*.ahead"))
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_announcements_of_dead_processes_are_ignored(cache_dir: Path) -> None:
    folder = CacheFolder(str(cache_dir))
    folder.make()
    for number in range(3):
        (cache_dir / ".wids" / f"next-{number}.ahead").write_text("a" * 32)
    own = CacheSpace(folder).announcement()

    assert CacheSpace(folder).num_announcements() == 1
    own.close()
    assert not list(cache_dir.glob(".wids/*.ahead"))


def test_a_localname_defined_in_the_script_itself_gives_a_warning(
    entries: list[dict[str, Any]], cache_dir: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import wids\n"
        "def name(url): return url.rpartition('/')[2]\n"
        f"ds = wids.ShardListDataset({entries!r}, cache_dir={str(cache_dir)!r}, localname=name, transformations=[])\n"
        "for index in wids.ShardListSampler(ds, shards_ahead=2): ds[index]\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == (
        "shards are not fetched ahead, but when they are read: localname is defined in the script itself, which no other "
        "process can import\n"
    )
