"""A file that has its name only when it is whole: written under a private name beside it, then renamed."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LONGEST_STEM = 100
"""Letters of the name that are kept in the private one, so that file systems take it too."""


@contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Give a file to write for a block, which takes the place of what has its name when the block ends.

    Two writers do not mix. Where the block fails, nothing stays, and what was there before is untouched.

    Args:
        path: What it will be called.
        sync: Have it on the disk first. False for what is known by its digest, or made anew, after a power failure.

    Raises:
        OSError: It cannot be written.
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
