"""The exceptions of this package.

    WidsError
    ├── DescriptorError     (ValueError)   the JSON, folder, pattern or list that names the shards
    ├── TarFormatError      (ValueError)   a shard is damaged, or no tar at all
    ├── ShardMismatchError  (ValueError)   a shard is not what its descriptor or index says
    ├── FetchError          (OSError)      a shard or descriptor cannot be opened or fetched
    ├── DecodeError         (ValueError)   a sample's bytes are not what their extension says
    └── EncodeError         (ValueError)   a sample cannot be written so that it reads back the same

Each is constructed from one string, so that it pickles without loss when a worker process raises it. A message says
where the problem is, what is wrong, and what to do about it. `redact` removes the secrets from URLs that messages show.
"""

from __future__ import annotations

import errno
import re

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Error numbers with which writing fails where there is no more room, or the disk is broken."""

_REMEDIES = {
    **dict.fromkeys(OUT_OF_SPACE, "make room, or write elsewhere"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "get permission, or name another"),
    errno.EISDIR: "name a file in it",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s@]*@")
_PLAIN_WORD = re.compile(r"[\w./+-]+")
_QUERY_VALUE = re.compile(r"(?<==)[^&#\s]+")


class WidsError(Exception):
    """Base class of this package's own exceptions."""


class DescriptorError(WidsError, ValueError):
    """A descriptor cannot be read or contradicts itself; names the file and the JSON path."""


class TarFormatError(WidsError, ValueError):
    """A shard is damaged or is no tar; names the file and the byte offset."""


class ShardMismatchError(WidsError, ValueError):
    """A shard is not what its descriptor or index says; names both values."""


class FetchError(WidsError, OSError):
    """A shard or descriptor cannot be opened or fetched; names the URL without its secrets."""


class DecodeError(WidsError, ValueError):
    """A field cannot be decoded; names index, shard, key and field."""


class EncodeError(WidsError, ValueError):
    """A sample cannot be written so that it reads back the same; names key and field."""


def cannot_open(name: str, error: OSError) -> FetchError:
    """Return the error that says why the operating system did not open a file; raise it from `error`.

    Args:
        name: Of the file, without secrets.
        error: What opening it raised.

    Examples:
        >>> print(cannot_open("a.tar", FileNotFoundError(2, "No such file or directory")))
        a.tar: cannot be opened: No such file or directory; is the path right?
    """
    return FetchError(f"{name}: cannot be opened: {error.strerror}; is the path right?")


def remedy_for(error: OSError, otherwise: str) -> str:
    """Return what to do about an error of the operating system; `otherwise` where that does not follow from its number.

    Examples:
        >>> remedy_for(OSError(errno.ENAMETOOLONG, "File name too long"), "is the path right?")
        'choose a shorter name'
    """
    return _REMEDIES.get(error.errno or 0, otherwise)


def redact(url: str) -> str:
    """Return `url` with everything that could be secret masked: credentials, and the values of its query.

    Examples:
        >>> redact("https://me:pw@host/a.tar?X-Amz-Signature=abc&part=1")
        'https://***@host/a.tar?X-Amz-Signature=***&part=***'
        >>> redact("/data/a?b=c.tar"), redact("pipe:curl -H 'Authorization: abc' https://host/a.tar")
        ('/data/a?b=c.tar', 'pipe:curl …')
    """
    if url.startswith("pipe:"):
        words = url[len("pipe:") :].split()
        # Only the program is shown: its arguments may hold passwords and tokens.
        return f"pipe:{words[0]} …" if words and _PLAIN_WORD.fullmatch(words[0]) else "pipe:…"
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "file":
        return url
    url = _CREDENTIALS.sub("***@", url)
    head, mark, query = url.partition("?")
    return head + mark + _QUERY_VALUE.sub("***", query)
