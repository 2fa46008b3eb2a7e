"""Other names of wids 0.1.11 that public code uses: the members of one tar by number or name, and small helpers."""

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
    """The files in one mapped tar, by number or name.

    Args:
        fname: Path of the tar.

    Raises:
        TarFormatError: The tar is damaged, or is not a tar.
        FetchError: The tar cannot be opened.
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
        """Return a file's name and bytes, given its number in the archive."""
        return self._names[number], read_member(self._source, self._members, range(len(self))[number])

    def get_by_name(self, name: str) -> tuple[str, bytes]:
        """Return a file's name and bytes, given its name; where several files have the name, the last one."""
        return self.get_at_index(self._numbers[name])

    def get_file(self, number: int) -> tuple[str, io.BytesIO]:
        """Return a file's name, and its content as an in-memory file, given its number in the archive."""
        name, data = self.get_at_index(number)
        return name, io.BytesIO(data)

    def close(self, dispose: bool = False) -> None:
        """Remove the file from disk if `dispose`, as in 0.1.11; otherwise do nothing: the map is freed with this object."""
        if dispose:
            os.unlink(self._source.path)  # noqa: PTH108


TarFileReader = MMIndexedTar


def compute_num_samples(fname: str | os.PathLike[str]) -> int:
    """Return the number of samples in a tar shard."""
    return len(IndexedTarSamples(fname))


def splitname(fname: str) -> tuple[str | None, str | None]:
    """Split a member's name into `(key, field)`; return `(None, None)` if it has no field.

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
    """Group the names that belong to one sample: consecutive names that share a key.

    Returns:
        One list for each sample, of positions in `names`. Names without a field belong to no sample.

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
