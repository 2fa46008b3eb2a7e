"""What a command reads from stdin when it is given `-`: names, a descriptor, or a shard."""

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
    """Yield what a dataset is opened by: `name` itself, or what `-` stands for.

    A descriptor on stdin is yielded as an open file. A shard is written to a temporary file, unpacked and removed after the
    block, because samples are read in any order; its path is yielded. Both are shown to the user as `-`, then and later.
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
    """Return names, with those that stdin lists, one a line, in place of each `-`."""
    return [name for one in given for name in (_read_names() if one == "-" else [one])]


def _read_names() -> list[str]:
    # Names may be any bytes that shards and file systems hold; editors on Windows end lines with \r\n.
    lines = (os.fsdecode(line.rstrip(b"\r")) for line in without_mark(sys.stdin.buffer.read()).split(b"\n"))
    return [line for line in lines if line.strip()]


def without_mark(text: bytes) -> bytes:
    """Return a text without the byte order mark with which editors on Windows begin a file."""
    return text.removeprefix(BOM_UTF8)
