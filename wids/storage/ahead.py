"""A process that fetches shards before they are needed.

It is a process rather than a thread, so that the training process can still be forked at any time, and its interpreter is not
slowed down. It receives lists of the next shards over a pipe, of which the latest counts, and ends with the process that
started it. That process also announces in the cache folder what it needs, so that other processes do not remove those shards
(`space.py`). No more is fetched than the cache can hold. A failure to fetch is only logged: the read that needs the shard
tries again, and raises.
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
"""Seconds between two checks whether the parent is alive."""
_PATIENCE_S = 10.0
"""Seconds to wait for the process to end before it is killed."""
_CLOCK_STEP_NS = 50_000_000
"""How far file times may be behind the clock. A shard opened just before it was announced needs no fetching either."""
_START = "import sys; sys.path[:0] = sys.argv[2:]; from wids.storage.ahead import serve; serve(int(sys.argv[1]))"


class FetchAhead:
    """Starts and controls the process that fetches shards; not to be used in forked children.

    Args:
        storage: Storage that fetches them; sent to the process by pickle.
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
        """Send the list of needed shards, the next one first, which replaces an earlier list; return at once."""
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
        return  # a forked child must not end its parent's process
    with contextlib.suppress(OSError):
        assert process.stdin is not None, "it is a pipe"
        # An explicit message, because closing the pipe is not enough: forked workers hold it open too.
        process.stdin.write(_frame(None))
        process.stdin.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Requests:
    """The latest list of shards that was received, and since when each of them has been wanted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shards: list[dict[str, Any]] | None = None
        self._since: dict[str, int] = {}

    def put(self, sent_ns: int, shards: list[dict[str, Any]]) -> None:
        with self._changed:
            self._shards = shards
            self._since = {shard["url"]: self._since.get(shard["url"], sent_ns) for shard in shards}
            self._changed.notify()

    def take(self) -> list[dict[str, Any]]:
        """Wait for a list that was not taken before, and return it."""
        with self._changed:
            while self._shards is None:
                self._changed.wait()
            shards, self._shards = self._shards, None
            return shards

    def since(self, shard: Mapping[str, Any]) -> int | None:
        """Return since when a shard has been wanted, in nanoseconds since the epoch; None when it no longer is."""
        return self._since.get(shard["url"])


def serve(parent: int) -> None:
    """Run the process of `FetchAhead`: fetch the shards that are requested on stdin, until that ends.

    Args:
        parent: Id of the process that started this one; it may already have ended.
    """
    # Ctrl-C in the terminal is meant for the training process, which stops this one when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = sys.stdin.buffer
    try:
        storage: Storage | None = _read_frame(pipe)
    except Exception as error:  # importing the user's functions may raise anything
        sys.stderr.write(f"wids: shards are not fetched ahead, but when they are read: {error}\n")
        return
    if storage is None:
        return
    requests = _Requests()
    done = threading.Event()
    threading.Thread(target=_listen, args=(pipe, requests, done), daemon=True).start()
    threading.Thread(target=_fetch_requested, args=(storage, requests), daemon=True).start()
    # The parent is checked too, because forked workers hold the pipe open when it is dead.
    while not done.wait(_LOOK_FOR_PARENT_S) and os.getppid() == parent:
        pass
    # Ends without waiting for threads that are in the middle of a transfer.
    remove_unfinished()
    os._exit(0)


def _listen(pipe: BinaryIO, requests: _Requests, done: threading.Event) -> None:
    while (message := _read_frame(pipe)) is not None:
        requests.put(*message)
    done.set()


def _fetch_requested(storage: Storage, requests: _Requests) -> None:
    plan = _Plan(storage)
    running: set[str] = set()

    def fetch(shard: dict[str, Any]) -> None:
        try:
            since = requests.since(shard)
            if since is not None:
                plan.note_size(shard, storage.make_ready(shard, unless_opened_after=since - _CLOCK_STEP_NS))
        except (WidsError, OSError) as error:
            _log.debug("not fetched ahead: %s", error)
        finally:
            running.discard(shard["url"])

    with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
        while True:
            for shard in plan.fitting(requests.take()):
                if shard["url"] not in running:
                    running.add(shard["url"])
                    pool.submit(fetch, shard)


class _Plan:
    """Decides how many of the next shards are fetched.

    Args:
        storage: Storage that fetches them.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sizes: dict[str, int] = {}

    def note_size(self, shard: Mapping[str, Any], size: int) -> None:
        """Remember the size of a shard in bytes."""
        self._sizes[shard["url"]] = size

    def fitting(self, shards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return as many of the first shards as fit this process's share of the cache, and at least one."""
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
    """Return the next message; None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    data = pipe.read(_LENGTH.unpack(head)[0])
    return pickle.loads(data)  # noqa: S301 - from the process that started this one
