"""A folder to the shards in it, and to the splits into which they are divided.

The kind of a folder follows from its content: `.nv-meta/` is Energon's, a README.md with a YAML header makes it a Hugging
Face dataset repository, and all others are folders of tars. Small files beside the shards may give their sample counts
(`wids.descriptor.counts`). Nothing here opens a shard.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.descriptor.urls import is_tar, local_path
from wids.errors import DescriptorError, redact
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    Fetch = Callable[[str], bytes]
    ListFolder = Callable[[str], "list[str] | None"]
    """Path or URL of a folder to the sorted names of what is in it; names of folders end with a slash. None when there is
    no such folder."""

KINDS = ("energon", "huggingface", "tars")
"""What a folder of shards can be: prepared for Energon, a Hugging Face dataset repository, or a plain folder of tars."""

_DESCRIBING = frozenset([".nv-meta/", "README.md"])
_NO_FOLDER = re.compile(r"^(https?|pipe):|\.json$|[{}*?\[\]]", re.IGNORECASE)
"""What is never taken for a folder: web servers and commands cannot list one, and JSON files and patterns are not folders."""
_WILDCARD = re.compile(r"\*|\[.+\]")
_FIRST_PART = len(["s3:", "", "bucket"])
"""Place of the first part of a URL, split at its slashes, in which wildcards are looked for."""
_DEEPEST = 8
"""Most levels of subfolders that are searched."""


class Folder:
    """A folder, on this machine or in a store; subfolders are listed and files read when they are needed.

    Args:
        location: Path or URL of the folder.
        names: Sorted names of its direct entries; names of folders end with a slash.
        list_folder: Lists its subfolders.
        fetch: Reads files in it.
    """

    def __init__(self, location: str, names: list[str], list_folder: ListFolder, fetch: Fetch) -> None:
        self.location = location.rstrip("/") or "/"
        self.name = redact(self.location)
        self.names = names
        self._list_folder = list_folder
        self._fetch = fetch
        self._listed: dict[str, dict[str, None]] = {"": dict.fromkeys(names)}

    def url(self, name: str) -> str:
        """Return the path or URL of a file in this folder."""
        if local_path(self.location) is not None:
            return str(Path(self.location, name))
        return f"{self.location}/{name}"

    def read(self, name: str) -> bytes:
        """Return the content of a small file in this folder.

        Raises:
            FetchError: The file cannot be read.
        """
        return self._fetch(self.url(name))

    def names_in(self, name: str) -> Collection[str]:
        """Return the sorted names of what is in a subfolder; empty when there is no such folder.

        Args:
            name: Name of the subfolder, with a slash at the end; empty for this folder.
        """
        if name not in self._listed:
            self._listed[name] = dict.fromkeys(self._list_folder(self.url(name.rstrip("/"))) or [])
        return self._listed[name].keys()

    @property
    def is_described(self) -> bool:
        """Whether a file in this folder says what kind of folder it is."""
        return not _DESCRIBING.isdisjoint(self.names)

    @cached_property
    def tars(self) -> list[str]:
        """Names of the shards directly in this folder."""
        return [name for name in self.names if is_tar(name) and not name.startswith(".")]

    @cached_property
    def tars_below(self) -> list[str]:
        """Sorted names of the shards in this folder and its subfolders, without anything hidden."""
        return sorted(name for name in self._walk("", self.names, _DEEPEST) if is_tar(name))

    def _walk(self, prefix: str, names: Iterable[str], depth: int) -> Iterator[str]:
        for name in names:
            if name.startswith("."):
                continue
            if not name.endswith("/"):
                yield prefix + name
            elif depth:
                yield from self._walk(prefix + name, self.names_in(prefix + name), depth - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """The kind of a folder, and how its shards are divided."""

    kind: str
    """One of `KINDS`."""
    splits: dict[str, list[str]]
    """Names of the shards of each split, relative to the folder."""
    undivided: list[str] | None = None
    """All shards, when the splits are only guessed from their names; None when the folder is explicitly divided."""
    counts: dict[str, Count] | None = None
    """Sample counts by name of the shard; None when files beside the shards may have them."""

    def choose(self, split: str | None, folder: str) -> list[str]:
        """Return the names of the shards of one split.

        Args:
            split: Name of the split; None for the only one, or for all shards of a folder that is not divided.
            folder: Name of the folder, for messages.

        Raises:
            DescriptorError: There is no such split, or one must be named.
        """
        there = ", ".join(f"{name} ({counted(len(shards), 'shard')})" for name, shards in self.splits.items())
        if split is not None:
            if split not in self.splits:
                raise DescriptorError(f"{folder}: has no split {split!r}; it has {there or 'none'}")
            return self.splits[split]
        if self.undivided is not None:
            return self.undivided
        filled = [shards for shards in self.splits.values() if shards]
        if len(filled) > 1:
            raise DescriptorError(
                f"{folder}: has the splits {there}; name one with split=, or make a descriptor of one with: "
                "widsindex import --split"
            )
        return filled[0] if filled else []


@dataclass(frozen=True, slots=True)
class Count:
    """The sample count of a shard, and the file that it is from."""

    num_samples: int
    """Samples in the shard."""
    source: str
    """Name of the file that gives the count, relative to the folder."""
    offsets: str | None = None
    """Name of the file that says where each sample is, relative to the folder; None when there is none."""


def open_folder(location: str, list_folder: ListFolder, fetch: Fetch) -> Folder | None:
    """Return the folder that a path or URL names; None when it names something else.

    Args:
        location: Path or URL.
        list_folder: Lists folders in stores.
        fetch: Reads files.

    Raises:
        FetchError: The store cannot be reached.
        OSError: The local folder cannot be listed.
    """
    path = local_path(location)
    if path is not None:
        names = list_local(path)
        return None if names is None else Folder(path, names, list_local, fetch)
    if _NO_FOLDER.search(location) or is_tar(location):
        return None
    names = list_folder(location)
    return None if names is None else Folder(location, names, list_folder, fetch)


def list_local(location: str) -> list[str] | None:
    """Return the sorted names in a local folder, names of folders with a slash at the end; None for anything else."""
    path = local_path(location)
    if path is None or not os.path.isdir(path):  # noqa: PTH112 - Path would change some paths
        return None
    return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in os.scandir(path))


def find_in_store(patterns: Iterable[str], list_folder: ListFolder) -> list[str]:
    """Return the URLs that patterns stand for, in their order, and sorted for each.

    Args:
        patterns: URLs, which may have `*` and `[…]` behind their host; a `?` begins a query. A URL without any stands for
            itself, and so does one whose folder cannot be listed, as on a web server.
        list_folder: Lists folders in stores.

    Raises:
        DescriptorError: A pattern has `**`.
        FetchError: The store cannot be reached.
    """
    list_once = functools.cache(list_folder)
    return [url for pattern in patterns for url in _match_in_store(pattern, list_once)]


def _match_in_store(pattern: str, list_folder: ListFolder) -> list[str]:
    *folders, last = parts = pattern.split("/")
    first = next((place for place, part in enumerate(parts) if place >= _FIRST_PART and _WILDCARD.search(part)), None)
    if first is None or list_folder("/".join(parts[:first])) is None:
        return [pattern]
    if "**" in pattern:
        raise DescriptorError(
            f"{redact(pattern)}: has **, which is for local folders; write a * for each folder, as in */*.tar"
        )
    found = ["/".join(parts[:first])]
    for part in folders[first:]:
        found = [f"{url}/{name[:-1]}" for url in found for name in _match(part + "/", list_folder(url) or [])]
    return [f"{url}/{name}" for url in found for name in _match(last, list_folder(url) or []) if not name.endswith("/")]


def _match(pattern: str, names: list[str]) -> list[str]:
    """Return the names that a pattern matches; only the pattern itself, if that is one of them."""
    return (
        [pattern]
        if pattern in names
        else fnmatch.filter([name for name in names if not name.startswith("._")], pattern.replace("?", "[?]"))
    )


def read_folder(folder: Folder, split: str | None = None, kind: str | None = None) -> tuple[str, list[dict[str, Any]]]:
    """Return the kind of a folder and its shards, with their sample counts where a file in the folder gives them.

    Args:
        folder: The folder.
        split: Name of the split to read; None for the only one, or for all shards of a folder that is not divided.
        kind: One of `KINDS`, to treat the folder as such; None to find out from its content.

    Returns:
        One of `KINDS`, and a dictionary for each shard: `url`, and `nsamples`, `counted_by` and `offsets` where known.

    Raises:
        DescriptorError: The folder has no shards or not this split, a split must be named, or a file that describes the
            shards is malformed.
        FetchError: A file in the folder cannot be read.
    """
    from wids.descriptor import energon, hub
    from wids.descriptor.counts import find_counts

    layout = energon.read_layout(folder, kind) or hub.read_layout(folder, kind)
    names = layout.choose(split, folder.name)
    if not names and split is not None:
        raise DescriptorError(f"{folder.name}: the split {split!r} has no shards; name another one")
    if not names:
        raise DescriptorError(
            f"{folder.name}: this folder holds no .tar shards; name the folder that does, or make shards of a folder of "
            "images with: widsindex import"
        )
    counts = find_counts(folder, names) if layout.counts is None else layout.counts
    return layout.kind, [_describe(folder, name, counts.get(name)) for name in names]


def _describe(folder: Folder, name: str, count: Count | None) -> dict[str, Any]:
    shard: dict[str, Any] = {"url": folder.url(name)}
    if count is not None:
        shard |= {"nsamples": count.num_samples, "counted_by": count.source}
        if count.offsets is not None:
            shard["offsets"] = folder.url(count.offsets)
    return shard
