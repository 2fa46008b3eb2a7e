"""A URL to the kind of place that it names: a local file, a web server, an object store, or a command.

A `file:` URL is percent-decoded and nothing else in it is special, so that `file:/data/a?b#c.tar` names a file. A plain path is
used as it is. A `~` at the start of either is the home folder. Any `scheme://` other than http and https is an fsspec store.
This is pure text processing; nothing is opened.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from wids.errors import FetchError, redact

LocationKind = Literal["local", "web", "store", "pipe"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# Query parameters that sign a request or identify the client; the object is the same without them.
_SIGNING = re.compile(
    r"x-(amz|goog)-.*|awsaccesskeyid|googleaccessid|key-pair-id|signature|sig|token|access_token", re.IGNORECASE
)
# Parameters that belong to a signature if there is one; without a signature they may identify the object. The short ones
# are those of Azure's shared access signatures:
# https://learn.microsoft.com/rest/api/storageservices/create-service-sas, "Construct a service SAS".
_BESIDE_SIGNATURE = frozenset(
    [
        "expires",
        "policy",
        "sv",
        "ss",
        "srt",
        "sp",
        "se",
        "st",
        "sr",
        "spr",
        "sip",
        "skoid",
        "sktid",
        "sks",
        "skv",
        "ske",
        "skt",
    ],
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where an object is stored."""

    url: str
    """The URL or path as given."""
    kind: LocationKind
    """The transport that reads it."""
    path: str
    """Path of a local file; for others, the percent-decoded part of the URL from which names and suffixes are taken."""
    name: str
    """Name for messages: the URL without secrets."""


def locate(url: str) -> Location:
    """Parse a URL or path.

    Raises:
        FetchError: It names a file on another host, or is not a valid path.

    Examples:
        >>> locate("file:/data/a%20b.tar").path
        '/data/a b.tar'
        >>> locate("https://me:pw@host/a%20b.tar?sig=1").name
        'https://***@host/a%20b.tar?sig=***'
        >>> locate("pipe:curl -H 'Authorization: secret' https://host/a.tar").name
        'pipe:curl …'
    """
    if url.startswith("pipe:"):
        return Location(url, "pipe", "pipe", redact(url))
    if url[:5].lower() == "file:":
        return _locate_file(_path_of_file_url(url), url)
    match = _SCHEME.match(url)
    if match is None:
        return _locate_file(url, url)
    kind: LocationKind = "web" if match[1].lower() in {"http", "https"} else "store"
    # `?` and `#` are ordinary characters of a store's keys; in web URLs they end the path.
    path = re.split(r"[?#]", url[match.end() :], maxsplit=1)[0] if kind == "web" else url[match.end() :]
    return Location(url, kind, unquote(path), redact(url))


def _locate_file(path: str, url: str) -> Location:
    with suppress(ValueError):  # for an invalid path, which is reported below
        path = os.path.expanduser(path)  # noqa: PTH111 - Path would drop what open() accepts, a trailing slash say
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise FetchError(f"{url!a}: cannot be encoded as a path on this system; is the path right?") from None
    if not encoded or b"\0" in encoded:
        raise FetchError(f"{url!a}: is not a path: it is empty or holds a NUL character; is the path right?")
    return Location(url, "local", path, path)


def _path_of_file_url(url: str) -> str:
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise FetchError(
                f"{url}: names a file on the host {host!r}; write file:///path or file:path for a file on this machine"
            )
        rest = slash + path
    return unquote(rest, errors="surrogateescape")


def unsigned(location: Location) -> str:
    """Return the URL without signatures and passwords, so that the same object always has the same text.

    A user name is kept, because it can decide which object is meant (`ftp://alice@host/a.tar`).

    Examples:
        >>> unsigned(locate("https://me:pw@host/a.tar?part=2&X-Amz-Signature=abc&X-Amz-Date=1"))
        'https://me@host/a.tar?part=2'
    """
    if location.kind == "local":
        return os.path.abspath(location.path)  # noqa: PTH100 - resolve() would follow symlinks
    if location.kind == "pipe":
        return location.url
    url = re.sub(r"(?<=://)([^/?#\s@:]*):[^/?#\s@]*@", r"\1@", location.url)
    if location.kind == "store":
        return url
    url = url.partition("#")[0]
    base, mark, query = url.partition("?")
    pieces = query.split("&")
    kept = [piece for piece in pieces if not _SIGNING.fullmatch(_parameter(piece))]
    if len(kept) == len(pieces):
        return url
    kept = [piece for piece in kept if _parameter(piece).lower() not in _BESIDE_SIGNATURE]
    return base + (mark + "&".join(kept) if kept else "")


def _parameter(piece: str) -> str:
    return unquote(piece.partition("=")[0])
