"""Helpers of the tests of storage: reading sources, listing the cache, waiting for conditions."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.source import Source


def content(source: Source) -> bytes:
    """Return the whole content of a source."""
    size = source.identity.size
    view, first = source.window(0, size)
    return bytes(view[-first : size - first])


def shards(cache_dir: Path) -> list[Path]:
    """Return the visible files of a cache folder, without its bookkeeping."""
    return sorted(path for path in cache_dir.rglob("*") if path.is_file() and ".wids" not in path.parts)


def unfinished(cache_dir: Path) -> list[Path]:
    """Return the files that have not become shards, or not yet."""
    return [*cache_dir.glob(".wids/*.part"), *cache_dir.glob(".wids/*.scratch")]


def wait_until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait for a condition that another process or thread brings about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.01)


def exit_status_of_fork(work: Callable[[], int]) -> int:
    """Run `work` in a forked child, which exits with its result, or with 99 when it raises; return the exit status."""
    child = os.fork()
    if not child:
        status = 99  # the child must end here whatever happens, and not run the rest of the tests
        try:
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_running(pid: int) -> bool:
    """Return whether a process is running; one that its parent has not reaped yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
