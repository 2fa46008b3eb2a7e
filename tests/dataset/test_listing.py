"""What index packs can answer is answered without a request for a shard, and no read contradicts it unnoticed."""

from __future__ import annotations

import logging
import multiprocessing
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import shards as cached_files
from tests.storage.web_server import WebServer, status, web_server
from tests.support import sample_members, write_descriptor, write_shards, write_tar
from wids.cli import main
from wids.errors import FetchError, ShardMismatchError, WidsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.tar import MemberLocation

OTHER = "differ from what its index said"
"""Part of the error about a shard that is not as was told."""


@pytest.fixture
def server() -> Iterator[WebServer]:
    """Sends whole objects only, so that each answer about a shard that is not in the pack is a shard fetched."""
    with web_server() as running:
        yield running


@pytest.fixture
def served(server: WebServer, tmp_path: Path) -> list[dict[str, Any]]:
    """The entries of two served shards of 4 and 6 samples, with size, MD5 and a served pack."""
    paths = [path for path, _ in write_shards(tmp_path, [4, 6])]
    content = wids.create_index(paths, tmp_path / "train.json", index=True)
    for path in [*map(Path, paths), tmp_path / "train.widx"]:
        server.objects[path.name] = path.read_bytes()
    return [
        {**shard, "url": server.url(shard["url"]), "index": server.url("train.widx")} for shard in content["shardlist"]
    ]


def open_set(entries: list[dict[str, Any]], tmp_path: Path, **options: Any) -> wids.ShardListDataset:
    return wids.ShardListDataset(entries, **{"transformations": [], "cache_dir": str(tmp_path / "cache"), **options})


def rewrite(server: WebServer, tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    """Replace the first shard on the server."""
    server.objects["shard-0000.tar"] = write_tar(tmp_path / "shard-0000.tar", members).read_bytes()


LARGER = sample_members(40, first=100)
"""Samples of a shard of another size than the first one of `served`."""
SHIFTED = [(name, data * 60 if name == "000000.txt" else data) for name, data in sample_members(4)]
"""Samples of a shard of the same size, in which all but the first member are in other places."""


def without(entries: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if name not in names} for entry in entries]


def asked_for(server: WebServer) -> set[str]:
    """Return what the server was asked for."""
    return {target[1:] for target, _ in server.requests}


def places(paths: list[Path]) -> list[dict[str, tuple[str, int, int]]]:
    """Return `{field: (shard, offset, size)}` of each sample, as `tarfile` sees it."""
    samples: dict[str, dict[str, tuple[str, int, int]]] = {}
    for path in paths:
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, field = member.name.partition(".")
                samples.setdefault(key, {})[f".{field}"] = (path.name, member.offset_data, member.size)
    return list(samples.values())


def plain(located: dict[str, MemberLocation]) -> dict[str, tuple[str, int, int]]:
    return {field: (it.url.rpartition("/")[2], it.offset, it.size) for field, it in located.items()}


@pytest.mark.parametrize("described", ["whole", "no size", "no size, no count"])
@pytest.mark.parametrize("access", ["download", "range", "auto"])
def test_a_pack_answers_without_its_shards(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, access: str, described: str
) -> None:
    server.has_ranges = access == "range"
    left_out = {"whole": (), "no size": ("filesize",), "no size, no count": ("filesize", "nsamples")}[described]
    dataset = open_set(without(served, *left_out), tmp_path, access=access, lru_size=1)
    expected = places(sorted(tmp_path.glob("*.tar")))

    assert [plain(dataset.locate(index)) for index in range(len(dataset))] == expected
    assert [plain(dataset.select([7, 2]).locate(index)) for index in range(2)] == [expected[7], expected[2]]
    assert plain(wids.concat([dataset[:3], dataset[5:]]).locate(3)) == expected[5]
    assert plain(dataset.join(dataset, prefix="b.").locate(8))[".b.txt"] == expected[8][".txt"]
    assert [dataset.key(index) for index in (0, 9)] == ["000000", "000009"]
    assert (dataset.index_of("000006"), dataset.keys()[-2]) == (6, "000008")
    assert dataset.sizes("txt").tolist() == [sample[".txt"][2] for sample in expected]
    assert dataset.has("txt", "cls").all()
    assert dataset.fields == {(".txt", ".cls"): 10}
    assert asked_for(server) == {"train.widx"}
    assert {path.name.rpartition("-")[0] for path in cached_files(tmp_path / "cache")} <= {"train.widx"}
    assert dataset.get_stats() == (0, 0)

    assert [dataset.read(index)[".txt"] for index in range(10)] == [b"text of %d" % index for index in range(10)]
    assert [plain(dataset.locate(index)) for index in range(10)] == expected


def test_without_a_pack_the_shard_of_the_sample_is_fetched(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    dataset = open_set(without(served, "index"), tmp_path)
    expected = places(sorted(tmp_path.glob("*.tar")))

    assert [plain(dataset.locate(index)) for index in (4, 5, 9)] == [expected[4], expected[5], expected[9]]
    assert dict(server.bodies) == {"shard-0001.tar": 1}


@pytest.mark.parametrize("fault", [status(404), status(200)], ids=["is not there", "is no pack"])
def test_a_pack_that_cannot_be_used_is_as_none(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, fault: Any
) -> None:
    server.behaviours["train.widx"] = [fault] * 9

    assert plain(open_set(served, tmp_path).locate(9)) == places([tmp_path / "shard-0001.tar"])[5]
    assert dict(server.bodies) == {"shard-0001.tar": 1}


def test_by_ranges_a_kept_index_answers_with_one_request_for_the_tag(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    server.has_ranges = True
    first = open_set(without(served, "index"), tmp_path, access="range").locate(2)
    before = len(server.requests)

    assert open_set(without(served, "index"), tmp_path, access="range").locate(2) == first
    assert [headers["Range"] for _, headers in server.requests[before:]] == ["bytes=0-511"]
    assert cached_files(tmp_path / "cache") == []


def test_a_shard_that_is_in_the_cache_is_compared_with_the_pack(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    rewrite(server, tmp_path, SHIFTED)
    open_set(served, tmp_path).read(0)
    server.requests.clear()

    assert plain(open_set(served, tmp_path).locate(2)) == places([tmp_path / "shard-0000.tar"])[2]
    assert asked_for(server) <= {"train.widx"}


def test_a_local_shard_is_compared_with_the_pack(tmp_path: Path) -> None:
    wids.create_index([path for path, _ in write_shards(tmp_path, [4])], tmp_path / "train.json", index=True)
    write_tar(tmp_path / "shard-0000.tar", SHIFTED)

    assert plain(wids.ShardListDataset(tmp_path / "train.json").locate(2)) == places([tmp_path / "shard-0000.tar"])[2]


def test_a_local_shard_is_not_copied_to_locate_its_samples(tmp_path: Path) -> None:
    wids.create_index([path for path, _ in write_shards(tmp_path, [4])], tmp_path / "train.json", index=True)
    dataset = wids.ShardListDataset(tmp_path / "train.json", cache_local=True, cache_dir=str(tmp_path / "cache"))

    assert plain(dataset.locate(3)) == places([tmp_path / "shard-0000.tar"])[3]
    assert len(dataset._cache) == 0
    assert not dataset._cache.storage.upcoming._copying.keys() & {str(tmp_path / "shard-0000.tar")}


# Packs of other shards


def test_a_pack_of_another_size_than_the_descriptors_is_not_believed(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    rewrite(server, tmp_path, LARGER)
    served[0] |= {"nsamples": 40, "filesize": len(server.objects["shard-0000.tar"])}
    dataset = open_set(served, tmp_path)

    assert plain(dataset.locate(30)) == places([tmp_path / "shard-0000.tar"])[30]
    assert dataset.read(30)[".txt"] == b"text of 130"


def test_a_pack_that_was_written_again_is_fetched_and_no_shard(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    open_set(served, tmp_path).locate(0)
    rewrite(server, tmp_path, LARGER)
    shards = [str(tmp_path / f"shard-000{number}.tar") for number in range(2)]
    content = wids.create_index(shards, tmp_path / "train.json", index=True)
    server.objects["train.widx"] = (tmp_path / "train.widx").read_bytes()
    newer = [{**old, **new, "url": old["url"]} for old, new in zip(served, content["shardlist"], strict=True)]

    assert plain(open_set(newer, tmp_path).locate(30)) == places([tmp_path / "shard-0000.tar"])[30]
    assert asked_for(server) == {"train.widx"}


def test_a_pack_that_can_no_longer_be_fetched_answers_for_the_shards_that_it_has(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    missing = {**served[0], "url": server.url("other.tar")}
    dataset = open_set([*served, missing], tmp_path)
    assert dataset.key(0) == "000000"
    del server.objects["train.widx"]

    with pytest.raises(FetchError, match=r"other\.tar: does not exist"):
        dataset.key(10)

    assert dataset.key(4) == "000004"
    assert asked_for(server) == {"train.widx", "other.tar"}


@pytest.mark.parametrize("ask", ["locate", "key"])
@pytest.mark.parametrize(
    ("access", "left_out", "checksum", "members"),
    [
        pytest.param("download", (), "size", LARGER, id="size in the descriptor"),
        pytest.param("download", ("filesize",), "size", LARGER, id="no size in the descriptor"),
        pytest.param("download", (), "none", LARGER, id="size not compared"),
        pytest.param("download", (), "size", SHIFTED, id="same size"),
        pytest.param("download", (), "md5", SHIFTED, id="MD5"),
        pytest.param("range", ("filesize",), "size", LARGER, id="by ranges"),
        pytest.param("range", (), "size", SHIFTED, id="by ranges, same size"),
    ],
)
def test_a_shard_that_is_not_as_was_told_is_not_read(
    server: WebServer,
    served: list[dict[str, Any]],
    tmp_path: Path,
    ask: str,
    access: str,
    left_out: tuple[str, ...],
    checksum: str,
    members: list[tuple[str, bytes]],
) -> None:
    server.has_ranges = access == "range"
    expected = places([tmp_path / "shard-0000.tar"])[2]
    rewrite(server, tmp_path, members)
    dataset = open_set(without(served, *left_out), tmp_path, access=access, checksum=checksum)

    assert ask == "key" or plain(dataset.locate(2)) == expected
    assert ask == "locate" or dataset.key(2) == "000002"
    for read in (dataset.read, dataset.view, dataset.__getitem__, lambda index: dataset.open(index, "txt")):
        with pytest.raises(ShardMismatchError, match=r"shard-0000\.tar: "):
            read(2)
    assert dataset.read(7)[".txt"] == b"text of 7"


def test_what_an_open_shard_told_by_a_pack_it_was_not_yet_compared_with_counts_too(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path
) -> None:
    """By ranges, each header is compared with the pack when its member is read: those of the first samples are right."""
    server.has_ranges = True
    rewrite(server, tmp_path, [(name, data * 60 if name == "000002.txt" else data) for name, data in sample_members(4)])
    dataset = open_set(served, tmp_path, access="range")
    assert dataset.read(0)[".txt"] == b"text of 0"
    dataset.locate(3)

    with pytest.raises(ShardMismatchError, match=OTHER):
        dataset.read(3)


def test_what_proved_wrong_is_not_told_again(server: WebServer, served: list[dict[str, Any]], tmp_path: Path) -> None:
    rewrite(server, tmp_path, SHIFTED)
    dataset = open_set(served, tmp_path)
    dataset.locate(2)
    for attempt in (dataset.read, dataset.locate, dataset.key):
        with pytest.raises(ShardMismatchError, match=OTHER):
            attempt(2)
    dataset.close()
    with pytest.raises(ShardMismatchError, match=OTHER):
        dataset.read(2)


def test_a_pack_that_did_not_fit_when_the_shard_was_read_is_not_believed_later(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(server, tmp_path, SHIFTED)
    dataset = open_set(served, tmp_path)
    read = dataset.read(2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    dataset.close()
    for path in cached_files(tmp_path / "cache"):
        if path.name.startswith("shard"):
            path.unlink()

    assert plain(dataset.locate(2)) == places([tmp_path / "shard-0000.tar"])[2]
    assert dataset.sizes("txt")[0] == len(b"text of 0") * 60
    assert dataset.read(2) == read


def test_a_shard_with_other_bytes_in_the_same_places_is_read(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(server, tmp_path, [(name, data.upper()) for name, data in sample_members(4)])
    dataset = open_set(served, tmp_path)
    located = dataset.locate(2)

    assert dataset.read(2)[".txt"] == b"TEXT OF 2"
    assert dataset.locate(2) == located
    assert not caplog.records


def _read_and_locate(dataset: wids.ShardListDataset, answers: Any) -> None:
    """Send what reads of samples 2 and 7 give, and where sample 9 is."""
    for index in (2, 7):
        try:
            answers.put(dataset.read(index)[".txt"].decode())
        except WidsError as error:
            answers.put(str(error))
    answers.put(plain(dataset.locate(9)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_hold_shards_to_what_their_parent_was_told(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, method: Any
) -> None:
    rewrite(server, tmp_path, SHIFTED)
    dataset = open_set(served, tmp_path)
    for index in (2, 7):
        dataset.locate(index)
    assert asked_for(server) == {"train.widx"}
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    worker = context.Process(target=_read_and_locate, args=(dataset, answers))
    worker.start()
    stale, right, place = [answers.get(timeout=60) for _ in range(3)]
    worker.join()

    assert OTHER in stale
    assert right == "text of 7"
    assert place == places([tmp_path / "shard-0001.tar"])[5]


# The command line


@pytest.mark.parametrize(
    "arguments", ["ls --json", "ls --keys 0000*", "info --fields", "info --fields --json"], ids=lambda text: text
)
def test_commands_that_only_list_ask_for_no_shard(
    server: WebServer,
    served: list[dict[str, Any]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: str,
) -> None:
    remote = write_descriptor(tmp_path / "remote.json", served)
    local = write_descriptor(
        tmp_path / "local.json", [{**entry, "url": Path(entry["url"]).name} for entry in without(served, "index")]
    )
    shown = []
    for path in (local, remote):
        assert main([*arguments.split(), str(path)]) == 0
        shown.append(capfd.readouterr().out.replace(server.address, str(tmp_path)).replace(path.stem, ""))

    assert shown[0] == shown[1]
    assert ".txt" in shown[0]
    assert asked_for(server) == {"train.widx"}


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "whole"])
def test_cat_prints_the_shard_as_it_is_when_its_pack_is_outdated(
    server: WebServer, served: list[dict[str, Any]], tmp_path: Path, capfd: pytest.CaptureFixture[str], has_ranges: bool
) -> None:
    server.has_ranges = has_ranges
    rewrite(server, tmp_path, SHIFTED)
    path = write_descriptor(tmp_path / "remote.json", without(served, "md5sum"))

    for samples in (["2"], ["000002"], ["--keys", "000002"]):
        assert main(["cat", str(path), *samples, "txt"]) == 0
        assert capfd.readouterr().out == "text of 2"
