"""What precedes a member's own header or stands in its place: pax records, GNU long names, sparse maps.

Sources: pax(1) of POSIX.1-2001, "pax Extended Header"; the GNU tar manual, "Storing Sparse Files" (old GNU and pax
formats 0.0, 0.1 and 1.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.errors import TarFormatError
from wids.tar.headers import BLOCK, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Segment = tuple[int, int, int]
"""`(logical, stored, length)`: bytes `[logical, logical + length)` of the file lie at offset `stored` of the shard."""

_SPARSE_ENTRY = 24
_MAP_SLOTS_IN_HEADER = 4
_MAP_SLOTS_IN_BLOCK = 21
_LONGEST_NUMBER = 64
"""Digits of a decimal number, leading zeros included."""

PaxRecords = dict[bytes, bytes]


def parse_pax(payload: bytes, offset: int, file: str) -> PaxRecords:
    r"""Return the records of a pax header, `LENGTH KEY=VALUE\n` each; the last one of a key counts.

    The offsets and lengths of sparse format 0.0, whose keys repeat, are gathered under `GNU.sparse.map`, as format 0.1
    has them.

    Args:
        payload: Data of the header.
        offset: Of the header in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: A record is not of that form.

    Examples:
        >>> parse_pax(b"12 path=abc\n15 size=100000\n", 0, "a.tar")
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
        if key in {b"GNU.sparse.offset", b"GNU.sparse.numbytes"}:
            sparse_map.append(value)
        records[key] = value
        position = end
    if sparse_map:
        records[b"GNU.sparse.map"] = b",".join(sparse_map)
    return records


def pax_number(records: PaxRecords, key: bytes, offset: int, file: str) -> int | None:
    """Return a decimal number of a pax header, None when it has no such record.

    Raises:
        TarFormatError: The value is no decimal number.
    """
    value = records.get(key)
    if not value:  # an empty value withdraws the record
        return None
    if not value.isdigit() or len(value) > _LONGEST_NUMBER:
        raise TarFormatError(
            f"{file}: damaged: the pax header at byte {offset} says {key.decode()}={value[:40]!r}, expected a decimal "
            "number; fetch or write the shard again"
        )
    return int(value)


def old_gnu_sparse(header: bytes, read_block: Callable[[int], bytes], offset: int) -> tuple[list[tuple[int, int]], int]:
    """Return the map of an old GNU sparse member (type `S`), and the offset of its data.

    Args:
        header: The member's header block.
        read_block: Gives the block at an offset, or raises.
        offset: Of the header.

    Raises:
        ValueError: A number in the map is none.
    """
    entries = list(_map_slots(header[386 : 386 + _MAP_SLOTS_IN_HEADER * _SPARSE_ENTRY]))
    data_offset = offset + BLOCK
    more = header[482]
    while more:
        block = read_block(data_offset)
        entries += _map_slots(block[: _MAP_SLOTS_IN_BLOCK * _SPARSE_ENTRY])
        more = block[504]
        data_offset += BLOCK
    return entries, data_offset


def _map_slots(slots: bytes) -> Iterable[tuple[int, int]]:
    for start in range(0, len(slots), _SPARSE_ENTRY):
        slot = slots[start : start + _SPARSE_ENTRY]
        if not slot[0] and not slot[12]:
            return
        yield parse_number(slot[:12]), parse_number(slot[12:])


def parse_sparse_01(text: bytes) -> list[tuple[int, int]]:
    """Return the map of pax sparse formats 0.0 and 0.1: `OFFSET,LENGTH,OFFSET,LENGTH,…`.

    Raises:
        ValueError: It is not of that form.

    Examples:
        >>> parse_sparse_01(b"0,10,512,3")
        [(0, 10), (512, 3)]
    """
    numbers = [_decimal(part) for part in text.split(b",")] if text else []
    if len(numbers) % 2:
        raise ValueError("odd number of entries")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def parse_sparse_10(read_block: Callable[[int], bytes], offset: int) -> tuple[list[tuple[int, int]], int]:
    """Return the map of pax sparse format 1.0, which precedes the data, and the offset after it.

    The map is lines of decimal numbers: how many entries, then offset and length of each; padded to whole blocks.

    Args:
        read_block: Gives the block at an offset, or raises.
        offset: Of the member's data.

    Raises:
        ValueError: It is not of that form.
    """
    text = b""
    lines: list[bytes] = []
    wanted = 1
    while len(lines) < wanted:
        text += read_block(offset)
        offset += BLOCK
        *complete, text = text.split(b"\n")
        lines += complete
        if lines:
            wanted = 1 + 2 * _decimal(lines[0])
        if len(text) > BLOCK:
            raise ValueError("a line without end")
    numbers = [_decimal(line) for line in lines[1:wanted]]
    return list(zip(numbers[::2], numbers[1::2], strict=True)), offset


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"{digits[:40]!r} is no decimal number")
    return int(digits)


def lay_out_segments(entries: list[tuple[int, int]], data_offset: int, stored_bytes: int, size: int) -> list[Segment]:
    """Return where the parts of a sparse file lie, empty ones left out.

    Args:
        entries: `(offset, length)` of each part in the file, ascending.
        data_offset: Of the first part in the shard.
        stored_bytes: Length of all parts together, as the header says.
        size: Logical bytes of the file.

    Raises:
        ValueError: Parts overlap, leave the file, or are more than what is stored.
    """
    segments = []
    reached = 0
    stored = 0
    for logical, length in entries:
        if logical < reached or logical + length > size:
            raise ValueError(f"its part at {logical} of {length} bytes does not fit into the file of {size} bytes")
        if length:
            segments.append((logical, data_offset + stored, length))
        reached = logical + length
        stored += length
    if stored > stored_bytes:
        raise ValueError(f"its parts have {stored} bytes, but {stored_bytes} are stored")
    return segments
