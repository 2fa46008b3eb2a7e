"""Shards are read from common servers: nginx, and S3 as moto serves it. `make test-servers` installs and runs them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import content, wait_until
from tests.support import sample_members, write_tar
from wids.errors import FetchError
from wids.storage import Storage, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif("WIDS_SERVERS" not in os.environ, reason="make test-servers runs these")

PER_SHARD = 40


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_data(folder: Path) -> dict[str, bytes]:
    """Write three shards of random bytes; return their content."""
    draw = random.Random(2)
    data = {}
    for number in range(3):
        members = [
            (name, text + draw.randbytes(2000)) for name, text in sample_members(PER_SHARD, first=PER_SHARD * number)
        ]
        path = write_tar(folder / f"s {number}+日.tar", members)
        data[path.name] = path.read_bytes()
    return data


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an nginx server, and the folder that it serves."""
    assert shutil.which("nginx"), "apt-get install nginx-light"
    served = tmp_path / "www"
    served.mkdir()
    port = free_port()
    (tmp_path / "nginx.conf").write_text(
        f"""
        daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; worker_processes 1; user root;
        events {{ worker_connections 256; }}
        http {{
            access_log {tmp_path}/access.log; client_body_temp_path {tmp_path}/body;
            proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/fastcgi;
            uwsgi_temp_path {tmp_path}/uwsgi; scgi_temp_path {tmp_path}/scgi;
            server {{
                listen 127.0.0.1:{port}; root {served};
                location /slow/ {{ alias {served}/; limit_rate_after 2400k; limit_rate 20k; }}
                location /private/ {{ alias {served}/; secure_link $arg_md5; return 403; }}
            }}
        }}
        """
    )
    process = subprocess.Popen(["nginx", "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")])
    try:
        wait_until(lambda: is_open(port) or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "error.log").read_text()
        yield f"http://127.0.0.1:{port}", served
    finally:
        process.terminate()
        process.wait()


def urls_of(address: str, data: dict[str, bytes]) -> list[str]:
    return [f"{address}/{urllib.request.pathname2url(name)}" for name in data]


def read_whole(entries: Any, **options: Any) -> list[dict[str, bytes]]:
    dataset = wids.ShardListDataset(entries, transformations=[], **options)
    order = random.Random(5).sample(range(len(dataset)), len(dataset))
    samples = dataset.__getitems__(order)
    assert [sample["__index__"] for sample in samples] == order
    return [dataset.read(index) for index in range(len(dataset))]


@pytest.mark.parametrize("access", ["download", "range", "auto"])
def test_nginx_serves_shards_and_parts_of_them(nginx: tuple[str, Path], tmp_path: Path, access: Any) -> None:
    address, served = nginx
    data = write_data(served)
    entries = [{"url": url, "nsamples": PER_SHARD} for url in urls_of(address, data)]
    local = [(str(served / name), PER_SHARD) for name in data]

    assert read_whole(entries, access=access, cache_dir=str(tmp_path / "c")) == read_whole(local)


def test_a_download_is_resumed_when_the_nginx_worker_is_killed(nginx: tuple[str, Path], tmp_path: Path) -> None:
    address, served = nginx
    # Most of it arrives at once, and the end of it would take half a minute; when resumed, the rest arrives at once.
    data = random.Random(1).randbytes(3_200_000)
    (served / "large.tar").write_bytes(data)
    opened = Storage(StorageOptions(cache_dir=str(tmp_path / "c")))
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(content(opened.open({"url": f"{address}/slow/large.tar"}))))
    reader.start()
    parts = tmp_path / "c" / ".wids"
    wait_until(lambda: any(path.stat().st_size >= 2 << 20 for path in parts.glob("*.part")))
    master = int((tmp_path / "pid").read_text())
    for worker in Path(f"/proc/{master}/task/{master}/children").read_text().split():
        os.kill(int(worker), signal.SIGKILL)
    reader.join()

    assert found == [data]
    wait_until(lambda: " 206 " in (tmp_path / "access.log").read_text())


def test_missing_and_refused_objects_on_nginx_are_errors(nginx: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = nginx
    for access in ("download", "range"):
        opened = Storage(StorageOptions(cache_dir=str(tmp_path / "c"), access=access))
        with pytest.raises(FetchError, match="does not exist"):
            opened.open({"url": f"{address}/none.tar"})
        with pytest.raises(FetchError, match="refuses it"):
            opened.open({"url": f"{address}/private/a.tar"})


def test_a_file_that_changes_under_nginx_is_an_error(nginx: tuple[str, Path], tmp_path: Path) -> None:
    address, served = nginx
    (served / "a.tar").write_bytes(random.Random(1).randbytes(3_000_000))
    source = Storage(StorageOptions(cache_dir=str(tmp_path / "c"), access="range")).open({"url": f"{address}/a.tar"})
    source.window(1_000_000, 1_001_000)
    (served / "a.tar").write_bytes(random.Random(2).randbytes(3_000_001))

    with pytest.raises(FetchError, match="has changed since it was opened"):
        source.window(2_000_000, 2_001_000)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """The storage options for an S3 server with its own endpoint and credentials, which has a bucket `data`."""
    assert find_spec("s3fs"), "pip install 'wids[servers]'"
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    options = {"key": "me", "secret": "hunter2", "endpoint_url": f"http://127.0.0.1:{port}"}
    try:
        wait_until(lambda: is_open(port))
        file_system(options).mkdir("data")
        yield options
    finally:
        process.terminate()
        process.wait()


def file_system(options: dict[str, Any]) -> Any:
    import s3fs

    return s3fs.S3FileSystem(**options, skip_instance_cache=True)


@pytest.mark.parametrize("access", ["download", "range", "auto"])
def test_s3_shards_are_read_with_endpoint_and_credentials(s3: dict[str, Any], tmp_path: Path, access: Any) -> None:
    data = write_data(tmp_path)
    for name, shard in data.items():
        file_system(s3).pipe(f"data/{name}", shard)
    entries = [{"url": f"s3://data/{name}", "nsamples": PER_SHARD} for name in data]
    local = [(str(tmp_path / name), PER_SHARD) for name in data]
    found = read_whole(entries, access=access, cache_dir=str(tmp_path / "c"), storage_options=s3)

    assert found == read_whole(local)


def test_an_s3_object_that_changes_between_two_ranges_is_an_error(s3: dict[str, Any], tmp_path: Path) -> None:
    file_system(s3).pipe("data/changing.tar", random.Random(1).randbytes(3_000_000))
    options = StorageOptions(cache_dir=str(tmp_path), access="range", storage_options=s3)
    source = Storage(options).open({"url": "s3://data/changing.tar"})
    source.window(1_000_000, 1_001_000)
    file_system(s3).pipe("data/changing.tar", random.Random(2).randbytes(3_000_000))

    with pytest.raises(FetchError, match="changed"):
        source.window(2_000_000, 2_001_000)


@pytest.mark.parametrize("access", ["download", "range"])
def test_a_missing_s3_object_is_an_error_without_secrets(s3: dict[str, Any], tmp_path: Path, access: Any) -> None:
    opened = Storage(StorageOptions(cache_dir=str(tmp_path), access=access, storage_options=s3))
    with pytest.raises(FetchError, match=r"s3://data/none.tar: cannot be opened: FileNotFoundError") as caught:
        opened.open({"url": "s3://data/none.tar"})
    assert "hunter2" not in str(caught.value)


def test_an_s3_folder_with_a_marker_of_its_own_is_listed(s3: dict[str, Any], tmp_path: Path) -> None:
    store = file_system(s3)
    store.pipe("data/marked/", b"")  # what "Create folder" in the AWS console makes
    store.pipe("data/marked/0.tar", b"x")
    storage = Storage(StorageOptions(cache_dir=str(tmp_path), storage_options=s3))

    assert storage.list_folder("s3://data/marked") == ["0.tar"]
    assert storage.list_folder("s3://data/marked/0.tar") is None


def _read_one(dataset: Any, answers: Any) -> None:
    answers.put(dataset.read(45)[".txt"][:10])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("access", ["download", "range"])
def test_workers_read_s3_after_their_parent(s3: dict[str, Any], tmp_path: Path, method: Any, access: Any) -> None:
    import multiprocessing

    data = write_data(tmp_path)
    for name, shard in data.items():
        file_system(s3).pipe(f"data/{name}", shard)
    entries = [{"url": f"s3://data/{name}", "nsamples": PER_SHARD} for name in data]
    dataset = wids.ShardListDataset(
        entries,
        access=access,
        cache_dir=str(tmp_path / "c"),
        storage_options=s3,
        transformations=[],
    )
    assert dataset.read(0)[".txt"].startswith(b"text of 0")
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    worker = context.Process(target=_read_one, args=(dataset, answers))
    worker.start()
    assert answers.get(timeout=60) == b"text of 45"
    worker.join()
    assert dataset.read(80)[".txt"].startswith(b"text of 80")


def test_shards_are_written_to_s3_and_read_back(s3: dict[str, Any], tmp_path: Path) -> None:
    samples = [
        {"__key__": f"{number:03d}", "bin": random.Random(number).randbytes(number * 50_000)} for number in range(30)
    ]
    pattern = "s3://data/written/a-%d.tar"
    with wids.ShardWriter(pattern, max_samples=8, index=False, storage_options=s3) as writer:
        for sample in samples[:20]:
            writer.write(sample)
    file_system(s3).rm_file("data/written/a-2.tar")  # as if the writer had been killed before it

    with wids.ShardWriter(pattern, max_samples=8, storage_options=s3, resume=True) as writer:
        assert (writer.num_samples, writer.last_key) == (16, "015")
        for sample in samples[writer.num_samples :]:
            writer.write(sample)

    assert sorted(file_system(s3).ls("data/written", detail=False)) == [
        *(f"data/written/a-{number}.tar" for number in range(4)),
        "data/written/a.json",
        "data/written/a.widx",
    ]
    dataset = wids.ShardListDataset("s3://data/written/a.json", cache_dir=str(tmp_path), storage_options=s3)
    assert [dict(dataset.read(index)) for index in range(30)] == [{".bin": sample["bin"]} for sample in samples]
    with (
        pytest.raises(FetchError, match=r"s3://nowhere/a-0\.tar: ") as caught,
        wids.ShardWriter("s3://nowhere/a-%d.tar", storage_options=s3) as writer,
    ):
        writer.write(samples[1])
    assert "hunter2" not in str(caught.value)
