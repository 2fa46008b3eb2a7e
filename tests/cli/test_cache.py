"""`widsindex cache` and `widsindex fetch`, on real folders and a real server."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.storage.reading import shards as cached_shards
from tests.storage.web_server import WebServer, web_server
from tests.support import write_descriptor
from wids.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(shards: list[str]) -> Iterator[WebServer]:
    """Serves `shards`, each several kB large."""
    with web_server() as running:
        for name in shards:
            running.objects[name] = Path(name).read_bytes()
        yield running


@pytest.fixture
def remote(server: WebServer, shards: list[str]) -> str:
    """A descriptor of remote shards."""
    entries = [{"url": server.url(name), "nsamples": count} for name, count in zip(shards, (3, 0, 2), strict=True)]
    return str(write_descriptor(Path("train.json"), entries))


def test_fetch_fills_the_cache_and_cache_ls_prune_and_clear_manage_it(remote: str, server: WebServer, run: Any) -> None:
    assert run("cache", "ls")[1].startswith("0 shards, 0 B in ")
    assert run("fetch", remote)[1].startswith("train.json: 3 of 3 shards are in ")
    assert sum(server.bodies.values()) == 3
    Storage().open({"url": server.url("shard-0000.tar")})
    assert sum(server.bodies.values()) == 3
    status, out, _ = run("cache", "ls")
    assert status == 0
    assert [line.split()[-1] for line in out.splitlines()[:-1]] == [server.url(f"shard-000{n}.tar") for n in range(3)]
    assert "     1 use" in out
    assert out.splitlines()[-1].startswith("3 shards, 30.7 kB in ")
    assert run("cache", "prune", "--to", "21kB")[1].startswith("removed 1 shard, 10.2 kB; 2 shards, 20.5 kB left in ")
    assert len(cached_shards(Path(os.environ["WIDS_CACHE"]))) == 2
    status, out, _ = run("cache", "clear")
    assert (status, cached_shards(Path(os.environ["WIDS_CACHE"]))) == (0, [])
    assert not list(Path(os.environ["WIDS_CACHE"]).rglob("*.widx"))


def test_fetch_counts_the_local_shards_that_it_unpacked(shards: list[str], run: Any) -> None:
    packed = Path("packed.tar.gz")
    packed.write_bytes(gzip.compress(Path(shards[0]).read_bytes()))
    write_descriptor(Path("train.json"), [{"url": str(packed)}, {"url": shards[2]}])

    assert run("fetch", "train.json")[1].startswith("train.json: 1 of 2 shards is in ")
    assert "1 is read in place, 0 failed" in run("fetch", "train.json")[1]


def test_fetch_with_shards_fetches_only_these(remote: str, server: WebServer, run: Any) -> None:
    assert run("fetch", remote, "--shards", "1-2")[0] == 0
    assert run("fetch", remote, "--shards", "2", "--cache-dir", "other")[0] == 0

    assert server.bodies == {"shard-0001.tar": 1, "shard-0002.tar": 2}
    assert len(list(Path("other").glob("shard-0002-*.tar"))) == 1


@pytest.mark.parametrize(
    ("shards_text", "message"),
    [
        ("x", "--shards is 'x'; it must be a number, or the first and last of a range"),
        ("2-1", "--shards is '2-1'; a range is written with its lower number first"),
        ("0-3", "shards 0-3 are out of range for 3 shards"),
        ("-1", "--shards is '-1'"),
        ("1-", "--shards is '1-'"),
    ],
)
def test_an_invalid_range_of_shards_is_a_one_line_error(remote: str, run: Any, shards_text: str, message: str) -> None:
    status, _, errors = run("fetch", remote, f"--shards={shards_text}")

    assert status == 1
    assert errors.startswith(f"widsindex: {message}")
    assert errors.count("\n") == 1


def test_fetch_reports_a_missing_shard_and_fetches_the_others(remote: str, server: WebServer, run: Any) -> None:
    del server.objects["shard-0001.tar"]
    status, out, _ = run("fetch", remote)

    assert status == 1
    assert "failed: " in out
    assert "shard-0001.tar: does not exist (404 Not Found)" in out
    assert "2 of 3 shards are in" in out


def test_fetch_does_not_count_a_missing_local_shard_as_read_in_place(shards: list[str], run: Any) -> None:
    write_descriptor(Path("train.json"), [{"url": shards[0]}, {"url": "missing.tar"}])

    status, out, _ = run("fetch", "train.json")

    assert status == 1
    assert "1 is read in place, 1 failed" in out


def test_fetch_says_when_the_cache_does_not_hold_all(remote: str, run: Any) -> None:
    status, out, _ = run("fetch", remote, "--cache-size", "11kB")

    assert status == 0
    assert "1 of 3 shards is in" in out
    assert "give a larger --cache-size" in out


@pytest.mark.usefixtures("shards")
def test_fetch_of_local_shards_stores_nothing(run: Any) -> None:
    status, out, _ = run("fetch", "shard-{0000..0002}.tar")

    assert status == 0
    assert "0 of 3 shards are in" in out
    assert "3 are read in place" in out
    assert not Path(os.environ["WIDS_CACHE"]).exists()


def test_the_cache_commands_keep_files_that_the_cache_did_not_write(remote: str, run: Any) -> None:
    folder = Path("mixed")
    folder.mkdir()
    shutil.copy("shard-0000.tar", folder / "mine.tar")
    run("fetch", remote, "--cache-dir", "mixed")
    run("cache", "prune", "--to", "1", "--cache-dir", "mixed")
    run("fetch", remote, "--cache-dir", "mixed")
    (victim,) = folder.glob("shard-0002-*.tar")
    victim.unlink()
    victim.write_bytes(b"mine too")
    run("cache", "clear", "--cache-dir", "mixed")

    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["mine.tar", victim.name]


@pytest.mark.parametrize("size", ["0", "many", "-3GB", "nan"])
def test_an_invalid_cache_size_is_a_one_line_error(run: Any, size: str) -> None:
    status, _, errors = run("cache", "prune", f"--to={size}")

    assert status == 1
    assert (
        errors
        == f"widsindex: cache_size is {size!r}; it must be a number of bytes above 0, or a text such as '200GB'\n"
    )
