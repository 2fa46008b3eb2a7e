"""`Listing`: what a shard's index says about its samples, by position, without the shard: keys, fields, sizes and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wids.errors import TarFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from wids.tar.index import TarIndex


@dataclass(frozen=True, slots=True)
class MemberLocation:
    """Where the bytes of a member are in its shard."""

    url: str
    """URL of the shard, resolved as the descriptor says."""
    offset: int
    """Bytes from the start of the shard to the member's first byte."""
    size: int
    """Bytes in the member."""


class Listing:
    """The samples of one shard as its index describes them; safe to use from several threads.

    Positions are in `[0, num_samples)`.

    Args:
        index: The index of the shard.
        name: Name of the shard, for messages.
    """

    __slots__ = ("_ends", "_index", "_keys", "_kinds", "_offsets", "_sizes", "_starts", "name", "num_samples")

    def __init__(self, index: TarIndex, name: str) -> None:
        self.name = name
        self.num_samples = index.num_samples
        self._index = index
        # Memoryviews give plain ints; numpy arrays would give numpy scalars, which take longer.
        self._starts = index.starts.data
        self._offsets = index.offsets.data
        self._sizes = index.sizes.data
        self._kinds = index.kinds.data
        self._ends = index.key_ends.data
        self._keys = index.keys

    @property
    def index(self) -> TarIndex:
        """The index of the shard."""
        return self._index

    @property
    def notes(self) -> list[str]:
        """Warnings about the end of the archive, one sentence each."""
        return self._index.notes

    def key(self, position: int) -> str:
        """Return the key of one sample."""
        ends = self._ends
        return str(self._keys[ends[position - 1] if position else 0 : ends[position]], "utf-8", "surrogateescape")

    def keys(self) -> Iterator[str]:
        """Yield the keys of all samples in order, much faster than calling `key` for each."""
        text = bytes(self._keys)
        start = 0
        for end in self._ends:
            yield str(text[start:end], "utf-8", "surrogateescape")
            start = end

    def fields(self, position: int) -> tuple[str, ...]:
        """Return the fields of one sample, in archive order."""
        return self._index.fields_of_kind[self._kinds[position]]

    def sizes(self, position: int) -> dict[str, int]:
        """Return the size of each field of one sample in bytes, in archive order; the last one's of a field that occurs twice."""
        return {name: self._sizes[number] for number, name in self._members(position)}

    def sizes_of_fields(self, num_samples: int) -> Iterator[tuple[str, NDArray[np.integer]]]:
        """Yield the fields of the first `num_samples` samples, each with its members' sizes, `(num_members,)` integers, bytes.

        A field may be yielded more than once, each time for other members.
        """
        index = self._index
        starts, kinds = np.asarray(index.starts)[:num_samples], np.asarray(index.kinds)[:num_samples]
        for kind, names in enumerate(index.fields_of_kind):
            firsts = starts[kinds == kind].astype(np.int64)
            for place, name in enumerate(names if len(firsts) else ()):
                yield name, np.asarray(index.sizes)[firsts + place]

    def locate(self, position: int, url: str) -> dict[str, MemberLocation]:
        """Return where the members of one sample are.

        Raises:
            TarFormatError: A field occurs twice, or a hard link has no target.
            ValueError: A member is sparse, so that its bytes are not in one place.
        """
        self._check_fields(position)
        locations = {}
        for number, name in self._members(position):
            if number in self._index.sparse:
                raise ValueError(
                    f"{self.name}: {self.key(position)!r}, field {name!r}: is sparse, so its bytes are not in one place"
                )
            locations[name] = MemberLocation(url, self._offsets[number], self._sizes[number])
        return locations

    def _members(self, position: int) -> list[tuple[int, str]]:
        first = self._starts[position]
        return list(enumerate(self.fields(position), first))

    def _check_fields(self, position: int) -> None:
        members = self._members(position)
        seen: dict[str, int] = {}
        for number, name in members:
            if name in seen:
                raise TarFormatError(
                    f"{self.name}: key {self.key(position)!r} has the field {name!r} twice, at bytes "
                    f"{self._offsets[seen[name]]} and {self._offsets[number]}; write the shard again without one of them"
                )
            seen[name] = number
            if number in self._index.broken_links:
                raise TarFormatError(f"{self.name}: {self._index.broken_links[number]}; write the shard again")
