"""Ctrl-C and other signals at moments when something else than Python's own code runs: C, threads, other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT
from tests.storage.reading import wait_until
from tests.storage.web_server import web_server
from tests.support import write_descriptor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.storage.web_server import Handler

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
ENDS = pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 130, b"widsindex: interrupted\n"), (signal.SIGTERM, 143, b"widsindex: terminated\n")],
    ids=["Ctrl-C", "kill"],
)


@ENDS
def test_a_signal_while_a_module_of_c_is_imported_is_one_line(
    shards: list[str], sent: signal.Signals, status: int, said: bytes
) -> None:
    code = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'uuid':\n"  # which orjson imports in C, and takes for there
        f"            signal.raise_signal({int(sent)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from wids.cli import main\n"
        f"sys.exit(main(['ls', {shards[0]!r}]))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (status, b"", said)


@ENDS
@pytest.mark.parametrize(
    "command", ["fetch many.json --workers 2", "info --fields many.json", "verify many.json --workers 2"]
)
def test_a_signal_waits_for_no_server(
    folder: Path, command: str, sent: signal.Signals, status: int, said: bytes
) -> None:
    answered = threading.Event()

    def begin(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(bytes(10))
        answered.wait()

    with web_server() as server:
        server.behaviours = {f"{number}.tar": [begin] * 9 for number in range(40)}
        write_descriptor(folder / "many.json", [{"url": server.url(name)} for name in server.behaviours])
        process = subprocess.Popen(
            [sys.executable, "-m", "wids", *command.split()],
            env={**ENVIRONMENT, "WIDS_CACHE": str(folder / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            wait_until(lambda: server.running >= 2)

            process.send_signal(sent)
            output, errors = process.communicate(timeout=60)
        finally:
            answered.set()
            process.kill()

    assert (process.returncode, output, errors) == (status, b"", said)
    assert list(folder.rglob("*.part")) == []
