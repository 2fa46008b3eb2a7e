"""The dataset's keywords about storage, packed once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CHOICES = {"checksum": ("none", "size", "md5"), "io": ("auto", "mmap", "pread")}


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How shards are opened and fetched.

    Raises:
        ValueError: A value is none of those that it may be.
    """

    cache_dir: str | None = None
    """Folder of the disk cache; None for `$WIDS_CACHE`, else one of the user's own in the temporary folder."""
    cache_local: bool = False
    """Copy local shards into the cache too."""
    checksum: Literal["none", "size", "md5"] = "size"
    """What a shard is compared with in its descriptor."""
    io: Literal["auto", "mmap", "pread"] = "auto"
    """How local files are read; `"auto"`: mapped, but not on network file systems."""
    storage_options: Mapping[str, Any] | None = None
    """Passed on to fsspec."""
    allow_pipe: bool = False
    """Allow `pipe:` URLs; so does `WIDS_ALLOW_PIPE=1`."""
    localname: Callable[[str], str] | None = None
    """URL to name in the cache folder."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")

    @property
    def may_pipe(self) -> bool:
        """Whether `pipe:` URLs may run."""
        return self.allow_pipe or os.environ.get("WIDS_ALLOW_PIPE") == "1"
