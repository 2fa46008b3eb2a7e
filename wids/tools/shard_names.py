"""A pattern such as `out/train-%06d.tar` to the names of numbered shards. Pure text."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wids.descriptor.urls import is_tar
from wids.errors import redact
from wids.index_files import SUFFIX


@dataclass(frozen=True, slots=True)
class ShardNames:
    """Numbered shards in one folder."""

    folder: str
    """Path or URL, without a slash at its end; empty for the current folder."""
    pattern: str
    """Of the name in it, with one `%d`."""

    @classmethod
    def parse(cls, pattern: str | os.PathLike[str]) -> ShardNames:
        """Return what a pattern means.

        Raises:
            ValueError: It has no number, or one elsewhere than in the name; or is no shard's name.

        Examples:
            >>> names = ShardNames.parse("s3://bucket/out/train-%06d.tar")
            >>> names.folder, names.name(12), names.stem
            ('s3://bucket/out', 'train-000012.tar', 'train')
        """
        text = os.fspath(pattern)
        folder, slash, name = text.rpartition("/")
        names = cls(folder or slash, name)
        try:
            first, second = names.name(0), names.name(1)
            folder = folder % ()
        except (TypeError, ValueError):
            raise ValueError(f"{_shown(text)}: is no pattern of shards; write %06d once, in the name") from None
        if first == second:
            raise ValueError(f"{_shown(text)}: all shards would have one name; write %06d in it")
        if not is_tar(first) or first.startswith((".", "~")):
            raise ValueError(f"{_shown(text)}: is no name of shards; let it end with .tar, .tar.gz or .tar.zst")
        return cls(folder or slash, name)

    def name(self, number: int) -> str:
        """Return the name of a shard in its folder."""
        return self.pattern % number

    @property
    def stem(self) -> str:
        """What all names begin with."""
        return self.pattern.partition("%")[0].rstrip("-_.") or "shardindex"

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
