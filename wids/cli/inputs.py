"""What comes on stdin, where a command is given `-`: names, a descriptor, or a shard."""

from __future__ import annotations

import os
import sys
import tempfile
from codecs import BOM_UTF8
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from wids.cli.terminal import show_as

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


@contextmanager
def data_set(name: str) -> Iterator[Any]:
    """Give what `name` stands for, as data sets are opened by it, for a block.

    `-` is stdin: an open file where that has a descriptor, and a file's path where it has a shard, which is unpacked there
    until the block ends, because samples are read in any order. Either is shown as `-`, then and later.
    """
    if name != "-":
        yield name
        return
    stdin = cast("BufferedReader", sys.stdin.buffer)
    if stdin.peek(1).lstrip()[:1] in {b"{", b""}:
        show_as("<stdin>", "-")
        yield stdin
        return
    with tempfile.NamedTemporaryFile(prefix="stdin-", suffix=".tar") as file:
        show_as(file.name, "-")
        from wids.storage.compression import unpack

        unpack(stdin, file, "-")
        yield file.name


def expand_names(given: list[str]) -> list[str]:
    """Return names with those that stdin has, one a line, in place of each `-`."""
    return [name for one in given for name in (_read_names() if one == "-" else [one])]


def _read_names() -> list[str]:
    # Names are whatever bytes the shards and the system have; editors of Windows end lines with \r\n.
    lines = (os.fsdecode(line.rstrip(b"\r")) for line in without_mark(sys.stdin.buffer.read()).split(b"\n"))
    return [line for line in lines if line.strip()]


def without_mark(text: bytes) -> bytes:
    """Return a text without the mark that editors of Windows begin a file with."""
    return text.removeprefix(BOM_UTF8)
