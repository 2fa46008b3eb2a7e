"""`ShardWriter` and `reshard` killed at random moments: existing shards are whole, and resuming gives the same as no kill."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import wids
from wids.tools import reshard

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 500 if os.environ.get("WIDS_SOAK") else 50
NUM_SAMPLES = 400
IN_SHARD = 7
LONGEST_S = 0.1
"""After which a process is killed at the latest."""


def sample(number: int) -> dict[str, Any]:
    return {"__key__": f"{number:06d}", "txt": f"text {number}", "bin": random.Random(number).randbytes(number % 3000)}


def write_rest(folder: str, ready: Any) -> None:
    with wids.ShardWriter(f"{folder}/a-%04d.tar", max_samples=IN_SHARD, resume=True, md5=True) as writer:
        first = writer.num_samples
        assert writer.last_key == (sample(first - 1)["__key__"] if first else None)
        ready.set()
        for number in range(first, NUM_SAMPLES):
            writer.write(sample(number))


def reshard_rest(source: str, folder: str, ready: Any) -> None:
    ready.set()
    reshard(source, f"{folder}/b-%04d.tar", max_samples=IN_SHARD, shuffle=True, seed=3, resume=True)


def start(target: Any, *arguments: str) -> tuple[Any, Any]:
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.tools.test_writer_kill", "wids.tools.reshard", "safetensors.numpy"])
    ready = context.Event()
    process = context.Process(target=target, args=(*arguments, ready))
    process.start()
    assert ready.wait(60)
    return process, ready


def content(folder: Path) -> dict[str, bytes]:
    """Return name and bytes of what users see in a folder."""
    paths = sorted(folder.iterdir()) if folder.exists() else []
    return {
        path.name: path.read_bytes()
        for path in paths
        if path.suffix in {".tar", ".json", ".widx"} and path.name[0] != "."
    }


def kill_until_done(target: Any, arguments: tuple[str, ...], draw: random.Random, check: Any, most: int) -> int:
    """Kill processes that do the same work at random moments, until one ends before; return how many were killed.

    Args:
        target: The work.
        arguments: Of it.
        draw: The moments.
        check: Looks at what is there after each.
        most: After so many, one may end.
    """
    kills = 0
    while True:
        process, _ = start(target, *arguments)
        if kills < most:
            time.sleep(draw.uniform(0, LONGEST_S))  # the random moment; what is tested does not depend on it
            process.kill()
        process.join(60)
        check()
        if process.exitcode == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL
        kills += 1


def test_a_killed_writer_leaves_whole_shards_and_resumes_without_loss(tmp_path: Path) -> None:
    with wids.ShardWriter(str(tmp_path / "whole" / "a-%04d.tar"), max_samples=IN_SHARD, md5=True) as writer:
        for number in range(NUM_SAMPLES):
            writer.write(sample(number))
    whole = content(tmp_path / "whole")
    draw = random.Random(1)
    kills = 0
    folder = tmp_path / "0"

    def check() -> None:
        found = content(folder)
        assert found == {name: whole[name] for name in found}
        shards = [name for name in found if name.endswith(".tar")]
        assert shards == sorted(whole)[: len(shards)]

    while kills < KILLS:
        kills += kill_until_done(write_rest, (str(folder),), draw, check, KILLS - kills)
        assert content(folder) == whole
        assert sorted(path.name for path in folder.iterdir()) == sorted(whole)  # nothing else is left either
        folder = tmp_path / str(kills)


def test_a_killed_reshard_leaves_whole_shards_and_resumes_without_loss(tmp_path: Path) -> None:
    with wids.ShardWriter(str(tmp_path / "source" / "a-%04d.tar"), max_samples=50) as writer:
        for number in range(NUM_SAMPLES):
            writer.write(sample(number))
    source = str(tmp_path / "source" / "a.json")
    reshard(source, tmp_path / "whole" / "b-%04d.tar", max_samples=IN_SHARD, shuffle=True, seed=3)
    whole = content(tmp_path / "whole")
    draw = random.Random(2)
    kills = 0
    folder = tmp_path / "0"

    def check() -> None:
        found = content(folder)
        assert found == {name: whole[name] for name in found}

    while kills < KILLS // 5:
        kills += kill_until_done(reshard_rest, (source, str(folder)), draw, check, KILLS // 5 - kills)
        assert content(folder) == whole
        assert sorted(path.name for path in folder.iterdir()) == sorted(whole)
        folder = tmp_path / str(kills)
