"""The counters and the present activity of all processes of a job."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import wids
from tests.storage.reading import exit_status_of_fork, wait_until
from tests.storage.web_server import WebServer, hold, status
from tests.support import sample_members, write_tar
from wids.storage import meter as meters
from wids.storage.meter import Meter


@pytest.fixture
def _own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_folder", lambda job: tmp_path / "memory" / "jobs" / job)
    (tmp_path / "memory").mkdir(mode=0o700)


@pytest.fixture
def entries(server: WebServer, tmp_path: Path) -> list[dict[str, Any]]:
    """Six remote shards of five samples."""
    found = []
    for number in range(6):
        path = write_tar(tmp_path / f"{number}.tar", sample_members(5, first=5 * number))
        server.objects[path.name] = path.read_bytes()
        found.append({"url": server.url(path.name), "nsamples": 5})
    return found


def test_the_counters_of_one_process(server: WebServer, entries: list[dict[str, Any]], cache_dir: Path) -> None:
    server.behaviours["1.tar"] = [status(503)]
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir), transformations=[], lru_size=1)
    for index in (0, 1, 5, 0):
        dataset.read(index)
    stats = dataset.stats()
    size = len(server.objects["0.tar"])

    assert stats.pop("seconds_waited") > 0.2  # the wait before the second attempt
    assert stats == {
        "accesses": 4,
        "hits": 1,
        "misses": 3,
        "fetches": 2,
        "cache_hits": 1,
        "bytes_fetched": 2 * size,
        "bytes_mapped": 3 * size,
        "requests": 0,
        "retries": 1,
        "replacements": 0,
        "index_builds": 2,
    }


def test_ranges_are_counted_as_requests(server: WebServer, entries: list[dict[str, Any]], cache_dir: Path) -> None:
    server.has_ranges = True
    dataset = wids.ShardListDataset(entries, access="range", cache_dir=str(cache_dir), transformations=[])
    dataset.read(0)

    assert dataset.stats()["requests"] == len(server.requests)
    assert dataset.stats()["bytes_fetched"] == server.num_bytes


def test_replacements_are_counted(tmp_path: Path) -> None:
    members = [(f"{n}.json", b"{}" if n else b"{bad") for n in range(3)]
    shard = str(write_tar(tmp_path / "a.tar", members))
    dataset = wids.ShardListDataset([(shard, 3)], on_error="replace")

    assert dataset[0]["__index__"] == 1
    assert dataset.stats()["replacements"] == 1


def _read_some(dataset: Any) -> None:
    for index in range(0, 30, 5):
        dataset.read(index)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_counters_of_all_processes_are_summed(entries: list[dict[str, Any]], cache_dir: Path, method: Any) -> None:
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir), transformations=[])
    dataset.read(0)
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=_read_some, args=(dataset,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    stats = dataset.stats()

    assert stats["fetches"] + stats["cache_hits"] == stats["misses"] >= 11
    assert (stats["fetches"], stats["accesses"]) == (6, stats["misses"] + stats["hits"])


def _read_one(dataset: Any, index: int) -> None:
    dataset.read(index)


def test_in_flight_shows_what_a_process_is_doing_even_after_it_was_killed(
    server: WebServer, entries: list[dict[str, Any]], cache_dir: Path
) -> None:
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir), transformations=[])
    assert dataset.in_flight() == []
    started, go_on = threading.Event(), threading.Event()
    server.behaviours["3.tar"] = [hold(started, go_on, 1000)]
    context: Any = multiprocessing.get_context("spawn")
    worker = context.Process(target=_read_one, args=(dataset, 17))
    worker.start()
    assert started.wait(60)
    wait_until(dataset.in_flight)
    (doing,) = dataset.in_flight()
    assert doing.pop("seconds") >= 0
    assert doing == {"pid": worker.pid, "alive": True, "what": "fetch", "shard": server.url("3.tar"), "index": 17}
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()

    assert [(entry["alive"], entry["what"], entry["index"]) for entry in dataset.in_flight()] == [(False, "fetch", 17)]
    go_on.set()


def shown(meter: Meter) -> list[tuple[str, int | None]]:
    return sorted((entry["what"], entry.get("index")) for entry in meter.in_flight())


def test_in_flight_shows_each_thread() -> None:
    meter = Meter()
    go_on = threading.Event()

    def work() -> None:
        with meter.doing("one thing", index=1), meter.doing("part of it"):
            go_on.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    with meter.doing("another"):
        wait_until(lambda: shown(meter) == [("another", None), ("part of it", 1)])
    go_on.set()
    thread.join()

    assert meter.in_flight() == []


@pytest.mark.usefixtures("_own_memory")
def test_a_jobs_folder_is_removed_with_its_first_process_or_by_a_later_job(tmp_path: Path) -> None:
    jobs = tmp_path / "memory" / "jobs"
    first = Meter()
    first.add("misses")
    copy = pickle.loads(pickle.dumps(first))
    copy.add("misses", 2)
    assert copy.totals()["misses"] == first.totals()["misses"] == 3
    (folder,) = jobs.iterdir()
    del copy
    assert folder.exists()

    def count_and_leave() -> int:
        killed = Meter()
        killed.add("misses")
        # Ends here by `os._exit`, as if it was killed: nothing is cleaned up.
        os._exit(0)

    assert exit_status_of_fork(count_and_leave) == 0
    left = next(path for path in jobs.iterdir() if path != folder)
    os.utime(left, (time.time() - 3600,) * 2)
    os.utime(folder, (time.time() - 3600,) * 2)
    meters._tidied.clear()  # else this process would not look again
    second = Meter()
    second.add("misses")

    assert not left.exists()
    assert folder.exists()  # its process is alive
    del first
    assert not folder.exists()


@pytest.mark.usefixtures("_own_memory")
def test_a_process_counts_for_itself_when_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "memory").rmdir()
    (tmp_path / "memory").write_bytes(b"")
    meter = Meter()
    meter.add("retries", 2)

    assert meter.totals()["retries"] == 2


@pytest.mark.usefixtures("_own_memory")
def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "memory").chmod(0o755)
    meter = Meter()
    meter.add("retries", 2)

    assert meter.totals()["retries"] == 2
    assert not list((tmp_path / "memory").iterdir())


def test_in_flight_shows_as_many_threads_as_fit_into_a_page() -> None:
    meter = Meter()
    inside = threading.Barrier(61)
    go_on = threading.Event()

    def work(number: int) -> None:
        with meter.doing("wait", shard="x" * 500, index=number):
            inside.wait(60)
            go_on.wait(60)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    found = meter.in_flight()
    go_on.set()
    for thread in threads:
        thread.join()

    assert 10 <= len(found) < 60
    assert {(entry["what"], entry["shard"]) for entry in found} == {("wait", "x" * 500)}
    assert len({entry["index"] for entry in found}) == len(found)
    assert meter.in_flight() == []


@pytest.mark.usefixtures("_own_memory")
def test_values_that_are_no_json_are_shown_as_text(entries: list[dict[str, Any]], cache_dir: Path) -> None:
    numpy = pytest.importorskip("numpy")
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir), transformations=[])
    meter = Meter()

    assert dataset.read(numpy.int64(17))[".txt"] == b"text of 17"
    assert dataset.read(3)[".txt"] == b"text of 3"
    with meter.doing("something", of=object()):
        assert meter.in_flight()[0]["of"].startswith("<object")
    assert dataset.in_flight() == meter.in_flight() == []


@pytest.mark.usefixtures("_own_memory")
def test_closed_datasets_leave_no_file_descriptor_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    shard = str(write_tar(tmp_path / "a.tar", sample_members(1)))
    gc.collect()
    before = opened()
    for _ in range(6):
        with wids.ShardListDataset([(shard, 1)]) as dataset:
            dataset.read(0)
        del dataset
        gc.collect()

    assert opened() <= before + 1
    assert not list((tmp_path / "memory" / "jobs").iterdir())


def test_counting_works_when_the_memory_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    options = ["-t", "tmpfs", "-o", "size=8k,mode=700"]
    if subprocess.run(["mount", *options, "none", str(tmp_path / "full")], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        code = (
            "import pathlib, sys\n"
            "from wids.storage import meter as meters\n"
            f"meters._folder = lambda job: pathlib.Path({str(tmp_path / 'full')!r}, 'jobs', job)\n"
            "meter = meters.Meter()\n"
            "meter.add('retries', 3)\n"
            "assert meter.totals()['retries'] == 3\n"
        )
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "full")], check=True)
