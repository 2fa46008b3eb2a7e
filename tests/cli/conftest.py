from __future__ import annotations

import argparse
import fcntl
import os
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import write_shards
from wids.cli import main
from wids.cli.command_line import make_parser

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def shards(folder: Path) -> list[str]:
    """`shard-0000.tar` to `shard-0002.tar` with 3, 0 and 2 samples."""
    return [Path(path).name for path, _ in write_shards(folder, [3, 0, 2])]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process; return status, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(arguments)
        return (status, *capfd.readouterr())

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the real program, `python -m wids`, in a process of its own."""

    def call(*arguments: str, options: tuple[str, ...] = (), **more: Any) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, *options, "-m", "wids", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
        return subprocess.run(command, env=environment, capture_output=True, check=False, **more)

    return call


@pytest.fixture
def show() -> Callable[..., str]:
    """Run the real program in a terminal of 80 columns; return what that got."""

    def call(*arguments: str, **environment: str) -> str:
        leader, follower = open_terminal(80)
        plain = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
        process = subprocess.Popen(
            [sys.executable, "-m", "wids", *arguments],
            env={**plain, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
            stdin=follower,
            stdout=follower,
            stderr=subprocess.DEVNULL,
        )
        os.close(follower)
        output = read_terminal(leader)
        process.wait()
        return output

    return call


def subcommands(*, deep: bool = False) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands' names and parsers; `deep`: the program's own, and those of commands' commands, too."""

    def walk(name: str, parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
        found = [(name, parser)]
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    found += walk(f"{name} {word}".strip(), inner)
        return found

    everything = walk("", make_parser())
    return everything if deep else [(name, parser) for name, parser in everything if name and " " not in name]


def open_terminal(columns: int) -> tuple[int, int]:
    """Return both ends of a terminal: the one that reads what is shown on it, and the one for a process."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return leader, follower


def read_terminal(leader: int) -> str:
    """Return all that a terminal is given until no process has it open any more."""
    output = b""
    # That is an error to read from, and not an end.
    with suppress(OSError):
        while part := os.read(leader, 1 << 16):
            output += part
    os.close(leader)
    return output.decode().replace("\r\n", "\n")
