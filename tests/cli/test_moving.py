"""`widsindex import` and `export`: what they print, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import sample_members, write_tar

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]
    Start = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(name="prepared")
def prepare(folder: Path, run: Run) -> None:
    """A folder `data` that Energon could open, with two splits of two shards and one."""
    (folder / "data").mkdir()
    for number in range(3):
        write_tar(folder / "data" / f"{number}.tar", sample_members(2, first=2 * number))
    status, _, errors = run("export", "train=data/{0..1}.tar", "val=data/2.tar", "--to", "energon")
    assert (status, errors) == (0, "")


@pytest.mark.usefixtures("prepared")
def test_import_of_a_split_writes_its_descriptor(run: Run) -> None:
    assert run("import", "data", "--split", "train", "-o", "train.json") == (
        0,
        "train.json: 4 samples in 2 shards; the folder is prepared for Energon, and told the counts of 2 shards\n",
        "",
    )
    assert [shard["url"] for shard in orjson.loads(Path("train.json").read_bytes())["shardlist"]] == [
        "data/0.tar",
        "data/1.tar",
    ]


@pytest.mark.usefixtures("prepared")
def test_import_of_a_folder_with_several_splits_asks_for_one(run: Run) -> None:
    status, output, errors = run("import", "data")

    assert (status, output) == (1, "")
    assert errors == (
        "widsindex: data: has the splits train (2 shards), val (1 shard); name one with split=, or make a descriptor of "
        "one with: widsindex import --split\n"
    )
    assert not Path("shardindex.json").exists()


@pytest.mark.usefixtures("prepared")
def test_the_format_of_an_import_can_be_forced(run: Run) -> None:
    assert run("import", "data", "--format", "tars", "-o", "all.json", "-w", "2")[:2] == (
        0,
        "all.json: 6 samples in 3 shards; the folder is one of tars, and told the counts of 3 shards\n",
    )


def test_import_packs_images_into_shards_and_resumes(folder: Path, run: Run) -> None:
    for name in ("cat/1.jpg", "dog/1.jpg", "dog/2.jpg"):
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / name).write_bytes(b"x")

    command = ("import", "images", "-o", "pets.json", "--seed", "1", "--shard-size", "6kB")

    assert run(*command) == (0, "pets.json: 3 samples in 2 shards; the folder is one of images, of 2 classes\n", "")
    status, output, errors = run(*command)
    assert (status, output) == (1, "")
    assert errors.startswith("widsindex: ")
    assert "pets-000000.tar: already exists" in errors
    assert run(*command, "--resume")[0] == 0


def test_export_writes_dali_tables(shards: list[str], run: Run) -> None:
    assert run("export", shards[0], shards[2], "--to", "dali", "-o", "idx") == (
        0,
        "idx: 2 index files, shard-0000.idx to shard-0002.idx\n",
        "",
    )
    assert sorted(path.name for path in Path("idx").iterdir()) == ["shard-0000.idx", "shard-0002.idx"]
    assert run("export", shards[0], "--to", "dali", "-o", "one")[1] == "one: 1 index file, shard-0000.idx\n"


@pytest.mark.parametrize("url", ["{}", "file://{}"], ids=["path", "file URL"])
def test_export_writes_dali_tables_beside_the_shards_by_default(
    shards: list[str], folder: Path, run: Run, url: str
) -> None:
    shard = folder / shards[0]

    assert run("export", url.format(shard), "--to", "dali")[0] == 0

    assert shard.with_suffix(".idx").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("import missing -o out.json", "missing: is not a folder; name the folder that holds the shards"),
        ("import broken.json -o out.json", "broken.json: is not a folder"),
        ("import bad -o out.json", "bad/0.tar: "),
        ("import empty -o out.json", "empty: this folder holds no .tar shards"),
        ("import shards -o missing/out.json", "there is no folder missing"),
        ("import shards -o shards", "shards: is a folder"),
        ("import shards -o out.json --split test", "has no split 'test'"),
        ("import shards -o out.json -w 0", "--workers is 0; it must be at least 1"),
        ("import shards -o out.json --seed 1", "holds no folders with images"),
        ("export missing.json --to dali -o out.json", "missing.json: cannot be opened"),
        ("export broken.json --to dali -o out.json", "broken.json: is not JSON"),
        ("export bad --to dali -o new", "bad/0.tar: "),
        ("export shards --to dali -o file.txt", "file.txt"),
        ("export bad --to energon", "bad/0.tar: "),
        ("export shards --to energon -o empty", "is not in empty"),
        ("export none.json --to energon -o new", "none.json: there are no shards to export"),
        ("export none.json --to dali", "none.json: there are no shards to export"),
        (f"export shards --to dali -o {'a' * 256}", "File name too long; choose a shorter name"),
        (
            f"create shards -o {'a' * 250}.json",
            ".json.journal: cannot be written: File name too long; choose a shorter",
        ),
        ("export https://host/a.tar --to energon", "name a folder to write to with --output"),
    ],
)
def test_bad_input_of_import_and_export_is_a_one_line_error_and_leaves_nothing(
    folder: Path, run: Run, command: str, message: str
) -> None:
    for name in ("bad", "empty", "shards"):
        (folder / name).mkdir()
    (folder / "bad" / "0.tar").write_bytes(b"no tar" * 200)
    (folder / "broken.json").write_text("{")
    (folder / "none.json").write_text('{"shardlist": []}')
    (folder / "file.txt").write_text("")
    write_tar(folder / "shards" / "0.tar", sample_members(1))
    before = sorted(folder.rglob("*"))

    status, output, errors = run(*command.split())

    assert (status, output) == (1, "")
    assert errors.startswith("widsindex: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["import shards -o full/out.json", "export shards --to dali -o full"])
def test_a_full_disk_during_import_or_export_is_one_line_and_leaves_nothing(
    folder: Path, start: Start, command: str
) -> None:
    (folder / "full").mkdir()
    (folder / "shards").mkdir()
    write_tar(folder / "shards" / "0.tar", sample_members(50))

    # A limit on the size of files stands for the disk: writing fails in the middle, as it does there.
    done = start(*command.split(), preexec_fn=limit_files)

    assert done.returncode == 1
    assert done.stderr.startswith(b"widsindex: ")
    assert done.stderr.count(b"\n") == 1
    assert list((folder / "full").iterdir()) == []


def limit_files() -> None:
    """Let this process write no file."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
