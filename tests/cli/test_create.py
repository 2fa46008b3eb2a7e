"""`widsindex create` writes what the shards hold, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.cli.conftest import ROOT
from tests.storage.reading import wait_until
from tests.storage.web_server import web_server
from tests.support import sample_members, write_tar
from wids.errors import ShardMismatchError, WidsError
from wids.index_files import IndexPack
from wids.source import MmapSource
from wids.tools import create_index

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


def read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(Path(path).read_bytes())
    return content


def urls(path: str) -> list[str]:
    return [entry["url"] for entry in read(path)["shardlist"]]


def test_create_writes_counts_sizes_and_md5_of_the_shards(shards: list[str], run: Run) -> None:
    Path("about.txt").write_text("two lines\nof text\n", encoding="utf-8")

    status, output, errors = run("create", *shards, "-o", "train.json", "-n", "train", "-i", "about.txt")

    assert (status, output, errors) == (0, "train.json: 5 samples in 3 shards\n", "")
    content = read("train.json")
    assert content["wids_version"] == 1
    assert content["name"] == "train"
    assert content["info"] == "two lines\nof text\n"
    assert "base" not in content
    assert content["shardlist"] == [
        {
            "url": name,
            "nsamples": count,
            "filesize": Path(name).stat().st_size,
            "md5sum": hashlib.md5(Path(name).read_bytes()).hexdigest(),
        }
        for name, count in zip(shards, [3, 0, 2], strict=True)
    ]


@pytest.mark.parametrize(
    ("given", "stdin"),
    [
        (["."], ""),
        (["shard-{0000..0002}.tar"], ""),
        (["shard-*.tar"], ""),
        (["-"], "shard-0000.tar\n\nshard-0001.tar\nshard-0002.tar\n"),
        (["shard-0000.tar", "-", "shard-0002.tar"], "shard-0001.tar"),
    ],
    ids=["folder", "braces", "wildcard", "stdin", "mixed"],
)
def test_shards_may_be_named_in_any_way(
    shards: list[str], run: Run, given: list[str], stdin: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stdin").write_text(stdin, encoding="utf-8")
    with (tmp_path / "stdin").open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run("create", *given, "-o", "all.json")[0] == 0

    assert urls("all.json") == shards


def test_create_keeps_the_order_of_the_shards(shards: list[str], run: Run) -> None:
    for workers in ("1", "2"):
        run("create", *reversed(shards), "-o", "all.json", "--workers", workers)

        assert urls("all.json") == shards[::-1]


def test_create_with_a_base_writes_a_descriptor_that_reads_from_it(shards: list[str], folder: Path, run: Run) -> None:
    (folder / "elsewhere").mkdir()

    assert run("create", *shards, "-o", "elsewhere/all.json", "--base", str(folder))[0] == 0

    assert read("elsewhere/all.json")["base"] == str(folder)
    assert urls("elsewhere/all.json") == shards
    assert run("sample", "elsewhere/all.json", "4", "--cat", "txt")[1] == "text of 4"


def test_shards_elsewhere_are_named_by_their_whole_path(shards: list[str], folder: Path, run: Run) -> None:
    (folder / "elsewhere").mkdir()

    run("create", *shards, "-o", "elsewhere/all.json")

    assert urls("elsewhere/all.json") == [str(folder / name) for name in shards]


@pytest.mark.parametrize(
    ("given", "url"),
    [("file:{}/a.tar", "file:{}/a.tar"), ("~/work/a.tar", "a.tar"), ("./~b/c.tar", "./~b/c.tar")],
)
def test_local_urls_and_tildes_mean_the_same_in_the_descriptor(
    folder: Path, run: Run, given: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("~b").mkdir()
    write_tar(Path("a.tar"), sample_members(1))
    write_tar(Path("~b/c.tar"), sample_members(1))
    monkeypatch.setenv("HOME", str(folder.parent))

    assert run("create", given.format(folder), "-o", "all.json")[0] == 0

    assert urls("all.json") == [url.format(folder)]
    assert run("sample", "all.json", "0", "-c", "txt")[1] == "text of 0"


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "unpacked on the way"])
def test_a_remote_shard_is_fetched_once(
    folder: Path, run: Run, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So large that a body which nobody wants is not sent whole.
    data = write_tar(folder / "a.tar", [("0.bin", random.Random(0).randbytes(5 << 20))]).read_bytes()
    monkeypatch.setenv("WIDS_CACHE", str(folder / "cache"))

    with web_server() as server:
        server.objects["b.tar"] = stored = gzip.compress(data) if compressed else data
        assert run("create", server.url("b.tar"), "-o", "all.json")[0] == 0
        wait_until(lambda: not server.running)  # by then it has noticed which bodies nobody takes

    assert server.bodies["b.tar"] == 1
    assert not list((folder / "cache").rglob("*.tar"))
    (entry,) = read("all.json")["shardlist"]
    assert (entry["filesize"], entry["md5sum"]) == (len(stored), hashlib.md5(stored).hexdigest())


def test_the_default_name_is_the_common_prefix_of_the_shards(shards: list[str], run: Run) -> None:
    run("create", *shards)

    assert read("shardindex.json")["name"] == "shard"


def test_concurrent_runs_of_create_write_one_whole_descriptor(
    shards: list[str], start: Callable[..., subprocess.CompletedProcess[bytes]]
) -> None:
    def create(number: int) -> int:
        return start("create", *shards, "-o", "all.json", "-n", f"name{number}").returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(create, range(4))) == [0] * 4

    assert read("all.json")["name"] in {f"name{number}" for number in range(4)}
    assert urls("all.json") == shards
    assert sorted(path.name for path in Path().iterdir()) == [".all.json.journal", "all.json", *shards]


def test_a_compressed_shard_is_described_as_it_is_stored(folder: Path, run: Run) -> None:
    whole = write_tar(folder / "a.tar", sample_members(3)).read_bytes()
    Path("b.tar.gz").write_bytes(gzip.compress(whole))

    run("create", "b.tar.gz", "-o", "all.json")

    (entry,) = read("all.json")["shardlist"]
    assert entry["nsamples"] == 3
    assert entry["filesize"] == Path("b.tar.gz").stat().st_size
    assert entry["md5sum"] == hashlib.md5(Path("b.tar.gz").read_bytes()).hexdigest()
    assert run("sample", "all.json", "2", "--cat", "cls")[:2] == (0, "2")


def test_create_lists_unreadable_shards_and_writes_the_others(shards: list[str], run: Run) -> None:
    Path("shard-0001.tar").write_bytes(b"this is text\n" * 100)

    for workers in ("1", "2"):
        status, _, errors = run("create", *shards, "missing.tar", "-o", "all.json", "--workers", workers)

        assert status == 1
        summary, *left_out = errors.splitlines()
        assert summary == "widsindex: all.json: 2 of 4 shards were left out:"
        assert len(left_out) == 2
        assert left_out[0].startswith("  shard-0001.tar: not a tar archive: the header at byte 0")
        assert left_out[1].startswith("  missing.tar: cannot be opened")
        assert urls("all.json") == ["shard-0000.tar", "shard-0002.tar"]


def test_nothing_is_written_when_no_shard_can_be_read(folder: Path, run: Run) -> None:
    status, _, errors = run("create", "missing.tar", "-o", "all.json")

    assert status == 1
    assert "not written, no shard can be read" in errors
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty/"], "holds no .tar shards"),
        (["none-*.tar"], "nothing matches"),
        (["shard-0000.tar", "-o", "missing/all.json"], "missing/all.json: there is no folder missing"),
        (["shard-0000.tar", "-o", "empty"], "empty: is a folder"),
        (["shard-0000.tar", "-o", "all.widx", "--index"], "name the descriptor all.json"),
        (["shard-0000.tar", "-n", "\udcff"], "JSON cannot hold one of its values: str is not valid UTF-8"),
        (["shard-0000.tar", "empty/../\udcff.tar"], "\\udcff.tar: this name is not UTF-8"),
        (["shard-0000.tar", "empty/shard-0000.tar", "-b", "/x"], "would both be shard-0000.tar under the base /x"),
        (["shard-0000.tar", "-i", "missing.txt"], "missing.txt"),
        (["shard-0000.tar", "-w", "0"], "--workers is 0"),
        (["http://[x/a.tar"], "http://[x/a.tar: is not a valid URL"),
    ],
)
@pytest.mark.usefixtures("shards")
def test_invalid_arguments_of_create_are_a_one_line_error(run: Run, arguments: list[str], message: str) -> None:
    Path("empty").mkdir()

    status, output, errors = run("create", *arguments)

    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("widsindex: ")
    assert message in errors


# The pack of indexes


def test_create_writes_a_pack_that_is_used_for_reading(
    shards: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("create", *shards, "-o", "train.json", "--index", "--workers", "2")[0] == 0
    assert read("train.json")["index"] == "train.widx"
    monkeypatch.setattr("wids.index_files.files.build_index", lambda _: pytest.fail("a shard was scanned"))

    assert run("sample", "train.json", "4", "--cat", "txt")[1] == "text of 4"


def test_a_pack_is_found_under_the_base(shards: list[str], folder: Path, run: Run) -> None:
    (folder / "elsewhere").mkdir()
    run("create", *shards, "-o", "elsewhere/all.json", "--base", str(folder), "--index")
    Path("elsewhere/all.widx").rename("all.widx")

    pack = IndexPack(MmapSource("all.widx"), str(folder / "all.widx"))

    for name in shards:
        assert pack.find(str(folder / name), MmapSource(name)) is not None


def test_a_shard_may_be_named_twice(shards: list[str], run: Run) -> None:
    status, _, errors = run("create", shards[0], shards[0], "-o", "train.json", "--index")

    assert (status, errors) == (0, "")
    assert run("sample", "train.json", "4", "--cat", "txt")[1] == "text of 1"


def test_create_says_under_which_base_readers_look_for_the_pack(shards: list[str], run: Run) -> None:
    output = run("create", *shards, "-o", "train.json", "--index", "-b", "https://me:secret@x.org/d")[1]

    assert "train.widx: readers look for it under https://***@x.org/d" in output


def test_packs_made_by_one_or_two_processes_are_equal(shards: list[str], run: Run) -> None:
    packs = []
    for workers in ("1", "2"):
        run("create", *shards, "-o", "train.json", "--checksums", "--workers", workers)
        packs.append(Path("train.widx").read_bytes())

    assert packs[0] == packs[1]


@pytest.mark.needs_torch
def test_verify_members_finds_a_changed_byte_on_every_read(shards: list[str], run: Run) -> None:
    import wids

    run("create", *shards, "-o", "train.json", "--checksums")
    dataset = wids.ShardListDataset("train.json", transformations=[], verify_members=True, checksum="none")
    place = dataset.locate(1)[".txt"]
    with Path("shard-0000.tar").open("r+b") as file:
        file.seek(place.offset)
        file.write(b"T")

    for _ in range(2):
        with pytest.raises(
            ShardMismatchError,
            match=rf"index 1, key '000001': .*shard-0000\.tar: key '000001', field '\.txt', at byte {place.offset}: has",
        ):
            dataset[1]
    assert dataset.read(0) == {".txt": b"text of 0", ".cls": b"0"}
    assert dataset.read(1, ["cls"]) == {".cls": b"1"}


@pytest.mark.needs_torch
def test_verify_members_without_checksums_names_the_command_to_run(shards: list[str], run: Run) -> None:
    import wids

    run("create", *shards, "-o", "train.json", "--index")
    dataset = wids.ShardListDataset("train.json", verify_members=True)

    with pytest.raises(ShardMismatchError, match="widsindex create --index --checksums"):
        dataset[0]


# From Python


def test_create_index_writes_the_same_as_the_command(shards: list[str], run: Run) -> None:
    run("create", *shards, "-o", "a.json", "--checksums")

    with ThreadPoolExecutor(2) as pool:
        content = create_index(shards, "b.json", checksums=True, executor=pool)

    assert {**content, "index": "a.widx"} == read("a.json")
    assert read("b.json") == content
    assert Path("a.widx").read_bytes() == Path("b.widx").read_bytes()


def test_create_index_raises_an_error_that_lists_unreadable_shards(shards: list[str]) -> None:
    with pytest.raises(WidsError, match=r"1 of 4 shards was left out: missing\.tar: cannot be opened"):
        create_index([*shards, "missing.tar"], "all.json")

    assert len(urls("all.json")) == 3


@pytest.mark.usefixtures("shards")
def test_create_index_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import wids; wids.create_index('.', 'all.json')"

    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    assert len(urls("all.json")) == 3


def test_a_pack_that_does_not_fit_the_shard_is_a_warning(
    shards: list[str], run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("create", *shards, "-o", "train.json", "--index")
    write_tar(folder / "shard-0002.tar", sample_members(2, first=7))

    with caplog.at_level(logging.WARNING):
        status, output, _ = run("sample", "train.json", "4", "--cat", "txt")

    assert (status, output) == (0, "text of 8")
    assert "is not used for it" in caplog.text
