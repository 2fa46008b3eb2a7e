"""A shard's members to its samples, as columns: which bytes belong to position `p`, under which names.

The key of a member is its path up to the first dot of its basename, the field is the rest. Members that follow each
other with one key are one sample. What most samples share, the list of their fields, is stored once per kind, so that a
sample costs a few numbers and its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from wids.tar.members import scan_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source
    from wids.tar.extended import Segment
    from wids.tar.members import Members

_T = TypeVar("_T")


@dataclass(slots=True)
class TarIndex:
    """Where the samples of one shard lie.

    The members of sample `p` are numbers `starts[p]` to `starts[p + 1]`, in archive order.
    """

    starts: NDArray[np.int64]
    """`(num_samples + 1,)` int64, number of each sample's first member; the last is the number of members."""
    offsets: NDArray[np.int64]
    """`(num_members,)` int64, bytes from the start of the shard to the member's first byte."""
    sizes: NDArray[np.int64]
    """`(num_members,)` int64, bytes in the member; of a sparse one the logical size."""
    kinds: NDArray[np.int32]
    """`(num_samples,)` int32, number of the sample's list of fields in `fields_of_kind`."""
    fields_of_kind: list[tuple[str, ...]]
    """`(num_kinds,)`, fields in archive order, with their dots."""
    key_ends: NDArray[np.int64]
    """`(num_samples,)` int64, offset in `keys` behind each sample's key, which begins where the one before ends."""
    keys: bytes
    """All keys, end to end; UTF-8, or whatever bytes the archive has."""
    sparse: dict[int, list[Segment]]
    """Where the parts of sparse members lie, by number of the member."""
    broken_links: dict[int, str]
    """What is wrong with hard links whose target is no earlier file, by number of the member."""
    has_end_blocks: bool
    """False when the file ends right after a member."""
    bytes_after_end: int
    """How many bytes follow the end of the archive, and are not read."""

    @property
    def num_samples(self) -> int:
        """How many samples the shard has."""
        return len(self.kinds)


def build_index(source: Source) -> TarIndex:
    """Scan a shard and group its members.

    Raises:
        TarFormatError: The file is no tar, or damaged; names the byte.
        OSError: It cannot be read.
    """
    return group_members(scan_members(source))


def group_members(members: Members) -> TarIndex:
    """Return the samples that these members are.

    Directories, and files without a field (`README`, `.DS_Store`, macOS' `._0001.jpg`), belong to none.
    """
    places, dots = split_names(members.names)
    names = members.names if len(places) == len(members.names) else [members.names[p] for p in places.tolist()]
    keys = [name[:dot] for name, dot in zip(names, dots.tolist(), strict=True)]
    fields = [name[dot:] for name, dot in zip(names, dots.tolist(), strict=True)]
    repeats = np.fromiter(map(eq, keys, islice(keys, 1, None)), np.bool_, max(0, len(keys) - 1))
    firsts = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), np.bool_), ~repeats]))
    starts = np.append(firsts, len(keys))
    kinds, fields_of_kind = _number_kinds(starts, fields)
    sample_keys = keys if len(firsts) == len(keys) else [keys[first] for first in firsts.tolist()]
    return TarIndex(
        starts=starts,
        offsets=members.offsets[places],
        sizes=members.sizes[places],
        kinds=kinds,
        fields_of_kind=fields_of_kind,
        key_ends=np.cumsum(np.fromiter(map(len, sample_keys), np.int64, len(sample_keys))),
        keys=b"".join(sample_keys),
        sparse=_renumber(members.sparse, places),
        broken_links=_renumber(members.broken_links, places),
        has_end_blocks=members.has_end_blocks,
        bytes_after_end=members.bytes_after_end,
    )


def split_names(names: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the dot that ends each key: the first one of the basename, unless the basename begins with it.

    Returns:
        `(num_named,)` int64, which of `names` have a key and a field; `(num_named,)` int64, the place of the dot in each.

    Examples:
        >>> places, dots = split_names([b"a/b.c/x.seg.png", b"README", b"._x.png"])
        >>> places.tolist(), dots.tolist()
        ([0], [7])
    """
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    ends = np.cumsum(lengths)
    begins = ends - lengths
    text = np.frombuffer(b"".join(names), np.uint8)
    # One slash and one dot beyond the end stand for "none", so that every search below finds something.
    slashes = np.concatenate([[-1], np.flatnonzero(text == ord("/"))])
    dots = np.append(np.flatnonzero(text == ord(".")), len(text))
    basenames = np.maximum(begins, slashes[np.searchsorted(slashes, ends) - 1] + 1)
    first_dots = dots[np.searchsorted(dots, basenames)]
    places = np.flatnonzero((first_dots < ends) & (first_dots > basenames))
    return places, (first_dots - begins)[places]


def _number_kinds(starts: NDArray[np.int64], fields: list[bytes]) -> tuple[NDArray[np.int32], list[tuple[str, ...]]]:
    """Give each distinct list of fields a number, one place of the lists after the other."""
    table = {field: number for number, field in enumerate(dict.fromkeys(fields))}
    numbers = np.fromiter(map(table.__getitem__, fields), np.int64, len(fields))
    texts = [field.decode("utf-8", "surrogateescape") for field in table]
    kinds = np.zeros(len(starts) - 1, np.int64)
    counts = np.diff(starts)
    rows = np.arange(len(kinds))
    place = 0
    while len(rows):
        # A sample's kind so far and its next field make its new kind; samples without a next field keep theirs.
        pairs = kinds[rows] * (len(table) + 1) + numbers[starts[rows] + place] + 1
        _, kinds_of_rows = np.unique(pairs, return_inverse=True)
        kinds[rows] = kinds_of_rows + kinds.max() + 1
        place += 1
        rows = rows[counts[rows] > place]
    _, firsts, kinds = np.unique(kinds, return_index=True, return_inverse=True)
    fields_of_kind = [
        tuple(texts[number] for number in numbers[starts[first] : starts[first + 1]].tolist()) for first in firsts
    ]
    return kinds.astype(np.int32), fields_of_kind


def _renumber(by_member: dict[int, _T], places: NDArray[np.int64]) -> dict[int, _T]:
    """Return the entries of members that belong to samples, under their numbers among those."""
    if not by_member:
        return {}
    numbers = {member: number for number, member in enumerate(places.tolist())}
    return {numbers[member]: value for member, value in by_member.items() if member in numbers}
