"""Processes are killed at any moment of a download, a check, a rename or a removal, while others read."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.storage.conftest import QUICK
from tests.storage.reading import content, shards, unfinished
from tests.storage.web_server import WebServer, web_server
from wids.storage import Storage, StorageOptions

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 200 if os.environ.get("WIDS_SOAK") else 20
NUM_SHARDS = 8
READS = 25
SIZE = 300_000


def body(number: int) -> bytes:
    return random.Random(number).randbytes(SIZE)


def slowly(handler: Any, data: bytes) -> None:
    """Send a body slowly, in parts, so that a process can be killed in the middle."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    for start in range(0, len(data), 60_000):
        handler.wfile.write(data[start : start + 60_000])
        handler.wfile.flush()
        time.sleep(0.002)


def read_many(cache: str, urls: list[str], seed: int, reads: int | None, ready: Any, answers: Any) -> None:
    """Read shards at random, `reads` times or forever, and put the number of wrong ones into `answers`."""
    opened = Storage(StorageOptions(cache_dir=cache, cache_size=3 * SIZE), retry=QUICK)
    draw = random.Random(seed)
    expected = [body(number) for number in range(len(urls))]
    ready.set()
    wrong = 0
    for _ in itertools.count() if reads is None else range(reads):
        number = draw.randrange(len(urls))
        wrong += content(opened.open({"url": urls[number]})) != expected[number]
    answers.put(wrong)


def test_killing_a_process_at_any_moment_damages_no_shard(tmp_path: Path) -> None:
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.storage.test_kill"])
    draw = random.Random(11)
    with web_server() as server:
        for number in range(NUM_SHARDS):
            server.objects[f"{number}.tar"] = body(number)
        urls = [server.url(name) for name in server.objects]
        for round_number in range(ROUNDS):
            run_round(context, server, urls, str(tmp_path / "cache"), draw, round_number)
            check_folder(tmp_path / "cache", urls)


def run_round(
    context: Any, server: WebServer, urls: list[str], cache: str, draw: random.Random, round_number: int
) -> None:
    for name in server.objects:
        server.behaviours[name] = [slowly] * 1000
    readers = []
    for place in range(3):
        ready, answers = context.Event(), context.Queue()
        reads = READS if place else None  # the process to be killed must not end before
        process = context.Process(
            target=read_many, args=(cache, urls, 10 * round_number + place, reads, ready, answers)
        )
        process.start()
        readers.append((process, ready, answers))
    victim, ready, _ = readers[0]
    assert ready.wait(60)
    time.sleep(draw.uniform(0, 0.25))  # a random moment; the outcome must not depend on it
    os.kill(victim.pid, signal.SIGKILL)
    for process, _, answers in readers[1:]:
        assert answers.get(timeout=60) == 0, f"round {round_number}"
        process.join(60)
        assert process.exitcode == 0
    victim.join(60)


def check_folder(cache: Path, urls: list[str]) -> None:
    """Check that there are only whole shards, and leftovers that the next start removes."""
    by_number = {number: body(number) for number in range(len(urls))}
    for path in shards(cache):
        assert path.read_bytes() == by_number[int(path.name.partition("-")[0])]
    Storage(StorageOptions(cache_dir=str(cache), cache_size=3 * SIZE)).prune()
    assert not unfinished(cache)
    assert sum(path.stat().st_size for path in shards(cache)) <= 3 * SIZE


def test_sixteen_processes_fetch_twenty_shards_once(server: WebServer, tmp_path: Path) -> None:
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.storage.test_kill"])
    for number in range(20):
        server.objects[f"{number}.tar"] = body(number)
    urls = [server.url(name) for name in server.objects]
    go = context.Event()
    answers = context.Queue()
    readers = [context.Process(target=read_all, args=(str(tmp_path), urls, go, answers)) for _ in range(16)]
    for reader in readers:
        reader.start()
    go.set()
    assert [answers.get(timeout=120) for _ in readers] == [0] * 16
    for reader in readers:
        reader.join(60)

    assert server.bodies == {f"{number}.tar": 1 for number in range(20)}


def read_all(cache: str, urls: list[str], go: Any, answers: Any) -> None:
    """Once `go` is set, read every shard, and put the number of wrong ones into `answers`."""
    opened = Storage(StorageOptions(cache_dir=cache), retry=QUICK)
    go.wait(60)
    answers.put(sum(content(opened.open({"url": url})) != body(number) for number, url in enumerate(urls)))
