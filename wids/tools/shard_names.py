"""A pattern such as `out/train-%06d.tar` to the names of numbered shards. Pure text."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from wids.descriptor.urls import is_tar, is_url
from wids.errors import redact
from wids.index_files import SUFFIX

_NUMBER = re.compile(r"%0?[0-9]{0,2}[diu]")
"""Other formats give names that no number leads back to, or that hold a NUL."""


@dataclass(frozen=True, slots=True)
class ShardNames:
    """Numbered shards in one folder."""

    folder: str
    """Path or URL, without a slash at its end; empty for the current folder."""
    pattern: str
    """Of the file names in it, with one `%d`."""

    @classmethod
    def parse(cls, pattern: str | os.PathLike[str]) -> ShardNames:
        """Return what a pattern means.

        Raises:
            ValueError: It has no `%d` in the file name, or more than one; or the name is not one of a shard.

        Examples:
            >>> names = ShardNames.parse("s3://bucket/out/train-%06d.tar")
            >>> names.folder, names.name(12), names.stem
            ('s3://bucket/out', 'train-000012.tar', 'train')
        """
        text = os.fspath(pattern)
        folder, slash, name = text.rpartition("/")
        if is_url(text) and (not slash or folder.endswith(":/")):
            raise ValueError(
                f"{_shown(text)}: has no folder in it; write to a path, or to a folder in a store: s3://bucket/folder/{name}"
            )
        rest = name.replace("%%", "")
        if len(_NUMBER.findall(rest)) != 1 or rest.count("%") != 1 or "%" in folder.replace("%%", ""):
            raise ValueError(
                f"{_shown(text)}: is not a pattern for shards; write %06d once, in the name, and %% for a %"
            )
        names = cls(folder.replace("%%", "%") or slash, name)
        if not is_tar(names.name(0)) or name.startswith((".", "~")):
            raise ValueError(f"{_shown(text)}: is not a name for shards; it must end with .tar, .tar.gz or .tar.zst")
        return names

    def name(self, number: int) -> str:
        """Return the name of a shard in its folder."""
        return self.pattern % number

    @property
    def stem(self) -> str:
        """What all names begin with."""
        before = self.pattern.replace("%%", "\0").partition("%")[0].replace("\0", "%")
        return before.rstrip("-_.") or "shardindex"

    @property
    def descriptor(self) -> str:
        """Name of the descriptor that goes with them."""
        return f"{self.stem}.json"

    @property
    def pack(self) -> str:
        """Name of the index pack that goes with them."""
        return f"{self.stem}{SUFFIX}"


def _shown(text: str) -> str:
    return redact(text) or "''"
