"""Arrays and tensors to files: numpy's, torch's, safetensors', tenbin's."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from wids.decode.arrays import decode_torch
from wids.decode.packages import require
from wids.decode.tenbin import ALIGNMENT, DTYPES, MAGIC


def encode_npy(value: Any, *, allow_pickle: bool) -> bytes:
    """Return an `.npy` file of an array, or of anything that numpy makes into one.

    Raises:
        ValueError: The array holds Python objects, and pickles are not allowed.
        TypeError: The array has a mask.
    """
    array = _to_array(value)
    if array.dtype.hasobject and not allow_pickle:
        raise ValueError(f"numpy makes an array of Python objects of this {type(value).__name__}, which is a pickle")
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def encode_npz(value: Any, *, allow_pickle: bool) -> bytes:
    """Return an `.npz` file of `{name: array}`; a value of bytes becomes a file of that name.

    Raises:
        TypeError: The value is no mapping from text.
        ValueError: An array holds Python objects, and pickles are not allowed; or a name would be read back as another.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"it is of type {type(value).__name__}; .npz holds a dictionary of names and arrays")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in value.items():
            if "\0" in name or (isinstance(array, bytes) and name.endswith(".npy")):
                raise ValueError(f"the name {name!r} would be read back as another; give it another one")
            # A ZipInfo made without a time has a fixed one, so equal values give equal bytes.
            if isinstance(array, bytes):
                archive.writestr(zipfile.ZipInfo(name), array)
            else:
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), encode_npy(array, allow_pickle=allow_pickle))
    return file.getvalue()


def _to_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            "a masked array would lose its mask; give what its filled() returns, and the mask as another field"
        )
    return np.asarray(value)


def encode_torch(value: Any, *, allow_pickle: bool) -> bytes:
    """Return what `torch.save` writes; without `allow_pickle`, only what can be read back without it.

    Raises:
        ValueError: The value holds more than tensors and plain containers, and pickles are not allowed.
    """
    torch = require("torch", "torch")
    file = io.BytesIO()
    torch.save(_without_the_rest(value, torch), file)
    data = file.getvalue()
    if not allow_pickle:
        decode_torch(data, allow_pickle=False)
    return data


def _without_the_rest(value: Any, torch: Any) -> Any:
    """Return a value in which no tensor is a view of a larger one, of which torch would save all."""
    if type(value) in {list, tuple}:
        return type(value)(_without_the_rest(one, torch) for one in value)
    if type(value) is dict:
        return {name: _without_the_rest(one, torch) for name, one in value.items()}
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device.type == "meta":
        return value
    if value.untyped_storage().nbytes() <= value.numel() * value.element_size():
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def encode_safetensors(value: Any) -> bytes:
    """Return a safetensors file of `{name: tensor}`.

    Raises:
        TypeError: The value is no such mapping.
        ValueError: The format has no such tensor.
    """
    torch = require("torch", "torch")
    others = [one for one in value.values() if not torch.is_tensor(one)] if isinstance(value, Mapping) else [value]
    if others:
        held = "one of its values" if isinstance(value, Mapping) else "it"
        raise TypeError(
            f"{held} is of type {type(others[0]).__name__}; .safetensors holds a dictionary of names and tensors"
        )
    tensors = {name: tensor.contiguous() for name, tensor in value.items()}
    data: bytes = require("safetensors.torch", "safetensors").save(tensors)
    return data


def encode_tenbin(value: Any) -> bytes:
    """Return a `.ten` file of a list of arrays, or of a single one (see `wids.decode.tenbin`).

    Raises:
        ValueError: The format does not have an array's dtype.
    """
    arrays = value if isinstance(value, (list, tuple)) else [value]
    return b"".join(chunk for array in arrays for chunk in _tenbin_chunks(_to_array(array)))


def _tenbin_chunks(array: np.ndarray[Any, Any]) -> tuple[bytes, bytes]:
    name = next((name for name, dtype in DTYPES.items() if dtype == array.dtype.newbyteorder("<")), None)
    if name is None:
        raise ValueError(f"an array of dtype {array.dtype}; .ten holds {', '.join(DTYPES)}")
    header = struct.pack(f"<8s8sq{array.ndim}q", name.encode(), b"", array.ndim, *array.shape)
    content = np.ascontiguousarray(array, DTYPES[name])
    return _tenbin_chunk(header), _tenbin_chunk(content.tobytes())


def _tenbin_chunk(content: bytes) -> bytes:
    return MAGIC + struct.pack("<q", len(content)) + content + bytes(-len(content) % ALIGNMENT)
