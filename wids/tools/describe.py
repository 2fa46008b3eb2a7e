"""One shard to what a descriptor and an index pack say of it; it is read once, wherever it lies, and not stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wids.index_files import pack_index
from wids.tar import add_checksums, build_index

if TYPE_CHECKING:
    from wids.source import Identity
    from wids.storage import Storage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out about each shard, besides its number of samples."""

    md5: bool = True
    """The MD5 of the stored object, for which all of it is read."""
    index: bool = False
    """Its index, as a pack holds it."""
    checksums: bool = False
    """A checksum of each member, in the index."""


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """What is found in one shard."""

    num_samples: int
    """Samples in it."""
    size: int
    """Bytes of the object as it is stored; of a compressed one, of the compressed file."""
    md5: str | None
    """Of the same bytes, 32 hexadecimal digits; None where it was not wanted."""
    identity: Identity | None = None
    """Of the object that was read; None if its store cannot tell one state of an object from another."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what is odd about the end of the archive."""
    packed: tuple[str, bytes] | None = None
    """What the shard must be, and its index, as `pack_index` returns both; None where it was not wanted."""
    has_checksums: bool = False
    """Whether that holds the checksum of each member."""

    def lacks(self, wanted: Wanted) -> bool:
        """Tell whether something wanted is missing, or the index has checksums that are not wanted."""
        return (wanted.md5 and self.md5 is None) or (
            wanted.index and (self.packed is None or self.has_checksums != wanted.checksums)
        )

    def to_entry(self, url: str, *, md5: bool) -> dict[str, Any]:
        """Return what a descriptor's shardlist says of the shard.

        Args:
            url: What the descriptor calls it.
            md5: Include its MD5.
        """
        entry = {"url": url, "nsamples": self.num_samples, "filesize": self.size}
        return {**entry, "md5sum": self.md5} if md5 else entry

    def without_pack(self) -> ShardDescription:
        """Return the same without the bytes of its index."""
        return self if self.packed is None else replace(self, packed=(self.packed[0], b""))


def describe_shard(
    url: str, storage: Storage, wanted: Wanted, known: ShardDescription | None = None
) -> ShardDescription:
    """Return what is in a shard.

    Args:
        url: Of the shard.
        storage: Opens it.
        wanted: What to find out.
        known: What was found before; if the shard has not changed, its MD5 is used, so that the shard need not be read
            whole.

    Raises:
        WidsError: It cannot be read.
    """
    if known is None or known.md5 is None or known.identity is None:
        return _read(url, storage, wanted)
    found = _read(url, storage, replace(wanted, md5=False))
    if found.identity != known.identity:
        return _read(url, storage, wanted)
    return replace(found, md5=known.md5)


def _read(url: str, storage: Storage, wanted: Wanted) -> ShardDescription:
    with storage.stored.read_through(url, digest=wanted.md5) as stored:
        columns = build_index(stored.source)
        md5 = stored.md5
        if wanted.checksums:
            add_checksums(columns, stored.source)
        packed = pack_index(stored.source, columns) if wanted.index else None
        return ShardDescription(
            columns.num_samples, stored.size, md5, stored.identity, columns.notes, packed, wanted.checksums
        )
