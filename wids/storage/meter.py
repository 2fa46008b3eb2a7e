"""Counters and current activities of a job's processes, readable by all of them even after one was killed.

    DIR/wids-UID/jobs/JOB/PID-RANDOM     one file per process, mapped: counters, then its activities as JSON

A job is a dataset and all copies of it that workers got by fork or pickle. DIR is `/dev/shm` if it is writable, else the
temporary folder. Each process locks its own file; a lock shows that the process is alive. The folder of a job is removed when
the process that made the dataset ends. If that process was killed, the folder is removed when a later dataset is made.
"""

from __future__ import annotations

import fcntl
import json
import logging
import mmap
import os
import secrets
import shutil
import struct
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.storage.process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

COUNTERS = (
    "accesses",
    "misses",
    "bytes_mapped",
    "bytes_fetched",
    "requests",
    "fetches",
    "cache_hits",
    "seconds_waited",
    "retries",
    "replacements",
    "index_builds",
)
"""Names of the counters, in the order in which a file has them; new ones are added at the end."""

_FILE_BYTES = 16 << 10
_DOING_AT = 512
"""Offset of the activities in a file: their length, then JSON."""
_LENGTH = struct.Struct("<q")
_LEFT_BEHIND_S = 600
"""Seconds for which a folder without a living process is left alone: the first process may be about to start."""


_tidied: set[tuple[int, Path]] = set()
"""Pairs of process id and folder in which the process has removed what killed jobs left."""


class Meter:
    """Counts for this process, visibly to the other processes of the job; safe to use from several threads.

    When its folder cannot be made, a process counts for itself only.

    Args:
        job: Id of the job; None for a new job.
    """

    def __init__(self, job: str | None = None) -> None:
        self._job = job or secrets.token_hex(8)
        self._own = PerProcess(partial(_OwnPage, _folder(self._job)))
        if job is None:
            # Only the process that began the job ends it; in a forked child `_end_job` does nothing. multiprocessing runs
            # its finalizers in its workers too, which end without calling `atexit` functions.
            from multiprocessing.util import Finalize

            Finalize(self, _end_job, (_folder(self._job), os.getpid()), exitpriority=0)

    def __reduce__(self) -> tuple[Any, ...]:
        return Meter, (self._job,)

    def add(self, counter: str, number: float = 1) -> None:
        """Add to a counter of this process."""
        self._own.get().add(counter, number)

    def put(self, counter: str, number: float) -> None:
        """Set a counter of this process to a value that is counted elsewhere."""
        self._own.get().put(counter, number)

    @contextmanager
    def doing(self, what: str, **details: Any) -> Iterator[None]:
        """Show what this thread is doing during a `with` block.

        Args:
            what: The activity, in a few words.
            details: More about it, as JSON values.
        """
        page = self._own.get()
        before = page.look_up()
        try:
            page.begin({**(before or {}), "what": what, **details, "since": time.time()})
            yield
        finally:
            page.end(before)

    def totals(self) -> dict[str, float]:
        """Return all counters, summed over the job's processes, dead ones included."""
        totals = dict.fromkeys(COUNTERS, 0.0)
        for page in self._pages():
            for name, number in zip(COUNTERS, page.counters, strict=True):
                totals[name] += number
        return totals

    def in_flight(self) -> list[dict[str, Any]]:
        """Return what each thread of the job's processes is doing, longest first; for killed ones, what they were doing."""
        found = [
            {"seconds": round(time.time() - entry.pop("since"), 3), "pid": page.pid, "alive": page.alive, **entry}
            for page in self._pages()
            for entry in page.doing
        ]
        return sorted(found, key=lambda entry: -entry["seconds"])

    def _pages(self) -> list[_Page]:
        own = self._own.get()
        others = [path for path in _list(own.folder) if path.name != own.name]
        return [own.look(), *(page for path in others if (page := _read_page(path)) is not None)]


class _Page:
    """A snapshot of one process: its counters and activities."""

    def __init__(self, pid: int, alive: bool, data: bytes) -> None:
        self.pid = pid
        self.alive = alive
        self.counters = struct.unpack_from(f"<{len(COUNTERS)}d", data)
        (length,) = _LENGTH.unpack_from(data, _DOING_AT)
        start = _DOING_AT + _LENGTH.size
        try:
            self.doing: list[dict[str, Any]] = json.loads(data[start : start + length])
        except ValueError:
            self.doing = []  # the file was read while its owner was writing


class _OwnPage:
    """The page of this process, which it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._counters = dict.fromkeys(COUNTERS, 0.0)
        self._doing: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._map = _make_map(folder, self.name)

    def add(self, counter: str, number: float) -> None:
        with self._lock:
            self._write(counter, self._counters[counter] + number)

    def put(self, counter: str, number: float) -> None:
        with self._lock:
            self._write(counter, number)

    def _write(self, counter: str, number: float) -> None:
        self._counters[counter] = number
        struct.pack_into("<d", self._map, 8 * COUNTERS.index(counter), number)

    def look_up(self) -> dict[str, Any] | None:
        return self._doing.get(threading.get_ident())

    def begin(self, entry: dict[str, Any]) -> None:
        with self._lock:
            self._doing[threading.get_ident()] = entry
            self._show()

    def end(self, before: dict[str, Any] | None) -> None:
        thread = threading.get_ident()
        with self._lock:
            if before is None:
                self._doing.pop(thread, None)
            else:
                self._doing[thread] = before
            self._show()

    def _show(self) -> None:
        start = _DOING_AT + _LENGTH.size
        entries = list(self._doing.values())
        data = json.dumps(entries, default=str).encode()
        while len(data) > _FILE_BYTES - start:
            entries = entries[: len(entries) // 2]
            data = json.dumps(entries, default=str).encode()
        self._map[start : start + len(data)] = data
        _LENGTH.pack_into(self._map, _DOING_AT, len(data))

    def look(self) -> _Page:
        return _Page(os.getpid(), True, bytes(self._map))


def _make_map(folder: Path, name: str) -> Any:
    """Return a map of a new file that other processes can read; private memory when the file cannot be made."""
    try:
        _make_private(folder)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Written in full, because touching a page for which a full disk has no space would kill the process.
            os.write(descriptor, bytes(_FILE_BYTES))
            with suppress(OSError):
                # Another process may hold the lock for a moment, in `_has_owner`.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The map keeps the file open, and with it the lock, while this process or a fork of it is alive.
            return mmap.mmap(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        _log.debug("what this process counts is not shown to others: %s", error)
        return bytearray(_FILE_BYTES)


def _read_page(path: Path) -> _Page | None:
    try:
        data = path.read_bytes()
        pid = int(path.name.partition("-")[0])
        return _Page(pid, _is_alive(pid), data.ljust(_FILE_BYTES, b"\0"))
    except (OSError, ValueError, struct.error):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A zombie counts as dead; it can be recognised on Linux only.
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except ProcessLookupError:
        return False
    except (OSError, IndexError):
        return True


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _folder(job: str) -> Path:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of the user's own is made in it, and checked
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"wids-{os.getuid()}" / "jobs" / job


def _make_private(folder: Path) -> None:
    """Make the folder of a job.

    Raises:
        OSError: The folder cannot be made, or a folder above it is open to other users.
    """
    mine = folder.parents[1]
    mine.mkdir(mode=0o700, exist_ok=True)
    status = mine.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{mine} is not private to this user")
    if (os.getpid(), folder.parent) not in _tidied:
        _tidied.add((os.getpid(), folder.parent))
        _remove_left_behind(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)


def _remove_left_behind(jobs: Path) -> None:
    """Remove the folders of jobs whose processes are all dead."""
    with suppress(OSError), os.scandir(jobs) as entries:
        for entry in entries:
            with suppress(OSError):
                old = time.time() - entry.stat().st_mtime > _LEFT_BEHIND_S
                if old and not any(_has_owner(path) for path in _list(Path(entry.path))):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _has_owner(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _end_job(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
