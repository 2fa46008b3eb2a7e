"""What a user at a terminal sees of transfers."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from wids.storage.progress import SayOnce, format_size

if TYPE_CHECKING:
    import pytest

    from tests.storage.web_server import WebServer

ROOT = Path(__file__).parents[2]
LARGE = 70_000_000


def test_a_large_download_has_a_bar_on_a_terminal(server: WebServer, tmp_path: Path) -> None:
    shown = watch(server, tmp_path)

    assert f"wids: fetching shards into {tmp_path}" in shown
    assert "large.tar: " in shown
    assert "B/s]" in shown
    assert "small.tar: " not in shown


def test_wids_verbose_0_silences_a_terminal(server: WebServer, tmp_path: Path) -> None:
    assert watch(server, tmp_path, WIDS_VERBOSE="0") == ""


def watch(server: WebServer, cache: Path, **environment: str) -> str:
    """Return what two downloads write to a terminal."""
    server.objects |= {"large.tar": bytes(LARGE), "small.tar": bytes(1000)}
    code = (
        "from wids.storage import Storage, StorageOptions\n"
        f"storage = Storage(StorageOptions(cache_dir={str(cache)!r}))\n"
        f"for name in ('small.tar', 'large.tar'): storage.open({{'url': {server.address + '/'!r} + name}})\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "WIDS_VERBOSE"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=theirs, env={**inherited, "PYTHONPATH": str(ROOT), **environment}
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # EIO: the other end is closed
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_a_line_is_printed_once_when_two_threads_have_one_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIDS_VERBOSE", "1")
    once = SayOnce()

    def line() -> str:
        """Return the first line, after another thread has had its turn."""
        other = threading.Thread(target=once.say, args=(lambda: "second",))
        other.start()
        other.join()
        return "first"

    once.say(line)

    assert capsys.readouterr().err == "wids: first\n"


def test_sizes_are_written_with_decimal_units() -> None:
    assert [format_size(size) for size in (0, 999, 1000, 1_500_000, 8_100_000_000, 3e15)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "8.1 GB", "3000.0 TB",
    ]  # fmt: skip
