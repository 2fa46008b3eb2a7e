"""Checks of a version 1 descriptor; every error names the file and the JSON path."""

from __future__ import annotations

import re
from typing import Any

import orjson

from wids.errors import DescriptorError

_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_LARGEST = 1 << 62
_REST = frozenset(["md5sum", "dataset", "name", "weight", "offsets", "counted_by"])
"""Rare keys of a shard; a shard without any of them is checked faster."""
_REMEDY = "correct the descriptor, or write it with: widsindex create"


def parse_json(data: bytes, file: str) -> dict[str, Any]:
    """Parse the bytes of a descriptor, and check the result with `check_object`.

    Raises:
        DescriptorError: They are not JSON, or not a descriptor.
    """
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise DescriptorError(
            f"{file}: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; {_REMEDY}"
        ) from error
    return check_object(content, file)


def check_object(content: Any, file: str) -> dict[str, Any]:
    """Return `content` if it is a descriptor of version 1.

    Raises:
        DescriptorError: It is not.
    """
    if not isinstance(content, dict):
        raise DescriptorError(f"{file}: holds {describe_type(content)}; a descriptor is an object with a shardlist")
    version = content.get("wids_version", 1)
    if version != 1 or isinstance(version, bool):
        raise DescriptorError(f"{file}: wids_version is {version!r}; only version 1 can be read")
    if "shardlist" not in content and "datasets" not in content:
        raise DescriptorError(f"{file}: has neither shardlist nor datasets; {_REMEDY}")
    for name in ("name", "base", "index"):
        check_text(content, name, file, "")
    columns = content.get("columns")
    if columns is not None and not isinstance(columns, dict):
        raise DescriptorError(f"{file}: columns is {describe_type(columns)}; it must be an object of names and files")
    for name in columns or {}:
        check_text(content["columns"], name, file, "columns.", required=True)
    return content


def check_text(content: dict[str, Any], name: str, file: str, path: str, *, required: bool = False) -> None:
    """Check that an entry is a string, or absent; with `required`, that it is a string and not empty.

    Raises:
        DescriptorError: It is not.
    """
    value = content.get(name)
    if value is None and not required:
        return
    if not isinstance(value, str) or (not value and required):
        shown = "missing" if name not in content else repr(value)
        raise DescriptorError(f"{file}: {path}{name} is {shown}; it must be a string")


def check_list(content: dict[str, Any], name: str, file: str, path: str) -> list[dict[str, Any]]:
    """Return the entry `name` of `content` if it is a list of objects.

    Raises:
        DescriptorError: It is something else.
    """
    value = content[name]
    if not isinstance(value, list):
        raise DescriptorError(f"{file}: {path}{name} is {describe_type(value)}; it must be a list")
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise DescriptorError(f"{file}: {path}{name}[{place}] is {describe_type(item)}; it must be an object")
    return value


def check_shard(shard: dict[str, Any], file: str, path: str) -> None:
    """Check one entry of a shardlist.

    Raises:
        DescriptorError: A value has the wrong type, or is out of range.
    """
    url = shard.get("url")
    if not isinstance(url, str) or not url:
        check_text(shard, "url", file, path, required=True)
    for name in ("nsamples", "filesize"):
        value = shard.get(name)
        if value is None:
            continue
        if type(value) is not int:
            raise DescriptorError(f"{file}: {path}{name} is {value!r}; it must be an integer")
        if not 0 <= value <= _LARGEST:
            raise DescriptorError(f"{file}: {path}{name} is {value}; it must be at least 0 and at most 2**62")
    if not _REST.isdisjoint(shard):
        _check_rest(shard, file, path)


def _check_rest(shard: dict[str, Any], file: str, path: str) -> None:
    digest = shard.get("md5sum")
    if digest is not None and (not isinstance(digest, str) or not _MD5.fullmatch(digest)):
        raise DescriptorError(f"{file}: {path}md5sum is {digest!r}; it must be 32 hexadecimal digits")
    for name in ("dataset", "name", "offsets", "counted_by"):
        check_text(shard, name, file, path)
    check_weight(shard, file, path)


def check_rows(content: dict[str, Any], file: str) -> dict[str, Any] | None:
    """Return the `rows` of a descriptor, which select samples; None when it has none. `wids.dataset.stored_rows` decodes them.

    Raises:
        DescriptorError: A value has the wrong type, or is out of range.
    """
    rows = content.get("rows")
    if rows is None:
        return None
    if not isinstance(rows, dict):
        raise DescriptorError(
            f"{file}: rows is {describe_type(rows)}; it must be an object, as widsindex select writes it"
        )
    for name in ("of", "count"):
        value = rows.get(name)
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise DescriptorError(f"{file}: rows.{name} is {value!r}; it must be an integer of at least 0")
    check_text(rows, "fingerprint", file, "rows.", required=True)
    if ("bits" in rows) == ("ranges" in rows):
        raise DescriptorError(f"{file}: rows has both bits and ranges, or neither; it must have one of them")
    check_text(rows, "bits", file, "rows.", required="bits" in rows)
    if "ranges" in rows and not (isinstance(rows["ranges"], list) and all(map(_is_pair, rows["ranges"]))):
        raise DescriptorError(f"{file}: rows.ranges must be a list of pairs of integers")
    return rows


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(bound) is int for bound in value)


def check_weight(content: dict[str, Any], file: str, path: str) -> None:
    """Check that a weight is a number of at least 0, or absent.

    Raises:
        DescriptorError: It is not.
    """
    weight = content.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight >= 0):
        raise DescriptorError(f"{file}: {path}weight is {weight!r}; it must be a number of at least 0")


def describe_type(value: Any) -> str:
    """Return the type of a JSON value in words, for messages; never the value itself, which may be of any size.

    Examples:
        >>> describe_type([]), describe_type(None)
        ('a list', 'null')
    """
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else f"a {type(value).__name__}")
