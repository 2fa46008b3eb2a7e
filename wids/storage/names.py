"""An object to the name of its cached file: readable, and never the same for two different objects.

The name is the stem of the URL and a digest of what identifies the object: its URL without signatures, and its size and
checksum in the descriptor. A shard that was rewritten is therefore another object.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wids.errors import FetchError
from wids.storage.compression import compression_of_name
from wids.storage.locations import Location, unsigned

BOOKKEEPING = ".wids"
"""Folder inside the cache folder for locks, records and unfinished files."""

_LONGEST_STEM_BYTES = 120
_DIGEST_DIGITS = 32

_STORE_OPTIONS = frozenset(
    ["endpoint_url", "endpoint", "account_name", "account_host", "host", "port", "project", "requester_pays"]
)
"""Storage options that distinguish stores which use the same URLs; credentials do not."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One object in the cache."""

    name: str
    """Name of its file, relative to the cache folder."""
    source: str
    """Digest of where it comes from."""
    version: str
    """Digest of what the descriptor says about its content; a rewritten object has another one."""
    size: int | None
    """Bytes of the file, from the descriptor; None when unknown, or when the object is compressed."""
    label: str
    """Name for messages: the URL without secrets."""
    is_own_name: bool
    """Whether the name contains both digests, so that no other object's file can have it."""

    @property
    def id(self) -> str:
        """Name of its files in the bookkeeping folder, without their suffixes."""
        return _digest(self.name)


def cache_key(
    location: Location,
    facts: Mapping[str, Any],
    *,
    storage_options: Mapping[str, Any],
    localname: Callable[[str], str] | None,
    cache_dir: str,
) -> CacheKey:
    """Return the cache key of an object.

    Args:
        location: Location of the object.
        facts: What is known about its content: `filesize` and `md5sum` from the descriptor, `mtime_ns` of a local file.
        storage_options: The options of its store.
        localname: The user's function from URL to name; None for stem and digests.
        cache_dir: The cache folder, which must contain what `localname` returns.

    Raises:
        FetchError: `localname` points out of the cache folder.
    """
    store = list(_store_identity(storage_options)) if location.kind == "store" else []
    source = _digest(unsigned(location), *store)
    version = _digest(*(facts.get(key) for key in ("filesize", "md5sum", "mtime_ns")))
    if localname is None:
        name = f"{readable_stem(location.path)}-{_digest(source, version)}.tar"
    else:
        name = _name_inside(cache_dir, localname(location.url), location)
    size = None if compression_of_name(location.path) else facts.get("filesize")
    return CacheKey(name, source, version, size, location.name, is_own_name=localname is None)


def readable_stem(path: str) -> str:
    """Return the basename without `.tar` and compression suffixes, cut to 120 bytes, with letters, digits and `._-` only.

    Examples:
        >>> readable_stem("bucket/a b/train-0001.tar.gz"), readable_stem("../..")
        ('train-0001', 'shard')
    """
    stem = path.rpartition("/")[2]
    compression = compression_of_name(stem)
    for suffix in (*(compression.suffixes if compression else ()), ".tar"):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
    stem = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in stem)
    # "ignore" drops a character that was cut in the middle.
    stem = stem.encode("utf-8")[:_LONGEST_STEM_BYTES].decode("utf-8", "ignore")
    return stem.strip("._-") or "shard"


def _name_inside(cache_dir: str, name: str, location: Location) -> str:
    # The join drops cache_dir when `name` is absolute: localname functions for 0.1.11 return absolute paths.
    path = os.path.normpath(os.path.join(cache_dir, name))  # noqa: PTH118 - Path has no lexical normpath
    relative = os.path.relpath(path, cache_dir)
    first = relative.split(os.sep, 1)[0]
    if first in {os.curdir, os.pardir, BOOKKEEPING} or "\0" in name:
        raise FetchError(
            f"{location.name}: localname returns {name!r}, which is not a file inside the cache folder {cache_dir}; "
            "return a name without directories, or set cache_dir"
        )
    return relative


def _store_identity(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in sorted(options.items(), key=lambda item: str(item[0])):
        if isinstance(value, Mapping):
            yield from _store_identity(value)
        elif key in _STORE_OPTIONS:
            yield f"{key}={value}"


def _digest(*facts: object) -> str:
    text = "\0".join("" if fact is None else str(fact) for fact in facts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
