"""What each command shows in a terminal of 80 columns, and in a pipe, to the letter: the files in `golden/`.

`WIDS_GOLDEN=write` has them written; read them before they are committed. Bold text stands between asterisks there, red text
between exclamation marks, yellow text between question marks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT, open_terminal, read_terminal, subcommands
from tests.storage.web_server import web_server
from tests.support import write_descriptor, write_tar
from wids.cli.command_line import make_parser
from wids.cli.terminal import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]
    Show = Callable[..., str]

GOLDEN = Path(__file__).parent / "golden"
MARKS = {"1": "*", "2": "~", "31": "!", "33": "?"}
PAINTED = re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[0m")
SETUP = ["create", "train-000000.tar", "train-000001.tar", "-o", "train.json", "--no-md5"]
COMMANDS = {
    "create": SETUP,
    "create-stdout": [*SETUP[:-3], "-o", "-"],
    "import": ["import", "tars", "-o", "imported.json"],
    "ls": ["ls", "train.json"],
    "ls-some": ["ls", "train.json", "--keys", "t*", "--shard", "*-000000.tar"],
    "ls-json": ["ls", "train.json", "--json", "--shard", "0"],
    "cat": ["cat", "train.json", "cls", "--lines"],
    "sample": ["sample", "train.json", "two", "--raw"],
    "info": ["info", "--fields", "train.json"],
    "info-json": ["info", "--fields", "--json", "train.json"],
    "info-table": ["info", "--table", "train.json"],
    "update": ["update", "old.json", "--recount"],
    "verify": ["verify", "mixed.json"],
    "verify-json": ["verify", "mixed.json", "--json"],
    "verify-far": ["verify", "far.json"],
    "repair": ["repair", "mixed.json"],
    "reshard": ["reshard", "train.json", "-o", "new/part-%06d.tar", "--max-samples", "2"],
    "fetch": ["fetch", "train.json", "--cache-dir", "cache"],
    "columns": ["columns", "train.json", "--from-json", "a,b"],
    "select": ["select", "columned.json", "--where", "a > 0", "-o", "some.json"],
    "diff": ["diff", "train.json", "later.json"],
    "diff-json": ["diff", "train.json", "later.json", "--json"],
    "cache": ["cache", "ls", "--cache-dir", "cache"],
    "export": ["export", "train.json", "--to", "dali", "-o", "idx"],
}
WHOLE = {
    "cache", "create-stdout", "diff", "diff-json", "fetch", "info-json", "info-table", "ls-json", "verify-json",
}  # fmt: skip
"""Paths and JSON are not cut."""
ELSEWHERE = {"completion"}
"""Its output is shtab's; test_looking.py has a shell use it."""


@pytest.fixture
def data(folder: Path, run: Run) -> None:
    """Two shards with a descriptor, others that have wrong counts, a damaged shard, another shard, or columns; and a folder."""
    long = "a/rather/long/folder/that/leaves/no/room/for/fields/in/a/terminal/of/eighty/columns"
    first = write_tar(
        folder / "train-000000.tar",
        [("one.jpg", b"j" * 1200), ("one.json", b'{"a": 1}'), ("two.jpg", b"j" * 30_000), ("two.json", b"{}")],
    )
    write_tar(
        folder / "train-000001.tar", [("3.jpg", b"j" * 2_000_000), (f"{long}/four.cls", b"7"), ("日本.cls", b"8")]
    )
    (folder / "cut.tar").write_bytes(first.read_bytes()[:3000])
    write_descriptor(folder / "old.json", [{"url": first.name, "nsamples": 9}])
    far = folder / "in-a-folder" / "far-away.from-here" / "cut-000000.tar"
    far.parent.mkdir(parents=True)
    far.write_bytes(first.read_bytes()[:3000])
    write_descriptor(folder / "far.json", [{"url": str(far.relative_to(folder))}])
    write_descriptor(folder / "mixed.json", [{"url": first.name, "nsamples": 1}, {"url": "cut.tar"}])
    (folder / "tars").mkdir()
    write_tar(folder / "tars" / "0.tar", [("five.cls", b"5")])
    later = [{"url": first.name, "nsamples": 1}, {"url": "tars/0.tar", "nsamples": 1}]
    write_descriptor(folder / "later.json", later)
    write_descriptor(folder / "columned.json", [{"url": first.name, "nsamples": 2}])
    run("columns", "columned.json", "--from-json", "a")
    run(*SETUP)


def test_the_output_of_every_command_is_tested() -> None:
    assert {name for name, _ in subcommands()} == {arguments[0] for arguments in COMMANDS.values()} | ELSEWHERE


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", COMMANDS)
def test_output_in_a_terminal_fits_its_width(name: str, folder: Path, show: Show) -> None:
    shown = show(*COMMANDS[name])

    compare(f"{name}.terminal", PAINTED.sub(mark, shown), folder)
    if name not in WHOLE:
        assert max(columns_of(PAINTED.sub(r"\2", line)) for line in shown.splitlines() or [""]) <= 80


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", COMMANDS)
def test_output_in_a_pipe_is_complete_and_without_colours(name: str, folder: Path, run: Run) -> None:
    _, output, _ = run(*COMMANDS[name])

    assert "\x1b" not in output
    compare(f"{name}.pipe", output, folder)


def mark(match: re.Match[str]) -> str:
    """Return painted text between marks."""
    return MARKS[match[1]] + match[2] + MARKS[match[1]]


def compare(name: str, text: str, folder: Path) -> None:
    """Compare an output with a golden file, in which no folder of this machine is named."""
    text = text.replace(str(folder), "FOLDER")
    if os.environ.get("WIDS_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colours_are_off_with_no_color_or_a_dumb_terminal(show: Show, environment: dict[str, str]) -> None:
    assert "\x1b" in show("ls", "train.json")
    assert "\x1b" not in show("ls", "train.json", **environment)


@pytest.mark.usefixtures("data")
def test_the_environment_variable_columns_sets_the_width(show: Show) -> None:
    lines = show("ls", "train.json", COLUMNS="40", NO_COLOR="1").splitlines()

    assert max(map(columns_of, lines)) == 40


def test_the_help_has_each_command_on_a_line_with_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = make_parser().format_help()

    assert [name for name, _ in subcommands() if not re.search(rf"^ +{name} +\S", shown, re.MULTILINE)] == []


def test_all_help_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, parser in subcommands(deep=True):
        wide = [line for line in parser.format_help().splitlines() if len(line) > 80]
        assert not wide, f"widsindex {name} --help: {wide}"


def test_no_example_in_help_is_broken_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, parser in subcommands():
        examples = parser.format_help().partition("examples:\n")[2].splitlines()
        assert examples, name
        assert [line for line in examples if "widsindex " not in line] == [], name


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "command",
    [
        "ls many.json",
        "ls many.json --json",
        "cat many.json jpg",
        "info -f train.json",
        "sample train.json one --cat jpg",
        "--help",
    ],
)
def test_a_reader_that_closes_the_pipe_ends_the_program_without_a_message(command: str, folder: Path) -> None:
    write_descriptor(folder / "many.json", [{"url": "train-000000.tar", "nsamples": 2}] * 5000)

    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m wids {command} | head -c 1; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert done.stderr == b""
    # What fits into the pipe may be written before the reader goes.
    assert done.returncode in ({141} if "many" in command else {0, 141})


def test_the_progress_bar_shows_shards_time_left_samples_and_bytes(shards: list[str]) -> None:
    leader, follower = open_terminal(100)
    with web_server() as server:
        server.has_ranges = True
        server.objects["slow.tar"] = Path(shards[0]).read_bytes()
        server.delay_s = 1.2  # a bar is for what takes more than a moment
        process = subprocess.Popen(
            [sys.executable, "-m", "wids", "create", *shards, server.url("slow.tar"), "missing.tar", "-o", "a.json"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdout=subprocess.DEVNULL,
            stderr=follower,
        )
        os.close(follower)
        shown = read_terminal(leader)
        process.wait()

    assert re.search(r"indexing: +80%.* \d\d:\d\d<\d\d:\d\d, 4/5 shards, 8 samples, 41\.0 kB", shown), shown
