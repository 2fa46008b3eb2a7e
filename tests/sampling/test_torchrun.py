"""Jobs started by the real torchrun: ranks, workers with every start method, killed processes, and separate hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.sampling.namespaces import STORE, Hosts, can_make_namespaces
from tests.support import write_descriptor, write_shards
from wids.sampling import DistributedChunkedSampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCRIPT = Path(__file__).with_name("training.py")
STORE_SCRIPT = Path(__file__).with_name("counting_store.py")
SOAKS = bool(os.environ.get("WIDS_SOAK"))
COUNTS = [9, 11, 10, 5, 12, 13]
TOTAL = sum(COUNTS)

ALONE = ("alone", 0, None, 2)
START_METHODS = [("fork4", 4, "fork", 1), ("spawn2", 2, "spawn", 1), ("forkserver2", 2, "forkserver", 1)]
ALL_START_METHODS = [
    (f"{method}{workers}", workers, method, 2) for method in ("fork", "forkserver", "spawn") for workers in (2, 4)
]
JOBS = {ranks: [ALONE, *ALL_START_METHODS] for ranks in (1, 2, 3, 4)} if SOAKS else {2: [ALONE, *START_METHODS]}
"""Number of ranks to jobs: `(name, workers, start method, epochs)`.

Starting workers is the same on two ranks as on four, since the sampler is in the rank's own process; the other numbers of
ranks are those of the killed jobs.
"""

KILLED = [(4, [(4, 0, 3), (3, 2, 3), (1, 2, None)])]
"""Lanes, and for each start of the job `(ranks, workers, steps)`: the steps after which a rank is killed, None for never."""
if SOAKS:
    KILLED += [(4, [(4, 0, 3), (3, 0, 2), (2, 0, None)]), (3, [(3, 2, 4), (1, 2, None)])]

pytestmark = pytest.mark.timeout(600)


def torchrun(task: dict[str, Any], ranks: int, options: Sequence[str] = ("--standalone",)) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", *options, f"--nproc-per-node={ranks}", str(SCRIPT), json.dumps(task),
    ]  # fmt: skip


def run(task: dict[str, Any], ranks: int) -> tuple[int, str]:
    """Return the exit status of a job, and its output."""
    # A file, because orphaned workers hold a pipe open for some seconds.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            torchrun(task, ranks), check=False, stdout=output, stderr=subprocess.STDOUT, env=environment()
        )
        output.seek(0)
        return done.returncode, output.read()


@contextmanager
def started(command: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command during a `with` block; it is stopped at the end if it still runs."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**environment(), **variables}
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def entries(out: Path, name: str, ranks: int, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{name}-{ranks}-{rank}.jsonl").read_text().splitlines()]


def seen(out: Path, name: str, ranks: int, rank: int, epoch: int) -> list[int]:
    lines = [line for line in entries(out, name, ranks, rank) if line["epoch"] == epoch]
    return [index for line in lines for index, _ in line["seen"]]


def make_task(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "out").mkdir()
    shards = [{"url": url, "nsamples": count} for url, count in write_shards(folder, COUNTS)]
    descriptor = write_descriptor(folder / "train.json", shards)
    return {"descriptor": str(descriptor), "out": str(folder / "out"), "batch_size": 4, **more}


@pytest.mark.parametrize("ranks", JOBS)
def test_ranks_and_workers_of_torchrun_read_what_the_sampler_yields(tmp_path: Path, ranks: int) -> None:
    task = make_task(tmp_path, jobs=JOBS[ranks])

    status, output = run(task, ranks)

    assert status == 0, output
    for name, _, _, epochs in JOBS[ranks]:
        for epoch in range(epochs):
            for rank in range(ranks):
                sampler = DistributedChunkedSampler(range(TOTAL), num_replicas=ranks, rank=rank, chunksize=7)
                sampler.set_epoch(epoch)
                assert seen(tmp_path / "out", name, ranks, rank, epoch) == list(sampler)
    for line in entries(tmp_path / "out", "alone", ranks, 0):
        assert all(int(key) == index for index, key in line["seen"])


@pytest.mark.parametrize(
    ("lanes", "starts"), KILLED, ids=[" to ".join(f"{ranks}" for ranks, _, _ in starts) for _, starts in KILLED]
)
def test_a_job_whose_rank_was_killed_resumes_on_fewer_ranks_and_reads_the_rest(
    tmp_path: Path, lanes: int, starts: list[tuple[int, int, int | None]]
) -> None:
    state = tmp_path / "state.json"
    task = make_task(tmp_path, lanes=lanes, state=str(state), batch_size=2)
    dataset = wids.ShardListDataset(task["descriptor"])
    used: list[int] = []
    done = 0
    for ranks, workers, steps in starts:
        samplers = [
            DistributedChunkedSampler(dataset, num_replicas=ranks, rank=rank, chunksize=7, num_canonical_replicas=lanes)
            for rank in range(ranks)
        ]
        if state.exists():
            for sampler in samplers:
                sampler.load_state_dict(json.loads(state.read_text())["sampler"])

        kill = None if steps is None else [ranks - 1, done + steps]
        status, output = run({**task, "jobs": [("job", workers, "fork", 1)], "kill": kill}, ranks)

        assert (status != 0, "SIGKILL" in output) == (kill is not None, kill is not None), output
        stop = json.loads(state.read_text())["steps"]
        assert steps is None or done + steps - 1 <= stop <= done + steps, "at most the last step was not saved"
        for rank, sampler in enumerate(samplers):
            lines = entries(tmp_path / "out", "job", ranks, rank)
            read = [index for line in lines for index, _ in line["seen"]]
            assert read == list(sampler)[: None if steps is None else len(read)]
            # Batches after the last saved state do not count: the next start reads them again.
            used += [index for line in lines if line["step"] < stop for index, _ in line["seen"]]
        done = stop

    repeats = Counter(used) - Counter(range(TOTAL))
    assert set(used) == set(range(TOTAL))
    assert sum(repeats.values()) <= lanes - 1 + starts[-1][0] - 1
    assert json.loads(state.read_text())["sampler"]["epoch"] == 1


def test_each_of_two_hosts_fetches_only_the_shards_of_its_own_lanes(tmp_path: Path) -> None:
    if not can_make_namespaces():
        pytest.skip("needs root and network namespaces")
    shards = tmp_path / "shards"
    shards.mkdir()
    names = [Path(url).name for url, _ in write_shards(shards, [10] * 8)]
    log = tmp_path / "requests"
    log.touch()
    shardlist = [{"url": f"http://{STORE}:8000/{name}", "nsamples": 10} for name in names]
    descriptor = write_descriptor(tmp_path / "train.json", shardlist)
    (tmp_path / "out").mkdir()

    with Hosts() as hosts, ExitStack() as processes:
        serve = [sys.executable, str(STORE_SCRIPT), str(shards), str(log)]
        store = processes.enter_context(started(hosts.command(2, serve)))
        assert store.stdout is not None
        assert store.stdout.readline() == "serving\n"
        jobs = []
        for host in range(2):
            task = {
                "descriptor": str(descriptor), "out": str(tmp_path / "out"), "batch_size": 4,
                "jobs": [["job", 0, None, 2]], "cache": str(tmp_path / f"cache{host}"),
            }  # fmt: skip
            options = ["--nnodes=2", f"--node-rank={host}", "--master-addr=10.77.3.1", "--master-port=29500"]
            command = hosts.command(host, torchrun(task, 2, options))
            jobs.append(processes.enter_context(started(command, GLOO_SOCKET_IFNAME="peer")))
        outputs = [job.communicate()[0] for job in jobs]

    assert [job.returncode for job in jobs] == [0, 0], outputs
    asked = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    assert asked == Counter({(f"10.77.{1 + number // 4}.2", f"/{name}"): 1 for number, name in enumerate(names)})
    for epoch in range(2):
        for rank in range(4):
            sampler = DistributedChunkedSampler(range(80), num_replicas=4, rank=rank, chunksize=7)
            sampler.set_epoch(epoch)
            assert seen(tmp_path / "out", "job", 4, rank, epoch) == list(sampler)
