"""`widsindex info`, `sample` and `update`, and what all commands share."""

from __future__ import annotations

import fcntl
import os
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
from tests.storage.web_server import web_server
from tests.support import sample_members, write_descriptor, write_tar

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


def test_info_shows_counts_and_names_of_a_descriptor(descriptor: str, run: Run) -> None:
    status, output, errors = run("info", descriptor)

    assert (status, errors) == (0, "")
    rows = dict(re.findall(r"^ *([^:]+): (.*)$", output, re.MULTILINE))
    size = sum(path.stat().st_size for path in Path().glob("*.tar"))
    assert rows["name"] == "train"
    assert (rows["shards"], rows["samples"], rows["bytes"]) == ("3", "5", str(size))
    assert rows["last shard"].endswith("shard-0002.tar")


def test_info_table_has_one_line_for_each_descriptor(descriptor: str, run: Run) -> None:
    write_descriptor(Path("other.json"), [{"url": "a.tar"}], name="other")

    lines = [line.split("\t") for line in run("info", "--table", descriptor, "other.json")[1].splitlines()]

    assert [line[:2] for line in lines] == [["file", "name"], ["train.json", "train"], ["other.json", "other"]]
    assert [line[3] for line in lines] == ["nsamples", "5", "None"]


def test_info_needs_no_shard_and_shows_no_secret_of_its_url(run: Run, folder: Path) -> None:
    write_descriptor(folder / "a.json", [{"url": "https://nobody.invalid/a.tar?sig=secret", "nsamples": 3}])

    status, output, _ = run("info", "a.json")

    assert status == 0
    assert "secret" not in output


def test_info_shows_no_secret_of_the_url_of_the_descriptor(run: Run) -> None:
    with web_server() as server:
        server.objects["a.json"] = orjson.dumps({"wids_version": 1, "base": "https://me:secret@x.org", "shardlist": []})
        url = f"{server.url('a.json')}?sig=secret"
        outputs = [run("info", url)[1], run("info", "-t", url)[1]]

    assert all("a.json?sig=***" in output and "secret" not in output for output in outputs)


@pytest.mark.parametrize(
    "command", ["fetch", "verify", "verify --json", "repair", "info", "info --json", "info --table", "ls", "ls --json"]
)
def test_commands_show_no_secret_of_urls(run: Run, folder: Path, command: str) -> None:
    content = write_tar(folder / "a.tar", [("0.txt", b"text")]).read_bytes()
    with web_server() as server:
        server.has_ranges = True
        server.objects |= {"a.tar": content}
        server.objects["a.json"] = orjson.dumps({"wids_version": 1, "shardlist": [{"url": server.url("a.tar?sig=me")}]})

        status, output, errors = run(*command.split(), f"{server.url('a.json')}?sig=secret")

    assert status == 0
    assert "secret" not in output + errors
    assert "sig=me" not in output + errors


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


def test_sample_saves_files_named_by_key_and_field(descriptor: str, run: Run) -> None:
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
def test_files_saved_by_sample_stay_in_their_folder(folder: Path, run: Run, name: str) -> None:
    with tarfile.open("a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    before = sorted(path for path in folder.parent.rglob("*") if "cache" not in path.parts)

    status, output, errors = run("sample", "a.tar", "0", "--save", "out")

    new = [path for path in sorted(folder.parent.rglob("*")) if path not in before]
    assert all(path == folder / "out" or path.parent == folder / "out" for path in new)
    assert "\x1b" not in output + errors
    assert status == 0 or "index 0 is out of range" in errors


def test_control_characters_are_escaped(folder: Path, run: Run) -> None:
    with tarfile.open("a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("k\x1b[2J.t\x07"))
    write_descriptor(folder / "a.json", [{"url": "a\x1b[2J.tar", "nsamples": 1}], name="n\x1b[2J", info="i\x07")

    for command in (["sample", "a.tar"], ["sample", "a.tar", "0", "-c", "x"], ["info", "a.json"], ["sample", "a.json"]):
        _, output, errors = run(*command)
        assert not {"\x1b", "\x07"} & set(output + errors)


# update


def test_update_of_the_name_changes_nothing_else(descriptor: str, run: Run) -> None:
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


def test_recount_follows_a_base_that_is_relative(folder: Path, run: Run) -> None:
    Path("d/in").mkdir(parents=True)
    write_tar(Path("d/in/a.tar"), sample_members(2))
    write_descriptor(folder / "d/a.json", [{"url": "a.tar", "nsamples": 9}], base="in")

    status, output, errors = run("update", "d/a.json", "--recount")

    assert (status, output, errors) == (0, "a.tar: 9 -> 2 samples\n", "")


@pytest.mark.parametrize("state", ["stale", "missing", "damaged"])
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "with checksums"])
def test_recount_makes_the_index_pack_anew(
    shards: list[str], folder: Path, run: Run, state: str, checksums: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run("create", *shards, "-o", "train.json", "--checksums" if checksums else "--index")
    for name in shards:
        write_tar(folder / name, sample_members(4))
    pack = Path("train.widx")
    if state != "stale":
        pack.unlink()
    if state == "damaged":
        pack.write_bytes(b"no pack")

    assert run("update", "train.json", "--recount")[0] == 0

    fresh = {True: "checksums.widx", False: "index.widx"}
    for name in fresh.values():
        run("create", *shards, "-o", f"{name[:-5]}.json", f"--{name[:-5]}")
    assert pack.read_bytes() == Path(fresh[checksums or state != "stale"]).read_bytes()
    assert read("train.json")["index"] == "train.widx"
    assert run("sample", "train.json", "11", "-c", "txt")[1] == "text of 3"
    assert not [record for record in caplog.records if "is not used" in record.message and state == "stale"]


def test_recount_of_unchanged_shards_changes_no_file(shards: list[str], run: Run) -> None:
    run("create", *shards, "-o", "train.json", "--checksums")
    before = Path("train.json").read_bytes(), Path("train.widx").read_bytes()

    assert run("update", "train.json", "--recount")[:2] == (0, "")

    assert (Path("train.json").read_bytes(), Path("train.widx").read_bytes()) == before


def test_recount_with_an_unreadable_shard_changes_no_file(shards: list[str], run: Run) -> None:
    run("create", *shards, "-o", "train.json", "--index")
    write_tar(Path(shards[0]), sample_members(4))
    Path(shards[2]).unlink()
    before = Path("train.json").read_bytes(), Path("train.widx").read_bytes()

    assert run("update", "train.json", "--recount")[0] == 1

    assert (Path("train.json").read_bytes(), Path("train.widx").read_bytes()) == before
    assert not Path("train.json.bak").exists()


def test_recount_reports_that_a_remote_pack_is_not_written(shards: list[str], run: Run) -> None:
    write_descriptor(Path("a.json"), [{"url": shards[0], "nsamples": 1}], index="https://me:secret@x.org/a.widx")

    status, output, _ = run("update", "a.json", "--recount")

    assert status == 0
    assert output.splitlines() == [
        "https://***@x.org/a.widx: not written again; make it with: widsindex create --index",
        "shard-0000.tar: 1 -> 3 samples",
    ]


@pytest.mark.parametrize(
    ("arguments", "url", "base"),
    [
        (["-b", "https://x.org/d"], "in/a.tar", "https://x.org/d"),
        (["-B"], "a.tar", "in"),
        (["-d", "/else/"], "/else/a.tar", None),
        (["-D"], "a.tar", None),
    ],
)
def test_update_changes_base_and_folders_of_shards(
    folder: Path, run: Run, arguments: list[str], url: str, base: str | None
) -> None:
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
        (["info", "http://me:secret@{address}/a.json?sig=secret"], "404"),
        (["update", "shard-0000.tar", "-n", "x"], "is a shard, not a descriptor"),
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
    with web_server() as server:
        arguments = [argument.format(address=server.address.removeprefix("http://")) for argument in arguments]
        done = start(*arguments, options=() if arguments[0] == "sample" else ("-O",))

    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = [line for line in done.stderr.decode().splitlines() if not line.startswith("dataset size")]
    assert line.startswith("widsindex: ")
    assert message in line
    assert "secret" not in line
    assert Path(descriptor).read_bytes() == before


@pytest.mark.parametrize("redirected", [">&-", "> /dev/full", "2>&-", "| true"])
def test_output_that_cannot_be_written_shows_no_traceback(descriptor: str, redirected: str) -> None:
    for arguments in (f"info {descriptor}", "--help", f"sample {descriptor} 0 -c txt"):
        program = f"{shlex.quote(sys.executable)} -m wids {arguments} {redirected}"
        done = subprocess.run(
            ["bash", "-c", program],
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "WIDS_CACHE": "cache"},
            capture_output=True,
            check=False,
        )
        errors = [line for line in done.stderr.splitlines() if not line.startswith(b"dataset size")]
        full = redirected == "> /dev/full" and arguments != "--help"
        assert errors == (
            [b"widsindex: stdout: No space left on device; make room, or write elsewhere"] if full else []
        )


def test_names_outside_the_encoding_of_the_terminal_are_escaped(folder: Path, start: Start) -> None:
    write_descriptor(folder / "a.json", [], name="caf\u00e9")

    done = start("info", "a.json", env={"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"caf\xe9" in done.stdout


def test_warnings_are_one_line_with_control_characters_escaped(shards: list[str], start: Start) -> None:
    content = Path(shards[0]).read_bytes()
    Path("a\x1b[2J.tar").write_bytes(content[: content.index(bytes(1024)) // 512 * 512 + 512])

    done = start("create", "a\x1b[2J.tar", "-o", "a.json")

    assert done.returncode == 0
    assert done.stderr.startswith(rb"WARNING: a\x1b[2J.tar: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("group", [False, True], ids=["one process", "all, as by Ctrl-C"])
def test_an_interrupt_ends_all_processes_in_one_line(folder: Path, shards: list[str], group: bool) -> None:
    os.mkfifo("wait.tar")
    process = subprocess.Popen(
        [sys.executable, "-m", "wids", "create", "wait.tar", *shards, "-o", "all.json", "--workers", "3"],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    with Path("wait.tar").open("wb"):  # opens when a process reads it
        if group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert errors == b"widsindex: interrupted\n"
    # What was found in the others is in the journal; that may be nothing.
    assert sorted({path.name for path in folder.iterdir()} - {".all.json.journal"}) == [*shards, "wait.tar"]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM], ids=lambda sent: sent.name)
def test_no_worker_process_outlives_the_command(shards: list[str], sent: signal.Signals) -> None:
    Path(shards[2]).unlink()
    os.mkfifo(shards[2])  # whoever reads it waits
    process = subprocess.Popen(
        [sys.executable, "-m", "wids", "create", *shards, "-o", "a.json", "--workers", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    journal = Path(".a.json.journal")
    wait_until(lambda: journal.exists() and all(name.encode() in journal.read_bytes() for name in shards[:2]))

    process.send_signal(sent)

    # It ends when nobody has it open any more.
    assert process.communicate(timeout=60)[0] == b""


@pytest.mark.parametrize(
    ("sent", "workers", "status", "said"),
    [
        (signal.SIGINT, "1", 130, b"widsindex: interrupted\n"),
        (signal.SIGINT, "2", 130, b"widsindex: interrupted\n"),
        (signal.SIGTERM, "2", 143, b"widsindex: terminated\n"),
        (signal.SIGHUP, "1", 129, b"widsindex: terminated\n"),
    ],
    ids=["SIGINT to one process", "SIGINT with two workers", "SIGTERM with two workers", "SIGHUP to one process"],
)
def test_a_signal_during_reshard_leaves_only_whole_shards(
    folder: Path, sent: signal.Signals, workers: str, status: int, said: bytes
) -> None:
    # Of so much noise each shard takes xz a moment, and all of them so long that none of these processes gets to the end.
    noise = os.urandom(1 << 20)
    write_tar(folder / "a.tar", [(f"{key}.bin", noise) for key in range(100)])
    command = ["reshard", "a.tar", "-o", "new/a-%d.tar.xz", "--max-samples", "1", "--workers", workers]
    process = subprocess.Popen(
        [sys.executable, "-m", "wids", *command], stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    wait_until(lambda: any(folder.glob("new/.wids-*.part")))

    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (status, said)
    for path in (folder / "new").iterdir():  # mostly there is none yet
        with tarfile.open(path, "r:xz") as tar:
            assert [tar.extractfile(member).read() for member in tar] == [noise]  # type: ignore[union-attr]


def test_a_signal_while_a_file_is_created_leaves_no_file(
    folder: Path, shards: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminate(*_: object) -> None:
        (made,) = (folder / "new").iterdir()  # there already, and nobody's yet
        assert made.suffix == ".part"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(fcntl, "flock", terminate)

    assert run("reshard", shards[0], "-o", "new/a-%d.tar") == (143, "", "widsindex: terminated\n")
    assert list((folder / "new").iterdir()) == []


def test_a_signal_to_a_worker_process_while_a_file_is_created_leaves_no_file(folder: Path) -> None:
    code = (
        "import fcntl, pathlib, signal\n"
        "from wids.cli import workers\n"
        "from wids.tools.targets import Part\n"
        "workers._set_up_worker()\n"
        "fcntl.flock = lambda *_: signal.raise_signal(signal.SIGTERM)\n"
        "workers._work(Part, pathlib.Path(), 'a-0.tar')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (143, b"")
    assert list(folder.iterdir()) == []


def test_a_killed_worker_process_is_a_one_line_error(shards: list[str]) -> None:
    os.mkfifo("wait.tar")
    process = subprocess.Popen(
        [sys.executable, "-m", "wids", "create", "wait.tar", *shards, "-o", "all.json", "--workers", "2"],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    with Path("wait.tar").open("wb"):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert errors.startswith(b"widsindex: a worker process was killed")
    assert errors.count(b"\n") == 1
    assert not Path("all.json").exists()


def run_with_own_start(after: str, shards: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run `widsindex create` with two processes, and Python code after the start of each `process`; `others` were started before."""
    code = (
        "import multiprocessing, os, signal, sys, threading\n"
        "from wids.cli import main, workers\n"
        "start = workers._Process.start\n"
        "def start_and_more(process):\n"
        "    others = multiprocessing.active_children()\n"
        "    start(process)\n"
        f"    {after}\n"
        "workers._Process.start = start_and_more\n"
        f"sys.exit(main(['create', *{shards}, '-o', 'all.json', '--workers', '2']))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "after",
    [
        # It is blocked until the process has a handler for it.
        pytest.param("os.kill(process.pid, signal.SIGINT)", id="interrupted while it is set up"),
        pytest.param(
            # Opens when the other one reads it; the pool's thread gets as far as it can before it has to wait for this one.
            "[(open('wait.tar', 'wb'), other.kill(), other.join()) for other in others];"
            "[thread.join(5) for thread in threading.enumerate() if 'Executor' in type(thread).__name__]",
            id="killed while the pool starts another",
        ),
    ],
)
def test_a_worker_process_that_ends_while_the_pool_starts_is_a_one_line_error(shards: list[str], after: str) -> None:
    os.mkfifo("wait.tar")

    done = run_with_own_start(after, ["wait.tar", *shards])

    assert done.returncode == 1
    assert done.stderr.startswith(b"widsindex: a worker process was killed, perhaps for lack of memory")
    assert done.stderr.count(b"\n") == 1


def test_an_interrupt_while_reading_stdin_is_one_line_and_leaves_no_file(folder: Path, shards: list[str]) -> None:
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


def test_all_entry_points_are_the_same_program(start: Start) -> None:
    scripts = Path(sys.executable).parent

    for program in ([str(scripts / "widsindex")], [str(scripts / "wids")], [sys.executable, "-m", "wids.cli"]):
        done = subprocess.run([*program, "--help"], capture_output=True, check=True, env={"PYTHONPATH": str(ROOT)})
        assert done.stdout == start("--help").stdout
        assert done.stdout.startswith(b"usage: widsindex")


def test_help_and_info_import_neither_torch_nor_other_heavy_packages(descriptor: str) -> None:
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
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def examples(name: str) -> list[str]:
    """Return the examples in a command's help."""
    done = subprocess.run(
        [sys.executable, "-m", "wids", name, "--help"], capture_output=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    return re.findall(r"^  (.*widsindex .*)$", done.stdout.decode().split("examples:")[1], re.MULTILINE)


@pytest.mark.parametrize("name", ["create", "info", "ls", "cat", "sample", "update", "verify", "repair", "completion"])
@pytest.mark.usefixtures("folder")
def test_examples_in_help_run(name: str, run: Run) -> None:
    Path("shards").mkdir()
    Path("README.txt").write_text("about")
    for number in range(100):
        members = [(f"{number:06d}-{n:04d}.{field}", b"1") for n in range(20) for field in ("json", "txt")]
        write_tar(Path(f"shards/train-{number:06d}.tar"), members)
        write_tar(Path(f"train-{number:06d}.tar"), members)
    for split in ("train", "test"):
        run("create", "shards/", "-o", f"{split}.json")
    found = examples(name)

    assert found
    for example in found:
        program = f'set -e -o pipefail; widsindex() {{ {shlex.quote(sys.executable)} -m wids "$@"; }}; {example}'
        done = subprocess.run(
            ["bash", "-c", program.replace(" jpg", " txt")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", ["ls -", "create - -o a.json", "cat {} - txt", "verify -"])
def test_a_closed_stdin_is_treated_as_empty(descriptor: str, arguments: str) -> None:
    program = f"{shlex.quote(sys.executable)} -m wids {arguments.format(descriptor)}"

    closed, empty = (
        subprocess.run(
            ["bash", "-c", f"{program} {redirected}"],
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "WIDS_CACHE": "cache"},
            capture_output=True,
            check=False,
        )
        for redirected in ("<&-", "</dev/null")
    )

    assert b"Traceback" not in closed.stderr
    assert (closed.returncode, closed.stdout) == (empty.returncode, empty.stdout)


def test_an_error_is_not_printed_to_stdout_if_stderr_is_closed(descriptor: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m wids info {descriptor} missing.json 2>&-"],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "WIDS_CACHE": "cache"},
        capture_output=True,
        check=False,
    )

    assert done.returncode == 1
    assert b"missing" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("create shard-0000.tar -i missing.txt", "missing.txt: No such file or directory; is the path right?"),
        ("update . -n other", ".: Is a directory; name a file in it"),
        ("sample {} 0 --save {}", "{}: cannot be created because a file is in the way; name another folder"),
    ],
)
def test_errors_of_the_operating_system_name_the_path_and_a_remedy(
    descriptor: str, run: Run, arguments: str, message: str
) -> None:
    status, output, errors = run(*arguments.format(descriptor, descriptor).split())

    assert (status, output, errors) == (1, "", f"widsindex: {message.format(descriptor)}\n")


def test_names_on_stdin_may_have_arbitrary_bytes_and_windows_line_ends(folder: Path, start: Start) -> None:
    write_tar(folder / "a.tar", [(b"caf\xe9.txt".decode("utf-8", "surrogateescape"), b"1"), ("b.txt", b"2")])

    done = start("cat", "a.tar", "-", "txt", "--lines", input=b"b\r\ncaf\xe9\r\n")

    assert (done.stdout, done.stderr) == (b"2\n1\n", b"")


def test_an_update_that_changes_nothing_keeps_the_last_backup(descriptor: str, run: Run) -> None:
    original = Path(descriptor).read_bytes()
    assert run("update", descriptor, "-n", "other")[0] == 0

    assert run("update", descriptor, "-n", "other") == (0, "", "")
    status, _, errors = run("update", descriptor)

    assert (status, errors) == (
        1,
        f"widsindex: {descriptor}: no change was requested; see: widsindex update --help\n",
    )
    assert Path(f"{descriptor}.bak").read_bytes() == original
