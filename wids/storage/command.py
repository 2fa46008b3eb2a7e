"""`pipe:` URLs: a shell command whose output is the shard.

The command writes to its standard output, or to the file whose name replaces `{local}`. There is no other placeholder, so
that `awk '{print}'` is left as it is. This is the only place in the package that starts a shell, and it does so only when
the user allows it, because a descriptor from elsewhere could contain any command.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, TYPE_CHECKING

from wids.errors import FetchError
from wids.storage.transport import CHUNK_BYTES, Body, ResumePoint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from wids.storage.locations import Location

_PLACEHOLDER = "{local}"


class Commands:
    """The transport of `pipe:` URLs.

    Args:
        allowed: Whether commands run at all.
        scratch_file: Returns a context manager with the path of a file that does not exist yet; removes it on exit.
    """

    def __init__(self, *, allowed: bool, scratch_file: Callable[[], AbstractContextManager[str]]) -> None:
        self._allowed = allowed
        self._scratch_file = scratch_file

    @contextmanager
    def open(self, location: Location, resume: ResumePoint | None = None) -> Iterator[Body]:
        """Run the command; the end of the chunks is reached only when its exit status is 0."""
        if not self._allowed:
            raise FetchError(
                f"{location.name}: pipe: URLs run a shell command and are refused; if you trust whoever wrote the "
                "descriptor, pass allow_pipe=True or set WIDS_ALLOW_PIPE=1"
            )
        command = location.url[len("pipe:") :]
        if _PLACEHOLDER not in command:
            yield Body(_output_of(command, location), size=None)
            return
        with self._scratch_file() as path:
            # Quoted, because the cache folder may have a space in its name.
            _run(command.replace(_PLACEHOLDER, shlex.quote(path)), location)
            yield Body(_content_of(path, location), size=None)


def _output_of(command: str, location: Location) -> Generator[bytes]:
    with _started(command, stdout=subprocess.PIPE) as process:
        output: IO[bytes] = process.stdout  # type: ignore[assignment]  # it is there: PIPE was asked for
        while chunk := output.read(CHUNK_BYTES):
            yield chunk
        _check_status(process.wait(), location)


def _run(command: str, location: Location) -> None:
    with _started(command, stdout=subprocess.DEVNULL) as process:
        _check_status(process.wait(), location)


@contextmanager
def _started(command: str, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    # In a session of its own, so that everything the shell has started can be killed when the transfer is abandoned.
    process = subprocess.Popen(  # noqa: S602 - the user allowed this very command
        command, shell=True, stdin=subprocess.DEVNULL, stdout=stdout, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _check_status(status: int, location: Location) -> None:
    if status == 0:
        return
    how = f"exit status {status}" if status > 0 else f"signal {-status}"
    raise FetchError(f"{location.name}: the command ended with {how}, expected 0; run it by hand to see why")


def _content_of(path: str, location: Location) -> Generator[bytes]:
    try:
        file = open(path, "rb")  # noqa: PTH123, SIM115 - closed by the with below
    except FileNotFoundError:
        raise FetchError(
            f"{location.name}: the command succeeded, but did not write the file that {_PLACEHOLDER} stands for; "
            "write there, or to standard output"
        ) from None
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
