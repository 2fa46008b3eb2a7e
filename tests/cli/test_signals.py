"""Ctrl-C and other signals at moments when something else than Python's own code runs: C, threads, other processes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT
from tests.storage.reading import wait_until
from tests.storage.web_server import web_server
from tests.support import write_descriptor
from wids.cli.signals import Signalled, raising
from wids.tools.targets import Part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.storage.web_server import Handler

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
ENDS = pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 130, b"widsindex: interrupted\n"), (signal.SIGTERM, 143, b"widsindex: terminated\n")],
    ids=["Ctrl-C", "kill"],
)


@ENDS
def test_a_signal_while_a_c_module_is_imported_is_one_line(
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
def test_a_signal_ends_a_command_that_waits_for_a_server(
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


def in_a_finalizer() -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    Finalized()


def in_a_callback_of_a_weak_reference() -> None:
    kept: weakref.ref[set[int]] = weakref.ref(set(), lambda _: signal.raise_signal(signal.SIGINT))  # noqa: F841 - called while it is kept


def while_a_class_is_made() -> None:
    class Named:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGINT)

    type("Owner", (), {"attribute": Named()})  # on Python 3.11 and older this raises a RuntimeError


def where_it_is_caught() -> None:
    with suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("moment", "is_lost"),
    [
        (in_a_finalizer, True),
        (in_a_callback_of_a_weak_reference, True),
        (while_a_class_is_made, False),
        (where_it_is_caught, False),
    ],
)
def test_a_signal_ends_the_block_whatever_becomes_of_its_exception(
    moment: Callable[[], None], is_lost: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def block() -> None:
        with raising():
            moment()
            if is_lost:  # raised again a moment later; otherwise at the end of the block, or in it
                threading.Event().wait(60)
                pytest.fail("the exception was lost")

    hook = sys.unraisablehook
    with pytest.raises(Signalled) as caught:
        block()

    assert caught.value.args == (signal.SIGINT,)
    assert capsys.readouterr() == ("", "")
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_a_signal_that_leaves_a_shard_unclosed_logs_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def terminate() -> object:
        signal.raise_signal(signal.SIGTERM)
        return "the signal did not raise"

    def block() -> None:
        with raising():
            _ = Part(folder, "a-0.tar"), terminate()  # the part has no name yet

    with pytest.raises(Signalled):
        block()

    assert caplog.records == []
    assert list(folder.glob("*.part")) == []
    assert logging.root.manager.disable == logging.NOTSET


@pytest.mark.parametrize("place", ["the arguments of work in a worker", "a result in the first process"])
@ENDS
def test_a_signal_while_a_pool_unpickles_is_one_line(
    folder: Path, place: str, sent: signal.Signals, status: int, said: bytes
) -> None:
    (folder / "slow.py").write_text(
        "class Slow:\n"
        "    def __reduce__(self): return read, ()\n"
        "def read(): return open('fifo').read()\n"
        "def make(): return Slow()\n"
    )
    code = (
        "import sys, slow\n"
        "from wids.cli import create, main\n"
        "from wids.cli.workers import workers\n"
        "def run(options):\n"
        "    with workers(2) as executor:\n"
        f"        executor.submit({'len, slow.Slow()' if 'worker' in place else 'slow.make'}).result()\n"
        "create.run = run\n"
        "if __name__ == '__main__':\n"
        "    sys.argv[1:] = ['create', 'a.tar', '-o', 'a.json']\n"
        "    sys.exit(main())\n"
    )
    (folder / "program.py").write_text(code)
    os.mkfifo(folder / "fifo")
    process = subprocess.Popen(
        [sys.executable, "program.py"], env=ENVIRONMENT, cwd=folder, stderr=subprocess.PIPE, start_new_session=True
    )
    with (folder / "fifo").open("w"):  # opens when it is read, in vain
        os.killpg(process.pid, sent)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (status, said)


def test_a_second_signal_does_not_stop_the_removal_of_unfinished_files(folder: Path) -> None:
    code = (
        "import os, pathlib, signal\n"
        "from wids.cli import workers\n"
        "from wids.storage.part_file import create_unfinished\n"
        "unlink = pathlib.Path.unlink\n"
        "def unlink_after_a_signal(path, missing_ok=False):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    unlink(path, missing_ok)\n"
        "def work():\n"
        "    create_unfinished(pathlib.Path(), 'a', '.part')\n"
        "    pathlib.Path.unlink = unlink_after_a_signal\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "workers._set_up_worker()\n"
        "workers._work(work)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, cwd=folder, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (130, b"")
    assert list(folder.glob("*.part")) == []
