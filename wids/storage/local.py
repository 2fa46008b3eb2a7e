"""What a look at a local file tells, without its content being read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wids.errors import FetchError
from wids.storage.compression import HEAD_BYTES, compression_of_name, sniff

if TYPE_CHECKING:
    from wids.storage.locations import Location


def look_at(location: Location) -> tuple[os.stat_result, bytes]:
    """Return a local file's status and its first bytes."""
    try:
        with open(location.path, "rb", buffering=0) as file:  # noqa: PTH123 - Path changes some paths
            return os.fstat(file.fileno()), file.read(HEAD_BYTES)
    except OSError as error:
        raise FetchError(f"{location.name}: cannot be opened: {error.strerror}; is the path right?") from error


def is_compressed(location: Location, head: bytes) -> bool:
    """Tell whether a file is no plain tar, by its first bytes or its name."""
    return sniff(head) is not None or compression_of_name(location.path) is not None


def read_ahead(path: str) -> int:
    """Have the system read a file into its memory; return the file's size."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - Path changes some paths
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        return os.fstat(file.fileno()).st_size
