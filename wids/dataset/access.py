"""Undecoded access to samples: the part of `ShardListDataset` that returns bytes, files and places of members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.dataset.join import Join
from wids.dataset.metadata import Metadata
from wids.dataset.sample import Sample
from wids.fields import FieldFilter, find_field, list_names, no_such_field
from wids.tar import StaleIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from io import BufferedReader

    from wids.tar import MemberLocation, TarReader


class Access(Metadata):
    """A dataset whose samples can be read without decoding them."""

    _shard_facts: list[tuple[str, str, int]]
    """For each shard: name of its dataset, URL, index of its first sample."""

    def read(self, index: int, fields: Iterable[str] | str | None = None) -> dict[str, bytes]:
        """Return `{field: bytes}` of one sample, undecoded.

        Args:
            index: Of the sample.
            fields: The only fields to read, or the only one; None for all.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._read(index, bytes, fields)

    def view(self, index: int, fields: Iterable[str] | str | None = None) -> dict[str, memoryview]:
        """Return `{field: memoryview}` of one sample, undecoded; nothing is copied where the shard is mapped.

        A memoryview stays valid when the dataset is closed, and when the shard is evicted, renamed or removed.

        Args:
            index: Of the sample.
            fields: The only fields to read, or the only one; None for all.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._read(index, memoryview, fields)

    def open(self, index: int, field: str) -> BufferedReader:
        """Return a seekable binary file over one member, without a copy.

        Raises:
            IndexError: `index` is out of range.
            KeyError: The sample has no such field; the message lists its fields.
        """
        for join, place in self._joined_places(index):
            theirs = join.find_field(field, place)
            if theirs is not None:
                return join.other.open(place, theirs)
        shard, position = self._find(index)
        reader = self._cache.get(shard, index)
        try:
            return reader.open(position, _find_field(field, reader, position))
        except StaleIndexError:
            self._cache.reindex(shard)
            reader = self._cache.get(shard)
            return reader.open(position, _find_field(field, reader, position))

    def locate(self, index: int) -> dict[str, MemberLocation]:
        """Return `{field: MemberLocation(url, offset, size)}` of one sample; no member is read.

        A shard that would have to be fetched or copied first is left alone if its index pack can answer. The pack must have an
        entry of the shard's name, with the `filesize` of the descriptor, where that has one, and at least its `nsamples`.
        Whether the stored shard is the one that the pack describes is found out when the shard is opened: if other places
        were told, reads of it raise `ShardMismatchError`. All other shards are opened as for a read, and have their index
        compared with them or made.

        Returns:
            By field, the URL of the shard, and offset and size in bytes; of a compressed shard, in the tar inside it.

        Raises:
            IndexError: `index` is out of range.
            ValueError: A field is a sparse file, whose bytes are not in one place.
            ShardMismatchError: The shard does not match its descriptor, or what was told of it before.
            TarFormatError: The shard is damaged.
            FetchError: No pack can answer, and the shard cannot be opened.

        Examples:
            >>> place = dataset.locate(3)[".txt"]
            >>> place.url.rpartition("/")[2], place.offset, place.size
            ('shard-0000.tar', 6656, 9)
        """
        shard, position = self._find(index)
        located = self._cache.listing(shard).locate(position, self._shard_facts[shard][1])
        for join, place in self._joined_places(index):
            join.merge(located, join.other.locate(place))
        return located

    def _read(
        self, index: int, make: Callable[[memoryview], Any], fields: Iterable[str] | str | None
    ) -> dict[str, Any]:
        for step in self.transformations:
            if step.__class__ is Join:
                return self._read_joined(index, make, fields)
        shard, position = self._find(index)
        reader = self._cache.get(shard, index)
        if fields is None:
            wanted = self._filter
        else:
            names = [_find_field(name, reader, position) for name in list_names(fields)]
            wanted = FieldFilter(names) & self._filter
        sample = Sample()
        try:
            reader.read_into(sample, position, make, wanted)
        except StaleIndexError:
            self._cache.reindex(shard)
            self._cache.get(shard).read_into(sample, position, make, wanted)
        return sample

    def _read_joined(
        self, index: int, make: Callable[[memoryview], Any], fields: Iterable[str] | str | None
    ) -> dict[str, Any]:
        """Do what `_read` does for a dataset to which others are joined."""
        joined = self._joined_places(index)
        own = None if fields is None else list_names(fields)
        theirs: list[list[str]] = [[] for _ in joined]
        # A field that a joined dataset has is read there, and not here.
        for name in [] if own is None else list(own):
            for names, (join, place) in zip(theirs, joined, strict=True):
                found = join.find_field(name, place)
                if found is not None and own is not None:
                    own.remove(name)
                    names.append(found)
                    break
        sample = self._derive(transformations=[])._read(index, make, own)
        for names, (join, place) in zip(theirs, joined, strict=True):
            if own is None or names:
                join.merge(sample, join.other._read(place, make, None if own is None else names))
        return sample


def _find_field(name: str, reader: TarReader, position: int) -> str:
    """Return the field of a sample that `name` refers to.

    Raises:
        KeyError: There is none; the message lists the sample's fields.
    """
    there = reader.fields(position)
    found = find_field(name, there)
    if found is None:
        raise no_such_field(name, reader.key(position), there)
    return found
