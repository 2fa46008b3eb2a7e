"""Build archives header by header, including ones that no writer makes, and list what the scan finds in them."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

from wids.source import BufferSource, MmapSource
from wids.tar import scan_members
from wids.tar.member_file import read_member

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from wids.source import Source

FORMATS: dict[str, Literal[0, 1, 2]] = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}
END = bytes(1024)
USTAR, GNU, V7 = b"ustar\x0000", b"ustar  \0", b""


def header(
    name: bytes = b"a.txt",
    size: int | bytes = 0,
    *,
    kind: bytes = b"0",
    link: bytes = b"",
    magic: bytes = USTAR,
    prefix: bytes = b"",
    fields: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return one header block with a valid checksum; a `size` given as bytes is put into the field unchanged."""
    digits = b"%011o\0" % size if isinstance(size, int) else size
    parts = {0: name, 100: b"0000644\0", 108: b"0000000\0", 116: b"0000000\0", 124: digits, 136: b"00000000000\0"}
    parts |= {156: kind, 157: link, 257: magic, 345: prefix} | dict(fields or {})
    block = bytearray(512)
    for place, part in parts.items():
        block[place : place + len(part)] = part
    return with_checksum(bytes(block))


def with_checksum(block: bytes) -> bytes:
    """Return a header block with a valid checksum in place of its own."""
    blank = block[:148] + b" " * 8 + block[156:]
    return blank[:148] + b"%06o\0 " % sum(blank) + block[156:]


def padded(data: bytes) -> bytes:
    """Return `data` padded with zeros to whole blocks."""
    return data + bytes(-len(data) % 512)


def member(
    name: bytes = b"a.txt",
    data: bytes = b"hello",
    *,
    size: int | bytes | None = None,
    kind: bytes = b"0",
    magic: bytes = USTAR,
    prefix: bytes = b"",
    fields: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return a header and its data; with `size`, the header gives that in place of the data's own size."""
    given = len(data) if size is None else size
    return header(name, given, kind=kind, magic=magic, prefix=prefix, fields=fields) + padded(data)


def hard_link(name: bytes, target: bytes, size: int = 0) -> bytes:
    """Return a hard link's header."""
    return header(name, size, kind=b"1", link=target)


def pax_record(key: bytes, value: bytes) -> bytes:
    """Return one pax record, whose length includes its own digits."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    """Return a pax header of these records; `kind` is `g` for a global one."""
    return pax_payload(b"".join(pax_record(key, value) for key, value in records), kind=kind)


def pax_payload(payload: bytes, *, kind: bytes = b"x") -> bytes:
    """Return a pax header with this data."""
    return header(b"PaxHeader", len(payload), kind=kind) + padded(payload)


def long_name(name: bytes, *, kind: bytes = b"L") -> bytes:
    """Return GNU's header for a long name, or with `K` for a long link target."""
    return header(b"././@LongLink", len(name) + 1, kind=kind, magic=GNU) + padded(name + b"\0")


@dataclass(frozen=True)
class Found:
    """One member as the scan found it."""

    name: bytes
    offset: int
    """Offset of its data; for a sparse member, of the first part."""
    size: int
    is_sparse: bool
    broken_link: str | None


def scan(source: Source, *, carefully: bool = False) -> list[Found]:
    """Return the members of a shard; with `carefully`, parsed one by one as if no header were ordinary."""
    with pytest.MonkeyPatch.context() as patch:
        if carefully:
            patch.setattr("wids.tar.members.RunFinder.find", lambda *_: None)
        members = scan_members(source)
    return [
        Found(name, int(offset), int(size), number in members.sparse, members.broken_links.get(number))
        for number, (name, offset, size) in enumerate(zip(members.names, members.offsets, members.sizes, strict=True))
    ]


def find(content: bytes) -> list[Found]:
    """Return the members of an archive in memory; fast and careful scan must find the same, or raise the same error."""
    source = BufferSource(content, "a.tar")
    try:
        carefully = scan(source, carefully=True)
    except ValueError as error:
        with pytest.raises(type(error)) as refused:
            scan(source)
        assert str(refused.value) == str(error)
        raise
    assert scan(source) == carefully
    return carefully


def places(content: bytes) -> list[tuple[bytes, int, int]]:
    """Return name, offset and size of the members that `find` finds."""
    return [(found.name, found.offset, found.size) for found in find(content)]


def read_by_wids(path: Path) -> list[tuple[bytes, bytes]]:
    """Return name and bytes of each file in a shard."""
    source = MmapSource(str(path))
    members = scan_members(source)
    return [(name, read_member(source, members, number)) for number, name in enumerate(members.names)]


def read_by_tarfile(path: Path) -> list[tuple[bytes, bytes]]:
    """Return name and bytes of each file in a shard, hard links included, as CPython reads them."""
    with tarfile.open(path, "r:") as tar:  # as it is: the first name may begin like a gzip file
        found = []
        for info in tar:
            if info.isreg() or info.islnk():
                file = tar.extractfile(info)
                assert file is not None
                found.append((info.name.encode("utf-8", "surrogateescape"), file.read()))
        return found
