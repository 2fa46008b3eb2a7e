"""Progress output on stderr: shown when that is a terminal, or `$WIDS_VERBOSE` is 1."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from wids.storage.process import PerProcess
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LARGE_BYTES = 64 << 20
"""Bytes below which no bar is shown: such an object arrives before its bar could be read."""


def shows_progress() -> bool:
    """Return whether to show progress: `$WIDS_VERBOSE` if it is 0 or 1, else whether stderr is a terminal."""
    said = os.environ.get("WIDS_VERBOSE")
    if said in {"0", "1"}:
        return said == "1"
    return sys.stderr is not None and sys.stderr.isatty()


class SayOnce:
    """Prints one line per process, the first that it is given, if progress is shown."""

    def __init__(self) -> None:
        self._left: PerProcess[list[None]] = PerProcess(lambda: [None])

    def say(self, line: Callable[[], str]) -> None:
        """Print the line that a function returns, unless one was printed before."""
        if not shows_progress():
            return
        try:
            self._left.get().pop()
        except IndexError:  # printed before, or just now by another thread: only one of them gets the item
            return
        sys.stderr.write(f"wids: {line()}\n")


def describe_first(shards: Sequence[Mapping[str, Any]]) -> str:
    """Return the line that announces the shards of the first batches."""
    sizes = [shard.get("filesize") for shard in shards]
    total = f", {format_size(sum(size or 0 for size in sizes))}" if all(sizes) else ""
    return f"first batches need {counted(len(shards), 'shard')}{total}"


def make_bar(label: str, size: int | None) -> Any:
    """Return the progress bar of a transfer; it is disabled for small objects, or if progress is not shown.

    Args:
        label: Name of the object; the end of its last part is shown.
        size: Bytes of the object; None when unknown.
    """
    from tqdm import tqdm

    shown = size is not None and size >= _LARGE_BYTES and shows_progress()
    return tqdm(
        total=size, desc=label.rpartition("/")[2][-40:], unit="B", unit_scale=True, disable=not shown, leave=False
    )


def format_size(size: float) -> str:
    """Return a number of bytes in human-readable form.

    Examples:
        >>> format_size(8_123_456_789), format_size(512)
        ('8.1 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
