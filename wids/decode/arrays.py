"""Decoders for files of arrays and tensors: `.npy`, `.npz`, `torch.save`, and safetensors.

The size that a header states is compared with the bytes available before memory is allocated. Nothing that can run code is
loaded unless the user allows it.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from typing import Any

import numpy as np

from wids.decode.packages import require
from wids.decode.unpack import MAX_UNPACKED_BYTES, check_size

_NPY_MAGIC = b"\x93NUMPY"


def decode_npy(data: bytes, *, allow_pickle: bool) -> np.ndarray[Any, Any]:
    """Return the array of an `.npy` file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).

    Raises:
        ValueError: The header does not match the data, or the array holds Python objects and `allow_pickle` is false.
    """
    version, shape, is_fortran, dtype, start = _read_npy_header(data)
    if dtype.hasobject and not allow_pickle:
        raise ValueError(
            "an array of Python objects is a pickle, which can run code; pass allow_pickle=True if you trust who wrote it"
        )
    num_bytes = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or (not dtype.hasobject and num_bytes > len(data) - start):
        raise ValueError(f"the header says shape {shape} and dtype {dtype}, but {len(data) - start} bytes follow it")
    if version == (3, 0) or dtype.hasobject or not num_bytes:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=allow_pickle)
        return array
    flat = np.frombuffer(data, dtype, math.prod(shape), start).copy()
    return flat.reshape(shape[::-1]).transpose() if is_fortran else flat.reshape(shape)


def _read_npy_header(data: bytes) -> tuple[tuple[int, int], tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the format version, shape, whether the order is Fortran's, dtype, and the offset of the data."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in {(1, 0), (2, 0), (3, 0)}:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown")
    # numpy has no function that reads a 3.0 header alone; it differs from 2.0 only in the encoding of field names.
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read_header(file)
    except (MemoryError, RecursionError) as error:  # Python's parser raises them for thousands of brackets or signs
        raise ValueError("the header is nested too deeply") from error
    return version, shape, is_fortran, dtype, file.tell()


def decode_npz(
    data: bytes, *, allow_pickle: bool, limit: int = MAX_UNPACKED_BYTES
) -> dict[str, np.ndarray[Any, Any] | bytes]:
    """Return `{name: array}` of an `.npz` file; an entry that is not an array stays bytes, as in numpy.

    Args:
        data: A ZIP of `.npy` files.
        allow_pickle: Allow arrays of Python objects.
        limit: The most bytes that all entries may have together.

    Raises:
        ValueError: An entry does not match its header or occurs twice, and the message names it; or the entries are too
            large together.
        zipfile.BadZipFile: The ZIP is damaged.
    """
    arrays: dict[str, np.ndarray[Any, Any] | bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        entries = file.infolist()
        check_size(sum(entry.file_size for entry in entries), limit)
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"entry {name!r} occurs twice")
            with file.open(entry) as stream:
                # Given a length, zipfile unpacks no more than the ZIP's directory states; without one, up to 2 GiB.
                content = stream.read(entry.file_size)
            if len(content) != entry.file_size:
                raise ValueError(f"entry {name!r} has {len(content)} bytes, not {entry.file_size}")
            is_array = content.startswith(_NPY_MAGIC)
            try:
                arrays[name] = decode_npy(content, allow_pickle=allow_pickle) if is_array else content
            except ValueError as error:
                raise ValueError(f"entry {name!r} cannot be decoded: {error}") from error
    return arrays


def decode_torch(data: bytes, *, allow_pickle: bool) -> Any:
    """Return what `torch.save` wrote, on the CPU; without `allow_pickle` only tensors and plain containers are loaded.

    Raises:
        ValueError: The file is cut or damaged, or holds other objects and `allow_pickle` is false.
        RuntimeError: The file is cut or damaged, as torch reports it.
    """
    torch = require("torch", "torch")
    if not allow_pickle and data[257:262] == b"ustar":
        # Releases of torch before 2.6 run code from such files even with weights_only=True (CVE-2025-32434).
        raise ValueError(
            "a tar in torch's format from before 2017 can run code; pass allow_pickle=True if you trust it"
        )
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not allow_pickle)
    except pickle.UnpicklingError as error:
        if allow_pickle:
            raise
        # Only the part of torch's message that says what it found is kept; the rest advises to set an argument of torch.load.
        found = str(error).partition("WeightsUnpickler error: ")[2].partition("\n")[0].partition(" Please use ")[0]
        raise ValueError(
            f"damaged, or more than tensors and plain containers ({found or 'unreadable'}); the latter can run code: pass "
            "allow_pickle=True if you trust who wrote it"
        ) from error


def decode_safetensors(data: bytes) -> dict[str, Any]:
    """Return `{name: tensor}` of a safetensors file.

    Raises:
        safetensors.SafetensorError: The file is cut or damaged.
    """
    require("torch", "torch")
    tensors: dict[str, Any] = require("safetensors.torch", "safetensors").load(data)
    return tensors
