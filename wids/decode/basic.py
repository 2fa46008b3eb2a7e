"""Extension to decoder, for everything but images: each takes a field's bytes and gives its value."""

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
"""What may be an integer beyond 64 bits, which orjson rounds to a float."""

_EXACT_FLOATS = 2.0**53
"""Below it every whole number has a float of its own."""


def decode_text(data: bytes) -> str:
    """Return UTF-8 text, as it stands.

    Raises:
        UnicodeDecodeError: It is not UTF-8.
    """
    return data.decode("utf-8")


def decode_integer(data: bytes) -> int:
    """Return a whole number, written as `3`, `3.0` or `3.000e+00`, with white space around it.

    Raises:
        ValueError: It is none, or is written as a float too large to tell which.
    """
    text = data.decode("utf-8").strip()
    try:
        return int(text)
    except ValueError:
        number = _to_float(text)
        # NaN and the infinities are no whole numbers; 1e400 is an infinity.
        if not number.is_integer() or abs(number) >= _EXACT_FLOATS:
            raise ValueError(f"{text[:40]!r} is no whole number") from None
        return int(number)


def _to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def decode_json(data: bytes) -> Any:
    """Return what a JSON text holds, exactly what Python's own reader makes of it, sooner.

    Python's reader takes NaN, Infinity, lone surrogates, a byte order mark and UTF-16, and keeps integers of any size;
    orjson refuses the former and rounds the latter, so what may hold one of them goes to Python's. Of a name that occurs
    twice the last value counts, in both.

    Raises:
        ValueError: It is no JSON.
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
        ValueError: A line is no JSON; names it.
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
    """Return what a msgpack message holds.

    Raises:
        ValueError: It is cut, damaged, or followed by something.
    """
    return require("msgpack", "wids[msgpack]").unpackb(data, raw=False, strict_map_key=False)


def decode_pickle(data: bytes, *, allow_pickle: bool) -> Any:
    """Return what a pickle holds; it can run code, so only where that is allowed.

    Raises:
        ValueError: It is not allowed.
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
"""Extension to decoder."""

WITH_PICKLE: dict[str, Callable[..., Any]] = {
    "npy": decode_npy,
    "npz": decode_npz,
    **dict.fromkeys(("pt", "pth"), decode_torch),
    **dict.fromkeys(("pkl", "pickle", "pyd"), decode_pickle),
}
"""Extension to decoder that takes `allow_pickle`."""
