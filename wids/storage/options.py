"""The keyword arguments of `ShardListDataset` about storage, checked and packed into one object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

ChecksumKind = Literal["none", "size", "md5"]
IoKind = Literal["auto", "mmap", "pread"]
AccessKind = Literal["download", "range", "auto"]

_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How shards are fetched, cached and opened.

    Raises:
        ValueError: A value is not accepted.
    """

    cache_dir: str | None = None
    """Folder of the disk cache; None: `$WIDS_CACHE`, else a private folder in the node's temporary folder."""
    cache_size: int | float | str | None = None
    """Most bytes of shards in the cache folder, or "200GB"; None: `$WIDS_CACHE_SIZE`, else half of what is free."""
    keep: bool = False
    """Whether nothing is ever removed from the cache folder."""
    access: AccessKind = "download"
    """How remote shards are read. "download": fetched whole; "range": only the bytes that samples need; "auto": by ranges,
    and fetched whole once much of the shard was read."""
    cache_local: bool = False
    """Whether local shards are copied into the disk cache too, instead of being read in place."""
    checksum: ChecksumKind = "size"
    """What of the descriptor a shard is compared with: nothing, `filesize`, or `filesize` and `md5sum`, where given."""
    io: IoKind = "auto"
    """How files are read. "auto": mapped, except on network file systems."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Options for fsspec: endpoints, credentials, …; left out of the repr, because it may have secrets."""
    allow_pipe: bool = False
    """Whether `pipe:` URLs may run their commands; `$WIDS_ALLOW_PIPE=1` allows it too."""
    localname: Callable[[str], str] | None = None
    """Maps a URL to the name of its file in the cache folder; None: stem and digest."""

    def __post_init__(self) -> None:
        if self.cache_dir == "":
            raise ValueError("cache_dir is empty; it must be a folder, '.' for the current one, or None")
        _check_choice("checksum", self.checksum, get_args(ChecksumKind))
        _check_choice("io", self.io, get_args(IoKind))
        _check_choice("access", self.access, get_args(AccessKind))
        if self.access == "range" and self.checksum == "md5":
            raise ValueError(
                "checksum is 'md5', which needs whole shards; set access to 'download', or checksum to 'size'"
            )
        if self.cache_size is not None:
            parse_size(self.cache_size, "cache_size")
        if self.storage_options is not None and not isinstance(self.storage_options, Mapping):
            raise ValueError(
                f"storage_options is of type {type(self.storage_options).__name__}; it must be a mapping or None"
            )
        if self.localname is not None and not callable(self.localname):
            raise ValueError(f"localname is {self.localname!r}; it must be a function from URL to name, or None")

    @property
    def cache_limit(self) -> int | None:
        """Most bytes of shards in the cache folder, from the argument or the environment; None when neither is set.

        Raises:
            ValueError: `$WIDS_CACHE_SIZE` is not a size.
        """
        if self.cache_size is not None:
            return parse_size(self.cache_size, "cache_size")
        said = os.environ.get("WIDS_CACHE_SIZE")
        return parse_size(said, "$WIDS_CACHE_SIZE") if said else None

    @property
    def pipe_allowed(self) -> bool:
        """Whether `pipe:` URLs may run their commands, by the argument or the environment."""
        return self.allow_pipe or os.environ.get("WIDS_ALLOW_PIPE") == "1"


def parse_size(size: float | str, name: str) -> int:
    """Convert a size to a number of bytes.

    Args:
        size: Number of bytes, or a text with a unit: `k`, `M`, `G`, `T` and `P` are powers of 1,000, `ki`, `Mi` and so on
            powers of 1,024; a `B` may follow.
        name: Name of the option, for messages.

    Raises:
        ValueError: `size` is not a size, or is less than 1 byte.

    Examples:
        >>> parse_size("1.5 GB", "cache_size"), parse_size("2GiB", "cache_size"), parse_size(1e12, "cache_size")
        (1500000000, 2147483648, 1000000000000)
    """
    number: float = 0
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is not None:
            number = float(match[1]) * (1024 if match[3] else 1000) ** " kmgtp".index(match[2].lower() or " ")
    elif not isinstance(size, bool):
        number = size
    if not 1 <= number < 2**63:
        raise ValueError(f"{name} is {size!r}; it must be a number of bytes above 0, or a text such as '200GB'")
    return int(number)


def _check_choice(name: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, accepted))}")
