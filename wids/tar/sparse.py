"""The map of a sparse member to segments: which parts of the file are stored, and where; all the rest is holes.

Sources: the GNU tar manual, "Storing Sparse Files" (old GNU format, pax formats 0.0, 0.1 and 1.0) and "Basic Tar
Format" (star's header).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wids.tar.extended import LONGEST_NUMBER
from wids.tar.headers import BLOCK, SPARSE, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.tar.extended import PaxRecords
    from wids.tar.headers import Header

Segment = tuple[int, int, int]
"""`(logical, stored, length)`: bytes `[logical, logical + length)` of the file are at offset `stored` of the shard."""

MAX_PARTS = 1 << 20
"""Most parts that one sparse member may have; a longer map would take too much memory for the data it describes."""

_ENTRY = 24
_ENTRIES_IN_BLOCK = 21
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SparseFile:
    """Where the data of a sparse member is stored."""

    segments: list[Segment]
    """Its parts in ascending order, without empty ones."""
    start: int
    """Offset of the first part in the shard."""
    stop: int
    """Offset just past the last stored byte, before padding."""
    size: int
    """Logical size of the file in bytes, holes included."""


def is_sparse(header: Header, records: PaxRecords) -> bool:
    """Return whether a member is sparse, by its type flag or by its pax records."""
    return header.type == SPARSE or any(key.startswith(b"GNU.sparse.") for key in records)


def read_sparse(
    header: Header, block: bytes, records: PaxRecords, stored: int, read_block: Callable[[int], bytes]
) -> SparseFile:
    """Return where the parts of a sparse member are stored.

    Args:
        header: The member's own header.
        block: The 512 bytes of that header.
        records: The records of the pax headers before it.
        stored: Size of the stored data in bytes, according to the headers.
        read_block: Returns the 512-byte block at an offset, or raises.

    Raises:
        ValueError: The map is missing or malformed, or does not fit the file or its data.
    """
    if header.type == SPARSE:
        numbers, start, size = _read_from_headers(header, block, read_block)
        stop = start + stored
    else:
        stop = header.data_offset + stored
        numbers, start, size = _read_from_pax(header.data_offset, records, stop, read_block)
    if size > _LARGEST:
        raise ValueError(f"it has {size} bytes, more than a file can have")
    return SparseFile(_lay_out(numbers, start, stop, size), start, stop, size)


def _read_from_headers(header: Header, block: bytes, read_block: Callable[[int], bytes]) -> tuple[array[int], int, int]:
    """Read the map from the header and its extension blocks.

    Returns:
        Offsets and lengths of the parts, alternating; the offset of the data in the shard; the logical size.
    """
    slots, more, size = block[386:482], block[482], block[483:495]
    if _is_star(block):
        # In star's layout the entries share the space of the prefix. They are there when the prefix is empty and the
        # last digit of the first entry's offset is set.
        inline = not block[345] and block[366]
        slots, more, size = (block[356:452], block[355], block[452:464]) if inline else (b"", 1, block[452:464])
    numbers = array("q", _parse_entries(slots))
    start = header.data_offset
    while more:
        if len(numbers) > 2 * MAX_PARTS:
            raise ValueError(f"it has more than {MAX_PARTS} parts")
        extension = read_block(start)
        numbers.extend(_parse_entries(extension[: _ENTRIES_IN_BLOCK * _ENTRY]))
        more = extension[504]
        start += BLOCK
    return numbers, start, parse_number(size)


def _is_star(block: bytes) -> bool:
    """Return whether star wrote a header, by GNU tar's test: a NUL ends the prefix early, and two timestamps follow."""
    times = block[476:488], block[488:500]
    return (
        block[257:263] == b"ustar\0"
        and block[475] == 0
        and all(time[:1].isdigit() and time[11:] == b" " for time in times)
    )


def _parse_entries(slots: bytes) -> list[int]:
    numbers: list[int] = []
    for start in range(0, len(slots), _ENTRY):
        offset, length = slots[start : start + 12], slots[start + 12 : start + 24]
        if not offset[0] and not length[0]:
            break
        numbers += (_bounded(parse_number(offset)), _bounded(parse_number(length)))
    return numbers


def _read_from_pax(
    start: int, records: PaxRecords, stop: int, read_block: Callable[[int], bytes]
) -> tuple[array[int], int, int]:
    """Read the map that pax records describe; return what `_read_from_headers` does."""
    digits = records.get(b"GNU.sparse.realsize") or records.get(b"GNU.sparse.size")
    if not digits:
        raise ValueError("its size is not given")
    size = _decimal(digits)
    version = records.get(b"GNU.sparse.major", b"0"), records.get(b"GNU.sparse.minor", b"0")
    if version == (b"1", b"0"):
        return *parse_sparse_10(read_block, start, stop), size
    if version[0] != b"0":
        raise ValueError(f"its format {b'.'.join(version).decode('ascii', 'backslashreplace')} is unknown")
    numbers = parse_sparse_01(records.get(b"GNU.sparse.map", b""))
    if not numbers and start < stop:
        raise ValueError("its map is missing")
    return numbers, start, size


def parse_sparse_01(text: bytes) -> array[int]:
    """Return the map of pax sparse formats 0.0 and 0.1: `OFFSET,LENGTH,OFFSET,LENGTH,…`.

    Raises:
        ValueError: The text has another form.

    Examples:
        >>> parse_sparse_01(b"0,10,512,3").tolist()
        [0, 10, 512, 3]
    """
    return array("q", map(_decimal, text.split(b",") if text else ()))


def parse_sparse_10(read_block: Callable[[int], bytes], start: int, stop: int) -> tuple[array[int], int]:
    """Return the map of pax sparse format 1.0, which precedes the data, and the offset just past it.

    The map consists of lines with one decimal number each: the number of entries, then offset and length of each entry.
    It is padded to whole blocks.

    Args:
        read_block: Returns the 512-byte block at an offset, or raises.
        start: Offset of the member's data, map included.
        stop: Offset just past that data.

    Raises:
        ValueError: The map has another form.
    """
    numbers = array("q")
    wanted = 1
    text = b""
    while len(numbers) < wanted:
        if start >= stop:
            raise ValueError("its map does not end before its data")
        *lines, text = (text + read_block(start)).split(b"\n")
        start += BLOCK
        for line in lines:
            if len(numbers) == wanted:
                break
            numbers.append(_decimal(line))
            wanted = 1 + 2 * numbers[0]
            if wanted > 2 * MAX_PARTS:
                raise ValueError(f"it has {numbers[0]} parts, more than {MAX_PARTS}")
        if len(text) > LONGEST_NUMBER and len(numbers) < wanted:
            raise ValueError("its map has a line without end")
    return numbers[1:wanted], start


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > LONGEST_NUMBER:
        raise ValueError(f"{digits[:40]!r} is not a decimal number")
    return _bounded(int(digits))


def _bounded(number: int) -> int:
    if number > _LARGEST:
        raise ValueError(f"{number} is more than a file can have")
    return number


def _lay_out(numbers: array[int], start: int, stop: int, size: int) -> list[Segment]:
    """Return the segments of a map.

    Args:
        numbers: Offset and length of each part, alternating.
        start: Offset of the first part in the shard.
        stop: Offset just past the stored data.
        size: Logical size of the file in bytes.

    Raises:
        ValueError: The parts overlap, exceed the file, or are longer than the stored data.
    """
    if len(numbers) % 2:
        raise ValueError("its map has an odd number of entries")
    segments = []
    reached = 0
    place = start
    for logical, length in zip(numbers[::2], numbers[1::2], strict=True):
        if logical < reached or logical + length > size:
            raise ValueError(f"its part at {logical} of {length} bytes does not fit into the file of {size} bytes")
        if length:
            segments.append((logical, place, length))
        reached = logical + length
        place += length
    if place > stop:
        raise ValueError(f"its parts have {place - start} bytes, but {stop - start} are stored")
    return segments
