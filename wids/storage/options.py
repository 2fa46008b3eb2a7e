"""The storage keywords of `ShardListDataset`, packed once and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

ChecksumKind = Literal["none", "size", "md5"]
IoKind = Literal["auto", "mmap", "pread"]


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How shards are fetched, kept and opened.

    Raises:
        ValueError: A value is none of those accepted.
    """

    cache_dir: str | None = None
    """Folder of the disk cache; None: `$WIDS_CACHE`, else a private folder in the node's temporary folder."""
    cache_local: bool = False
    """Local shards are copied into the disk cache too, instead of being opened where they lie."""
    checksum: ChecksumKind = "size"
    """What a shard is compared with where the descriptor says it: nothing, `filesize`, or `filesize` and `md5sum`."""
    io: IoKind = "auto"
    """How files are read; "auto": mapped, except on network file systems."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Passed on to fsspec: endpoints, credentials, …; not part of the repr, because it holds secrets."""
    allow_pipe: bool = False
    """`pipe:` URLs may run their command; so may they when `$WIDS_ALLOW_PIPE` is 1."""
    localname: Callable[[str], str] | None = None
    """Maps a URL to its file's name in the cache folder; None: stem and digest."""

    def __post_init__(self) -> None:
        if self.cache_dir == "":
            raise ValueError("cache_dir is empty; it must be a folder, '.' for the current one, or None")
        _check_choice("checksum", self.checksum, get_args(ChecksumKind))
        _check_choice("io", self.io, get_args(IoKind))
        if self.storage_options is not None and not isinstance(self.storage_options, Mapping):
            raise ValueError(
                f"storage_options is of type {type(self.storage_options).__name__}; it must be a mapping or None"
            )
        if self.localname is not None and not callable(self.localname):
            raise ValueError(f"localname is {self.localname!r}; it must be a function from URL to name, or None")

    @property
    def pipe_allowed(self) -> bool:
        """Whether `pipe:` URLs run, by argument or by environment."""
        return self.allow_pipe or os.environ.get("WIDS_ALLOW_PIPE") == "1"


def _check_choice(name: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, accepted))}")
