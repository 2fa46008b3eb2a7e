"""Shards are fetched before they are needed, by a process of its own.

A process, and not a thread: nothing of it is in the process that trains, which may be forked at any moment, and it takes no
turn of its interpreter. It is told over a pipe which shards come next, the latest word counting, and ends with the process that
told it. That one says in the cache folder too what it needs, so that nobody removes those shards (`space.py`). No more is
fetched than the cache can hold. What cannot be fetched, whoever needs the shard will try again, and raise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

from wids.errors import WidsError
from wids.storage.part_file import remove_unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wids.storage.storage import Storage

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<q")
_FETCHES_AT_ONCE = 4
_LOOK_FOR_PARENT_S = 1.0
_PATIENCE_S = 10.0
_CLOCK_STEP_NS = 50_000_000
"""Times of files may lie so far behind the clock; who opened a shard just before it was announced needs no copy either."""
_START = "import sys; sys.path[:0] = sys.argv[2:]; from wids.storage.ahead import serve; serve(int(sys.argv[1]))"


class FetchAhead:
    """The other end of a process that fetches shards; belongs to the process that made it.

    Args:
        storage: How they are fetched; pickles.
    """

    def __init__(self, storage: Storage) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            first = _first_frame(storage)
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-c", _START, str(os.getpid()), *filter(None, sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            self._end = weakref.finalize(self, _end, self._process, os.getpid())
            self._write(first)
        except (OSError, TypeError, AttributeError, pickle.PicklingError) as error:
            self._give_up(error)

    def want(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Say which shards are needed, the next one first, in place of what was said before; return at once."""
        if self._process is None:
            return
        try:
            wanted = [{key: shard.get(key) for key in ("url", "filesize", "md5sum")} for shard in shards]
            self._write(_frame((time.time_ns(), wanted)))
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process = None
            self._end()

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _give_up(self, error: Exception) -> None:
        _log.warning("shards are not fetched ahead, but when they are read: %s", error)
        self.close()


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    if os.getpid() != pid:
        return  # a fork's copy: the process is the parent's
    with contextlib.suppress(OSError):
        assert process.stdin is not None, "it is a pipe"
        # Said, because a worker that was forked holds the pipe open too.
        process.stdin.write(_frame(None))
        process.stdin.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Wishes:
    """The latest list of shards that came over the pipe, and since when each has been wanted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shards: list[dict[str, Any]] | None = None
        self._since: dict[str, int] = {}

    def put(self, told_ns: int, shards: list[dict[str, Any]]) -> None:
        with self._changed:
            self._shards = shards
            self._since = {shard["url"]: self._since.get(shard["url"], told_ns) for shard in shards}
            self._changed.notify()

    def take(self) -> list[dict[str, Any]]:
        """Return a list that was not taken before; wait for it."""
        with self._changed:
            while self._shards is None:
                self._changed.wait()
            shards, self._shards = self._shards, None
            return shards

    def since(self, shard: Mapping[str, Any]) -> int | None:
        """Return since when a shard has been wanted, nanoseconds since the epoch; None where it is no longer."""
        return self._since.get(shard["url"])


def serve(parent: int) -> None:
    """Fetch what stdin asks for, until it ends; what a process of `FetchAhead` runs.

    Args:
        parent: The process that made it, which may have ended before this one gets here.
    """
    # The terminal's Ctrl-C is for the process that trains, which closes the pipe when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = sys.stdin.buffer
    try:
        storage: Storage | None = _read_frame(pipe)
    except Exception as error:  # whatever the user's functions raise when they are imported here
        sys.stderr.write(f"wids: shards are not fetched ahead, but when they are read: {error}\n")
        return
    if storage is None:
        return
    wishes = _Wishes()
    done = threading.Event()
    threading.Thread(target=_listen, args=(pipe, wishes, done), daemon=True).start()
    threading.Thread(target=_fetch_wishes, args=(storage, wishes), daemon=True).start()
    # A worker that was forked holds the pipe open as well, so its end alone does not tell.
    while not done.wait(_LOOK_FOR_PARENT_S) and os.getppid() == parent:
        pass
    # Without waiting for threads that are in the middle of a transfer.
    remove_unfinished()
    os._exit(0)


def _listen(pipe: BinaryIO, wishes: _Wishes, done: threading.Event) -> None:
    while (message := _read_frame(pipe)) is not None:
        wishes.put(*message)
    done.set()


def _fetch_wishes(storage: Storage, wishes: _Wishes) -> None:
    plan = _Plan(storage)
    running: set[str] = set()

    def fetch(shard: dict[str, Any]) -> None:
        try:
            since = wishes.since(shard)
            if since is not None:
                plan.note_size(shard, storage.make_ready(shard, unless_opened_after=since - _CLOCK_STEP_NS))
        except (WidsError, OSError) as error:
            _log.debug("not fetched ahead: %s", error)
        finally:
            running.discard(shard["url"])

    with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
        while True:
            for shard in plan.fitting(wishes.take()):
                if shard["url"] not in running:
                    running.add(shard["url"])
                    pool.submit(fetch, shard)


class _Plan:
    """How much of what is needed next the cache can hold.

    Args:
        storage: Where shards are fetched to.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sizes: dict[str, int] = {}

    def note_size(self, shard: Mapping[str, Any], size: int) -> None:
        """Remember how large a shard is."""
        self._sizes[shard["url"]] = size

    def fitting(self, shards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return as many of the first as the cache can hold, beside what others have announced."""
        try:
            limit = self._storage.space.limit()
        except OSError:
            limit = None
        if limit is None:
            return list(shards)
        share = limit // max(1, self._storage.space.num_announcements())
        largest = max(self._sizes.values(), default=0)
        fitting: list[dict[str, Any]] = []
        total = 0
        for shard in shards:
            total += shard.get("filesize") or self._sizes.get(shard["url"], largest)
            if total > share and fitting:
                break
            fitting.append(shard)
        return fitting


def _first_frame(storage: Storage) -> bytes:
    if getattr(storage.options.localname, "__module__", "") == "__main__":
        raise TypeError("localname is defined in the script itself, which no other process can import")
    return _frame(storage)


def _frame(message: Any) -> bytes:
    data = pickle.dumps(message)
    return _LENGTH.pack(len(data)) + data


def _read_frame(pipe: BinaryIO) -> Any:
    """Return the next message, None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    data = pipe.read(_LENGTH.unpack(head)[0])
    return pickle.loads(data)  # noqa: S301 - from the process that started this one
