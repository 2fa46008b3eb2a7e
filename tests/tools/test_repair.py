"""Damaged cached copies are fetched again, and only those; of local shards the damage is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.storage.web_server import WebServer, web_server
from tests.support import write_shards
from wids.cli import main
from wids.storage import Storage, StorageOptions
from wids.tools import create_index, repair

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as running:
        yield running


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(StorageOptions(cache_dir=str(tmp_path / "cache"), checksum="md5"))


@pytest.fixture
def listed(tmp_path: Path, server: WebServer, storage: Storage) -> list[dict[str, Any]]:
    """Entries of three shards on the server, of which the first two are in the cache, with a pack with checksums."""
    for path, _ in write_shards(tmp_path, [3, 2, 1]):
        server.objects[Path(path).name] = Path(path).read_bytes()
    urls = [server.url(name) for name in sorted(server.objects)]
    content = create_index(urls, tmp_path / "a.json", checksums=True, storage=storage)
    entries = [{**entry, "index": str(tmp_path / "a.widx")} for entry in content["shardlist"]]
    for entry in entries[:2]:
        storage.open(entry)
    server.bodies.clear()
    return entries


def cached(storage: Storage, number: int) -> Path:
    (path,) = Path(storage.cache_dir).glob(f"shard-{number:04d}-*.tar")
    return path


def change_byte(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        value = file.read(1)
        file.seek(offset)
        file.write(bytes([value[0] ^ 1]))


def test_undamaged_cached_shards_are_not_fetched_again(
    listed: list[dict[str, Any]], storage: Storage, server: WebServer
) -> None:
    assert [done.outcome for done in repair(listed, storage=storage)] == ["whole", "whole", "not cached"]
    assert not server.bodies


@pytest.mark.parametrize("with_md5", [True, False], ids=["md5", "checksums alone"])
@pytest.mark.parametrize("offset", [0, 512, 700], ids=["header", "data", "padding"])
def test_a_cached_shard_with_a_changed_byte_is_fetched_again(
    listed: list[dict[str, Any]], storage: Storage, server: WebServer, offset: int, with_md5: bool
) -> None:
    path = cached(storage, 1)
    if not with_md5:  # the cache holds such shards under another name
        path.unlink()
        listed = [{key: value for key, value in entry.items() if key != "md5sum"} for entry in listed]
        for entry in listed[:2]:
            storage.open(entry)
        server.bodies.clear()
        path = cached(storage, 1)
    change_byte(path, offset)

    outcomes = [done.outcome for done in repair(listed, storage=storage)]

    # Without an MD5, padding is what nobody compares, and nobody reads.
    is_seen = with_md5 or offset != 700
    assert outcomes == ["whole", "fetched again" if is_seen else "whole", "not cached"]
    assert dict(server.bodies) == ({"shard-0001.tar": 1} if is_seen else {})
    if is_seen:
        assert path.read_bytes() == server.objects["shard-0001.tar"]


def test_a_shard_that_is_damaged_at_its_source_stays_damaged(
    listed: list[dict[str, Any]], storage: Storage, server: WebServer
) -> None:
    change_byte(cached(storage, 0), 512)
    server.objects["shard-0000.tar"] = cached(storage, 0).read_bytes()

    done = repair(listed, storage=storage)[0]

    assert done.outcome == "damaged"
    assert [error.kind for error in done.errors] == ["md5", "member-checksum", "unreadable"]
    assert "the stored shard is damaged" in done.errors[-1].message


def test_a_damaged_file_that_the_cache_did_not_write_is_not_replaced(
    listed: list[dict[str, Any]], storage: Storage
) -> None:
    path = cached(storage, 0)
    content = bytearray(path.read_bytes())
    content[512] ^= 1
    (path.parent / "other").write_bytes(content)
    (path.parent / "other").replace(path)

    done = repair(listed, storage=storage)[0]

    assert done.outcome == "damaged"
    assert "was not written by the cache" in done.errors[-1].message
    assert path.read_bytes() == bytes(content)


def test_a_damaged_local_shard_is_reported_and_not_changed(
    tmp_path: Path, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path, [3, 2])
    create_index(tmp_path, tmp_path / "a.json", checksums=True)
    shard = tmp_path / "shard-0000.tar"
    change_byte(shard, 1024 + 512)
    before = shard.read_bytes()

    done = repair(tmp_path / "a.json", storage=storage)
    status = main(["repair", str(tmp_path / "a.json"), "--cache-dir", storage.cache_dir])

    assert [each.outcome for each in done] == ["damaged", "whole"]
    assert shard.read_bytes() == before
    assert status == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{shard}: damaged: changed members: key '000000', field '.cls', at byte 1536"
    assert lines[-1] == f"{tmp_path}/a.json: 1 damaged, 1 whole"


def test_the_repair_command_fetches_damaged_cached_shards_again(
    listed: list[dict[str, Any]], tmp_path: Path, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed
    change_byte(cached(storage, 1), 512)

    status = main(["repair", str(tmp_path / "a.json"), "--cache-dir", storage.cache_dir])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert "shard-0001.tar: fetched again: has MD5" in lines[0]
    assert lines[-1] == f"{tmp_path}/a.json: 1 fetched again, 1 not cached, 1 whole"
