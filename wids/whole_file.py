"""Atomic writes: a file is written under a temporary name in the same folder, and renamed when it is complete."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LONGEST_STEM = 100
"""Characters of the file's name that the temporary name keeps; file systems limit a name's length."""


@contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` atomically at the end of the `with` block.

    Concurrent writers do not mix: the last one to finish wins. If the block raises, the temporary file is removed and
    `path` is left as it was.

    Args:
        path: The file to create or replace.
        sync: Flush the file to disk before it is renamed. Pass False for a file whose loss in a power failure is
            noticed, by its digest say, or which is simply made again.

    Raises:
        OSError: The file cannot be written.
    """
    part = path.with_name(f".{path.name[:_LONGEST_STEM]}.{secrets.token_hex(8)}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
