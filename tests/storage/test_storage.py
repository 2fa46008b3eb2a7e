"""Opening shards: local ones in place, copied or from the cache, and with names of the user's own."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.storage.conftest import QUICK
from tests.storage.reading import content, shards, wait_until
from wids.errors import FetchError, ShardMismatchError, WidsError
from wids.source import MmapSource, PreadSource
from wids.storage import Storage, StorageOptions, storage
from wids.storage.transport import Body, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.storage.web_server import WebServer
    from wids.storage.locations import Location

DATA = b"a plain tar, or so it says" * 1000
MD5 = hashlib.md5(DATA).hexdigest()


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "a b#c?d%20e.tar"
    path.write_bytes(DATA)
    return path


def test_a_local_shard_is_opened_in_place(local: Path, make_storage: Callable[..., Storage], cache_dir: Path) -> None:
    source = make_storage().open({"url": str(local), "filesize": len(DATA)})

    assert content(source) == DATA
    assert source.identity.inode == local.stat().st_ino
    assert not cache_dir.exists()


def test_a_file_url_is_opened_in_place(local: Path, make_storage: Callable[..., Storage], cache_dir: Path) -> None:
    assert content(make_storage().open({"url": "file://" + quote(str(local))})) == DATA
    assert not cache_dir.exists()


def test_a_relative_path_is_opened(
    local: Path, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(local.parent)

    assert content(make_storage().open({"url": local.name})) == DATA


@pytest.mark.parametrize("name", ["missing.tar", ".", "no/such/folder.tar", "x" * 300])
def test_a_file_that_cannot_be_opened_is_named_in_the_error(
    name: str, tmp_path: Path, make_storage: Callable[..., Storage]
) -> None:
    with pytest.raises(FetchError, match=r"is the path right\?") as caught:
        make_storage().open({"url": str(tmp_path / name)})

    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("io", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("network", [False, True], ids=["local disk", "network"])
def test_io_chooses_how_files_are_read(
    io: str, *, network: bool, local: Path, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "is_on_network", lambda _: network)

    source = make_storage(io=io).open({"url": str(local)})

    assert isinstance(source, PreadSource if io == "pread" or (io == "auto" and network) else MmapSource)
    assert content(source) == DATA


def test_a_local_shard_of_another_size_is_refused(local: Path, make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(ShardMismatchError, match=rf"has {len(DATA)} bytes, the descriptor says 7; .*--recount"):
        make_storage().open({"url": str(local), "filesize": 7})

    assert content(make_storage(checksum="none").open({"url": str(local), "filesize": 7})) == DATA


def test_a_local_shards_checksum_is_compared_until_it_changes(
    local: Path, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    open_file = LocalFiles.open

    def counted(files: LocalFiles, location: Location) -> AbstractContextManager[Body]:
        reads.append(location)
        return open_file(files, location)

    monkeypatch.setattr(LocalFiles, "open", counted)
    opened = make_storage(checksum="md5")
    shard = {"url": str(local), "md5sum": MD5.upper()}

    opened.open(shard)
    opened.open(shard)
    assert len(reads) == 1

    local.write_bytes(DATA[::-1])
    os.utime(local, ns=(0, 0))  # file times may be so coarse that this write has the time of the first one
    with pytest.raises(ShardMismatchError, match=f"says {MD5}"):
        opened.open(shard)


def test_a_local_shard_is_copied_into_the_cache_with_cache_local(
    local: Path, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    opened = make_storage(cache_local=True)
    shard = {"url": str(local), "filesize": len(DATA)}

    source = opened.open(shard)
    assert source.identity.inode == local.stat().st_ino  # opening does not wait for the copy
    assert content(source) == DATA
    wait_until(lambda: opened.upcoming.is_copied(str(local)))

    (copy,) = shards(cache_dir)
    assert copy.read_bytes() == DATA
    assert opened.open(shard).identity.inode == copy.stat().st_ino
    opened.upcoming.stop()


def test_a_local_shard_that_changed_is_copied_again(
    local: Path, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    opened = make_storage(cache_local=True)
    opened.open({"url": str(local)})
    wait_until(lambda: opened.upcoming.is_copied(str(local)))
    local.write_bytes(DATA + b"more")

    assert content(opened.open({"url": str(local)})) == DATA + b"more"
    wait_until(lambda: len(shards(cache_dir)) == 2)
    assert {path.read_bytes() for path in shards(cache_dir)} == {DATA, DATA + b"more"}
    opened.upcoming.stop()


def test_a_cached_file_that_is_removed_and_put_back_while_it_is_opened_is_opened_again(
    server: WebServer, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["a.tar"] = DATA
    make_storage().open({"url": server.url("a.tar")})
    open_file = Storage._open_file
    attempts = []

    def open_while_others_write(opened: Storage, path: str, *arguments: Any, **more: Any) -> Any:
        attempts.append(path)
        if len(attempts) > 1:
            return open_file(opened, path, *arguments, **more)
        Path(path).unlink()
        try:
            return open_file(opened, path, *arguments, **more)
        finally:
            Path(path).write_bytes(DATA)

    monkeypatch.setattr(Storage, "_open_file", open_while_others_write)

    assert content(make_storage().open({"url": server.url("a.tar")})) == DATA
    assert len(attempts) == 2


def test_a_cache_in_the_folder_of_the_shards_leaves_them_alone(
    local: Path, make_storage: Callable[..., Storage]
) -> None:
    folder = str(local.parent)

    def basename(url: str) -> str:
        return url.rpartition("/")[2]

    source = make_storage(cache_dir=folder, cache_local=True, localname=basename).open({"url": str(local)})

    assert content(source) == local.read_bytes() == DATA


def test_read_takes_local_and_remote_objects(
    local: Path, server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    server.objects["train.json"] = b"{}"

    assert make_storage().read(str(local)) == DATA
    assert make_storage().read("file:" + quote(str(local))) == DATA
    assert make_storage().read(server.url("train.json")) == b"{}"
    assert not cache_dir.exists()


def test_localname_names_the_file(server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path) -> None:
    server.objects["a/0.tar"] = DATA

    make_storage(localname=lambda url: url[-7:]).open({"url": server.url("a/0.tar")})

    assert shards(cache_dir) == [cache_dir / "a" / "0.tar"]


def test_the_cache_dir_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    relative = Storage(StorageOptions(cache_dir="cache"))
    monkeypatch.chdir("/")

    assert relative.cache_dir == str(tmp_path / "cache")
    assert Storage(StorageOptions(cache_dir="~/cache")).cache_dir == "/home/me/cache"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"cache_dir": ""}, "cache_dir is empty; it must be a folder"),
        ({"checksum": "sha1"}, "checksum is 'sha1'; it must be one of 'none', 'size', 'md5'"),
        ({"io": "read"}, "io is 'read'; it must be one of 'auto', 'mmap', 'pread'"),
        ({"storage_options": ["key"]}, "storage_options is of type list; it must be a mapping or None"),
        ({"localname": "x"}, "localname is 'x'; it must be a function"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        StorageOptions(**option)

    assert message in str(caught.value)


def test_storage_options_are_not_shown() -> None:
    assert "hunter2" not in repr(StorageOptions(storage_options={"secret": "hunter2"}))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    url=st.text(max_size=30)
    | st.from_regex(
        r"(pipe:|file:|http://|https://|s3://|zip://|dir://|ftp://\.|memory://)[!-~]{0,20}", fullmatch=True
    ),
    access=st.sampled_from(["download", "range", "auto"]),
    cache_local=st.booleans(),
)
def test_no_url_starts_a_process_or_writes_outside_the_cache(
    url: str, access: Any, cache_local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hypothesis also draws constants from the code, and one of them may be the path of an existing file.
    assume(not os.path.isfile(url.removeprefix("file:")))  # noqa: PTH113 - takes any text
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **_: pytest.fail(f"started {args}"))
    monkeypatch.setattr("socket.socket.connect", refuse_connection)
    monkeypatch.setattr("socket.getaddrinfo", refuse_connection)
    inside = tmp_path / "cache"
    options = StorageOptions(cache_dir=str(inside), access=access, cache_local=cache_local)
    opened = Storage(options, retry=type(QUICK)(attempts=1))

    with pytest.raises(WidsError):
        opened.open({"url": url})
    with pytest.raises(WidsError):
        opened.make_ready({"url": url})

    assert [path for path in tmp_path.iterdir() if path != inside] == []
    assert not shards(inside)


def refuse_connection(*_: object) -> None:
    raise ConnectionRefusedError("no network in this test")


def test_storage_pickles_before_and_after_use(server: WebServer, make_storage: Callable[..., Storage]) -> None:
    server.objects |= {"a.tar": DATA, "b.tar": DATA[::-1]}
    before = make_storage()
    copy = pickle.loads(pickle.dumps(before))
    before.open({"url": server.url("a.tar")})
    after = pickle.loads(pickle.dumps(before))

    assert copy.options == after.options == before.options
    assert content(after.open({"url": server.url("b.tar")})) == DATA[::-1]


def read_in_child(opened: Storage, url: str, answers: Any) -> None:
    answers.put(content(opened.open({"url": url})))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_reads_after_its_parent_did(
    method: str, server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    server.objects |= {"a.tar": DATA, "b.tar": DATA[::-1]}
    opened = make_storage()
    opened.open({"url": server.url("a.tar")})
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()

    child = context.Process(target=read_in_child, args=(opened, server.url("b.tar"), answers))
    child.start()

    assert answers.get(timeout=60) == DATA[::-1]
    child.join(60)
    assert child.exitcode == 0


def test_errors_do_not_depend_on_asserts(server: WebServer, cache_dir: Path) -> None:
    server.objects["short.tar"] = DATA
    script = f"""
from wids.errors import FetchError, ShardMismatchError
from wids.storage import Storage, StorageOptions
storage = Storage(StorageOptions(cache_dir={str(cache_dir)!r}, checksum="md5", allow_pipe=True))
for url, error in [
    ({server.url("missing.tar")!r}, FetchError),
    ({server.url("short.tar")!r}, ShardMismatchError),
    ("pipe:exit 3", FetchError),
]:
    try:
        storage.open({{"url": url, "filesize": {len(DATA) + 1}}})
    except error:
        print("refused")
"""

    run = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)

    assert run.stdout == "refused\n" * 3, run.stderr
    assert not shards(cache_dir)


def test_importing_storage_imports_no_heavy_package() -> None:
    script = (
        "import sys, wids.storage; wids.storage.Storage();"
        "print(sorted({'urllib3', 'fsspec', 'filelock', 'zstandard', 'torch', 'numpy'} & set(sys.modules)))"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"


def test_a_remote_descriptor_cannot_run_commands(
    server: WebServer, make_storage: Callable[..., Storage], tmp_path: Path
) -> None:
    server.objects["train.txt"] = f"pipe:touch {tmp_path}/ran".encode()
    opened = make_storage()

    with pytest.raises(FetchError, match="refused"):
        opened.open({"url": opened.read(server.url("train.txt")).decode()})

    assert not os.path.lexists(tmp_path / "ran")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_nothing_is_read_from_a_default_folder_that_another_user_owns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: WebServer
) -> None:
    monkeypatch.delenv("WIDS_CACHE")
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    server.objects["a.tar"] = b"right" * 200
    shard = {"url": server.url("a.tar")}
    Storage().open(shard)
    (planted,) = tmp_path.glob("wids-*/*.tar")
    planted.write_bytes(b"wrong" * 200)
    os.chown(tmp_path / "wids-0", 12345, 12345)

    with pytest.raises(FetchError, match="is not a folder that belongs to user"):
        Storage().open(shard)
