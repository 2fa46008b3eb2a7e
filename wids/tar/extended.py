"""The data of a pax header to its records, which describe the members that follow.

Source: pax(1) of POSIX.1-2001, "pax Extended Header".
"""

from __future__ import annotations

from wids.errors import TarFormatError

LONGEST_NUMBER = 64
"""Most digits of a decimal number, leading zeros included."""

PaxRecords = dict[bytes, bytes]

_GNU_SPARSE = b"GNU.sparse."
_OF_SPARSE = (_GNU_SPARSE + key for key in (b"major", b"minor", b"name", b"map", b"size", b"realsize"))
_KEPT = frozenset({b"path", b"linkpath", b"size", *_OF_SPARSE})
_PARTS = frozenset({b"GNU.sparse.offset", b"GNU.sparse.numbytes"})


def parse_pax(payload: bytes, offset: int, file: str) -> PaxRecords:
    r"""Return the records of a pax header that affect a member's name, size or place in the shard.

    A record is `LENGTH KEY=VALUE\n`. When a key occurs more than once, the last record counts. Sparse format 0.0 repeats
    its keys for every part; their values are joined under `GNU.sparse.map`, the form that format 0.1 uses.

    Args:
        payload: Data of the header.
        offset: Offset of the header in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: A record is malformed.

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
    """Return the size that pax records state, or None when they state none.

    Args:
        records: The records that apply to the member.
        offset: Offset of the member's header in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: The value is not a decimal number.
    """
    value = records.get(b"size")
    if not value:  # an empty value cancels an earlier record
        return None
    if not value.isdigit() or len(value) > LONGEST_NUMBER:
        raise TarFormatError(
            f"{file}: damaged: the pax headers before the header at byte {offset} say size={value[:40]!r}, expected a "
            "decimal number; fetch or write the shard again"
        )
    return int(value)


def keep_global(records: PaxRecords, offset: int, file: str) -> PaxRecords:
    """Return the records of a global header, which apply to all members that follow.

    Raises:
        TarFormatError: The records describe a sparse file; that can only apply to one member.
    """
    if any(key.startswith(_GNU_SPARSE) for key in records):
        raise TarFormatError(
            f"{file}: damaged: the global pax header at byte {offset} has the map of a sparse file; write the shard again"
        )
    return records
