"""The `.ten` format of webdataset: a sequence of arrays, each a header chunk and a data chunk.

A chunk is the magic `~TenBin~`, an int64 length, and that many bytes, padded to a multiple of 64. A header holds the dtype
and a name, eight characters each, then as int64s the number of dimensions and each dimension.
Source: https://github.com/webdataset/webdataset/blob/main/src/webdataset/tenbin.py
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

MAGIC = b"~TenBin~"
ALIGNMENT = 64
DTYPES = {name: np.dtype(f"<{name}") for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")}


def decode_tenbin(data: bytes) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a `.ten` file; an empty file has none.

    Raises:
        ValueError: A chunk, a header or an array is cut or contradicts itself.
    """
    arrays = []
    offset = 0
    while offset < len(data):
        header, offset = _read_chunk(data, offset)
        content, offset = _read_chunk(data, offset)
        arrays.append(_make_array(header, content))
    return arrays


def _read_chunk(data: bytes, offset: int) -> tuple[bytes, int]:
    if data[offset : offset + 8] != MAGIC:
        raise ValueError(f"no chunk at byte {offset}")
    start = offset + 16
    if start > len(data):
        raise ValueError(f"the chunk at byte {offset} is truncated")
    (length,) = struct.unpack_from("<q", data, offset + 8)
    end = start + -(-length // ALIGNMENT) * ALIGNMENT
    if length < 0 or end > len(data):
        raise ValueError(f"the chunk at byte {offset} has {length} bytes and padding, more than there are")
    return data[start : start + length], end


def _make_array(header: bytes, content: bytes) -> np.ndarray[Any, Any]:
    if len(header) < 24 or len(header) % 8:
        raise ValueError(f"a header of {len(header)} bytes")
    name = header[:8].rstrip(b"\0").decode("latin-1")
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is unknown")
    (num_dimensions,) = struct.unpack_from("<q", header, 16)
    if num_dimensions != len(header) // 8 - 3:
        raise ValueError(f"{num_dimensions} dimensions in a header of {len(header)} bytes")
    shape = struct.unpack_from(f"<{num_dimensions}q", header, 24)
    dtype = DTYPES[name]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape).copy()
