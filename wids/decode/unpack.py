"""Gzip, and how much any packed field may unpack to.

Deflate reaches 1,032 to 1 and FLAC more, so a field of a few megabytes can ask for more memory than there is. What is
packed is therefore unpacked only up to a bound that no training example comes near, in steps, so that nothing beyond
the bound is ever held.
"""

from __future__ import annotations

import gzip
import io
import zlib

from wids.errors import DecodeError

MAX_UNPACKED_BYTES = 2 * 1024**3
"""What one packed field (gzip, `.npz`, audio) may hold when unpacked."""

_STEP_BYTES = 1024 * 1024


def gunzip(data: bytes, *, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return what gzip data holds; members one after the other are joined, zeros behind the last are padding.

    Args:
        data: One gzip member or more.
        limit: Bytes that it may hold, at most.

    Raises:
        DecodeError: It is empty, no gzip, damaged or cut, something else follows it, or it holds more than `limit` bytes.
    """
    if not data:
        raise DecodeError("there are no bytes at all, not even a gzip header")
    try:
        return _read_small(min(limit, _STEP_BYTES), data) or _read_up_to(limit, gzip.GzipFile(fileobj=io.BytesIO(data)))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DecodeError(f"gzip: {error}") from error


def _read_small(limit: int, data: bytes) -> bytes:
    """Return what one small member holds, much sooner than a file object does; nothing when it is not as simple."""
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
    """Refuse a field that holds too much.

    Raises:
        ValueError: `num_bytes` is more than `limit`; says what can be done.
    """
    if num_bytes > limit:
        raise ValueError(
            f"unpacked it has more than the {limit} bytes that a field may have; if that is right, read it with a decoder "
            "of your own: decoders={'.whole.field.name': function}"
        )
