"""The page on clusters: its scripts run under a real SLURM of four nodes, and its pod specification is consistent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import wids
from tests.docs import slurm
from tests.docs.blocks import read_blocks, split_console
from tests.storage.web_server import web_server
from tests.support import write_descriptor, write_shards
from wids.storage import StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "clusters.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no pages")
needs_slurm = pytest.mark.skipif(not os.environ.get("WIDS_SLURM"), reason="make test-slurm runs these")

TRAINING = """\
import json, os, sys, time
from pathlib import Path
import torch.distributed as dist
import wids

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
dataset = wids.ShardListDataset("train.json", cache_local=True)
sampler = wids.DistributedChunkedSampler(dataset, chunksize=4)
checkpoint = Path("checkpoint.json")
if checkpoint.exists():
    sampler.load_state_dict(json.loads(checkpoint.read_text()))
restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
consumed = sampler.state_dict()["place"]
for step, index in enumerate(sampler):
    seen = [None] * num_ranks
    dist.all_gather_object(seen, dataset[index]["__index__"])
    consumed += num_ranks
    if rank == 0:
        checkpoint.write_text(json.dumps(sampler.state_dict(consumed=consumed)))
        with open("log", "a") as log:
            print(restarts, num_ranks, *seen, dataset.cache_dir, file=log)
    if step == 2 and restarts == "0":
        Path(f"waiting-{rank}").touch()
        time.sleep(1000)  # until the job is stopped
"""


def block(name: str) -> str:
    """Return the text of the block with this name."""
    (found,) = (block for block in read_blocks(PAGE.read_text()) if block.marks.get("runs") == name)
    return found.text


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment variables of a user of a SLURM cluster."""
    with slurm.cluster() as found:
        yield {
            **found,
            "PATH": f"{Path(sys.executable).parent}:{found['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }


def wait_until(condition: Any, log: Path) -> None:
    slurm.wait(condition, lambda: log.read_text() if log.exists() else "")


@needs_slurm
@pytest.mark.timeout(900)
def test_a_slurm_job_at_its_time_limit_resumes_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_descriptor(
        Path("train.json"), [{"url": url, "nsamples": count} for url, count in write_shards(tmp_path, [20, 20])]
    )
    Path("train.py").write_text(TRAINING)
    # As on the page, but with fewer processes, since each imports torch.
    script = block("train.sbatch").replace("--nproc-per-node=8", "--nproc-per-node=1")
    Path("train.sbatch").write_text(script)
    environment = {**environment, "SLURM_TMPDIR": str(tmp_path / "node-disk")}

    submitted = subprocess.run(
        ["sbatch", "train.sbatch"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    job = submitted.split()[-1]
    output = tmp_path / f"slurm-{job}.out"
    wait_until(lambda: len(list(tmp_path.glob("waiting-*"))) == slurm.NUM_NODES, output)
    # SLURM sends this signal two minutes before the job's time limit.
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], env=environment, check=True)
    wait_until(lambda: len(Path("log").read_text().splitlines()) >= 10, output)

    lines = [line.split() for line in Path("log").read_text().splitlines()]
    assert sorted(int(index) for line in lines for index in line[2:-1]) == list(range(40))
    assert [line[0] for line in lines] == ["0"] * 3 + ["1"] * 7
    assert {(line[1], line[-1]) for line in lines} == {("4", str(tmp_path / "node-disk" / "wids"))}


@needs_slurm
@pytest.mark.timeout(900)
def test_every_slurm_node_fetches_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ((command, _),) = split_console(block("widsindex fetch"))
    assert "s3://bucket/" in command
    assert "/local/wids" in command
    with web_server() as server:
        entries: list[dict[str, Any]] = []
        for url, count in write_shards(tmp_path, [3, 2]):
            server.objects[Path(url).name] = Path(url).read_bytes()
            entries.append({"url": Path(url).name, "nsamples": count})
        server.objects["train.json"] = json.dumps({"shardlist": entries, "wids_version": 1}).encode()
        # A server on this machine takes the place of the bucket, and a folder per node that of its local disk.
        command = command.replace("s3://bucket/", f"{server.address}/").replace("/local/wids", "$SLURMD_NODENAME")
        command = command.replace("widsindex", "sh -c 'exec widsindex").replace("NODENAME", "NODENAME'")
        done = subprocess.run(
            ["salloc", "--nodes=4", "sh", "-c", command], env=environment, check=False, capture_output=True, text=True
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert [server.bodies[name["url"]] for name in entries] == [slurm.NUM_NODES] * 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        f"node{n}" for n in range(slurm.NUM_NODES)
    ]


def test_the_pod_specification_is_consistent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = yaml.safe_load(block("pod.yaml"))["spec"]
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    (cache,) = (mount for path, mount in mounts.items() if variables["WIDS_CACHE"].startswith(path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    (tmp_path / "root").mkdir()
    dataset = wids.ShardListDataset(write_shards(tmp_path / "root", [3]))

    assert dataset.cache_dir == variables["WIDS_CACHE"]
    limit = StorageOptions().cache_limit
    assert limit is not None
    assert limit < gibibytes(cache["sizeLimit"]) << 30
    assert gibibytes(mounts["/dev/shm"]["sizeLimit"]) < gibibytes(container["resources"]["limits"]["memory"])
    assert mounts["/dev/shm"]["medium"] == "Memory"


def gibibytes(quantity: str) -> int:
    assert quantity.endswith("Gi")
    return int(quantity.removesuffix("Gi"))
