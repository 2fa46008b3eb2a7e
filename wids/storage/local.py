"""Facts about a local file that can be found without reading its content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wids.errors import cannot_open
from wids.storage.compression import HEAD_BYTES, compression_of_name, sniff

if TYPE_CHECKING:
    from wids.storage.locations import Location


def read_head(location: Location) -> tuple[os.stat_result, bytes]:
    """Return a local file's status and its first `HEAD_BYTES` bytes.

    Raises:
        FetchError: The file cannot be opened.
    """
    try:
        with open(location.path, "rb", buffering=0) as file:  # noqa: PTH123 - Path changes some paths
            return os.fstat(file.fileno()), file.read(HEAD_BYTES)
    except OSError as error:
        raise cannot_open(location.name, error) from error


def is_compressed(location: Location, head: bytes) -> bool:
    """Return whether a file is compressed, by its first bytes or its name."""
    return sniff(head) is not None or compression_of_name(location.path) is not None


def read_ahead(path: str) -> int:
    """Ask the system to read a file into the page cache; return the file's size in bytes."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - Path changes some paths
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        return os.fstat(file.fileno()).st_size
