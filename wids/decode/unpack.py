"""Unpack gzip, and limit the size that any compressed field may have when unpacked.

Deflate compresses up to 1,032 to 1, and FLAC more, so a field of a few megabytes can need more memory than the machine has.
Therefore fields are unpacked in steps, and only up to a limit far above the size of any training example.
"""

from __future__ import annotations

import gzip
import io
import zlib

from wids.errors import DecodeError

MAX_UNPACKED_BYTES = 2 * 1024**3
"""The most bytes that one compressed field (gzip, `.npz`, audio) may have when unpacked."""

_STEP_BYTES = 1024 * 1024


def gunzip(data: bytes, *, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Unpack gzip data.

    Args:
        data: One gzip member or more, whose contents are joined; zeros after the last one are padding.
        limit: The most bytes that the data may unpack to.

    Raises:
        DecodeError: The data is empty, not gzip, damaged or cut, is followed by other bytes, or unpacks to more than `limit`
            bytes.
    """
    if not data:
        raise DecodeError("the field is empty, without even a gzip header")
    try:
        return _read_small(min(limit, _STEP_BYTES), data) or _read_up_to(limit, gzip.GzipFile(fileobj=io.BytesIO(data)))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DecodeError(f"gzip: {error}") from error


def _read_small(limit: int, data: bytes) -> bytes:
    """Unpack a single small member, much faster than `GzipFile` does; return no bytes if the data is anything else."""
    unpacker = zlib.decompressobj(wbits=31)
    content = unpacker.decompress(data, limit + 1)
    return content if unpacker.eof and not unpacker.unused_data and len(content) <= limit else b""


def _read_up_to(limit: int, file: gzip.GzipFile) -> bytes:
    steps = []
    num_bytes = 0
    while step := file.read(_STEP_BYTES):
        num_bytes += len(step)
        check_size(num_bytes, limit)
        steps.append(step)
    return steps[0] if len(steps) == 1 else b"".join(steps)


def check_size(num_bytes: int, limit: int) -> None:
    """Check the unpacked size of a field.

    Raises:
        ValueError: `num_bytes` is more than `limit`; the message says what can be done.
    """
    if num_bytes > limit:
        raise ValueError(
            f"unpacked it has more than the {limit} bytes that a field may have; if that is right, read it with a decoder "
            "of your own: decoders={'.whole.field.name': function}"
        )
