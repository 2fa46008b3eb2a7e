"""A shard's members to its samples, as columns: which bytes belong to position `p`, and under which field names.

The key of a member is its path up to the first dot of its basename; the field is the rest. Consecutive members with the
same key are one sample. Samples with the same list of fields are of one kind, and the list is stored once per kind, so
that a sample takes a few numbers and its key. Columns are int64 after a scan, and of the narrowest integer dtype when
they were read from a stored index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from wids.tar.members import scan_members
from wids.tar.names import Names, number_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source
    from wids.tar.members import Members
    from wids.tar.names import NameBlock
    from wids.tar.sparse import Segment

_T = TypeVar("_T")


@dataclass(slots=True)
class TarIndex:
    """Where the samples of one shard are.

    The members of sample `p` have the numbers `starts[p]` to `starts[p + 1]` (exclusive), in archive order.
    """

    starts: NDArray[np.integer]
    """`(num_samples + 1,)` integers, number of each sample's first member; the last is the number of members."""
    offsets: NDArray[np.integer]
    """`(num_members,)` integers, bytes from the start of the shard to the member's first byte."""
    sizes: NDArray[np.integer]
    """`(num_members,)` integers, bytes in the member; the logical size of a sparse one."""
    kinds: NDArray[np.integer]
    """`(num_samples,)` integers, index of the sample's list of fields in `fields_of_kind`."""
    fields_of_kind: list[tuple[str, ...]]
    """`(num_kinds,)`, the fields of each kind in archive order, with their dots."""
    key_ends: NDArray[np.integer]
    """`(num_samples,)` integers, offset in `keys` at which each key ends (exclusive) and the next one begins."""
    keys: bytes | memoryview
    """All keys, end to end: UTF-8, or whatever bytes the archive has."""
    sparse: dict[int, list[Segment]]
    """Member number to the segments of a sparse member."""
    broken_links: dict[int, str]
    """Member number to what is wrong with a hard link whose target is not an earlier file."""
    has_end_blocks: bool
    """False when the file ends right after a member."""
    bytes_after_end: int
    """Number of bytes after the end of the archive; they are ignored."""
    checksums: NDArray[np.uint64] | None = None
    """`(num_members,)` uint64, xxh3-64 of each member's bytes; None when they were not computed."""

    @property
    def num_samples(self) -> int:
        """Number of samples in the shard."""
        return len(self.kinds)

    @property
    def notes(self) -> list[str]:
        """Warnings about the end of the archive, one sentence each."""
        notes = []
        if not self.has_end_blocks:
            notes.append("the archive ends without its end blocks; it may have been cut between two members")
        if self.bytes_after_end:
            notes.append(f"{self.bytes_after_end} bytes follow the end of the archive and are not read")
        return notes

    def digest(self) -> int:
        """Return the xxh3-64 of all names, places and sizes, which is the same however the columns are stored."""
        digest = xxh3_64(self.keys)
        for column in (self.key_ends, self.starts, self.offsets, self.sizes):
            digest.update(np.asarray(column, np.int64).data)
        of_kind = [
            xxh3_64_intdigest("\0".join(fields).encode("utf-8", "surrogateescape")) for fields in self.fields_of_kind
        ]
        # Clipped, because a forged index may have samples of a kind that is not there.
        digest.update(np.take(np.array([*of_kind, 0], np.uint64), self.kinds, mode="clip").data)
        return int(digest.intdigest())


def build_index(source: Source) -> TarIndex:
    """Scan a shard and group its members.

    Raises:
        TarFormatError: The file is not a tar archive, or is damaged; the message names the byte.
        OSError: The file cannot be read.
    """
    return group_members(scan_members(source))


def group_members(members: Members) -> TarIndex:
    """Group members into samples.

    Files without a field (`README`, `.DS_Store`, macOS' `._0001.jpg`) belong to no sample.
    """
    grouping = _Grouping()
    for block in members.names.blocks():
        grouping.add(block)
    named = np.concatenate([np.zeros(0, np.bool_), *grouping.named])
    places = slice(None) if named.all() else np.flatnonzero(named)
    keys = Names.joined(grouping.keys)
    starts = np.append(np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *grouping.begins])), named.sum())
    fields = np.concatenate([np.zeros(0, np.int64), *grouping.fields])
    kinds, fields_of_kind = _number_kinds(starts, fields, list(grouping.numbers))
    return TarIndex(
        starts=starts,
        offsets=members.offsets[places],
        sizes=members.sizes[places],
        kinds=kinds,
        fields_of_kind=fields_of_kind,
        key_ends=keys.ends,
        keys=keys.text.tobytes(),
        sparse=_renumber(members.sparse, named),
        broken_links=_renumber(members.broken_links, named),
        has_end_blocks=members.has_end_blocks,
        bytes_after_end=members.bytes_after_end,
    )


class _Grouping:
    """What the names say about the samples, collected block by block."""

    def __init__(self) -> None:
        self.named: list[NDArray[np.bool_]] = []
        """`(num_names,)` bool per block, whether a member belongs to a sample."""
        self.begins: list[NDArray[np.bool_]] = []
        """`(num_named,)` bool per block, whether a member is the first of its sample."""
        self.fields: list[NDArray[np.int64]] = []
        """`(num_named,)` int64 per block, the number of each member's field."""
        self.keys: list[Names] = []
        """Keys of the samples that begin in each block."""
        self.numbers: dict[bytes, int] = {}
        """Field to its number, in order of first occurrence."""
        self._last_key: bytes | None = None

    def add(self, block: NameBlock) -> None:
        dots, named = block.find_dots()
        self.named.append(named)
        if not named.all():
            block, dots = block.rows(named), dots[named]
        if not len(dots):
            return
        numbers, fields = block.rests(dots).number()
        of_field = [self.numbers.setdefault(field, len(self.numbers)) for field in fields]
        self.fields.append(np.array(of_field)[numbers])
        keys = block.starts(dots)
        begins = np.concatenate([[keys.name(0) != self._last_key], ~keys.repeat_previous()])
        self._last_key = keys.name(-1)
        self.begins.append(begins)
        self.keys.append(keys.names(begins))


def _number_kinds(
    starts: NDArray[np.int64], fields: NDArray[np.int64], names: list[bytes]
) -> tuple[NDArray[np.int32], list[tuple[str, ...]]]:
    """Number the distinct lists of fields.

    Args:
        starts: `(num_samples + 1,)` int64, number of each sample's first member; the last is the number of members.
        fields: `(num_members,)` int64, number of each member's field.
        names: Names of the fields, by number.

    Returns:
        `(num_samples,)` int32, the kind of each sample; the fields of each kind.
    """
    texts = [name.decode("utf-8", "surrogateescape") for name in names]
    kinds = np.zeros(len(starts) - 1, np.int32)
    fields_of_kind: list[tuple[str, ...]] = []
    counts = np.diff(starts)
    for count in np.flatnonzero(np.bincount(counts)).tolist():
        rows = np.flatnonzero(counts == count)
        lists = fields[starts[rows][:, None] + np.arange(count)]
        numbers, firsts = number_rows(lists)
        kinds[rows] = numbers + len(fields_of_kind)
        fields_of_kind += [tuple(texts[number] for number in lists[first].tolist()) for first in firsts]
    return kinds, fields_of_kind


def _renumber(by_member: dict[int, _T], named: NDArray[np.bool_]) -> dict[int, _T]:
    """Keep the entries of members that belong to samples, renumbered to count only such members."""
    if not by_member:
        return {}
    numbers = np.cumsum(named) - 1
    return {int(numbers[member]): value for member, value in by_member.items() if named[member]}
