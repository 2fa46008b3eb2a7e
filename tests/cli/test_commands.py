"""`widsindex info`, `sample` and `update`, and what all commands share."""

from __future__ import annotations

import fcntl
import re
import shlex
import signal
import struct
import subprocess
import sys
import tarfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.cli.conftest import ROOT
from tests.storage.reading import wait_until
from tests.support import sample_members, write_descriptor, write_tar
from wids.cli.command_line import make_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]
    Start = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def descriptor(shards: list[str], run: Run) -> str:
    run("create", *shards, "-o", "train.json", "-n", "train")
    return "train.json"


def read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(Path(path).read_bytes())
    return content


# info


def test_info_shows_what_a_descriptor_says(descriptor: str, run: Run) -> None:
    status, output, errors = run("info", descriptor)

    assert (status, errors) == (0, "")
    rows = dict(re.findall(r"^ *([^:]+): (.*)$", output, re.MULTILINE))
    size = sum(path.stat().st_size for path in Path().glob("*.tar"))
    assert rows["name"] == "train"
    assert (rows["shards"], rows["samples"], rows["bytes"]) == ("3", "5", str(size))
    assert rows["last shard"].endswith("shard-0002.tar")


def test_a_table_has_one_line_for_each(descriptor: str, run: Run) -> None:
    write_descriptor(Path("other.json"), [{"url": "a.tar"}], name="other")

    lines = [line.split("\t") for line in run("info", "--table", descriptor, "other.json")[1].splitlines()]

    assert [line[:2] for line in lines] == [["file", "name"], ["train.json", "train"], ["other.json", "other"]]
    assert [line[3] for line in lines] == ["nsamples", "5", "None"]


def test_info_needs_no_shard(run: Run, folder: Path) -> None:
    write_descriptor(folder / "a.json", [{"url": "https://nobody.invalid/a.tar?sig=secret", "nsamples": 3}])

    status, output, _ = run("info", "a.json")

    assert status == 0
    assert "secret" not in output


# sample


def test_sample_shows_values_sizes_and_bytes(descriptor: str, run: Run) -> None:
    status, output, errors = run("sample", descriptor, "3")
    rows = [line.split(None, 3) for line in output.splitlines()]

    assert (status, errors) == (0, "dataset size: 5\n")
    assert [".txt", "9", "B", "'text of 3'"] in rows
    assert [".cls", "1", "B", "3"] in rows
    assert "b'text of 3'" in run("sample", descriptor, "3", "--raw")[1]
    assert run("sample", descriptor, "3", "--cat", "txt")[1] == "text of 3"
    assert "'text of 4'" in run("sample", descriptor, "--", "-1")[1]
    assert "'text of 0'" in run("sample", descriptor)[1]


def test_a_sample_is_saved_under_key_and_field(descriptor: str, run: Run) -> None:
    status, output, _ = run("sample", descriptor, "3", "--save", "out/deep")

    assert (status, output.splitlines()) == (0, ["out/deep/000003.txt", "out/deep/000003.cls"])
    assert Path("out/deep/000003.txt").read_bytes() == b"text of 3"


@pytest.mark.parametrize(
    "name",
    [
        "../../up.txt",
        "/abs.txt",
        "a/../../b.txt",
        "..a/.b/x./../y.txt",
        "a.x/../../../z",
        "\x1b[31mred.txt",
        "c:\\d.txt",
    ],
)
def test_saved_files_never_leave_their_folder(folder: Path, run: Run, name: str) -> None:
    with tarfile.open("a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    before = sorted(path for path in folder.parent.rglob("*") if "cache" not in path.parts)

    status, output, errors = run("sample", "a.tar", "0", "--save", "out")

    new = [path for path in sorted(folder.parent.rglob("*")) if path not in before]
    assert all(path == folder / "out" or path.parent == folder / "out" for path in new)
    assert "\x1b" not in output + errors
    assert status == 0 or "index 0 is out of range" in errors


def test_what_a_terminal_should_not_see_is_escaped(folder: Path, run: Run) -> None:
    with tarfile.open("a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("k\x1b[2J.t\x07"))
    write_descriptor(folder / "a.json", [{"url": "a\x1b[2J.tar", "nsamples": 1}], name="n\x1b[2J", info="i\x07")

    for command in (["sample", "a.tar"], ["sample", "a.tar", "0", "-c", "x"], ["info", "a.json"], ["sample", "a.json"]):
        _, output, errors = run(*command)
        assert not {"\x1b", "\x07"} & set(output + errors)


# update


def test_a_name_changes_only_the_name(descriptor: str, run: Run) -> None:
    before = {**read(descriptor), "later": {"unknown": [1]}}
    Path(descriptor).write_bytes(orjson.dumps(before))

    assert run("update", descriptor, "-n", "other")[0] == 0

    assert read(descriptor) == {**before, "name": "other"}
    assert read(f"{descriptor}.bak") == before


def test_recount_sets_what_the_shards_hold(descriptor: str, folder: Path, run: Run) -> None:
    content = read(descriptor)
    content["shardlist"][0] |= {"nsamples": 5, "note": "kept"}
    del content["shardlist"][2]["md5sum"]
    Path(descriptor).write_bytes(orjson.dumps(content))
    assert run("sample", descriptor, "0")[0] == 1
    write_tar(folder / "shard-0002.tar", sample_members(9))

    status, output, _ = run("update", descriptor, "--recount")

    assert (status, output.splitlines()) == (0, ["shard-0000.tar: 5 -> 3 samples", "shard-0002.tar: 2 -> 9 samples"])
    entries = read(descriptor)["shardlist"]
    assert [entry["nsamples"] for entry in entries] == [3, 0, 9]
    assert entries[0]["note"] == "kept"
    assert "md5sum" not in entries[2]
    assert entries[2]["filesize"] == Path("shard-0002.tar").stat().st_size
    assert run("sample", descriptor, "11", "--cat", "txt")[1] == "text of 8"


@pytest.mark.parametrize(
    ("arguments", "url", "base"),
    [
        (["-b", "https://x.org/d"], "in/a.tar", "https://x.org/d"),
        (["-B"], "a.tar", "in"),
        (["-d", "/else/"], "/else/a.tar", None),
        (["-D"], "a.tar", None),
    ],
)
def test_folders_are_moved(folder: Path, run: Run, arguments: list[str], url: str, base: str | None) -> None:
    write_descriptor(folder / "a.json", [{"url": "in/a.tar", "nsamples": 1}])

    assert run("update", "a.json", *arguments)[0] == 0

    assert read("a.json")["shardlist"][0]["url"] == url
    assert read("a.json").get("base") == base


# All of them


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "missing.json"], "missing.json"),
        (["info", "bad.json"], "bad.json"),
        (["info", "odd.json"], "shardlist[0].nsamples"),
        (["sample", "train.json", "5"], "index 5 is out of range"),
        (["sample", "train.json", "0", "-c", "jpg"], "no such field; it has .txt, .cls"),
        (["sample", "cut.tar"], "cut.tar: damaged: the file ends at byte"),
        (["update", "bad.json", "-n", "x"], "bad.json"),
        (["update", "missing.json", "-n", "x"], "missing.json"),
        (["info", "https://me:secret@127.0.0.1:1/a.json?sig=secret"], "127.0.0.1"),
    ],
)
def test_an_error_is_one_line_and_status_1_under_optimisation_too(
    descriptor: str, start: Start, arguments: list[str], message: str
) -> None:
    Path("bad.json").write_bytes(b'{"shardlist": [')
    Path("odd.json").write_bytes(b'{"shardlist": [{"url": "a.tar", "nsamples": -2}]}')
    Path("cut.tar").write_bytes(Path("shard-0000.tar").read_bytes()[:700])
    before = Path(descriptor).read_bytes()

    # Python keeps no compiled files of torch for -O, so that importing it there takes ten seconds.
    done = start(*arguments, options=() if arguments[0] == "sample" else ("-O",))

    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = [line for line in done.stderr.decode().splitlines() if not line.startswith("dataset size")]
    assert line.startswith("widsindex: ")
    assert message in line
    assert "secret" not in line
    assert Path(descriptor).read_bytes() == before


def test_a_reader_that_goes_away_is_no_error_to_show(shards: list[str]) -> None:
    write_descriptor(Path("many.json"), [{"url": f"{n}.tar", "nsamples": 1} for n in range(10)])
    program = f"{shlex.quote(sys.executable)} -m wids"

    for command in ("info --table " + "many.json " * 3000, f"sample {shards[0]} 0 --cat txt"):
        done = subprocess.run(
            ["bash", "-c", f"{program} {command} | head -c 1"],
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "WIDS_CACHE": "cache"},
            capture_output=True,
            check=False,
        )
        assert done.stderr == b""


def test_an_interrupt_is_one_line_and_leaves_nothing(folder: Path, shards: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "wids", "create", "-", "-o", "all.json"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    stdin: Any = process.stdin
    stdin.write(b"shard-0000.tar\n")
    stdin.flush()
    wait_until(lambda: not struct.unpack("i", fcntl.ioctl(stdin, termios.FIONREAD, bytes(4)))[0])

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert errors == b"widsindex: interrupted\n"
    assert sorted(path.name for path in folder.iterdir()) == shards


def test_all_ways_to_start_it_are_one_program(start: Start) -> None:
    from importlib.metadata import entry_points

    scripts = {script.name: script.value for script in entry_points(group="console_scripts")}

    assert scripts.get("widsindex") == scripts.get("wids") == "wids.cli:main"
    assert start("--help").stdout.startswith(b"usage: widsindex")


def test_what_needs_no_sample_imports_no_torch_and_little_else(descriptor: str) -> None:
    for arguments in (["--help"], ["info", descriptor]):
        code = (
            "import sys; sys.modules['torch'] = None\n"
            "from wids.cli import main\n"
            "try:\n"
            f"    status = main({arguments})\n"
            "except SystemExit as done:\n"
            "    status = done.code\n"
            "heavy = {'PIL', 'fsspec', 'urllib3', 'asyncio', 'torch.nn'} & set(sys.modules)\n"
            "sys.exit(f'{status} {heavy}' if status or heavy else 0)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def commands() -> list[str]:
    return next(action for action in make_parser()._actions if action.choices).choices  # type: ignore[return-value]


@pytest.mark.parametrize("name", commands())
def test_every_command_has_examples_that_can_be_given(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args([name, "--help"])
    text = capsys.readouterr().out

    examples = re.findall(r"widsindex (.*)", text.split("examples:")[1])

    assert examples
    for example in examples:
        assert make_parser().parse_args(shlex.split(example.partition(" > ")[0])).run
