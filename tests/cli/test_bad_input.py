"""Whatever is wrong with what a command is given: one line, the exit status of an error, and nothing half written.

A command has a row here; `test_every_command_is_in_the_table_of_bad_input` fails for one that has none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT, subcommands
from tests.support import as_nobody, write_descriptor, write_shards
from wids.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., tuple[int, str, str]]

KINDS = {
    "a missing file": "missing.json",
    "a folder": "empty",
    "no tar": "text.tar",
    "a tar that is cut": "cut.tar",
    "broken JSON": "broken.json",
    "no permission": "secret.json",
    "no permission to read the shard": "secret.tar",
}


@dataclass(frozen=True)
class Row:
    """How a command is called."""

    reads: list[str]
    """Arguments; `{file}` is what it reads. Empty for a command that reads nothing."""
    writes: list[str] = field(default_factory=list)
    """Arguments that have it write into the folder `{disk}`, where there is `train.json`. Empty where it writes nothing."""
    accepts: frozenset[str] = frozenset()
    """Kinds of bad input that are none to it."""
    finds: bool = False
    """It says on stdout what is wrong with shards."""
    status: int = 1
    """Exit status of an error."""


ROWS = {
    "create": Row(["create", "{file}", "-o", "out.json", "--index"], ["create", "train.json", "-o", "{disk}/a.json"]),
    "import": Row(["import", "{file}", "-o", "out.json"], ["import", "good", "-o", "{disk}/a.json"]),
    "info": Row(["info", "--fields", "{file}"]),
    "ls": Row(["ls", "{file}"]),
    "cat": Row(["cat", "{file}", "0", "txt"]),
    "sample": Row(["sample", "{file}", "--raw"], ["sample", "train.json", "--save", "{disk}/out"]),
    "update": Row(["update", "{file}", "--recount"], ["update", "{disk}/train.json", "-n", "other"]),
    "verify": Row(["verify", "{file}"], finds=True),
    "repair": Row(["repair", "{file}"], finds=True),
    "reshard": Row(["reshard", "{file}", "-o", "out/a-%d.tar"], ["reshard", "train.json", "-o", "{disk}/a-%d.tar"]),
    # It reads no local shard.
    "fetch": Row(["fetch", "{file}"], accepts=frozenset({"no tar", "a tar that is cut"}), finds=True),
    "columns": Row(["columns", "{file}", "--from-json", "b"], ["columns", "{disk}/train.json", "--from-json", "b"]),
    "select": Row(
        ["select", "{file}", "--where", "a is None", "-o", "out.json"],
        ["select", "train.json", "--where", "a is None", "-o", "{disk}/a.json"],
    ),
    # As of diff(1), where 1 tells of differences.
    "diff": Row(["diff", "{file}", "train.json"], status=2),
    "cache": Row([]),
    "export": Row(
        ["export", "{file}", "--to", "dali", "-o", "out"], ["export", "train.json", "--to", "dali", "-o", "{disk}/idx"]
    ),
    "completion": Row([]),
}
PRINTS = {
    **{name: row.reads for name, row in ROWS.items() if row.reads},
    "import": ["import", "good", "-o", "out.json"],
    "cache": ["cache", "ls"],
    "completion": ["completion", "bash"],
}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, which anybody may use, with good and bad files in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own folders are closed to other users
        path = Path(name)
        path.chmod(0o777)
        monkeypatch.chdir(path)
        monkeypatch.setenv("WIDS_CACHE", str(path / "cache"))
        shards = write_shards(path, [3, 2])
        write_descriptor(path / "train.json", [{"url": shard, "nsamples": 1} for shard, _ in shards])
        main(["columns", "train.json", "--from-json", "a"])
        Path("empty").mkdir()
        Path("good").mkdir()
        shutil.copy("shard-0000.tar", "good")
        Path("text.tar").write_bytes(b"this is text\n" * 100)
        Path("cut.tar").write_bytes(Path("shard-0000.tar").read_bytes()[:700])
        Path("broken.json").write_bytes(b'{"shardlist": [')
        for secret, like in (("secret.json", "train.json"), ("secret.tar", "shard-0000.tar")):
            Path(secret).write_bytes(Path(like).read_bytes())
            Path(secret).chmod(0)
        yield path


@pytest.fixture
def full_disk(folder: Path) -> Iterator[Path]:
    """A file system with `train.json` on it, and no byte of room."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount the small file system that is filled up here")
    try:
        (disk / "train.json").write_bytes(Path("train.json").read_bytes())
        with suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        yield disk
    finally:
        # Lazily: what a failed command has mapped is released when its error is collected.
        subprocess.run(["umount", "--lazy", disk], check=True)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder, but for the cache."""
    return {
        str(path): b"" if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if "cache" not in path.parts
    }


def test_every_command_is_in_the_table_of_bad_input() -> None:
    assert {name for name, _ in subcommands()} == set(ROWS) == set(PRINTS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.reads])
def test_input_that_cannot_be_read_is_a_one_line_error(name: str, kind: str, folder: Path, run: Run) -> None:
    row = ROWS[name]
    if kind in row.accepts:
        pytest.skip("that is nothing bad for this command")
    for good in ("shard-0000.tar", "train.json"):  # which imports what another user may not read here
        run(*(word.format(file=good) for word in row.reads))
    shutil.rmtree("out", ignore_errors=True)
    for path in [*folder.glob("out.*"), *folder.glob(".*"), *folder.glob("*.bak")]:
        path.unlink()
    before = files_in(folder)

    with as_nobody() if "permission" in kind else nullcontext():
        status, output, errors = run(*(word.format(file=KINDS[kind]) for word in row.reads))

    assert status == row.status
    lines = [line for line in errors.splitlines() if not line.startswith("dataset size")]
    if row.finds and not lines:
        assert "rror" in output or "damaged" in output or "failed" in output
    else:
        (line,) = lines
        assert line.startswith("widsindex: ")
        assert KINDS[kind].partition(".")[0] in line
        assert output == ""
    assert files_in(folder) == before


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.writes])
def test_a_full_disk_is_a_one_line_error_and_keeps_existing_files(name: str, folder: Path, run: Run) -> None:
    before = files_in(folder)

    status, _, errors = run(*(word.format(disk="disk") for word in ROWS[name].writes))

    assert status == 1
    (line,) = errors.splitlines()
    assert line.startswith("widsindex: ")
    assert "No space left on device" in line
    after = files_in(folder)
    assert {name: after[name] for name in before} == before
    assert [path for path in after.keys() - before.keys() if Path(path).is_file()] == []


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.writes])
def test_a_folder_without_write_permission_is_a_one_line_error(name: str, folder: Path, run: Run) -> None:
    run(*(word.format(file="shard-0000.tar") for word in ROWS[name].reads))
    disk = folder / "disk"
    disk.mkdir()
    (disk / "train.json").write_bytes(Path("train.json").read_bytes())
    disk.chmod(0o555)
    before = files_in(folder)

    with as_nobody():
        status, _, errors = run(*(word.format(disk="disk") for word in ROWS[name].writes))

    disk.chmod(0o755)
    assert status == 1
    (line,) = errors.splitlines()
    assert line.startswith("widsindex: ")
    assert "Permission denied" in line
    assert files_in(folder) == before


@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.usefixtures("folder")
def test_output_to_a_full_device_is_a_one_line_error(name: str) -> None:
    arguments = [word.format(file="train.json") for word in PRINTS[name]]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wids", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == ROWS[name].status
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith(("dataset size", "WARNING"))]
    assert lines == ["widsindex: stdout: No space left on device; make room, or write elsewhere"]
