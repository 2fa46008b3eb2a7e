from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import write_shards
from wids.cli import main

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
