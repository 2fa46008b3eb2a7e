"""What public code used of 0.1.11 beyond datasets and samplers: members of one tar by number or name, small helpers."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from wids.indexed import IndexedTarSamples
from wids.source import MmapSource
from wids.tar import find_dot, scan_members
from wids.tar.member_file import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class MMIndexedTar:
    """The files of one mapped tar, by number or name.

    Args:
        fname: Path of the tar.

    Raises:
        TarFormatError: It is damaged, or no tar.
        FetchError: It cannot be opened.
    """

    def __init__(self, fname: str | os.PathLike[str], **_ignored: Any) -> None:
        self._source = MmapSource(os.fspath(fname))
        self._members = scan_members(self._source)
        self._names = [name.decode("utf-8", "surrogateescape") for name in self._members.names]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def names(self) -> list[str]:
        """Return the names of all files, in archive order."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for number in range(len(self)):
            yield self.get_at_index(number)

    def __getitem__(self, which: int | str) -> tuple[str, bytes]:
        return self.get_by_name(which) if isinstance(which, str) else self.get_at_index(which)

    def get_at_index(self, number: int) -> tuple[str, bytes]:
        """Return name and bytes of a file by its number."""
        return self._names[number], read_member(self._source, self._members, range(len(self))[number])

    def get_by_name(self, name: str) -> tuple[str, bytes]:
        """Return name and bytes of a file by its name; of the last one that has it."""
        return self.get_at_index(self._numbers[name])

    def get_file(self, number: int) -> tuple[str, io.BytesIO]:
        """Return name and content of a file, as a file."""
        name, data = self.get_at_index(number)
        return name, io.BytesIO(data)

    def close(self, dispose: bool = False) -> None:
        """Do nothing unless `dispose` asks to remove the file, as in 0.1.11; the map goes with this object."""
        if dispose:
            os.unlink(self._source.path)  # noqa: PTH108


TarFileReader = MMIndexedTar


def compute_num_samples(fname: str | os.PathLike[str]) -> int:
    """Return how many samples a tar shard has."""
    return len(IndexedTarSamples(fname))


def splitname(fname: str) -> tuple[str | None, str | None]:
    """Return `(key, field)` of a member's name, `(None, None)` when it has no field.

    Examples:
        >>> splitname("a/b.c/x.seg.png"), splitname("README")
        (('a/b.c/x', '.seg.png'), (None, None))
    """
    name = fname.encode("utf-8", "surrogateescape")
    dot = find_dot(name)
    if dot is None:
        return None, None
    return name[:dot].decode("utf-8", "surrogateescape"), name[dot:].decode("utf-8", "surrogateescape")


def group_by_key(names: Sequence[str]) -> list[list[int]]:
    """Return the numbers of the names of each sample: neighbours that share a key.

    Examples:
        >>> group_by_key(["a.jpg", "a.txt", "README", "b.txt"])
        [[0, 1], [3]]
    """
    groups: list[list[int]] = []
    last = None
    for number, name in enumerate(names):
        key, field = splitname(name)
        if field is None:
            continue
        if key != last:
            groups.append([])
            last = key
        groups[-1].append(number)
    return groups
