"""`verify` finds, counts and names everything that can be wrong with a dataset, and finds nothing in an intact one."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

import wids
from tests.storage.web_server import web_server
from tests.support import sample_members, write_descriptor, write_shards, write_tar
from tests.tar.archives import with_checksum
from wids.storage import Storage, StorageOptions
from wids.tools import create_index, verify
from wids.tools.findings import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.tools.findings import Finding


def one_shard(folder: Path, members: list[tuple[str, bytes]], **facts: Any) -> Path:
    """Write `a.tar` and a descriptor that says the truth about it, but for `facts`."""
    write_tar(folder / "a.tar", members)
    path = folder / "a.json"
    create_index(folder / "a.tar", path)
    content = orjson.loads(path.read_bytes())
    content["shardlist"][0].update(facts)
    path.write_bytes(orjson.dumps(content))
    return path


def find(path: Path) -> list[Finding]:
    return verify(path).findings


def only(path: Path) -> Finding:
    (finding,) = find(path)
    return finding


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_verify_finds_nothing_in_intact_shards(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [3, 0, 2])
    create_index([path for path, _ in shards], tmp_path / "a.json", checksums=True)

    found = verify(tmp_path / "a.json")

    assert (found.num_shards, found.num_samples, found.findings) == (3, 5, [])


def test_processes_find_the_same_as_one_process(tmp_path: Path) -> None:
    write_shards(tmp_path, [3, 1, 2])
    write_tar(tmp_path / "shard-0003.tar", sample_members(2))
    path = tmp_path / "a.json"
    create_index(tmp_path, path)
    (tmp_path / "shard-0001.tar").write_bytes(b"no tar" * 500)

    with ProcessPoolExecutor(2) as executor:
        assert verify(path, executor=executor) == verify(path)
    kinds = [finding.kind for finding in verify(path).findings]
    assert kinds == ["size", "md5", "damage", "repeated-key"]


@pytest.mark.parametrize(
    ("facts", "kind", "message"),
    [
        ({"nsamples": 5}, "too-few-samples", "has 3 samples, the descriptor says 5"),
        ({"nsamples": 2}, "too-many-samples", "has 3 samples, the descriptor says 2"),
        ({"filesize": 5}, "size", "has 10240 bytes, the descriptor says 5"),
        ({"md5sum": "0" * 32}, "md5", "the descriptor says 00000000000000000000000000000000"),
    ],
)
def test_counts_sizes_and_md5_of_the_descriptor_are_compared(
    tmp_path: Path, facts: dict[str, Any], kind: str, message: str
) -> None:
    finding = only(one_shard(tmp_path, sample_members(3), **facts))

    assert (finding.kind, finding.shard) == (kind, str(tmp_path / "a.tar"))
    assert message in finding.message


def test_an_md5_in_upper_case_is_accepted(tmp_path: Path) -> None:
    path = one_shard(tmp_path, sample_members(3))
    digest = orjson.loads(path.read_bytes())["shardlist"][0]["md5sum"]

    assert find(one_shard(tmp_path, sample_members(3), md5sum=digest.upper())) == []


def test_sizes_and_md5_that_the_descriptor_lacks_are_not_compared(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", sample_members(3))

    assert find(write_descriptor(tmp_path / "a.json", [{"url": "a.tar", "nsamples": 3}])) == []


@pytest.mark.parametrize(
    ("members", "kind", "count", "message"),
    [
        (
            [("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"3")],
            "duplicate-field",
            1,
            "key 'a' has the field '.txt' at bytes 512 and 1536",
        ),
        (
            [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"3"), ("b.txt", b"4")],
            "scattered-key",
            2,
            "'a' at positions 0, 2, 'b' at positions 1, 3",
        ),
        ([("a.txt", b"1"), ("./README", b"x"), (".DS_Store", b"x")], "no-field", 2, "'./README', '.DS_Store'"),
        ([("a.txt", b"1"), ("d/._a.txt", b"x")], "apple-double", 1, "'d/._a.txt'"),
        (
            [("a.txt", b""), ("a.cls", b""), ("b.txt", b""), ("b.cls", b""), ("c.cls", b"")],
            "other-fields",
            1,
            "has the fields .cls, most have .cls .txt; the first is key 'c'",
        ),
    ],
)
def test_odd_samples_are_found(
    tmp_path: Path, members: list[tuple[str, bytes]], kind: str, count: int, message: str
) -> None:
    # A scattered sample has other fields than most, too; what is looked for comes first.
    found = [finding for finding in find(one_shard(tmp_path, members)) if kind == finding.kind]

    assert [(finding.kind, finding.count) for finding in found] == [(kind, count)]
    assert message in found[0].message


def test_long_lists_of_names_are_cut_and_counted(tmp_path: Path) -> None:
    finding = only(one_shard(tmp_path, [("a.txt", b""), *((f"file{n}", b"") for n in range(100))]))

    assert finding.count == 100
    assert finding.message == "in no sample: 'file0', 'file1', 'file2', 'file3', 'file4', … (100 in all)"


def test_names_with_arbitrary_bytes_are_shown_escaped(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a\udcff\x1b[2J.txt")
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(info)
        tar.addfile(info)
    create_index(tmp_path / "a.tar", tmp_path / "a.json")

    assert only(tmp_path / "a.json").message.startswith(r"key 'a\udcff\x1b[2J' has the field '.txt' at bytes")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda data: data.__delitem__(slice(1000, None)), "damage", "the file ends at byte"),
        (lambda data: data.__setitem__(0, data[0] ^ 1), "damage", "byte 0"),
        (lambda data: data.__delitem__(slice(6 * 1024, None)), "no-end-blocks", "ends at byte 6144 without"),
        (
            lambda data: data.extend(b"more" * 100),
            "bytes-after-end",
            "3472 bytes follow the archive's end at byte 6144",
        ),
    ],
)
def test_damaged_or_odd_archives_are_found(
    tmp_path: Path, change: Callable[[bytearray], object], kind: str, message: str
) -> None:
    path = one_shard(tmp_path, sample_members(3), filesize=None, md5sum=None)
    rewrite(tmp_path / "a.tar", change)

    finding = only(path)

    assert finding.kind == kind
    assert message in finding.message


def test_a_hard_link_to_a_missing_member_is_an_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
        link = tarfile.TarInfo("b.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "none.txt"
        tar.addfile(link)
    create_index(tmp_path / "a.tar", tmp_path / "a.json")

    finding = only(tmp_path / "a.json")

    assert (finding.kind, finding.severity) == ("broken-link", "error")
    assert "none.txt" in finding.message


def test_a_missing_shard_does_not_stop_the_check_of_the_others(tmp_path: Path) -> None:
    write_shards(tmp_path, [3, 2, 1])
    create_index(tmp_path, tmp_path / "a.json")
    (tmp_path / "shard-0001.tar").unlink()

    found = verify(tmp_path / "a.json")

    assert [(finding.kind, Path(finding.shard).name) for finding in found.findings] == [
        ("unreadable", "shard-0001.tar")
    ]
    assert found.num_samples == 4


def test_keys_that_two_shards_share_are_found(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 3), ("c", 6)):
        write_tar(tmp_path / f"{name}.tar", sample_members(4, first=first))
    create_index(tmp_path, tmp_path / "a.json")

    found = find(tmp_path / "a.json")

    assert [(finding.kind, Path(finding.shard).name, finding.count) for finding in found] == [
        ("repeated-key", "b.tar", 1),
        ("repeated-key", "c.tar", 1),
    ]
    assert f"{tmp_path}/a.tar has too: '000003'" in found[0].message
    assert f"{tmp_path}/b.tar has too: '000006'" in found[1].message


def test_all_keys_of_a_shard_that_is_listed_twice_are_counted(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", sample_members(2000))
    entry = {"url": "a.tar", "nsamples": 2000}

    finding = only(write_descriptor(tmp_path / "a.json", [entry, entry]))

    assert finding.count == 1000
    assert "about 1000 keys more" in finding.message


# packs and checksums


def test_a_changed_member_is_found_by_its_checksum(tmp_path: Path) -> None:
    members = [(f"{n}.txt", b"x" * 100) for n in range(9)]
    path = one_shard(tmp_path, members)
    create_index(tmp_path / "a.tar", path, checksums=True)
    rewrite(tmp_path / "a.tar", lambda data: data.__setitem__(3 * 1024 + 512, ord("y")))

    found = find(path)

    assert [finding.kind for finding in found] == ["md5", "member-checksum"]
    assert found[1].message == "changed members: key '3', field '.txt', at byte 3584"


def test_a_pack_of_another_archive_is_not_used(tmp_path: Path) -> None:
    path = one_shard(tmp_path, [("a.txt", b"1" * 9000), ("b.txt", b"2")])
    create_index(tmp_path / "a.tar", path, index=True)
    header = (tmp_path / "a.tar").read_bytes()[:512].replace(b"a.txt", b"c.txt", 1)
    rewrite(tmp_path / "a.tar", lambda data: data.__setitem__(slice(512), with_checksum(header)))

    # Both ends are as before; the headers that are compared tell.
    assert [finding.kind for finding in find(path)] == ["md5", "index-unused"]


@pytest.mark.parametrize(
    "content", [None, b"", b"no ZIP", b"PK\5\6" + bytes(18)], ids=["missing", "empty", "no ZIP", "ZIP without members"]
)
def test_a_missing_or_damaged_pack_is_a_warning(tmp_path: Path, content: bytes | None) -> None:
    path = one_shard(tmp_path, sample_members(2))
    create_index(tmp_path / "a.tar", path, index=True)
    if content is None:
        (tmp_path / "a.widx").unlink()
    else:
        (tmp_path / "a.widx").write_bytes(content)

    finding = only(path)

    assert (finding.kind, finding.severity) == ("index-unused", "warning")
    assert "a.widx" in finding.message


# shards that are not plain files


def test_compressed_shards_are_checked_as_they_are_stored(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "a.tar", sample_members(3)).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(data))
    create_index(tmp_path / "a.tar.gz", tmp_path / "a.json", checksums=True)
    assert find(tmp_path / "a.json") == []

    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(data)[:-30])

    assert [finding.kind for finding in find(tmp_path / "a.json")] == ["damage"]


def test_a_remote_shard_is_checked_at_its_source_and_not_cached(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "a.tar", sample_members(3)).read_bytes()
    storage = Storage(StorageOptions(cache_dir=str(tmp_path / "cache")))
    with web_server() as server:
        server.objects["a.tar"] = data
        entry = {"url": server.url("a.tar"), "nsamples": 3, "md5sum": hashlib.md5(data).hexdigest()}
        assert verify([entry], storage=storage).findings == []
        storage.open(entry)
        before = sorted((tmp_path / "cache").rglob("*"))
        server.objects["a.tar"] = data[:4096]
        kinds = [finding.kind for finding in verify([entry], storage=storage).findings]

    assert kinds == ["md5", "no-end-blocks", "too-few-samples"]
    assert sorted((tmp_path / "cache").rglob("*")) == before


def test_a_descriptor_of_wids_0_1_11_for_intact_shards_passes(tmp_path: Path) -> None:
    """Its command writes these fields, as running it shows."""
    shards = write_shards(tmp_path, [3, 2])
    content = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": [
            {
                "url": path,
                "md5sum": hashlib.md5(Path(path).read_bytes()).hexdigest(),
                "nsamples": count,
                "filesize": Path(path).stat().st_size,
            }
            for path, count in shards
        ],
        "name": "train",
        "info": "about",
    }
    (tmp_path / "a.json").write_bytes(orjson.dumps(content))

    assert find(tmp_path / "a.json") == []


def test_every_kind_of_finding_is_tested_in_this_file() -> None:
    text = Path(__file__).read_text(encoding="utf-8")

    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []


def test_a_packed_index_that_differs_from_the_shard_is_an_error(tmp_path: Path) -> None:
    """Only a writer of packs that errs makes such a thing: ends and headers are those of the shard."""
    from wids.index_files import pack_index, write_pack
    from wids.source import MmapSource
    from wids.tar import build_index

    path = one_shard(tmp_path, sample_members(2))
    source = MmapSource(str(tmp_path / "a.tar"), "a.tar")
    index = build_index(source)
    wrong = build_index(source)
    wrong.keys = bytes(wrong.keys)[::-1]
    shard, _ = pack_index(source, index)
    write_pack(tmp_path / "a.widx", "a.widx", [("a.tar", shard, pack_index(source, wrong)[1])])
    content = orjson.loads(path.read_bytes()) | {"index": "a.widx"}
    path.write_bytes(orjson.dumps(content))

    assert only(path).kind == "index-differs"


# the command


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wids", "verify", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_verify_command_prints_findings_as_a_table_or_as_json(tmp_path: Path) -> None:
    one_shard(tmp_path, [("a.txt", b"1"), ("README\x1b[2J", b"x")])
    write_tar(tmp_path / "b.tar", [("b.txt", b"1"), ("b.txt", b"2")])
    write_descriptor(
        tmp_path / "all.json", [{"url": "a.tar", "nsamples": 1}, {"url": "b.tar", "nsamples": 1, "filesize": 3}]
    )

    table = run("all.json", "--workers", "2", folder=tmp_path)
    json = run("all.json", "--json", folder=tmp_path)

    assert (table.returncode, table.stderr) == (1, "")
    lines = table.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["warning", "no-field"],
        ["error", "size"],
        ["error", "duplicate-field"],
    ]
    assert lines[3] == "all.json: 2 samples in 2 shards, 2 errors, 1 warning"
    assert r"README\x1b[2J" in table.stdout
    assert json.returncode == 1
    content = orjson.loads(json.stdout)
    assert (content["errors"], content["warnings"], content["shards"], content["samples"]) == (2, 1, 2, 2)
    assert [finding["kind"] for finding in content["findings"]] == ["no-field", "size", "duplicate-field"]


def test_warnings_of_verify_fail_only_with_strict(tmp_path: Path) -> None:
    one_shard(tmp_path, [("a.txt", b"1"), ("README", b"x")])

    assert [run("a.json", *more, folder=tmp_path).returncode for more in ([], ["--strict"])] == [0, 1]


def test_a_dataset_reads_a_cut_shard_only_if_verify_finds_no_error(tmp_path: Path) -> None:
    """The two agree about which shards are damaged: every cut of a small shard."""
    path = one_shard(tmp_path, sample_members(2), filesize=None, md5sum=None)
    whole = (tmp_path / "a.tar").read_bytes()
    for size in range(0, 5 * 1024, 256):
        (tmp_path / "a.tar").write_bytes(whole[:size])
        is_wrong = bool(verify(path).count("error"))
        try:
            samples = [io.BytesIO(sample[".txt"].read()) for sample in wids.ShardListDataset(path, transformations=[])]
            reads = len(samples) == 2
        except wids.WidsError:
            reads = False
        assert reads != is_wrong, size
