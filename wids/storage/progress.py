"""What a person at a terminal sees of transfers; nothing where there is none, unless `$WIDS_VERBOSE` is 1."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from wids.storage.process import PerProcess
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LARGE_BYTES = 64 << 20
"""A smaller object is there before its bar can be read."""


def is_watched() -> bool:
    """Tell whether somebody looks: stderr is a terminal, or `$WIDS_VERBOSE` is 1; never when that is 0."""
    said = os.environ.get("WIDS_VERBOSE")
    if said in {"0", "1"}:
        return said == "1"
    return sys.stderr is not None and sys.stderr.isatty()


class SayOnce:
    """Prints one line in each process, the first that it is given, where somebody looks."""

    def __init__(self) -> None:
        self._said: PerProcess[list[str]] = PerProcess(list)

    def say(self, line: Callable[[], str]) -> None:
        """Print the line that a function returns, unless there was one before."""
        said = self._said.get()
        if not said and is_watched():
            said.append(line())
            sys.stderr.write(f"wids: {said[0]}\n")


def describe_first(shards: Sequence[Mapping[str, Any]]) -> str:
    """Return what is said of the shards that are needed first."""
    sizes = [shard.get("filesize") for shard in shards]
    total = f", {in_words(sum(size or 0 for size in sizes))}" if all(sizes) else ""
    return f"first batches need {counted(len(shards), 'shard')}{total}"


def make_bar(label: str, size: int | None) -> Any:
    """Return a progress bar for a transfer of so many bytes: shown when it is large and somebody looks."""
    from tqdm import tqdm

    shown = size is not None and size >= _LARGE_BYTES and is_watched()
    return tqdm(
        total=size, desc=label.rpartition("/")[2][-40:], unit="B", unit_scale=True, disable=not shown, leave=False
    )


def in_words(size: float) -> str:
    """Return a number of bytes for people.

    Examples:
        >>> in_words(8_123_456_789), in_words(512)
        ('8.1 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
