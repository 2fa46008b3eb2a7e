"""`create_index` on a cluster: real Dask workers in processes of their own, one of them killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import wait_until
from tests.support import write_shards

if TYPE_CHECKING:
    from collections.abc import Iterator

distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed; run: make test-cluster")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask leaves event loops and sockets to the garbage collector


@pytest.fixture
def client() -> Iterator[Any]:
    """A client of a cluster of three processes."""
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(3)
        yield client


def test_a_dask_cluster_finds_what_one_process_finds_although_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shards = [Path(path).name for path, _ in write_shards(tmp_path, [n % 5 for n in range(60)])]
    serial = wids.create_index(shards, "serial.json", checksums=True)
    # Whoever opens this one waits until the test writes it.
    Path(shards[30]).rename("hidden")
    os.mkfifo(shards[30])
    journal = Path(".cluster.json.journal")
    urls = [str(tmp_path / name) for name in shards]  # workers are in folders of their own
    result: dict[str, Any] = {}

    def create() -> None:
        result["content"] = wids.create_index(urls, "cluster.json", checksums=True, executor=client.get_executor())

    thread = threading.Thread(target=create)
    thread.start()
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b'"num_samples"') == 59)
    busy = [info["pid"] for info in client.run(_describe_worker).values() if info["tasks"]]
    assert len(busy) == 1
    Path(shards[30]).unlink()
    Path("hidden").rename(shards[30])
    os.kill(busy[0], signal.SIGKILL)
    thread.join(150)

    assert {**result["content"], "index": "serial.widx"} == {**serial, "name": result["content"]["name"]}
    assert Path("cluster.widx").read_bytes() == Path("serial.widx").read_bytes()


def _describe_worker(dask_worker: Any) -> dict[str, Any]:
    """Return the process of a worker, and what it is at; runs there."""
    return {"pid": os.getpid(), "tasks": [str(key) for key in dask_worker.state.executing]}
