"""The law that the fuzz target tries to break: what must hold for any bytes that are opened as a shard."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wids.errors import TarFormatError
from wids.source import BufferSource, Window
from wids.tar import Members, TarReader, group_members, reader, runs, scan_members
from wids.tar.member_file import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wids.source import Span

MOST_SPARSE_BYTES = 1 << 20
"""Largest sparse file that is read whole here; a few bytes can describe one that would take seconds."""


class SlicedSource(BufferSource):
    """A source whose windows hold just the requested bytes, like those of files and servers."""

    def window(self, start: int, stop: int) -> Window:
        """Return the bytes `[start, stop)`."""
        return self.buffer[start:stop], start

    def windows(self, spans: Sequence[Span]) -> list[Window]:
        """Return one window per span."""
        return [self.window(start, stop) for start, stop in spans]


@contextmanager
def _patched(module: Any, **values: object) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def check_archive(content: bytes) -> Members | None:
    """Scan these bytes in every way, and read all members; return them, or None if the shard was refused.

    Raises:
        AssertionError: The ways differ, a member is outside the file, or its bytes are not those of the file.
        Exception: Any error that is not documented.
    """
    source = BufferSource(content, "a.tar")
    members = _scan(source)
    with _patched(runs.RunFinder, find=lambda *_: None):
        _assert_alike(_scan(source), members)
    # As in a large shard: with small batches, and by looking for the magic of headers.
    with _patched(runs, _FIRST_BATCH=2, _WORTHWHILE=1):
        _assert_alike(_scan(source), members)
        _assert_alike(_scan(SlicedSource(content, "a.tar")), members)
    if isinstance(members, TarFormatError):
        return None
    _check_places(members, len(content))
    assert not content[members.end : members.end + 512].strip(b"\0")
    assert members.has_end_blocks == (members.end + 512 <= len(content))
    with _patched(reader, MAX_SPARSE_BYTES=MOST_SPARSE_BYTES):
        _check_bytes(source, members, content)
        _check_samples(source, members)
    return members


def _scan(source: BufferSource) -> Members | TarFormatError:
    try:
        return scan_members(source)
    except TarFormatError as error:
        return error


def _assert_alike(one: Members | TarFormatError, other: Members | TarFormatError) -> None:
    if isinstance(one, TarFormatError) or isinstance(other, TarFormatError):
        assert str(one) == str(other)
        return
    assert list(one.names) == list(other.names)
    assert one.offsets.tolist() == other.offsets.tolist()
    assert one.sizes.tolist() == other.sizes.tolist()
    assert (one.sparse, one.broken_links) == (other.sparse, other.broken_links)
    assert (one.end, one.has_end_blocks, one.bytes_after_end) == (
        other.end,
        other.has_end_blocks,
        other.bytes_after_end,
    )


def _check_places(members: Members, length: int) -> None:
    assert sum(map(len, members.names)) <= length
    assert 0 <= members.end <= length
    assert 0 <= members.bytes_after_end <= length - members.end
    for number, (offset, size) in enumerate(zip(members.offsets.tolist(), members.sizes.tolist(), strict=True)):
        reached = 0
        for logical, stored, part in members.sparse.get(number, [(0, offset, size)]):
            assert reached <= logical <= logical + part <= size
            assert 0 <= stored <= stored + part <= length
            reached = logical + part


def _check_bytes(source: BufferSource, members: Members, content: bytes) -> None:
    for number, (offset, size) in enumerate(zip(members.offsets.tolist(), members.sizes.tolist(), strict=True)):
        if number not in members.broken_links and size <= MOST_SPARSE_BYTES:
            expected = bytearray(size)
            for logical, stored, part in members.sparse.get(number, [(0, offset, size)]):
                expected[logical : logical + part] = content[stored : stored + part]
            assert read_member(source, members, number) == expected


def _check_samples(source: BufferSource, members: Members) -> None:
    index = group_members(members)
    tar = TarReader(source, index)
    for position in range(tar.num_samples):
        try:
            sample = tar.read(position, bytes)
        except TarFormatError:
            continue  # only this sample is broken: a field occurs twice, or a hard link has no target
        except ValueError as error:
            assert "read it with open" in str(error)
            continue
        assert tuple(sample) == tar.fields(position)
        assert all(field.startswith(".") for field in sample)
        assert tar.key(position)
