"""Keys and fields as users write them to names of members that are read back as the same keys and fields."""

from __future__ import annotations

import re

from wids.errors import EncodeError

_ORDINARY_KEY = re.compile(r"[\w-]+(?:/[\w-]+)*", re.ASCII)
_ORDINARY_FIELD = re.compile(r"\.?\w+(?:\.\w+)*", re.ASCII)


def encode_key(key: object) -> bytes:
    """Return a key as the names of members have it.

    Raises:
        EncodeError: It would be read back as another key, or be a path outside the folder where it is unpacked.

    Examples:
        >>> encode_key("n01440764/000041")
        b'n01440764/000041'
        >>> encode_key("a/b.c")
        Traceback (most recent call last):
        wids.errors.EncodeError: key 'a/b.c': has a dot after its last slash, where the field would begin; write another key
    """
    if not isinstance(key, str):
        raise EncodeError(f"key {key!r}: is of type {type(key).__name__}; it must be a str")
    if _ORDINARY_KEY.fullmatch(key):
        return key.encode()
    fault = _find_fault_of_key(key)
    if fault is not None:
        raise EncodeError(f"key {key!r}: {fault}; write another key")
    return key.encode("utf-8", "surrogateescape")


def encode_field(field: object) -> bytes:
    """Return a field as the names of members have it, with its dot.

    Raises:
        EncodeError: It would be read back as another field, or not at all.

    Examples:
        >>> encode_field("jpg"), encode_field(".seg.PNG")
        (b'.jpg', b'.seg.PNG')
    """
    if not isinstance(field, str):
        raise EncodeError(f"field {field!r}: is of type {type(field).__name__}; it must be a str")
    fault = None if _ORDINARY_FIELD.fullmatch(field) else _find_fault_of_field(field)
    if fault is not None:
        raise EncodeError(f"field {field!r}: {fault}; write another name")
    return ("" if field.startswith(".") else ".").encode() + field.encode("utf-8", "surrogateescape")


def _find_fault_of_key(key: str) -> str | None:
    if not key:
        return "is empty"
    if key.startswith("/"):
        return "begins with a slash, which makes a path outside the folder where it is unpacked"
    folder, slash, basename = key.rpartition("/")
    if not basename:
        return "ends with a slash, so that no name is left"
    if "." in basename:
        return "has a dot after its last slash, where the field would begin"
    if ".." in folder.split("/"):
        return "has '..' for a folder, which makes a path outside the folder where it is unpacked"
    if slash and "" in folder.split("/"):
        return "has a folder without a name"
    return _find_fault_of_text(key)


def _find_fault_of_field(field: str) -> str | None:
    if not field.strip("."):
        return "is not a name"
    if "/" in field:
        return "has a slash, so that part of it would belong to the key"
    return _find_fault_of_text(field)


def _find_fault_of_text(text: str) -> str | None:
    if "\0" in text:
        return "has a NUL, which ends names in tar"
    try:
        if text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text:
            return None
    except UnicodeEncodeError:
        pass
    return "has a lone surrogate, which UTF-8 does not have"
