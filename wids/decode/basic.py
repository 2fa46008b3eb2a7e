"""The decoders of all fields but images, by extension; each takes a field's bytes and returns its value."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from wids.decode.arrays import decode_npy, decode_npz, decode_safetensors, decode_torch
from wids.decode.audio import decode_audio
from wids.decode.packages import require
from wids.decode.tenbin import decode_tenbin

if TYPE_CHECKING:
    from collections.abc import Callable

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""Matches what may be an integer of more than 64 bits, which orjson would round to a float."""

_EXACT_FLOATS = 2.0**53
"""Below this bound, different whole numbers are different floats."""


def decode_text(data: bytes) -> str:
    """Return UTF-8 text, unchanged.

    Raises:
        UnicodeDecodeError: The bytes are not UTF-8.
    """
    return data.decode("utf-8")


def decode_integer(data: bytes) -> int:
    """Return a whole number, written as `3`, `3.0` or `3.000e+00`, with or without white space around it.

    Raises:
        ValueError: The text is not a whole number, or is a float of 2**53 or more, which stands for several.
    """
    text = data.decode("utf-8").strip()
    try:
        return int(text)
    except ValueError:
        number = _to_float(text)
        # is_integer() is false for NaN and the infinities; 1e400 is an infinity.
        if not number.is_integer() or abs(number) >= _EXACT_FLOATS:
            raise ValueError(f"{text[:40]!r} is not a whole number") from None
        return int(number)


def _to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def decode_json(data: bytes) -> Any:
    """Return the value of a JSON text: the same as `json.loads` returns, but faster.

    `json.loads` accepts NaN, Infinity, lone surrogates, a byte order mark and UTF-16, and keeps integers of any size. orjson
    refuses the former and rounds the latter, so texts that may contain any of these are left to `json.loads`. If a name
    occurs twice in an object, both take the last value.

    Raises:
        ValueError: The text is not JSON.
    """
    if _LONG_NUMBER.search(data):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def decode_json_lines(data: bytes) -> list[Any]:
    """Return one value per line; empty lines are skipped (https://jsonlines.org).

    Raises:
        ValueError: A line is not JSON; the message gives its number.
    """
    values = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                values.append(decode_json(line))
            except ValueError as error:
                raise ValueError(f"line {number} cannot be decoded: {error}") from error
    return values


def decode_msgpack(data: bytes) -> Any:
    """Return the value of a msgpack message.

    Raises:
        ValueError: The message is cut or damaged, or other bytes follow it.
    """
    return require("msgpack", "wids[msgpack]").unpackb(data, raw=False, strict_map_key=False)


def decode_pickle(data: bytes, *, allow_pickle: bool) -> Any:
    """Return the object in a pickle, which can run code and is therefore loaded only if that is allowed.

    Raises:
        ValueError: `allow_pickle` is false.
    """
    if not allow_pickle:
        raise ValueError("a pickle can run code; pass allow_pickle=True if you trust who wrote the shards")
    import pickle

    return pickle.loads(data)  # noqa: S301  # the user allowed it


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
"""Decoders by extension."""

WITH_PICKLE: dict[str, Callable[..., Any]] = {
    "npy": decode_npy,
    "npz": decode_npz,
    **dict.fromkeys(("pt", "pth"), decode_torch),
    **dict.fromkeys(("pkl", "pickle", "pyd"), decode_pickle),
}
"""Decoders with an argument `allow_pickle`, by extension."""
