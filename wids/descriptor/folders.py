"""A folder to the shards in it, and to the splits that whoever wrote it made of them.

What a folder is shows in what lies in it: `.nv-meta/` is Energon's, a README.md with a YAML header makes it a Hugging Face
dataset repository; all others are folders of tars. How many samples each shard has may stand in small files
beside the shards (`wids.descriptor.counts`). Nothing here opens a shard.
"""

from __future__ import annotations

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
    """Path or URL of a folder to the names of what is in it, in order, those of folders with a slash behind; None where
    there is no such folder."""

KINDS = ("energon", "huggingface", "tars")
"""What a folder of shards can be: prepared for Energon, a Hugging Face dataset repository, or just that."""

_DESCRIBING = frozenset([".nv-meta/", "README.md"])
_NO_FOLDER = re.compile(r"^(https?|pipe):|\.json$|[{}*?\[\]]", re.IGNORECASE)
"""URLs that need not be asked whether they are folders: servers list none, and descriptors and patterns are none."""
_DEEPEST = 8
"""Folders within folders that are looked into."""


class Folder:
    """A folder, on this machine or in a store; looked into when it is asked.

    Args:
        location: Its path or URL.
        names: What is directly in it, in order; folders with a slash behind.
        list_folder: Looks into folders below it.
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
        """Return path or URL of a file in it."""
        if local_path(self.location) is not None:
            return str(Path(self.location, name))
        return f"{self.location}/{name}"

    def read(self, name: str) -> bytes:
        """Return the content of a small file in it.

        Raises:
            FetchError: It cannot be had.
        """
        return self._fetch(self.url(name))

    def names_in(self, name: str) -> Collection[str]:
        """Return what is in a folder in it, in order; nothing where there is none.

        Args:
            name: Of that folder, with a slash at the end; empty for this one.
        """
        if name not in self._listed:
            self._listed[name] = dict.fromkeys(self._list_folder(self.url(name.rstrip("/"))) or [])
        return self._listed[name].keys()

    @property
    def is_described(self) -> bool:
        """Whether a file in it says what it is."""
        return not _DESCRIBING.isdisjoint(self.names)

    @cached_property
    def tars(self) -> list[str]:
        """Names of the shards directly in it."""
        return [name for name in self.names if is_tar(name) and not name.startswith(".")]

    @cached_property
    def tars_below(self) -> list[str]:
        """Names of the shards in it and in folders below it, in order; nothing hidden is looked into."""
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
    """What a folder turned out to be."""

    kind: str
    """One of `KINDS`."""
    splits: dict[str, list[str]]
    """Names of the shards of each split, relative to the folder."""
    undivided: list[str] | None = None
    """All shards, where nobody divided them: the splits are only what their names tell. None where somebody did."""
    counts: dict[str, Count] | None = None
    """What is known of shards by name; None where it may stand beside them."""

    def choose(self, split: str | None, folder: str) -> list[str]:
        """Return the names of the shards of one split.

        Args:
            split: Its name; None for the only one, or for all where the folder is not divided.
            folder: Its name, for messages.

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
    """How many samples a shard has, and who says so."""

    num_samples: int
    """Samples in the shard."""
    source: str
    """Name of the file that says so, relative to the folder."""
    offsets: str | None = None
    """Name of the file that says where each sample lies, relative to the folder; None where there is none."""


def open_folder(location: str, list_folder: ListFolder, fetch: Fetch) -> Folder | None:
    """Return the folder that a path or URL names, None where it names something else.

    Args:
        location: Path or URL.
        list_folder: Looks into folders of stores.
        fetch: Reads files.

    Raises:
        FetchError: The store cannot be asked.
        OSError: The folder cannot be looked into.
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
    """Return what is in a folder of this machine, folders with a slash behind; None where there is no such folder."""
    path = local_path(location)
    if path is None or not os.path.isdir(path):  # noqa: PTH112 - Path would change some paths
        return None
    return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in os.scandir(path))


def read_folder(folder: Folder, split: str | None = None, kind: str | None = None) -> tuple[str, list[dict[str, Any]]]:
    """Return what a folder is, and its shards, counted where a file in it says how many samples they have.

    Args:
        folder: Where to look.
        split: Name of the split that is meant; None for the only one, or for all where the folder is not divided.
        kind: One of `KINDS`, to take the folder for that; None for what it looks like.

    Returns:
        One of `KINDS`, and for each shard `url`, `nsamples`, `counted_by` and `offsets`, the latter where they are known.

    Raises:
        DescriptorError: It holds no shards, must be divided, or what describes the shards is wrong.
        FetchError: A file in it cannot be read.
    """
    from wids.descriptor import energon, hub
    from wids.descriptor.counts import find_counts

    layout = energon.read_layout(folder, kind) or hub.read_layout(folder, kind)
    names = layout.choose(split, folder.name)
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
