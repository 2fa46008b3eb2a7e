"""Relative URLs and paths to absolute ones. Pure text processing: no file or server is touched."""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import unquote

import braceexpand

from wids.errors import DescriptorError, redact

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
TAR_NAME = re.compile(r"\.(tar|tgz|tbz2|txz|tzst|tar\.(gz|bz2|xz|zst))$", re.IGNORECASE)
"""How the names of shards end, plain and compressed."""
_MOST_NAMES = 10_000_000
"""Most names that a pattern may stand for, so that a mistyped or malicious one does not fill the memory."""
_BRACES = re.compile(r"\{(?:(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.[^{}]*)?|([^{}]*))\}")
"""A pair of braces: the first and the last number of a range, or else a list."""


def is_url(text: str) -> bool:
    """Return whether `text` has a scheme of its own, `pipe:` and `file:` included."""
    return _SCHEME.match(text) is not None or text.startswith(("pipe:", "file:"))


def is_tar(text: str) -> bool:
    """Return whether a path or URL names a shard, by its suffix; a URL's query is ignored.

    Examples:
        >>> is_tar("https://host/a.tar?sig=1"), is_tar("train.json"), is_tar("a.TGZ")
        (True, False, True)
    """
    if text.startswith("pipe:"):
        return True
    return TAR_NAME.search(_path_of(text)) is not None


def stem_of(url: str) -> str:
    """Return the name of a shard without its folder and its `.tar` suffix; files that belong to it share this stem.

    Examples:
        >>> stem_of("https://host/a/00012.tar?sig=1"), stem_of("/data/train-7.tar.gz"), stem_of("x.tgz")
        ('00012', 'train-7', 'x')
    """
    return TAR_NAME.sub("", _path_of(url).rpartition("/")[2])


def local_path(text: str) -> str | None:
    """Return the local path that `text` names; None for anything remote."""
    if text.startswith("file:"):
        return unquote(_path_of(text))
    return None if is_url(text) else _expand(text)


def _path_of(text: str) -> str:
    """Return the path in a URL; a path is returned as it is. The host is not checked: that happens when it is contacted.

    Examples:
        >>> _path_of("http://[x/a.tar?sig=1"), _path_of("file:/a.tar"), _path_of("a?b.tar")
        ('/a.tar', '/a.tar', 'a?b.tar')
    """
    if not is_url(text):
        return text
    rest = re.split(r"[?#]", text, maxsplit=1)[0].partition(":")[2]
    if not rest.startswith("//"):
        return rest
    _, slash, path = rest[2:].partition("/")
    return slash + path


def _expand(path: str) -> str:
    """Replace a leading `~` with the home directory; an invalid path is returned as it is, to fail when it is opened."""
    try:
        return os.path.expanduser(path)  # noqa: PTH111  # Path would normalise
    except ValueError:
        return path


class Base:
    """A folder or URL that relative names are resolved against, parsed once.

    Args:
        location: Path or URL of the folder.
    """

    def __init__(self, location: str) -> None:
        self._is_remote = _SCHEME.match(location) is not None
        if self._is_remote:
            scheme, _, rest = location.partition("://")
            host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
            self._root = f"{scheme}://{host}"
            self._folder = (slash + path).rstrip("/") + "/"
        else:
            self._root = ""
            self._folder = _expand(location).rstrip("/") + "/" if location else ""

    def join(self, name: str) -> str:
        """Return `name` resolved against this base.

        Examples:
            >>> Base("s3://bucket/train").join("../a.tar"), Base("/data").join("a.tar"), Base("/data").join("gs://b/c.tar")
            ('s3://bucket/a.tar', '/data/a.tar', 'gs://b/c.tar')
        """
        if is_url(name):
            return name
        if name.startswith("~"):
            return _expand(name)
        if name.startswith("/"):
            return self._root + name
        joined = self._folder + name
        # Nearly all names are plain and need no normalising, which is slow.
        return self._root + (posixpath.normpath(joined) if "./" in name or "//" in name else joined)


def folder_of(location: str) -> str:
    """Return the folder of a file: a path, or a URL without its query.

    Examples:
        >>> folder_of("https://host/a/train.json?sig=1"), folder_of("train.json"), folder_of("/d/train.json")
        ('https://host/a', '', '/d')
    """
    if _SCHEME.match(location):
        location = re.split(r"[?#]", location, maxsplit=1)[0]
    return location.rpartition("/")[0] or ("/" if location.startswith("/") else "")


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern with braces stands for; a name without braces stands for itself.

    Raises:
        DescriptorError: There are more than ten million names, or a brace has no counterpart.

    Examples:
        >>> expand_braces("a-{08..10}.tar"), expand_braces("b.tar")
        (['a-08.tar', 'a-09.tar', 'a-10.tar'], ['b.tar'])
    """
    if "{" not in pattern:
        return [pattern]
    most = 1
    for first, last, listed in _BRACES.findall(pattern):
        # Counted first, because braceexpand would fill the memory before it returned the first name.
        most *= abs(int(last) - int(first)) + 1 if first else listed.count(",") + 1
        if most > _MOST_NAMES:
            raise DescriptorError(
                f"{redact(pattern)}: stands for more than {_MOST_NAMES} names; is a number in it too large?"
            )
    try:
        return list(braceexpand.braceexpand(pattern))
    except ValueError as error:  # braceexpand's UnbalancedBracesError, which its type stubs do not have
        raise DescriptorError(
            f"{redact(pattern)}: it has an unmatched brace; close it, or put a backslash before it"
        ) from error
