"""Extension to encoder, for everything but images; an encoder takes a field's value and returns its bytes."""

from __future__ import annotations

import json
import math
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import orjson

from wids.decode.basic import decode_msgpack
from wids.decode.packages import require
from wids.encode.arrays import encode_npy, encode_npz, encode_safetensors, encode_tenbin, encode_torch
from wids.encode.audio import encode_flac, encode_wav

if TYPE_CHECKING:
    from collections.abc import Callable

_PICKLE_PROTOCOL = 5
"""Fixed, so that another Python gives the same bytes; Python 3.8 and newer read it."""
_PYTHON_ONLY = ("Integer exceeds 64-bit range", "str is not valid UTF-8: surrogates not allowed")
"""What orjson says of values that it refuses, but Python's own writer and reader keep."""


def encode_text(value: Any) -> bytes:
    """Return text as UTF-8.

    Raises:
        TypeError: The value is no str.
        UnicodeEncodeError: The text has a lone surrogate.
    """
    if not isinstance(value, str):
        raise TypeError(f"it is of type {type(value).__name__}; text is a str, or bytes")
    return value.encode()


def encode_integer(value: Any) -> bytes:
    """Return the decimal digits of an integer, with its sign if it is negative.

    Raises:
        TypeError: The value is no integer.
    """
    return b"%d" % as_index(value)


def encode_json(value: Any) -> bytes:
    """Return a value as JSON that is read back the same: NaN and integers of any size as Python's own writer has them.

    Raises:
        TypeError: JSON cannot hold the value; keys must be text.
    """
    try:
        data = orjson.dumps(value, default=_to_plain)
    except orjson.JSONEncodeError as error:
        if str(error) not in _PYTHON_ONLY:
            raise
        _refuse_other_keys(value)
        return _dump_with_python(value)
    # orjson writes null for NaN and infinity, too; only then are the values looked through.
    if b"null" in data and _has_odd_float(value):
        return _dump_with_python(value)
    return data


def _to_plain(value: Any) -> Any:
    """Return a number or a tuple of another class as such, as Python's own writer does: numpy's float64, named tuples.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(value, float):
        return float(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError


def _refuse_other_keys(value: Any) -> None:
    """Refuse keys that Python's writer would make text of.

    Raises:
        TypeError: There is one.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("Dict key must be str")
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for one in value:
        _refuse_other_keys(one)


def _dump_with_python(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _has_odd_float(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_odd_float, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_odd_float, value))


def encode_json_lines(value: Any) -> bytes:
    """Return one line per value of a list (https://jsonlines.org).

    Raises:
        TypeError: The value is no list, or JSON cannot hold one of its elements.
    """
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"it is of type {type(value).__name__}; .jsonl holds a list, one value per line")
    return b"".join(encode_json(one) + b"\n" for one in value)


def encode_msgpack(value: Any) -> bytes:
    """Return a msgpack message.

    Raises:
        TypeError: msgpack cannot hold the value, or cannot read back one of its keys, such as a tuple.
    """
    data: bytes = require("msgpack", "wids[msgpack]").packb(value)
    decode_msgpack(data)
    return data


def encode_pickle(value: Any, *, allow_pickle: bool) -> bytes:
    """Return a pickle, if that is allowed: reading one can run code.

    Raises:
        ValueError: It is not allowed.
    """
    if not allow_pickle:
        raise ValueError("readers refuse pickles, which can run code; pass allow_pickle=True if your readers trust you")
    import pickle

    return pickle.dumps(value, _PICKLE_PROTOCOL)


PLAIN: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), encode_text),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), encode_integer),
    **dict.fromkeys(("json", "jsn"), encode_json),
    "jsonl": encode_json_lines,
    "safetensors": encode_safetensors,
    **dict.fromkeys(("mp", "msg", "msgpack"), encode_msgpack),
    **dict.fromkeys(("ten", "tb"), encode_tenbin),
    "flac": encode_flac,
    "wav": encode_wav,
}
"""Extension to encoder."""

WITH_PICKLE: dict[str, Callable[..., Any]] = {
    "npy": encode_npy,
    "npz": encode_npz,
    **dict.fromkeys(("pt", "pth"), encode_torch),
    **dict.fromkeys(("pkl", "pickle", "pyd"), encode_pickle),
}
"""Extension to encoder that takes `allow_pickle`."""
