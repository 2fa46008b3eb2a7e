"""What pax headers say about the members that follow them.

Source: pax(1) of POSIX.1-2001, "pax Extended Header".
"""

from __future__ import annotations

from wids.errors import TarFormatError

_LONGEST_NUMBER = 64
"""Digits of a decimal number, leading zeros included."""

PaxRecords = dict[bytes, bytes]

_GNU_SPARSE = b"GNU.sparse."
_OF_SPARSE = (_GNU_SPARSE + key for key in (b"major", b"minor", b"name", b"map", b"size", b"realsize"))
_KEPT = frozenset({b"path", b"linkpath", b"size", *_OF_SPARSE})
_PARTS = frozenset({b"GNU.sparse.offset", b"GNU.sparse.numbytes"})


def parse_pax(payload: bytes, offset: int, file: str) -> PaxRecords:
    r"""Return the records of a pax header, `LENGTH KEY=VALUE\n` each, that tell where a member lies or what it is called.

    The last one of a key counts. The offsets and lengths of sparse format 0.0, whose keys repeat, are
    gathered under `GNU.sparse.map`, as format 0.1 has them.

    Args:
        payload: Data of the header.
        offset: Of the header in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: A record is not of that form.

    Examples:
        >>> parse_pax(b"12 path=abc\n15 size=100000\n19 mtime=1234567.5\n", 0, "a.tar")
        {b'path': b'abc', b'size': b'100000'}
    """
    records: PaxRecords = {}
    sparse_map: list[bytes] = []
    position = 0
    while position < len(payload) and payload[position]:
        blank = payload.find(b" ", position, position + 20)
        digits = payload[position:blank] if blank > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        key, equals, value = payload[blank + 1 : end - 1].partition(b"=")
        if not (blank < end <= len(payload)) or payload[end - 1 : end] != b"\n" or not equals or not key:
            raise TarFormatError(
                f"{file}: damaged: the pax header at byte {offset} has no valid record at byte {position} of its data; "
                "fetch or write the shard again"
            )
        if key in _PARTS:
            sparse_map.append(value)
        elif key in _KEPT:
            records[key] = value
        position = end
    if sparse_map:
        records[b"GNU.sparse.map"] = b",".join(sparse_map)
    return records


def pax_size(records: PaxRecords, offset: int, file: str) -> int | None:
    """Return the size that pax records give, None when they give none.

    Args:
        records: The records.
        offset: Of the member's header in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: The value is no decimal number.
    """
    value = records.get(b"size")
    if not value:  # an empty value withdraws the record
        return None
    if not value.isdigit() or len(value) > _LONGEST_NUMBER:
        raise TarFormatError(
            f"{file}: damaged: the pax headers before the header at byte {offset} say size={value[:40]!r}, expected a "
            "decimal number; fetch or write the shard again"
        )
    return int(value)


def keep_global(records: PaxRecords, offset: int, file: str) -> PaxRecords:
    """Return what a global header says, which counts for all members that follow.

    Raises:
        TarFormatError: It describes a sparse file, which can be one member only.
    """
    if any(key.startswith(_GNU_SPARSE) for key in records):
        raise TarFormatError(
            f"{file}: damaged: the global pax header at byte {offset} has the map of a sparse file; write the shard again"
        )
    return records
