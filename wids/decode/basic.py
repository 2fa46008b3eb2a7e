"""Decoders of everything but images: each takes a field's bytes and gives its value.

Packages are imported where they are first used, so that a dataset needs only those of the fields it has.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from wids.decode.tenbin import decode_tenbin

if TYPE_CHECKING:
    from collections.abc import Callable


def decode_text(data: bytes) -> str:
    """Return UTF-8 text."""
    return data.decode("utf-8")


def decode_integer(data: bytes) -> int:
    """Return a whole number, written as `3` or `3.0`."""
    text = data.decode("utf-8").strip()
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError(f"{text[:40]!r} is no whole number") from None
        return int(number)


def decode_json(data: bytes) -> Any:
    """Return what a JSON text holds; NaN and integers of any size too, as Python's own reader allows."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def decode_json_lines(data: bytes) -> list[Any]:
    """Return one value per line; empty lines are skipped."""
    values = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                values.append(decode_json(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
    return values


def decode_npy(data: bytes, *, allow_pickle: bool) -> np.ndarray[Any, Any]:
    """Return an array."""
    array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=allow_pickle)
    return array


def decode_npz(data: bytes, *, allow_pickle: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Return `{name: array}`."""
    with np.load(io.BytesIO(data), allow_pickle=allow_pickle) as arrays:
        return {name: arrays[name] for name in arrays.files}


def decode_torch(data: bytes, *, allow_pickle: bool) -> Any:
    """Return what `torch.save` wrote, on the CPU; without `allow_pickle` tensors and plain containers only."""
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not allow_pickle)


def decode_safetensors(data: bytes) -> dict[str, Any]:
    """Return `{name: tensor}`."""
    from safetensors.torch import load

    return load(data)


def decode_msgpack(data: bytes) -> Any:
    """Return what a msgpack message holds."""
    msgpack = _require("msgpack", "msgpack")
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def decode_audio(data: bytes) -> tuple[Any, int]:
    """Return `(samples, rate)`: a float32 tensor `(channels, frames)` in [-1, 1], and frames per second."""
    import torch

    soundfile = _require("soundfile", "audio")
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return torch.from_numpy(np.ascontiguousarray(samples.T)), rate


def decode_pickle(data: bytes, *, allow_pickle: bool) -> Any:
    """Return what a pickle holds; it can run code, so only where that is allowed."""
    if not allow_pickle:
        raise ValueError("a pickle can run code; pass allow_pickle=True if you trust who wrote the shards")
    import pickle

    return pickle.loads(data)  # noqa: S301  # the user allowed it


def _require(package: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"this field needs the package {package!r}, which is not installed; pip install 'wids[{extra}]'"
        ) from error


PLAIN: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), decode_text),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), decode_integer),
    **dict.fromkeys(("json", "jsn"), decode_json),
    "jsonl": decode_json_lines,
    "safetensors": decode_safetensors,
    **dict.fromkeys(("mp", "msg", "msgpack"), decode_msgpack),
    **dict.fromkeys(("ten", "tb"), decode_tenbin),
    **dict.fromkeys(("flac", "wav", "mp3", "opus", "ogg"), decode_audio),
}
"""Extension to decoder."""

WITH_PICKLE: dict[str, Callable[..., Any]] = {
    "npy": decode_npy,
    "npz": decode_npz,
    **dict.fromkeys(("pt", "pth"), decode_torch),
    **dict.fromkeys(("pkl", "pickle", "pyd"), decode_pickle),
}
"""Extension to decoder that takes `allow_pickle`."""
