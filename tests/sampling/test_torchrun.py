"""Jobs started by the real torchrun: ranks, workers with every start method, killed processes, and separate hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sampling.namespaces import STORE, Hosts, can_make_namespaces
from tests.support import write_descriptor, write_shards
from wids.sampling import DistributedChunkedSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = Path(__file__).with_name("training.py")
STORE_SCRIPT = Path(__file__).with_name("counting_store.py")
SOAKS = bool(os.environ.get("WIDS_SOAK"))
COUNTS = [9, 11, 10, 5, 12, 13]
TOTAL = sum(COUNTS)
CONTEXTS = ["fork", "forkserver", "spawn"]
ALONE = ("alone", 0, None, 2)
ALL_JOBS = [ALONE, *((f"{context}{workers}", workers, context, 2) for context in CONTEXTS for workers in (2, 4))]
PAIRWISE = {
    1: [ALONE, ("fork2", 2, "fork", 1), ("spawn4", 4, "spawn", 1), ("forkserver2", 2, "forkserver", 1)],
    2: [ALONE, ("fork4", 4, "fork", 1), ("spawn2", 2, "spawn", 1), ("forkserver4", 4, "forkserver", 1)],
    3: [ALONE, ("fork4", 4, "fork", 1), ("spawn2", 2, "spawn", 1), ("forkserver2", 2, "forkserver", 1)],
    4: [ALONE, ("fork4", 4, "fork", 1), ("spawn2", 2, "spawn", 1), ("forkserver2", 2, "forkserver", 1)],
}

pytestmark = pytest.mark.timeout(600)


def torchrun(task: dict[str, Any], ranks: int, options: Sequence[str] = ("--standalone",)) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", *options, f"--nproc-per-node={ranks}", str(SCRIPT), json.dumps(task),
    ]  # fmt: skip


def run(task: dict[str, Any], ranks: int) -> int:
    done = subprocess.run(torchrun(task, ranks), check=False, capture_output=True, text=True, env=environment())
    if done.returncode and not task.get("kill"):
        pytest.fail(done.stdout + done.stderr)
    return done.returncode


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def entries(out: Path, name: str, ranks: int, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{name}-{ranks}-{rank}.jsonl").read_text().splitlines()]


def seen(out: Path, name: str, ranks: int, rank: int, epoch: int) -> list[int]:
    lines = [line for line in entries(out, name, ranks, rank) if line["epoch"] == epoch]
    return [index for line in lines for index, _ in line["seen"]]


def make_task(folder: Path, **more: Any) -> dict[str, Any]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    descriptor = folder / "train.json"
    if not descriptor.exists():
        shards = [{"url": url, "nsamples": count} for url, count in write_shards(folder, COUNTS)]
        write_descriptor(descriptor, shards)
    return {"descriptor": str(descriptor), "out": str(out), "batch_size": 4, "jobs": [], **more}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_started_ranks_and_workers_read_what_the_sampler_gives_them(tmp_path: Path, ranks: int) -> None:
    jobs = ALL_JOBS if SOAKS else PAIRWISE[ranks]
    task = make_task(tmp_path, jobs=jobs)

    run(task, ranks)

    for name, _, _, epochs in jobs:
        for epoch in range(epochs):
            for rank in range(ranks):
                sampler = DistributedChunkedSampler(range(TOTAL), num_replicas=ranks, rank=rank, chunksize=7)
                sampler.set_epoch(epoch)
                assert seen(tmp_path / "out", name, ranks, rank, epoch) == list(sampler)
    for line in entries(tmp_path / "out", "alone", ranks, 0):
        assert all(int(key) == index for index, key in line["seen"])


@pytest.mark.parametrize(
    ("workers", "lanes", "stages"), [(0, 4, [(4, 3), (3, 2), (2, None)]), (2, 3, [(3, 4), (1, None)])]
)
def test_a_job_whose_rank_is_killed_goes_on_with_fewer_ranks_and_sees_the_rest(
    tmp_path: Path, workers: int, lanes: int, stages: list[tuple[int, int | None]]
) -> None:
    state = tmp_path / "state.json"
    task = make_task(tmp_path, jobs=[("job", workers, "fork", 1)], lanes=lanes, state=str(state), batch_size=2)
    used: list[int] = []
    done = 0
    for ranks, steps in stages:
        kill = None if steps is None else [ranks - 1, done + steps]
        assert bool(run({**task, "kill": kill}, ranks)) == (kill is not None)
        stop = json.loads(state.read_text())["steps"]
        for line in chain.from_iterable(entries(tmp_path / "out", "job", ranks, rank) for rank in range(ranks)):
            if done <= line["step"] < stop:  # batches after the last saved state do not count
                used += [index for index, _ in line["seen"]]
        done = stop

    repeats = Counter(used) - Counter(range(TOTAL))
    assert set(used) == set(range(TOTAL))
    assert sum(repeats.values()) <= lanes - 1 + stages[-1][0] - 1
    assert json.loads(state.read_text())["sampler"]["epoch"] == 1


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root and network namespaces")
def test_each_of_two_hosts_fetches_only_its_own_lanes_shards(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    names = [Path(url).name for url, _ in write_shards(shards, [10] * 8)]
    log = tmp_path / "requests"
    log.touch()
    shardlist = [{"url": f"http://{STORE}:8000/{name}", "nsamples": 10} for name in names]
    descriptor = write_descriptor(tmp_path / "train.json", shardlist)
    (tmp_path / "out").mkdir()

    with Hosts() as hosts:
        store = subprocess.Popen(
            hosts.command(2, [sys.executable, str(STORE_SCRIPT), str(shards), str(log)]), stdout=subprocess.PIPE
        )
        assert store.stdout is not None
        assert store.stdout.readline() == b"serving\n"
        jobs = []
        for host in range(2):
            task = {
                "descriptor": str(descriptor), "out": str(tmp_path / "out"), "batch_size": 4,
                "jobs": [["job", 0, None, 2]], "cache": str(tmp_path / f"cache{host}"),
            }  # fmt: skip
            options = ["--nnodes=2", f"--node-rank={host}", "--master-addr=10.77.3.1", "--master-port=29500"]
            jobs.append(
                subprocess.Popen(
                    hosts.command(host, torchrun(task, 2, options)),
                    env={**environment(), "GLOO_SOCKET_IFNAME": "peer"},
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )  # fmt: skip
        outputs = [job.communicate()[0] for job in jobs]
        store.terminate()
        store.communicate()

    assert [job.returncode for job in jobs] == [0, 0], outputs
    asked = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    assert asked == Counter({(f"10.77.{1 + number // 4}.2", f"/{name}"): 1 for number, name in enumerate(names)})
    for rank in range(4):
        assert sorted(seen(tmp_path / "out", "job", 4, rank, 1)) == list(range(20 * rank, 20 * rank + 20))
